use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use crate::trace;

/// Runs one piece of a background task's work. A panic returns `None` and is logged; it ends
/// neither the task nor its other work.
pub(super) async fn catch_panic<T>(work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    if done.is_err() {
        let what = "the background task of the locks";
        trace::event!(error: what, "a panic was caught, and the task goes on");
    }
    done.ok()
}
