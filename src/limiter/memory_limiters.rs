use std::collections::HashMap;
use std::fmt;
use std::future::ready;
#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::client::Client;
use super::error::LimiterError;
use super::limiter_backend::{
    AcquireCall, AcquireReply, AcquireRequest, ConfigureMode, Generation, Grant, LimiterFuture,
    Limiters, RateStatus, Sharing,
};
use super::memory_limiter::MemoryLimiter;
use super::rate::Rate;
use super::rate_choice::{Chosen, ChosenRate};
use crate::clock::Clock;
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
#[derive(Clone)]
pub struct MemoryLimiters {
    map: Arc<Mutex<LimiterMap>>,
    pub(super) client: Arc<Client>,
}

struct LimiterMap {
    by_name: HashMap<Box<str>, MemoryLimiter>,
    clock: Clock,
    /// At this number of limiters, expired ones are dropped.
    sweep_at: usize,
}

impl MemoryLimiters {
    fn new(clock: Clock) -> Self {
        let map = LimiterMap {
            by_name: HashMap::new(),
            clock,
            sweep_at: 0,
        };
        Self {
            map: Arc::new(Mutex::new(map)),
            client: Arc::new(Client::new([0; 8])),
        }
    }

    /// Limiters that read a clock that a test moves by hand. Callers still wait by tokio's clock.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_clock(clock: crate::test_util::ManualClock) -> Self {
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
            map: Arc::clone(&self.map),
            client: Arc::new(Client::new(id)),
        }
    }

    /// Calls `run` with the time and the limiter, if the limiter exists.
    fn find<T>(&self, name: &str, run: impl FnOnce(u64, &mut MemoryLimiter) -> T) -> Option<T> {
        let mut map = lock(&self.map);
        let now = map.clock.now();
        let limiter = map.by_name.get_mut(name)?;
        (!limiter.has_expired(now)).then(|| run(now, limiter))
    }

    /// As [`find`](Self::find); without the limiter it fails.
    fn get<T>(
        &self,
        name: &str,
        run: impl FnOnce(u64, &mut MemoryLimiter) -> T,
    ) -> Result<T, LimiterError> {
        let found = self.find(name, run);
        found.ok_or_else(|| LimiterError::unknown(name))
    }

    fn configure_now(&self, name: &str, rate: Rate, mode: ConfigureMode) -> bool {
        let mut map = lock(&self.map);
        let now = map.clock.now();
        map.sweep_if_large(now);
        let has_rate = |limiter: &MemoryLimiter| !limiter.has_expired(now);
        let has_rate = map.by_name.get(name).is_some_and(has_rate);
        let (is_set, keeps_grants) = match mode {
            ConfigureMode::TrySet => (!has_rate, true),
            ConfigureMode::Set => (true, false),
            ConfigureMode::Update => (has_rate, false),
            ConfigureMode::UpdateKeeping => (has_rate, true),
        };
        if is_set {
            let limiter = map.by_name.entry(name.into());
            let limiter = limiter.or_insert_with(|| MemoryLimiter::new(rate));
            if !keeps_grants {
                limiter.forget_grants();
            }
            limiter.set_rate(now, rate);
            limiter.chosen_at = now.max(limiter.chosen_at + 1);
        }
        is_set
    }

    /// As mode `ensure` of lua/limiter/configure.lua.
    fn ensure_now(&self, name: &str, rate: Rate, chosen: Chosen) -> u64 {
        let mut map = lock(&self.map);
        let now = map.clock.now();
        map.sweep_if_large(now);
        let limiter = map.by_name.entry(name.into());
        let limiter = limiter.or_insert_with(|| {
            let mut limiter = MemoryLimiter::new(rate);
            limiter.expires_at = Some(0);
            limiter
        });
        let exists = !limiter.has_expired(now);
        let stands = if exists { limiter.chosen_at } else { 0 };
        let is_same = exists && limiter.rate == rate;
        let chosen_at = match chosen {
            Chosen::Ago(ago) => {
                let ago = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
                let at = now.saturating_sub(ago).max(1);
                if is_same { at.max(stands) } else { at }
            }
            Chosen::At(at) if at > now && (1..=now).contains(&stands) => stands - 1,
            Chosen::At(at) => at,
        };
        let is_later = chosen_at > stands || matches!(chosen, Chosen::Ago(_));
        if !exists || is_later {
            if !is_same {
                limiter.set_rate(now, rate);
            }
            limiter.chosen_at = chosen_at;
        }
        chosen_at
    }
}

impl LimiterMap {
    const MIN_SWEEP: usize = 64;

    /// Drops limiters whose rate and whose grants have expired, but not with every new name: that
    /// would look at all limiters each time.
    fn sweep_if_large(&mut self, now: u64) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, limiter| {
                !limiter.has_expired(now) || !limiter.grants_expire_in(now).is_zero()
            });
            self.sweep_at = Self::MIN_SWEEP.max(2 * self.by_name.len());
            self.by_name.shrink_to(self.sweep_at);
        }
    }
}

fn require_third(generation: Generation) -> Result<(), LimiterError> {
    match generation {
        Generation::Third => Ok(()),
        _ => Err(LimiterError::unsupported(
            "limiters in memory support only the Third generation",
        )),
    }
}

impl Limiters for MemoryLimiters {
    fn acquire(
        &self,
        request: AcquireRequest,
        call: AcquireCall,
    ) -> LimiterFuture<'static, AcquireReply> {
        let reply = require_third(request.generation).and_then(|()| {
            self.get(&request.name, |now, limiter| {
                if call.chosen_at.is_some_and(|at| limiter.chosen_at < at) {
                    return Err(LimiterError::unknown(&request.name));
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
        let available = require_third(generation).and_then(|()| {
            self.get(name, |now, limiter| {
                limiter.available(now, self.client.id())
            })
        });
        Box::pin(ready(available))
    }

    fn configure<'a>(
        &'a self,
        name: &'a str,
        rate: Rate,
        mode: ConfigureMode,
        _: Sharing,
    ) -> LimiterFuture<'a, bool> {
        Box::pin(ready(Ok(self.configure_now(name, rate, mode))))
    }

    fn ensure<'a>(&'a self, name: &'a str, chosen: ChosenRate) -> LimiterFuture<'a, u64> {
        let ChosenRate { rate, chosen, .. } = chosen;
        Box::pin(ready(Ok(self.ensure_now(name, rate, chosen))))
    }

    fn rate<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, Option<Rate>> {
        Box::pin(ready(Ok(self.find(name, |_, limiter| limiter.rate))))
    }

    fn rate_status<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, Option<RateStatus>> {
        let status = self.find(name, |now, limiter| {
            let micros = limiter.expires_at.map(|at| at.saturating_sub(now));
            RateStatus {
                sharing: Sharing::TidegateOnly,
                expires_in: micros.map(Duration::from_micros),
            }
        });
        Box::pin(ready(Ok(status)))
    }

    fn expire<'a>(&'a self, name: &'a str, after: Duration) -> LimiterFuture<'a, bool> {
        let expire = |now, limiter: &mut MemoryLimiter| limiter.expire_after(now, after);
        Box::pin(ready(Ok(self.find(name, expire).is_some())))
    }

    fn delete<'a>(&'a self, name: &'a str) -> LimiterFuture<'a, bool> {
        let mut map = lock(&self.map);
        let now = map.clock.now();
        let deleted = map.by_name.remove(name);
        let existed = deleted.is_some_and(|limiter| !limiter.has_expired(now));
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

impl fmt::Debug for MemoryLimiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLimiters").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn expired_limiters_do_not_pile_up() {
        let limiters = MemoryLimiters::default();
        let set = |name: &str, rate| limiters.configure_now(name, rate, ConfigureMode::Set);
        let second = Duration::from_secs(1);
        let rate = Rate::overall(1, second).expect("valid");
        let rate = rate.with_keep_alive(second).expect("valid");
        for number in 0..100_000 {
            assert!(set(&number.to_string(), rate));
            tokio::time::advance(Duration::from_millis(1)).await;
            let map = lock(&limiters.map);
            assert!(map.by_name.len() <= 2 * 1_001, "after {number}");
            assert!(map.by_name.capacity() <= 8 * 1_001, "after {number}");
        }
        tokio::time::advance(second).await;
        for number in 0..2_100 {
            set(&format!("name {number}"), rate);
            tokio::time::advance(second).await;
        }
        let map = lock(&limiters.map);
        assert!(map.by_name.len() <= LimiterMap::MIN_SWEEP);
        assert!(map.by_name.capacity() <= 4 * LimiterMap::MIN_SWEEP);
    }
}
