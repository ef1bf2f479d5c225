use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::backend::{Answer, Backend, Configure, LimiterLines, Sharers, Wanted};
use super::grant::Grant;
use super::permits::{Permits, Place};
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
/// use tidegate::{MemoryLimiters, RateLimiter, RateType};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tidegate::LimiterError> {
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
    lines: LimiterLines,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Known {
    limiters: HashMap<Box<str>, Limiter>,
    /// At so many, those that are forgotten are dropped.
    crowded: usize,
}

#[derive(Debug)]
struct Limiter {
    rate: Rate,
    permits: Permits,
    /// In microseconds.
    forgotten_at: Option<u64>,
}

impl MemoryLimiters {
    /// Reads the time from a clock that a test moves by hand. Waiting still goes by tokio's.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_clock(clock: crate::ManualClock) -> Self {
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

    /// Asks `how` for a place, and makes of it what the limiter is to know.
    fn place(
        &self,
        what: &Wanted,
        how: impl FnOnce(u64, &mut Limiter) -> Result<Place, u64>,
    ) -> Result<Answer, LimiterError> {
        only_third(what.generation)?;
        let asked = self.known(&what.name, |now, limiter| {
            if what.permits > limiter.rate.permits() {
                return Err(LimiterError::above_rate(&what.name, what.permits));
            }
            let place = how(now, limiter);
            if let (Ok(_), Some(keep_alive)) = (&place, limiter.rate.kept_alive_for()) {
                // What is reserved for later keeps it for longer.
                let matters = limiter.permits.matters_for(now, &limiter.rate);
                limiter.forget_after(now, keep_alive.max(matters));
            }
            Ok(place)
        })?;
        Ok(match asked? {
            Err(wait) => Answer::Wait(Duration::from_micros(wait)),
            Ok(place) => {
                let (limiters, what) = (self.clone(), what.clone());
                let give_back = move || {
                    let cancel =
                        |_, limiter: &mut Limiter| limiter.permits.cancel(place, what.permits);
                    limiters.with(&what.name, cancel);
                };
                Answer::Granted(Grant::new(give_back), Duration::from_micros(place.wait))
            }
        })
    }

    fn set(&self, name: &str, rate: Rate, how: Configure) -> bool {
        let mut all = self.lock();
        let now = self.0.clock.now();
        all.drop_forgotten_if_crowded(now);
        let limiters = &mut all.limiters;
        let known = limiters.remove(name);
        let known = known.filter(|limiter| !limiter.is_forgotten(now));
        if how == Configure::Try
            && let Some(known) = known
        {
            limiters.insert(name.into(), known);
            return false;
        }
        if known.is_none() && matches!(how, Configure::Update | Configure::Keep) {
            return false;
        }
        let permits = match (how, known) {
            (Configure::Keep, Some(mut known)) => {
                known.permits.forget(now, &known.rate);
                known.permits
            }
            _ => Permits::default(),
        };
        let mut limiter = Limiter {
            rate,
            permits,
            forgotten_at: None,
        };
        if let Some(keep_alive) = rate.kept_alive_for() {
            let matters = limiter.permits.matters_for(now, &rate);
            limiter.forget_after(now, keep_alive.max(matters));
        }
        limiters.insert(name.into(), limiter);
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
    fn acquire(&self, what: Wanted) -> BoxFuture<'static, Result<Answer, LimiterError>> {
        let answer = self.place(&what, |now, limiter| {
            limiter.permits.acquire(now, &limiter.rate, what.permits)
        });
        Box::pin(ready(answer))
    }

    fn reserve(
        &self,
        what: Wanted,
        wait: Duration,
    ) -> BoxFuture<'static, Result<Answer, LimiterError>> {
        let most = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let answer = self.place(&what, |now, limiter| {
            limiter
                .permits
                .reserve(now, &limiter.rate, what.permits, most)
        });
        Box::pin(ready(answer))
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

    fn lines(&self) -> &LimiterLines {
        &self.0.lines
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            lines: LimiterLines::default(),
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
