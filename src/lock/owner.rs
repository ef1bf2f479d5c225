use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hold::Holds;

/// Who holds a lock, where that may be taken more than once: see [`Lock::by`](super::Lock::by).
///
/// Clones are the same owner. An owner is of this process: none of another one is equal to it.
///
/// ```no_run
/// use tidegate::Redis;
/// use tidegate::lock::{Lock, Owner};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
/// let me = Owner::new();
/// let lock = Lock::new(&redis, "report").by(&me);
/// let outer = lock.lock().await?;
/// let inner = lock.lock().await?;
/// assert_eq!(lock.hold_count(&me).await?, 2);
/// inner.release().await?;
/// outer.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Owner {
    number: u64,
    holds: Arc<Holds>,
}

impl Owner {
    /// A distinct owner: it shares no holds with any other owner.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        Self {
            number: next_number(),
            holds: Arc::default(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn holds(&self) -> &Arc<Holds> {
        &self.holds
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.number).finish()
    }
}

/// Of an owner, or of a request: never the same twice in a process.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
