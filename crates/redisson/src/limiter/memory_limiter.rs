use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use super::error::{LimiterError, above_rate};
use super::limiter_backend::{
    AcquireReply, AcquireRequest, ClientId, Grant, GrantId, SetMode, Sharing, StoredRate,
};
use super::rate::{Rate, RateType};

/// One limiter in memory. `now` is in microseconds since any fixed instant.
#[derive(Debug)]
pub(super) struct MemoryLimiter {
    rate: Rate,
    /// The budget of all clients, which has no id, and those of each client.
    budgets: HashMap<Option<ClientId>, Budget>,
    /// When the rate is forgotten, in microseconds; `None` if the limiter stays until it is
    /// deleted.
    expires_at: Option<u64>,
    /// When the rate was chosen, in microseconds: see `chosenAt` in lua/include/permits.lua.
    pub(super) chosen_at: u64,
}

#[derive(Debug, Default)]
struct Budget {
    granted: GrantedPermits,
    /// Fair callers in the order of their arrival, with the permits that each wants.
    fair_queue: VecDeque<(GrantId, u64)>,
}

impl MemoryLimiter {
    /// A limiter whose rate is not set yet.
    pub(super) fn expired(rate: Rate) -> Self {
        Self {
            rate,
            budgets: HashMap::new(),
            expires_at: Some(0),
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

    /// Sets the rate as the mode says, and returns when it was chosen: see
    /// [`Limiters::set_rate`](super::limiter_backend::Limiters::set_rate).
    pub(super) fn choose_rate(&mut self, now: u64, rate: Rate, mode: SetMode) -> Option<u64> {
        let exists = !self.has_expired(now);
        let before = if exists { self.chosen_at } else { 0 };
        let is_same = exists && self.rate == rate;
        let chosen_at = match mode {
            SetMode::IfMissing if exists => return None,
            SetMode::IfMissing | SetMode::Always => now.max(before + 1),
            SetMode::ChosenAgo(ago) => {
                let ago = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
                let at = now.saturating_sub(ago).max(1);
                if is_same { at.max(before) } else { at }
            }
            // The clock went back. What was chosen by this clock is later then.
            SetMode::ChosenAt(at) if at > now && (1..=now).contains(&before) => before - 1,
            SetMode::ChosenAt(at) => at,
        };
        match mode {
            SetMode::ChosenAt(_) if chosen_at <= before => return Some(chosen_at),
            SetMode::ChosenAgo(_) | SetMode::ChosenAt(_) if is_same => {}
            SetMode::Always => {
                for budget in self.budgets.values_mut() {
                    budget.granted = GrantedPermits::default();
                }
                self.set_rate(now, rate);
            }
            _ => self.set_rate(now, rate),
        }
        self.chosen_at = chosen_at;
        Some(chosen_at)
    }

    pub(super) fn stored(&self, now: u64) -> StoredRate {
        let micros = self.expires_at.map(|at| at.saturating_sub(now));
        StoredRate {
            rate: self.rate,
            sharing: Sharing::TidegateOnly,
            expires_in: micros.map(Duration::from_micros),
        }
    }

    /// Sets a rate. Grants that have not expired under the old one still count.
    fn set_rate(&mut self, now: u64, rate: Rate) {
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
            return Err(above_rate(&request.name, request.permits));
        }
        let budget = self.budget(client);
        let (granted, wait) = if request.is_fair {
            budget.acquire_fair(now, &rate, request.permits, callers)
        } else {
            budget.acquire_unfair(now, &rate, request.permits, callers)
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
    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Returns the time until all grants have expired.
    pub(super) fn grants_expire_in(&self, now: u64) -> Duration {
        let budgets = self.budgets.values();
        let expire_in = budgets.map(|budget| budget.granted.expire_in(now, &self.rate));
        expire_in.max().unwrap_or_default()
    }

    pub(super) fn expire_after(&mut self, now: u64, after: Duration) {
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
