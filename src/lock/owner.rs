use std::sync::atomic::{AtomicU64, Ordering};

/// Who holds a lock, where that may be taken more than once: see [`Lock::by`](super::Lock::by).
///
/// Clones are the same owner. An owner is of this process: none of another one is equal to it.
///
/// ```no_run
/// use tidegate::{Lock, Owner, Redis};
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// Somebody else than everybody else.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        Self(next_number())
    }

    pub(super) fn number(&self) -> u64 {
        self.0
    }
}

/// Of an owner, or of a request: never the same twice in a process.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
