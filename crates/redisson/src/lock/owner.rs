use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

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
    pub(super) number: u64,
    /// The holds on all locks, by number, including those that it has asked for. Redis stores only
    /// their count and one expiry.
    holds: Arc<Mutex<BTreeMap<u64, HoldEntry>>>,
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

#[derive(Debug)]
struct HoldEntry {
    lock: Arc<str>,
    lease: Duration,
    /// `None` until Redis has granted the hold.
    token: Option<u64>,
    /// When the lease ends; `None` if it is renewed.
    until: Option<Instant>,
}

/// One hold of an owner, from before it is asked for until it is released or dropped.
#[derive(Debug)]
pub(super) struct Ownership {
    number: u64,
    lock: Arc<str>,
    pub(super) owner: Owner,
}

/// The other holds that an owner has on the same lock when one hold is renewed or released.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherHolds {
    /// Whether all of them have the fencing token of this hold. If not, the lock was lost and
    /// acquired again, or may have been.
    pub(super) have_same_token: bool,
    /// How long they need the lock; `None` if there are none.
    pub(super) needed_for: Option<Duration>,
}

impl OtherHolds {
    pub(super) const NONE: Self = Self {
        have_same_token: true,
        needed_for: None,
    };
}

impl Ownership {
    /// `name` is that of the lock, distinct in this process.
    pub(super) fn new(owner: &Owner, name: Arc<str>, lease: Duration) -> Self {
        let hold = Self {
            number: unique_number(),
            lock: Arc::clone(&name),
            owner: owner.clone(),
        };
        let entry = HoldEntry {
            lock: name,
            lease,
            token: None,
            until: None,
        };
        lock(&owner.holds).insert(hold.number, entry);
        hold
    }

    /// Whether the owner has other holds on the same lock.
    pub(super) fn is_nested(&self) -> bool {
        let entries = lock(&self.owner.holds);
        let mut others = entries.iter().filter(|(number, _)| **number != self.number);
        others.any(|(_, other)| other.lock == self.lock && other.token.is_some())
    }

    /// Notes that Redis has granted the hold, until an instant or for as long as it is renewed.
    pub(super) fn granted(&self, token: u64, until: Option<Instant>) {
        if let Some(entry) = lock(&self.owner.holds).get_mut(&self.number) {
            (entry.token, entry.until) = (Some(token), until);
        }
    }

    /// Notes that the hold is being released. Returns whether this is the first release.
    pub(super) fn end(&self) -> bool {
        lock(&self.owner.holds).remove(&self.number).is_some()
    }

    /// Sends a call about this hold, which has this token if it was granted.
    ///
    /// The owner cannot begin another request meanwhile. So Redis never receives the call after a
    /// request that `send` did not know of.
    pub(super) fn with_others<T>(
        &self,
        token: Option<u64>,
        send: impl FnOnce(OtherHolds) -> T,
    ) -> T {
        let entries = lock(&self.owner.holds);
        let others = entries.iter().filter(|(number, other)| {
            let counts = token.is_none() || other.token.is_none() || other.token >= token;
            **number != self.number && other.lock == self.lock && counts
        });
        let mut all = OtherHolds::NONE;
        for (_, other) in others {
            all.have_same_token &= token.is_some() && other.token == token;
            all.needed_for = all.needed_for.max(Some(other.needed_for()));
        }
        send(all)
    }
}

impl HoldEntry {
    /// How long the hold needs the lock from now on.
    fn needed_for(&self) -> Duration {
        let remaining = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map_or(self.lease, remaining)
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        lock(&self.owner.holds).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn a_hold_is_nested_in_another_one_that_was_granted() {
        let owner = Owner::new();
        let [outer, inner] = ["a", "a"].map(|lock| Ownership::new(&owner, lock.into(), LEASE));
        let elsewhere = Ownership::new(&owner, "b".into(), LEASE);
        let of_another = Ownership::new(&Owner::new(), "a".into(), LEASE);
        assert!(!inner.is_nested(), "nothing was granted");
        outer.granted(1, None);
        assert!(inner.is_nested());
        for hold in [&outer, &elsewhere, &of_another] {
            assert!(!hold.is_nested());
        }
        drop(outer);
        assert!(!inner.is_nested());
    }

    /// A hold with an older token was lost before this one was granted.
    #[test]
    fn a_lost_hold_needs_nothing_of_a_newer_one() {
        let owner = Owner::new();
        let [lost, first, second] = ["a"; 3].map(|lock| Ownership::new(&owner, lock.into(), LEASE));
        lost.granted(1, None);
        first.granted(2, None);
        let others = first.with_others(Some(2), |others| others);
        assert_eq!(
            others.needed_for,
            Some(LEASE),
            "the one that was not granted yet"
        );
        drop(second);
        let others = first.with_others(Some(2), |others| others);
        assert_eq!(others.needed_for, None);
        assert!(others.have_same_token);
        let others = lost.with_others(Some(1), |others| others);
        assert!(
            !others.have_same_token,
            "the newer one counts for the lost one"
        );
    }
}
