use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::backend::{self, Backend, Configure, Grant, Id, Reply, Sharers, Wanted};
use super::client::Client;
use super::permits::Permits;
use super::{Generation, LimiterError, LimiterErrorKind, Rate};
use crate::clock::Clock;

/// Rate limiters of this process alone: for development and tests, where no Redis is.
///
/// They decide as those on Redis do, by [`Generation::Third`] alone. Clones are the same limiters. Time is tokio's, so tests
/// can pause it.
///
/// Memory is that of the limiters there are: one with a [keep-alive time](Rate::keep_alive) is forgotten after it, and as
/// many forgotten ones as living ones, or 64, may still take room. One without stays until it is deleted, as on Redis. So
/// where names come from clients, give rates a keep-alive time.
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::{MemoryLimiters, RateLimiter, RateType};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tidegate::limiter::LimiterError> {
/// let limiter = RateLimiter::new(MemoryLimiters::default(), "partner-api");
/// limiter.try_set_rate(RateType::Overall, 2, Duration::from_secs(1)).await?;
/// assert!(limiter.try_acquire(2).await?);
/// assert!(!limiter.try_acquire(1).await?);
/// limiter.acquire(1).await?; // a second later
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryLimiters(Arc<Kept>);

struct Kept {
    known: Mutex<Known>,
    client: Client,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Known {
    limiters: HashMap<Box<str>, Limiter>,
    /// At so many, those that are forgotten are dropped.
    crowded: usize,
    /// Limiters that were made.
    made: u64,
}

#[derive(Debug)]
struct Limiter {
    rate: Rate,
    permits: Permits,
    /// Fair callers that wait, and the permits that they want.
    waiting: VecDeque<(Id, u64)>,
    /// How often the counts were cleared: what was granted before is not given back.
    clears: u64,
    /// In microseconds.
    forgotten_at: Option<u64>,
}

impl MemoryLimiters {
    /// Reads the time from a clock that a test moves by hand. Waiting still goes by tokio's.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_clock(clock: crate::test_util::ManualClock) -> Self {
        Self(Arc::new(Kept {
            clock: Clock::Manual(clock),
            ..Kept::default()
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // A limiter is whole between any two statements.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the limiter, if there is one.
    fn with<T>(&self, name: &str, then: impl FnOnce(u64, &mut Limiter) -> T) -> Option<T> {
        let limiters = &mut self.lock().limiters;
        let now = self.0.clock.now();
        let limiter = limiters.get_mut(name)?;
        if limiter.is_forgotten(now) {
            limiters.remove(name);
            return None;
        }
        Some(then(now, limiter))
    }

    fn known<T>(
        &self,
        name: &str,
        then: impl FnOnce(u64, &mut Limiter) -> T,
    ) -> Result<T, LimiterError> {
        let done = self.with(name, then);
        done.ok_or_else(|| LimiterError::unknown(name))
    }

    fn ask_now(&self, what: &Wanted, ids: &[Id]) -> Result<Reply, LimiterError> {
        only_third(what.generation)?;
        self.known(&what.name, |now, limiter| {
            if what.permits > limiter.rate.permits() {
                return Err(LimiterError::above_rate(&what.name, what.permits));
            }
            let (granted, wait) = match what.is_fair {
                true => limiter.acquire_fair(now, what.permits, ids),
                false => limiter.acquire(now, what.permits, ids.len()),
            };
            if !granted.is_empty()
                && let Some(keep_alive) = limiter.rate.kept_alive_for()
            {
                let matters = limiter.permits.matters_for(now, &limiter.rate);
                // Those who wait for the permits to leave find a rate.
                let slack = Duration::from_millis(limiter.rate.interval_millis().min(1_000) + 100);
                limiter.forget_after(now, keep_alive.max(matters + slack));
            }
            Ok(Reply {
                granted,
                stamp: limiter.stamp(now.div_ceil(1_000)),
                wait: Duration::from_micros(wait),
            })
        })?
    }

    fn set(&self, name: &str, rate: Rate, how: Configure) -> bool {
        let mut all = self.lock();
        let now = self.0.clock.now();
        all.drop_forgotten_if_crowded(now);
        let known = all.limiters.remove(name);
        let known = known.filter(|limiter| !limiter.is_forgotten(now));
        if how == Configure::Try
            && let Some(known) = known
        {
            all.limiters.insert(name.into(), known);
            return false;
        }
        if known.is_none() && matches!(how, Configure::Update | Configure::Keep) {
            return false;
        }
        let (permits, clears, waiting) = match (how, known) {
            (Configure::Keep, Some(mut known)) => {
                known.permits.forget(now, &known.rate);
                (known.permits, known.clears, known.waiting)
            }
            (_, Some(known)) => (Permits::default(), known.clears + 1, known.waiting),
            (_, None) => {
                all.made += 1024;
                (Permits::default(), all.made, VecDeque::new())
            }
        };
        let mut limiter = Limiter {
            rate,
            permits,
            waiting,
            clears,
            forgotten_at: None,
        };
        if let Some(keep_alive) = rate.kept_alive_for() {
            let matters = limiter.permits.matters_for(now, &rate);
            limiter.forget_after(now, keep_alive.max(matters));
        }
        all.limiters.insert(name.into(), limiter);
        true
    }
}

impl Known {
    const FEW: usize = 64;

    /// Not with each name: who has many would look through all of them each time.
    fn drop_forgotten_if_crowded(&mut self, now: u64) {
        if self.limiters.len() >= self.crowded {
            self.limiters
                .retain(|_, limiter| !limiter.is_forgotten(now));
            self.crowded = Self::FEW.max(2 * self.limiters.len());
            self.limiters.shrink_to(self.crowded);
        }
    }
}

impl Limiter {
    /// No clock of ours shows more.
    const MAX_MILLIS: u64 = 1 << 43;

    /// Which callers have their permits, and the microseconds until the next can have them.
    fn acquire(&mut self, now: u64, permits: u64, callers: usize) -> (Vec<usize>, u64) {
        for granted in 0..callers {
            if let Err(wait) = self.permits.acquire(now, &self.rate, permits) {
                return ((0..granted).collect(), wait);
            }
        }
        ((0..callers).collect(), 0)
    }

    /// The same in the order in which all callers came; what is free is kept for those before.
    fn acquire_fair(&mut self, now: u64, permits: u64, ids: &[Id]) -> (Vec<usize>, u64) {
        for id in ids {
            if !self.waiting.iter().any(|(known, _)| known == id) {
                self.waiting.push_back((*id, permits));
            }
        }
        let (mut granted, mut place, mut before) = (Vec::new(), 0, 0);
        while let Some((id, wanted)) = self.waiting.get(place).copied() {
            let lacking = self.permits.lacking(now, &self.rate, before + wanted);
            if lacking > 0 {
                let lacking = lacking.min(self.rate.permits());
                return (granted, self.permits.wait(now, &self.rate, lacking));
            }
            match ids.iter().position(|asked| *asked == id) {
                Some(asked) => {
                    let _ = self.permits.acquire(now, &self.rate, wanted);
                    self.waiting.remove(place);
                    granted.push(asked);
                }
                None => {
                    before += wanted;
                    place += 1;
                }
            }
        }
        (granted, 0)
    }

    fn give_back(&mut self, now: u64, grant: &Grant) -> u64 {
        self.waiting.retain(|(id, _)| *id != grant.id);
        let at = grant.stamp % Self::MAX_MILLIS;
        match grant.stamp == self.stamp(at) {
            true => (self.permits).give_back(now, &self.rate, at, grant.permits),
            false => 0,
        }
    }

    /// Tells a grant of this millisecond from those of before the counts were cleared.
    fn stamp(&self, at: u64) -> u64 {
        at + self.clears % (1 << 20) * Self::MAX_MILLIS
    }

    fn is_forgotten(&self, now: u64) -> bool {
        self.forgotten_at.is_some_and(|at| at <= now)
    }

    fn forget_after(&mut self, now: u64, after: Duration) {
        let after = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.forgotten_at = Some(now.saturating_add(after));
    }
}

fn only_third(generation: Generation) -> Result<(), LimiterError> {
    if generation == Generation::Third {
        return Ok(());
    }
    let message = "earlier generations are only on Redis";
    Err(LimiterError::new(LimiterErrorKind::Unsupported, message))
}

impl Backend for MemoryLimiters {
    fn ask(&self, what: Wanted, ids: Vec<Id>) -> BoxFuture<'static, Result<Reply, LimiterError>> {
        Box::pin(ready(self.ask_now(&what, &ids)))
    }

    fn give_back(
        &self,
        name: Arc<str>,
        grants: Vec<Grant>,
    ) -> BoxFuture<'static, Result<u64, LimiterError>> {
        let given_back = self.known(&name, |now, limiter| {
            let units = grants.iter().map(|grant| limiter.give_back(now, grant));
            units.sum()
        });
        Box::pin(ready(given_back))
    }

    fn release<'a>(
        &'a self,
        name: &'a str,
        permits: u64,
    ) -> BoxFuture<'a, Result<u64, LimiterError>> {
        let released = self.known(name, |now, limiter| {
            limiter.permits.release(now, &limiter.rate, permits)
        });
        Box::pin(ready(released))
    }

    fn available<'a>(
        &'a self,
        name: &'a str,
        generation: Generation,
    ) -> BoxFuture<'a, Result<u64, LimiterError>> {
        let available = only_third(generation).and_then(|()| {
            self.known(name, |now, limiter| {
                limiter.permits.available(now, &limiter.rate)
            })
        });
        Box::pin(ready(available))
    }

    fn configure<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        how: Configure,
        _: Sharers,
    ) -> BoxFuture<'a, Result<bool, LimiterError>> {
        Box::pin(ready(Ok(self.set(name, rate, how))))
    }

    fn rate<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Rate>, LimiterError>> {
        Box::pin(ready(Ok(self.with(name, |_, limiter| limiter.rate))))
    }

    fn keeping<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<backend::Kept>, LimiterError>> {
        let kept = self.with(name, |now, limiter| {
            let forgotten_at = limiter.forgotten_at.map(|at| at.saturating_sub(now));
            backend::Kept {
                sharers: Sharers::Ours,
                life: forgotten_at.map(Duration::from_micros),
            }
        });
        Box::pin(ready(Ok(kept)))
    }

    fn expire<'a>(
        &'a self,
        name: &'a str,
        after: Duration,
    ) -> BoxFuture<'a, Result<bool, LimiterError>> {
        let expire = |now, limiter: &mut Limiter| limiter.forget_after(now, after);
        Box::pin(ready(Ok(self.with(name, expire).is_some())))
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>> {
        let known = self.lock().limiters.remove(name);
        let now = self.0.clock.now();
        let known = known.is_some_and(|limiter| !limiter.is_forgotten(now));
        Box::pin(ready(Ok(known)))
    }

    fn exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, LimiterError>> {
        Box::pin(ready(Ok(self.with(name, |_, _| ()).is_some())))
    }

    fn timeout(&self) -> Duration {
        Duration::ZERO
    }

    fn runtime(&self) -> Option<&Handle> {
        None
    }

    fn client(&self) -> &Client {
        &self.0.client
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            client: Client::new([0; 8]),
            clock: Clock::tokio(),
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLimiters").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each name is asked once: what is over makes room.
    #[tokio::test(start_paused = true)]
    async fn names_that_are_used_once_do_not_add_up() {
        let limiters = MemoryLimiters::default();
        let second = Duration::from_secs(1);
        let rate = Rate::overall(1, second).expect("valid");
        let rate = rate.keep_alive(second).expect("valid");
        for number in 0..100_000 {
            assert!(limiters.set(&number.to_string(), rate, Configure::Set));
            tokio::time::advance(Duration::from_millis(1)).await;
            let known = limiters.lock();
            assert!(known.limiters.len() <= 2 * 1_001, "after {number}");
            assert!(known.limiters.capacity() <= 8 * 1_001, "after {number}");
        }
        tokio::time::advance(second).await;
        for number in 0..2_100 {
            limiters.set(&format!("of {number}"), rate, Configure::Set);
            tokio::time::advance(second).await;
        }
        let known = limiters.lock();
        assert!(known.limiters.len() <= Known::FEW);
        assert!(known.limiters.capacity() <= 4 * Known::FEW);
    }
}
