use std::any::TypeId;
use std::convert::Infallible;
use std::sync::Arc;

use axum_core::body::Body;
use axum_core::response::Response;
use http::request::Parts;

use super::{ErrorCallback, Failed, Recovery, guarded, internal_error};
use crate::rule::Rule;

/// Runs an error callback; a panic of it is a 500.
pub(crate) async fn recover(callback: &dyn ErrorCallback, failed: Failed) -> Recovery {
    let rule = Arc::clone(&failed.rule);
    let recovery = guarded("error callback", rule.path(), || callback.recover(failed));
    let recovery = recovery.await;
    recovery.unwrap_or_else(|panicked| Recovery::Respond(panicked.into()))
}

/// The error callback, and what it wants to know of a request that is gone by the time that its handler has failed.
pub(crate) struct OnInnerError {
    callback: Arc<dyn ErrorCallback>,
    rule: Arc<Rule>,
    head: Parts,
}

impl OnInnerError {
    /// Nothing, where nobody has asked for it, or where the handler cannot fail, as axum's.
    pub(crate) fn of<E: 'static>(
        callback: Option<&Arc<dyn ErrorCallback>>,
        rule: &Arc<Rule>,
        head: &Parts,
    ) -> Option<Box<Self>> {
        let callback = callback.filter(|_| TypeId::of::<E>() != TypeId::of::<Infallible>())?;
        Some(Box::new(Self {
            callback: Arc::clone(callback),
            rule: Arc::clone(rule),
            head: head.clone(),
        }))
    }

    pub(crate) async fn recover<E: Send + Sync + 'static>(
        self: Box<Self>,
        error: E,
    ) -> Result<Response<Body>, E> {
        let error = Arc::new(error);
        let failed = Failed::inner(self.rule, self.head, Arc::clone(&error));
        match recover(&*self.callback, failed).await {
            Recovery::Respond(response) => Ok(response),
            // A callback that keeps the error for itself has broken its contract.
            Recovery::Proceed | Recovery::Propagate => match Arc::try_unwrap(error) {
                Ok(error) => Err(error),
                Err(_) => Ok(internal_error()),
            },
        }
    }
}
