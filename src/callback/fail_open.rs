use std::future::ready;

use super::box_future::BoxFuture;
use super::error_callback::{ErrorCallback, Recovery};
use super::failed::Failed;

/// Lets a request through to the handler, unlimited, if the store could not decide.
///
/// A request without a key is not let through: it is answered with a 400 or 500.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{FailOpen, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).on_error(FailOpen);
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct FailOpen;

impl ErrorCallback for FailOpen {
    fn recover(&self, _: Failed) -> BoxFuture<'_, Recovery> {
        Box::pin(ready(Recovery::Proceed))
    }
}
