//! Lines of the log that sum up what happens often.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

/// Says when a line is due: at once, and then at the end of each ten seconds for as long as more
/// comes. When the runtime ends, the rest is said. Without a runtime each time has its line.
#[derive(Debug, Default)]
pub(crate) struct SummedLog {
    /// Whether a task says what comes.
    is_watched: Arc<AtomicBool>,
}

/// The time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

impl SummedLog {
    /// Something has happened. `say` logs what has come since the last time, and returns whether
    /// there was anything.
    #[inline]
    pub(crate) fn happened<F: Fn() -> bool + Send + 'static>(&self, say: impl FnOnce() -> F) {
        if cfg!(feature = "tracing") && !self.is_watched.load(Ordering::Relaxed) {
            self.begin(say());
        }
    }

    #[cold]
    fn begin(&self, say: impl Fn() -> bool + Send + 'static) {
        if self.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        say();
        let watch = Watch(Arc::clone(&self.is_watched), say);
        let told = async move {
            while {
                sleep(PAUSE).await;
                watch.1()
            } {}
        };
        if let Ok(runtime) = Handle::try_current()
            && catch_unwind(|| drop(sleep(PAUSE))).is_ok()
        {
            runtime.spawn(told);
        }
    }
}

/// Says what is left when it ends.
struct Watch<F: Fn() -> bool>(Arc<AtomicBool>, F);

impl<F: Fn() -> bool> Drop for Watch<F> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        self.1();
    }
}

/// Bounds the lines that strangers can make: ten in ten seconds.
#[derive(Debug, Default)]
pub(crate) struct BoundedLines {
    log: SummedLog,
    asked: AtomicU64,
}

impl BoundedLines {
    /// Whether this line is written. `say_more` logs how many were not.
    pub(crate) fn may_write(self: &Arc<Self>, say_more: impl Fn(u64) + Send + 'static) -> bool {
        const MAX: u64 = 10;
        let this = Arc::clone(self);
        self.log.happened(|| {
            move || {
                let asked = this.asked.swap(0, Ordering::Relaxed);
                if asked > MAX {
                    say_more(asked - MAX);
                }
                asked > 0
            }
        });
        self.asked.fetch_add(1, Ordering::Relaxed) < MAX
    }
}
