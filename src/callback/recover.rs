use std::sync::Arc;

use axum_core::body::Body;
use axum_core::response::Response;
use http::request::Parts;

use super::error_callback::{ErrorCallback, Recovery};
use super::failed::{Cause, Failed};
use super::panic::guarded;
use super::problem_document::internal_error;
use crate::rule::Rule;

/// Runs an error callback. If it panics, the request is answered with a 500.
pub(crate) async fn recover(callback: &dyn ErrorCallback, failed: Failed) -> Recovery {
    let rule = Arc::clone(&failed.rule);
    let recovery = guarded("error callback", rule.path(), || callback.recover(failed));
    let recovery = recovery.await;
    recovery.unwrap_or_else(|panicked| Recovery::Respond(panicked.into()))
}

/// Runs an error callback because the inner service has failed.
pub(crate) async fn recover_inner<E: Send + Sync + 'static>(
    callback: Arc<dyn ErrorCallback>,
    rule: Arc<Rule>,
    head: Parts,
    error: E,
) -> Result<Response<Body>, E> {
    let error = Arc::new(error);
    let failed = Failed::new(rule, head, Cause::inner(Arc::clone(&error)));
    match recover(&*callback, failed).await {
        Recovery::Respond(response) => Ok(response),
        // `try_unwrap` fails if the callback kept a clone of the error, against its contract.
        Recovery::Proceed | Recovery::Propagate => match Arc::try_unwrap(error) {
            Ok(error) => Err(error),
            Err(_) => Ok(internal_error()),
        },
    }
}
