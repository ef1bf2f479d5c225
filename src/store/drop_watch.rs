use std::fmt;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::consume_budget;

/// Tells that something was dropped where it was got: in the same poll of its task, with nothing
/// awaited in between.
///
/// It uses up what the task's poll may still do of tokio's [cooperative
/// scheduling](tokio::task::coop). From then on the next await of anything of tokio's gives way, and
/// the poll after that may do as much as any: as long as nothing may be done, nothing was awaited.
/// What tokio does not know, such as a calculation, takes longer than a drop.
pub(super) struct DropWatch {
    since: Instant,
    tell: Box<dyn Fn() + Send + Sync>,
}

/// A drop in the same statement takes about a microsecond.
const AT_ONCE: Duration = Duration::from_micros(20);
/// More than a poll may do.
const MAX_BUDGET: usize = 1_000;

impl DropWatch {
    /// `None` outside of a task of tokio's.
    pub(super) fn begin(tell: impl Fn() + Send + Sync + 'static) -> Option<Self> {
        let tell = Box::new(tell);
        let is_task = (0..MAX_BUDGET).any(|_| may_do_nothing());
        is_task.then(|| Self {
            since: Instant::now(),
            tell,
        })
    }
}

/// Whether the poll of this task has to end.
fn may_do_nothing() -> bool {
    consume_budget().now_or_never().is_none()
}

impl Drop for DropWatch {
    fn drop(&mut self) {
        if self.since.elapsed() < AT_ONCE && may_do_nothing() {
            (self.tell)();
        }
    }
}

impl fmt::Debug for DropWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DropWatch").field(&self.since).finish()
    }
}
