use std::convert::Infallible;
use std::future::ready;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use http::Extensions;
use http::request::Parts;

use super::charge::{Charge, Charges};
use crate::decision::Decision;

/// What the layers around a handler decided, in the extensions of its request and of its response.
///
/// One value for both, because an extension costs an allocation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    decision: Option<Decision>,
    charges: Charges,
}

impl Answers {
    /// Adds the answer of a layer to a request that goes inwards: its decision is the last one.
    #[inline]
    pub(crate) fn add_inner(
        request: &mut Extensions,
        decision: Option<&Decision>,
        charge: Option<&Charge>,
    ) {
        if decision.is_none() && charge.is_none() {
            return;
        }
        let (decision, charge) = (decision.cloned(), charge.cloned());
        match request.get_mut::<Self>() {
            Some(outer) => {
                outer.decision = decision.or(outer.decision.take());
                outer.charges.push(charge);
            }
            None => insert(request, decision, charge),
        }
    }

    /// Adds the answer of a layer to a response that goes outwards: the decision of an inner layer
    /// stays.
    #[inline]
    pub(crate) fn add_outer(
        response: &mut Extensions,
        decision: Option<Decision>,
        charge: Option<Charge>,
    ) {
        if decision.is_none() && charge.is_none() {
            return;
        }
        match response.get_mut::<Self>() {
            Some(inner) => {
                inner.decision = inner.decision.take().or(decision);
                inner.charges.push_outer(charge);
            }
            None => insert(response, decision, charge),
        }
    }
}

fn insert(extensions: &mut Extensions, decision: Option<Decision>, charge: Option<Charge>) {
    let mut charges = Charges::default();
    charges.push(charge);
    extensions.insert(Answers { decision, charges });
}

impl Decision {
    /// The decision about a request or a response with these extensions: that of the innermost
    /// layer which decided. A response has it also if it is a denial.
    ///
    /// Handlers write `decision: Option<Decision>`, which is an axum extractor. It is `None` where
    /// no layer decided: no rule matched, it was switched off or in shadow, the request was exempt,
    /// or it was admitted without a decision.
    ///
    /// ```
    /// use axum::response::Response;
    /// use tidegate::Decision;
    ///
    /// async fn handler(decision: Option<Decision>) -> String {
    ///     decision.map_or_else(String::new, |it| format!("{} left", it.remaining()))
    /// }
    ///
    /// /// For middleware around the layer.
    /// fn was_denied(response: &Response) -> bool {
    ///     Decision::from_extensions(response.extensions()).is_some_and(|it| !it.is_allowed())
    /// }
    /// # let _ = (handler, was_denied);
    /// ```
    #[must_use]
    pub fn from_extensions(extensions: &Extensions) -> Option<&Self> {
        extensions.get::<Answers>()?.decision.as_ref()
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = Infallible;

    fn from_request_parts(
        head: &mut Parts,
        _: &S,
    ) -> impl Future<Output = Result<Option<Self>, Infallible>> + Send {
        ready(Ok(Self::from_extensions(&head.extensions).cloned()))
    }
}

impl Charges {
    /// The charges of a request or a response with these extensions, maybe none.
    ///
    /// ```
    /// use axum::response::Response;
    /// use tidegate::store::Charges;
    ///
    /// /// For middleware around the layer: whoever gets a server's error does not pay.
    /// async fn refund_failures(response: Response) -> Response {
    ///     if response.status().is_server_error() {
    ///         Charges::from_extensions(response.extensions()).refund().await.ok();
    ///     }
    ///     response
    /// }
    /// # let _ = refund_failures;
    /// ```
    #[must_use]
    pub fn from_extensions(extensions: &Extensions) -> Self {
        let answers = extensions.get::<Answers>();
        answers.map_or_else(Self::default, |answers| answers.charges.clone())
    }
}

impl<S: Sync> FromRequestParts<S> for Charges {
    type Rejection = Infallible;

    fn from_request_parts(
        head: &mut Parts,
        _: &S,
    ) -> impl Future<Output = Result<Self, Infallible>> + Send {
        ready(Ok(Self::from_extensions(&head.extensions)))
    }
}
