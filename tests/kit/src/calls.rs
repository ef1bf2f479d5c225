//! Calls of limiters and locks that a test expects to be answered.

use std::time::Duration;

use tidegate::limiter::{LimiterError, LimiterErrorKind, Rate, RateLimiter};
use tidegate::lock::{Lock, LockError, LockErrorKind, LockGuard, Owner};

/// A rate for all.
pub fn overall(permits: u64, interval: Duration) -> Rate {
    Rate::overall(permits, interval).expect("a valid rate")
}

/// A rate for each client.
pub fn per_client(permits: u64, interval: Duration) -> Rate {
    Rate::per_client(permits, interval).expect("a valid rate")
}

/// Replaces the rate as a process does that starts with another one: earlier grants still count.
/// Returns whether there was a rate.
///
/// # Panics
///
/// If it grants more than any rate of a test.
pub async fn replace_rate(limiter: &RateLimiter, rate: Rate) -> Result<bool, LimiterError> {
    if !limiter.exists().await? {
        return Ok(false);
    }
    // It sets the rate, and is denied for ever.
    let newer = limiter.clone().rate(rate);
    match newer.try_acquire(Rate::MAX_PERMITS).await {
        Err(error) if error.kind() == LimiterErrorKind::AboveRate => Ok(true),
        answer => answer.map(|is_granted| panic!("granted: {is_granted}")),
    }
}

/// Why there is no answer, if there is none.
pub fn kind<T>(answer: Result<T, LimiterError>) -> Option<LimiterErrorKind> {
    answer.err().map(|error| error.kind())
}

/// # Panics
///
/// All of them, if the limiter answers with an error.
#[allow(
    async_fn_in_trait,
    reason = "tests call it on a limiter, never on a type parameter"
)]
pub trait LimiterCalls {
    /// Whether it grants so many permits at once.
    async fn takes(&self, permits: u64) -> bool;
    /// The same within this time.
    async fn takes_within(&self, permits: u64, time: Duration) -> bool;
    /// Waits until it has so many permits.
    async fn waits(&self, permits: u64);
    /// How many are free.
    async fn free(&self) -> u64;
    /// How many of so many come back.
    async fn gives_back(&self, permits: u64) -> u64;
    /// Sets a rate by hand, which forgets what was granted.
    async fn sets(&self, rate: Rate);
    /// Whether its rate is the first one.
    async fn sets_first(&self, rate: Rate) -> bool;
    /// Replaces the rate as a process does that starts with another one: earlier grants still count.
    async fn replaces(&self, rate: Rate);
    /// The permits of the rate that stands, 0 without one.
    async fn stored(&self) -> u64;
    /// Whether there is a rate.
    async fn is_there(&self) -> bool;
    /// The same limiter; its callers wait in line, if it says so.
    fn fair_if(&self, is_fair: bool) -> Self;
}

impl LimiterCalls for RateLimiter {
    async fn takes(&self, permits: u64) -> bool {
        self.try_acquire(permits).await.expect("an answer")
    }

    async fn takes_within(&self, permits: u64, time: Duration) -> bool {
        let answer = self.try_acquire_for(permits, time).await;
        answer.expect("an answer")
    }

    async fn waits(&self, permits: u64) {
        self.acquire(permits).await.expect("permits");
    }

    async fn free(&self) -> u64 {
        self.available_permits().await.expect("an answer")
    }

    async fn gives_back(&self, permits: u64) -> u64 {
        self.release(permits).await.expect("an answer")
    }

    async fn sets(&self, rate: Rate) {
        self.set_rate(rate).await.expect("is set");
    }

    async fn sets_first(&self, rate: Rate) -> bool {
        self.try_set_rate(rate).await.expect("an answer")
    }

    async fn replaces(&self, rate: Rate) {
        // It sets the rate, and is denied for ever.
        let newer = self.clone().rate(rate);
        let denied = newer.try_acquire(Rate::MAX_PERMITS).await;
        assert_eq!(kind(denied), Some(LimiterErrorKind::AboveRate));
    }

    async fn stored(&self) -> u64 {
        let rate = self.stored_rate().await.expect("an answer");
        rate.map_or(0, |rate| rate.permits())
    }

    async fn is_there(&self) -> bool {
        self.exists().await.expect("an answer")
    }

    fn fair_if(&self, is_fair: bool) -> Self {
        let limiter = self.clone();
        if is_fair { limiter.fair() } else { limiter }
    }
}

/// # Panics
///
/// All of them, if the lock answers with an error.
#[allow(
    async_fn_in_trait,
    reason = "tests call it on a lock, never on a type parameter"
)]
pub trait LockCalls {
    /// Waits until it holds the lock.
    async fn holds(&self) -> LockGuard;
    /// Holds the lock, if it is free.
    async fn tries(&self) -> Option<LockGuard>;
    /// Whether somebody holds it.
    async fn is_taken(&self) -> bool;
    /// How many holds this owner has.
    async fn count(&self, owner: &Owner) -> u64;
    /// Waits until nobody holds it.
    async fn is_free_soon(&self);
    /// The same lock of this owner, or of nobody in particular.
    fn of(&self, owner: Option<&Owner>) -> Self;
}

impl LockCalls for Lock {
    async fn holds(&self) -> LockGuard {
        self.lock().await.expect("a lock")
    }

    async fn tries(&self) -> Option<LockGuard> {
        self.try_lock().await.expect("an answer")
    }

    async fn is_taken(&self) -> bool {
        self.is_locked().await.expect("an answer")
    }

    async fn count(&self, owner: &Owner) -> u64 {
        self.hold_count(owner).await.expect("an answer")
    }

    async fn is_free_soon(&self) {
        crate::eventually("the lock is free", async || !self.is_taken().await).await;
    }

    fn of(&self, owner: Option<&Owner>) -> Self {
        owner.map_or_else(|| self.clone(), |owner| self.by(owner))
    }
}

/// Why a lock has no answer.
///
/// # Panics
///
/// If there is an answer.
pub fn lock_error<T>(answer: Result<T, LockError>) -> LockErrorKind {
    answer.map(drop).expect_err("an error").kind()
}

/// Gives back what was held.
pub async fn frees(guard: LockGuard) {
    guard.release().await.expect("it was held");
}
