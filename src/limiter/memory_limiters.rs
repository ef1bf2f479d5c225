use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::ops::Bound;
#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::client::Client;
use super::error::LimiterError;
use super::limiter_backend::{
    AcquireCall, AcquireReply, AcquireRequest, ClientId, ConfigureMode, Generation, Grant, GrantId,
    LimiterFuture, Limiters, RateStatus, Sharing,
};
use super::rate::{Rate, RateType};
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
        let limiter = limiter.or_insert_with(|| MemoryLimiter {
            expires_at: Some(0),
            ..MemoryLimiter::new(rate)
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

/// One limiter in memory. `now` is in microseconds since any fixed instant.
#[derive(Debug)]
pub(super) struct MemoryLimiter {
    pub(super) rate: Rate,
    /// The budget of all clients, which has no id, and those of each client.
    budgets: HashMap<Option<ClientId>, Budget>,
    /// When the rate is forgotten, in microseconds; `None` if the limiter stays until it is
    /// deleted.
    expires_at: Option<u64>,
    /// When the rate was chosen, in microseconds: see `chosenAt` in lua/include/permits.lua.
    chosen_at: u64,
}

#[derive(Debug, Default)]
struct Budget {
    granted: GrantedPermits,
    /// Fair callers in the order of their arrival, with the permits that each wants.
    fair_queue: VecDeque<(GrantId, u64)>,
}

impl MemoryLimiter {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            rate,
            budgets: HashMap::new(),
            expires_at: None,
            chosen_at: 0,
        }
    }

    /// The budget that this client uses.
    fn budget(&mut self, client: ClientId) -> &mut Budget {
        let client = match self.rate.rate_type() {
            RateType::Overall => None,
            RateType::PerClient => Some(client),
        };
        self.budgets.entry(client).or_default()
    }

    fn forget_grants(&mut self) {
        for budget in self.budgets.values_mut() {
            budget.granted = GrantedPermits::default();
        }
    }

    /// Sets a rate. Grants that have not expired under the old one still count.
    pub(super) fn set_rate(&mut self, now: u64, rate: Rate) {
        for budget in self.budgets.values_mut() {
            budget.granted.drop_expired(now, &self.rate);
        }
        self.rate = rate;
        self.expires_at = None;
        if let Some(keep_alive) = rate.keep_alive() {
            let expire_in = self.grants_expire_in(now);
            self.expire_after(now, keep_alive.max(expire_in));
        }
    }

    pub(super) fn acquire(
        &mut self,
        now: u64,
        request: &AcquireRequest,
        client: ClientId,
        callers: &[GrantId],
    ) -> Result<AcquireReply, LimiterError> {
        let rate = self.rate;
        if request.permits > rate.permits() {
            return Err(LimiterError::above_rate(&request.name, request.permits));
        }
        let budget = self.budget(client);
        let (granted, wait) = match request.is_fair {
            true => budget.acquire_fair(now, &rate, request.permits, callers),
            false => budget.acquire_unfair(now, &rate, request.permits, callers),
        };
        if !granted.is_empty()
            && let Some(keep_alive) = rate.keep_alive()
        {
            // Callers that wait for the last permits still find the rate when they ask again.
            let slack = Duration::from_millis(rate.interval_millis().min(1_000) + 100);
            let expire_in = budget.granted.expire_in(now, &rate) + slack;
            let expires_at = self.expires_at;
            self.expire_after(now, keep_alive.max(expire_in));
            self.expires_at = self.expires_at.max(expires_at);
        }
        Ok(AcquireReply {
            granted,
            stamp: now.div_ceil(1_000),
            wait: Duration::from_micros(wait),
            redisson: None,
        })
    }

    /// Gives a grant back, and removes its caller from the fair queue.
    pub(super) fn give_back(&mut self, now: u64, grant: &Grant) -> u64 {
        for budget in self.budgets.values_mut() {
            budget.fair_queue.retain(|(id, _)| *id != grant.id);
        }
        let (rate, mut client) = (self.rate, ClientId::default());
        client.copy_from_slice(&grant.id[..8]);
        self.budget(client).granted.give_back(now, &rate, grant)
    }

    pub(super) fn release(&mut self, now: u64, client: ClientId, permits: u64) -> u64 {
        let rate = self.rate;
        let budget = self.budget(client);
        budget.granted.release(now, &rate, client, permits)
    }

    pub(super) fn available(&mut self, now: u64, client: ClientId) -> u64 {
        let rate = self.rate;
        self.budget(client).granted.available(now, &rate)
    }

    /// Whether the rate is forgotten. Its grants may still count if a rate is set.
    fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns the time until all grants have expired.
    fn grants_expire_in(&self, now: u64) -> Duration {
        let budgets = self.budgets.values();
        let expire_in = budgets.map(|budget| budget.granted.expire_in(now, &self.rate));
        expire_in.max().unwrap_or_default()
    }

    fn expire_after(&mut self, now: u64, after: Duration) {
        let after = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.expires_at = Some(now.saturating_add(after));
    }
}

impl Budget {
    /// Returns the indices of the callers whose permits were granted, and the microseconds until
    /// the next caller's permits can be granted.
    fn acquire_unfair(
        &mut self,
        now: u64,
        rate: &Rate,
        permits: u64,
        callers: &[GrantId],
    ) -> (Vec<usize>, u64) {
        for (granted, id) in callers.iter().enumerate() {
            if let Err(wait) = self.granted.acquire(now, rate, *id, permits) {
                return ((0..granted).collect(), wait);
            }
        }
        ((0..callers.len()).collect(), 0)
    }

    /// As [`acquire_unfair`](Self::acquire_unfair), in the order of the fair queue. Callers in the
    /// queue that do not ask now keep their place and their share.
    fn acquire_fair(
        &mut self,
        now: u64,
        rate: &Rate,
        permits: u64,
        callers: &[GrantId],
    ) -> (Vec<usize>, u64) {
        for id in callers {
            if !self.fair_queue.iter().any(|(queued, _)| queued == id) {
                self.fair_queue.push_back((*id, permits));
            }
        }
        let (mut granted, mut position, mut reserved) = (Vec::new(), 0, 0);
        while let Some((id, wanted)) = self.fair_queue.get(position).copied() {
            let shortfall = self.granted.shortfall(now, rate, reserved + wanted);
            if shortfall > 0 {
                let shortfall = shortfall.min(rate.permits());
                return (granted, self.granted.wait_for(now, rate, shortfall));
            }
            match callers.iter().position(|caller| *caller == id) {
                Some(index) => {
                    let _ = self.granted.acquire(now, rate, id, wanted);
                    self.fair_queue.remove(position);
                    granted.push(index);
                }
                None => {
                    reserved += wanted;
                    position += 1;
                }
            }
        }
        (granted, 0)
    }
}

/// The permits that a limiter in memory has granted: a sliding window without a clock of its own.
///
/// `now` is in microseconds since any fixed instant. A grant is stamped with the next full
/// millisecond, and expires one interval after its stamp. Expired grants stay until the next grant
/// or release, so that a denied request changes nothing, also if the clock goes back later.
#[derive(Debug, Default)]
pub(super) struct GrantedPermits {
    /// The permits of each grant, in the order of the sorted set in Redis.
    grants: BTreeMap<(Stamp, GrantId), u64>,
    /// The sum of all permits in `grants`.
    total: u64,
}

/// In milliseconds.
type Stamp = u64;

impl GrantedPermits {
    /// Grants permits, or returns the microseconds until they can be granted.
    pub(super) fn acquire(
        &mut self,
        now: u64,
        rate: &Rate,
        id: GrantId,
        permits: u64,
    ) -> Result<(), u64> {
        match self.shortfall(now, rate, permits) {
            0 => {
                self.drop_expired(now, rate);
                self.total += permits;
                *self.grants.entry((stamp(now), id)).or_default() += permits;
                Ok(())
            }
            shortfall => Err(self.wait_for(now, rate, shortfall)),
        }
    }

    /// Returns how many of `permits` exceed what is available.
    fn shortfall(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        (self.total - self.expired(now, rate) + permits).saturating_sub(rate.permits())
    }

    /// Returns the microseconds until this many permits have expired; at least 1.
    pub(super) fn wait_for(&mut self, now: u64, rate: &Rate, permits: u64) -> u64 {
        self.restamp_future_grants(now);
        let expire_at = self.expire_at(now, rate, permits).saturating_mul(1_000);
        expire_at.saturating_sub(now).max(1)
    }

    /// Gives back a grant if it still counts and nothing of it was released. Returns how many
    /// permits came back.
    pub(super) fn give_back(&mut self, now: u64, rate: &Rate, grant: &Grant) -> u64 {
        let Some(key) = self.find(now, rate, grant) else {
            return 0;
        };
        if has_expired(key.0, now, rate) || self.grants[&key] != grant.permits {
            return 0;
        }
        self.drop_expired(now, rate);
        self.take_out(key, grant.permits)
    }

    fn find(&self, now: u64, rate: &Rate, grant: &Grant) -> Option<(Stamp, GrantId)> {
        let key = (grant.stamp, grant.id);
        if self.grants.contains_key(&key) {
            return Some(key);
        }
        // Its stamp is an earlier one if the clock went back. A stamp of 0 says that no grant is
        // known.
        if grant.stamp == 0 || has_expired(grant.stamp, now, rate) {
            return None;
        }
        let mut keys = self.grants.keys();
        keys.find(|(_, id)| *id == grant.id).copied()
    }

    /// Gives back at most this many permits of this client, those that expire first. Returns how
    /// many came back.
    pub(super) fn release(&mut self, now: u64, rate: &Rate, client: ClientId, permits: u64) -> u64 {
        let until = (stamp(now), GrantId::from([u8::MAX; 16]));
        let (mut from, mut released) = (Bound::Unbounded, 0);
        while released < permits {
            let mut grants = self.grants.range((from, Bound::Included(until)));
            let next = grants.find(|((stamp, id), _)| {
                id.starts_with(&client) && !has_expired(*stamp, now, rate)
            });
            let Some((&key, _)) = next else {
                break;
            };
            released += self.take_out(key, permits - released);
            from = Bound::Excluded(key);
        }
        if released > 0 {
            self.drop_expired(now, rate);
        }
        released
    }

    /// Returns how many permits can be granted now.
    pub(super) fn available(&self, now: u64, rate: &Rate) -> u64 {
        let counting = self.total - self.expired(now, rate);
        rate.permits().saturating_sub(counting)
    }

    /// Returns the time until all grants have expired; zero if there are none.
    fn expire_in(&self, now: u64, rate: &Rate) -> Duration {
        let newest = self.grants.last_key_value();
        let expires_at = newest.map_or(0, |((stamp, _), _)| stamp + rate.interval_millis());
        Duration::from_micros(expires_at.saturating_mul(1_000).saturating_sub(now))
    }

    fn drop_expired(&mut self, now: u64, rate: &Rate) {
        while let Some(oldest) = self.grants.first_entry()
            && has_expired(oldest.key().0, now, rate)
        {
            self.total -= oldest.remove();
        }
    }

    /// Returns the sum of all permits in `grants` that have expired.
    fn expired(&self, now: u64, rate: &Rate) -> u64 {
        let expired = self.grants.iter();
        let expired = expired.take_while(|((stamp, _), _)| has_expired(*stamp, now, rate));
        expired.map(|(_, permits)| permits).sum()
    }

    fn take_out(&mut self, key: (Stamp, GrantId), permits: u64) -> u64 {
        let Some(held) = self.grants.get_mut(&key) else {
            return 0;
        };
        let taken = permits.min(*held);
        *held -= taken;
        self.total -= taken;
        if *held == 0 {
            self.grants.remove(&key);
        }
        taken
    }

    /// After the clock went back, grants with a stamp in the future count as granted now.
    fn restamp_future_grants(&mut self, now: u64) {
        while let Some(newest) = self.grants.last_entry()
            && newest.key().0 > stamp(now)
        {
            let ((_, id), permits) = newest.remove_entry();
            self.grants.insert((stamp(now), id), permits);
        }
    }

    /// Returns the millisecond at which this many of the permits that count now have expired.
    fn expire_at(&self, now: u64, rate: &Rate, permits: u64) -> u64 {
        let mut expiring = 0;
        let counting = self.grants.iter();
        let mut counting = counting.skip_while(|((stamp, _), _)| has_expired(*stamp, now, rate));
        let last = counting.find(|(_, permits_of_grant)| {
            expiring += **permits_of_grant;
            expiring >= permits
        });
        last.map_or(stamp(now), |((stamp, _), _)| *stamp) + rate.interval_millis()
    }
}

/// The stamp of what is granted now.
const fn stamp(now: u64) -> Stamp {
    now.div_ceil(1_000)
}

const fn has_expired(stamp: Stamp, now: u64, rate: &Rate) -> bool {
    stamp + rate.interval_millis() <= now / 1_000
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
