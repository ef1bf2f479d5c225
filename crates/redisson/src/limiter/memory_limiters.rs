use std::future::ready;
#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::client::Client;
use super::error::{LimiterError, unknown_limiter};
use super::limiter_backend::{
    AcquireCall, AcquireReply, AcquireRequest, Generation, Grant, LimiterFuture, Limiters, SetMode,
    Sharing, StoredRate,
};
use super::memory_limiter::MemoryLimiter;
use super::rate::Rate;
use crate::clock::Clock;
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// Rate limiters in the memory of this process, for development and tests without Redis.
///
/// They decide as limiters on Redis do, and know only [`Generation::Third`]. Clones share their
/// limiters and are one client. They use tokio's clock, so tests can pause it.
///
/// A limiter whose rate has a [keep-alive time](Rate::with_keep_alive) is forgotten after that
/// time. Any other limiter stays in memory until it is deleted. Set a keep-alive time if clients
/// choose the names. Up to 64 forgotten limiters, or as many as there are limiters in use, may
/// still occupy memory. A grant occupies about 50 bytes until it has expired.
///
/// ```
/// use std::time::Duration;
/// use tidegate::limiter::{MemoryLimiters, Rate, RateLimiter};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), tidegate::limiter::LimiterError> {
/// let limiter = RateLimiter::new(MemoryLimiters::default(), "partner-api");
/// limiter.try_set_rate(Rate::overall(2, Duration::from_secs(1))?).await?;
/// assert!(limiter.try_acquire(2).await?);
/// assert!(!limiter.try_acquire(1).await?);
/// limiter.acquire(1).await?; // a second later
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryLimiters {
    by_name: Arc<Mutex<SweptMap<Box<str>, MemoryLimiter>>>,
    clock: Clock,
    pub(super) client: Arc<Client>,
}

impl MemoryLimiters {
    fn new(clock: Clock) -> Self {
        Self {
            by_name: Arc::default(),
            clock,
            client: Arc::new(Client::new([0; 8])),
        }
    }

    /// Limiters that read a clock that a test moves by hand. Callers still wait by tokio's clock.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_clock(clock: crate::clock::ManualClock) -> Self {
        Self::new(Clock::Manual(clock))
    }

    /// Another client of the same limiters, as another process on Redis would be: with a budget of
    /// its own under a rate per client.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn another_client(&self) -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(1);
        let id = CLIENTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Self {
            client: Arc::new(Client::new(id)),
            ..self.clone()
        }
    }

    /// Calls `run` with the time and the limiter, if the limiter exists.
    fn find<T>(&self, name: &str, run: impl FnOnce(u64, &mut MemoryLimiter) -> T) -> Option<T> {
        let mut by_name = lock(&self.by_name);
        let now = self.clock.now();
        let limiter = by_name.get_mut(name)?;
        (!limiter.has_expired(now)).then(|| run(now, limiter))
    }

    /// As [`find`](Self::find); without the limiter it fails.
    fn get<T>(
        &self,
        name: &str,
        run: impl FnOnce(u64, &mut MemoryLimiter) -> T,
    ) -> Result<T, LimiterError> {
        let found = self.find(name, run);
        found.ok_or_else(|| unknown_limiter(name))
    }

    /// As lua/limiter/configure.lua.
    fn set_rate_now(&self, name: &str, rate: Rate, mode: SetMode) -> Option<u64> {
        let mut by_name = lock(&self.by_name);
        let now = self.clock.now();
        by_name
            .sweep(|limiter| !limiter.has_expired(now) || !limiter.grants_expire_in(now).is_zero());
        let limiter = by_name.entry(name.into());
        let limiter = limiter.or_insert_with(|| MemoryLimiter::expired(rate));
        limiter.choose_rate(now, rate, mode)
    }
}

const IN_MEMORY: &str = "limiters in memory";

impl Limiters for MemoryLimiters {
    fn acquire(
        &self,
        request: AcquireRequest,
        call: AcquireCall,
    ) -> LimiterFuture<'static, AcquireReply> {
        let reply = request.generation.require_third(IN_MEMORY).and_then(|()| {
            self.get(&request.name, |now, limiter| {
                if call.chosen_at.is_some_and(|at| limiter.chosen_at < at) {
                    return Err(unknown_limiter(&request.name));
                }
                limiter.acquire(now, &request, self.client.id(), &call.callers)
            })?
        });
        Box::pin(ready(reply))
    }

    fn give_back(&self, name: Arc<str>, grants: Vec<Grant>) -> LimiterFuture<'static, u64> {
        let given_back = self.get(&name, |now, limiter| {
            let permits = grants.iter().map(|grant| limiter.give_back(now, grant));
            permits.sum()
        });
        Box::pin(ready(given_back))
    }

    fn release<'a>(&'a self, name: &'a str, permits: u64) -> LimiterFuture<'a, u64> {
        let released = self.get(name, |now, limiter| {
            limiter.release(now, self.client.id(), permits)
        });
        Box::pin(ready(released))
    }

    fn available<'a>(&'a self, name: &'a str, generation: Generation) -> LimiterFuture<'a, u64> {
        let available = generation.require_third(IN_MEMORY).and_then(|()| {
            self.get(name, |now, limiter| {
                limiter.available(now, self.client.id())
            })
        });
        Box::pin(ready(available))
    }

    fn set_rate<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        _: Sharing,
        _: Generation,
        mode: SetMode,
    ) -> LimiterFuture<'a, Option<u64>> {
        Box::pin(ready(Ok(self.set_rate_now(name, rate, mode))))
    }

    fn stored<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, Option<StoredRate>> {
        let stored = self.find(name, |now, limiter| limiter.stored(now));
        Box::pin(ready(Ok(stored)))
    }

    fn expire<'a>(&'a self, name: &'a str, after: Duration) -> LimiterFuture<'a, bool> {
        let expire = |now, limiter: &mut MemoryLimiter| limiter.expire_after(now, after);
        Box::pin(ready(Ok(self.find(name, expire).is_some())))
    }

    fn delete<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool> {
        let deleted = lock(&self.by_name).remove(name);
        let existed = deleted.is_some_and(|limiter| !limiter.has_expired(self.clock.now()));
        Box::pin(ready(Ok(existed)))
    }

    fn exists<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool> {
        Box::pin(ready(Ok(self.find(name, |_, _| ()).is_some())))
    }

    fn timeout(&self) -> Duration {
        Duration::ZERO
    }

    fn runtime(&self) -> Option<&Handle> {
        None
    }
}

impl Default for MemoryLimiters {
    fn default() -> Self {
        Self::new(Clock::tokio())
    }
}

tidegate_base::named::debug_fields!(MemoryLimiters);

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_SWEEP: usize = SweptMap::<Box<str>, MemoryLimiter>::MIN_SWEEP;

    #[tokio::test(start_paused = true)]
    async fn expired_limiters_do_not_pile_up() {
        let limiters = MemoryLimiters::default();
        let set = |name: &str, rate| limiters.set_rate_now(name, rate, SetMode::Always);
        let second = Duration::from_secs(1);
        let rate = Rate::overall(1, second).expect("valid");
        let rate = rate.with_keep_alive(second).expect("valid");
        for number in 0..100_000 {
            assert!(set(&number.to_string(), rate).is_some());
            tokio::time::advance(Duration::from_millis(1)).await;
            let by_name = lock(&limiters.by_name);
            assert!(by_name.len() <= 2 * 1_001, "after {number}");
            assert!(by_name.capacity() <= 8 * 1_001, "after {number}");
        }
        tokio::time::advance(second).await;
        for number in 0..2_100 {
            set(&format!("name {number}"), rate);
            tokio::time::advance(second).await;
        }
        let by_name = lock(&limiters.by_name);
        assert!(by_name.len() <= MIN_SWEEP);
        assert!(by_name.capacity() <= 4 * MIN_SWEEP);
    }
}
