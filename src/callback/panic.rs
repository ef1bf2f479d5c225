//! Panics of user code are caught, logged and answered with a 500.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use axum_core::response::Response;
use futures_util::FutureExt;

use super::problem_document::internal_error;
use crate::trace;

/// A panic that was caught and logged.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs user code, and catches and logs its panic. The code borrows nothing of this crate mutably,
/// so a panic leaves nothing half changed.
pub(crate) fn caught<T>(who: &str, path: &str, run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| logged(who, path, &*panic))
}

/// Awaits user code, and catches and logs its panic, both when it is called and when it is polled.
pub(crate) async fn guarded<T, Fut: Future<Output = T>>(
    who: &str,
    path: &str,
    run: impl FnOnce() -> Fut,
) -> Result<T, Panicked> {
    let guarded = AssertUnwindSafe(async { run().await }).catch_unwind();
    guarded.await.map_err(|panic| logged(who, path, &*panic))
}

fn logged(who: &str, path: &str, panic: &(dyn Any + Send)) -> Panicked {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = text.unwrap_or("no message");
    trace::event!(error: path, who, message, "a panic was answered with a 500");
    Panicked
}

impl From<Panicked> for Response {
    fn from(_: Panicked) -> Self {
        internal_error()
    }
}
