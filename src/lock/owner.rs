use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hold::OwnerHolds;

/// An owner that may hold a lock more than once: see [`Lock::by`](super::Lock::by).
///
/// Clones are the same owner. Owners of different processes are always distinct.
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
    holds: Arc<OwnerHolds>,
}

impl Owner {
    /// A distinct owner: it shares no holds with any other owner.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each is distinct")]
    pub fn new() -> Self {
        Self {
            number: unique_number(),
            holds: Arc::default(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn holds(&self) -> &Arc<OwnerHolds> {
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

/// Returns a number that this process has not used before: for an owner, a hold or a request.
pub(super) fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
