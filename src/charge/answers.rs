use std::convert::Infallible;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use http::Extensions;
use http::request::Parts;
use smallvec::SmallVec;

use super::charge::Charge;
use super::charges::Charges;
use super::refund_queue::RefundQueue;
use crate::decision::Decision;

/// What the layers around a handler have allowed and charged, the outermost layer's first, in the
/// extensions of its request and of its response.
///
/// One value for decisions and charges, because an extension costs an allocation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    charges: SmallVec<[Charge; 1]>,
    /// The generations of fields that these layers have written into the response: a bit for each.
    fields: u8,
}

/// Marks a response that this crate made, in its extensions.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerResponse {
    pub(crate) denial: Option<Denial>,
    /// Whether it is the refusal of a check, which the inner service returns: its own answer. Else
    /// a layer made it in place of the inner service.
    pub(crate) is_of_check: bool,
    /// Whether a call to a partner was denied: to layers around it that is a denial in any case.
    pub(crate) is_behind: bool,
}

impl LayerResponse {
    /// The mark of a response that a layer made in place of the inner service.
    pub(crate) fn of_layer(response: &Extensions) -> Option<&Self> {
        response
            .get()
            .filter(|it: &&Self| !it.is_of_check || it.is_behind)
    }
}

/// A denial that a response shows.
#[derive(Debug, Clone)]
pub(crate) struct Denial {
    pub(crate) decision: Decision,
    /// The refund queue of the layers of the same `Limits`.
    pub(crate) refunds: RefundQueue,
}

impl Answers {
    /// Adds the answer of a layer to a request that goes inwards. Returns whether an outer layer
    /// has charged the same count.
    #[inline]
    pub(crate) fn add_inner(request: &mut Extensions, answer: &Charge) -> bool {
        let mut answer = answer.clone();
        answer.stop_keeping_open();
        let outer: &mut Self = request.get_or_insert_default();
        let is_repeated = outer.charges.iter().any(|it| it.shares_count_with(&answer));
        outer.charges.push(answer);
        is_repeated
    }

    /// Adds the answer of a layer to a response that goes outwards, with these fields in it.
    #[inline]
    pub(crate) fn add_outer(response: &mut Extensions, answer: Charge, fields: u8) {
        let inner: &mut Self = response.get_or_insert_default();
        inner.charges.insert(0, answer);
        inner.fields |= fields;
    }

    /// The generations of fields that layers have written into a response: all, if a layer has made
    /// the response.
    pub(crate) fn fields(response: &Extensions) -> u8 {
        match response.get::<LayerResponse>() {
            Some(_) => u8::MAX,
            None => response.get::<Self>().map_or(0, |it| it.fields),
        }
    }
}

impl Decision {
    /// The decision about a request or a response with these extensions: that of the innermost
    /// layer which decided. A response has it also if it is a denial.
    ///
    /// Handlers write `decision: Option<Decision>`, which is an axum extractor. It is `None` where
    /// no layer decided: no rule matched, it was switched off or in shadow, the request was exempt,
    /// or it was admitted without a decision. It is no extension by itself: a handler with axum's
    /// `Extension<Decision>` compiles, and answers every request with a 500.
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
        let mark = extensions.get::<LayerResponse>();
        if let Some(denial) = mark.and_then(|it| it.denial.as_ref()) {
            return Some(&denial.decision);
        }
        let answers = extensions.get::<Answers>()?;
        answers.charges.last().map(Charge::decision)
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(Self::from_extensions(&head.extensions).cloned())
    }
}

impl Charges {
    /// The charges of a request or a response with these extensions, maybe none.
    ///
    /// ```
    /// use axum::response::Response;
    /// use tidegate::store::Charges;
    ///
    /// /// For middleware around the layer: a client that gets a server's error does not pay.
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
        let answers = answers.into_iter().flat_map(|it| &it.charges);
        answers.filter_map(Charge::for_settling).collect()
    }
}

impl<S: Sync> FromRequestParts<S> for Charges {
    type Rejection = Infallible;

    async fn from_request_parts(head: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::from_extensions(&head.extensions))
    }
}
