use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::demand::Demand;
use super::held_lease::HeldLease;
use super::moment::Moment;
use crate::decision::{Decision, Receipt};
use crate::key::Key;
use crate::rule::Rule;

/// The leases of one rule and key.
///
/// It decides by what it is told of time, and asks nobody.
#[derive(Debug)]
pub(super) struct KeyLeases {
    rule: Arc<Rule>,
    key: Key,
    /// In the order in which they end. Two, while one takes over from the other.
    held: SmallVec<[HeldLease; 2]>,
    demand: Demand,
    /// Whether the store is asked for a lease.
    is_asked: bool,
    /// Changes with every reset: leases that were asked for before are void.
    generation: u64,
    /// No lease is asked for before this.
    plain_until: Option<Moment>,
    plain_for: Duration,
    /// What the tightest quota had left when the store answered last.
    remaining: u64,
    /// How long the store took to answer.
    round_trip: Duration,
}

/// What becomes of a take.
#[derive(Debug)]
pub(super) struct Served {
    /// The answer; `None` if the store has to be asked.
    pub(super) decision: Option<Decision>,
    /// The units to lease, if the store is to be asked for a lease.
    pub(super) share: Option<u64>,
    pub(super) generation: u64,
}

/// Fewer units in the time of a lease are not worth a lease.
const MIN_SHARE: u64 = 8;

/// After a lease was denied, takes are plain for as long as this number of leases.
const PLAIN_LEASES: u32 = 4;

impl KeyLeases {
    pub(super) fn new(rule: &Arc<Rule>, key: &Key, now: Moment) -> Self {
        Self {
            rule: Arc::clone(rule),
            key: key.clone(),
            held: SmallVec::new(),
            demand: Demand::new(now),
            is_asked: false,
            generation: 0,
            plain_until: None,
            plain_for: Duration::ZERO,
            remaining: u64::MAX,
            round_trip: Duration::ZERO,
        }
    }

    pub(super) fn is_of(&self, rule: &Rule, key: &Key) -> bool {
        let same_prefix = self.rule.prefix() == rule.prefix();
        self.key == *key && self.rule.id() == rule.id() && same_prefix
    }

    /// Whether another key may have the place.
    pub(super) fn is_idle(&self, now: Moment) -> bool {
        let period = self.rule.lease().unwrap_or_default();
        !self.is_asked && self.held.is_empty() && self.demand.is_idle(now, period)
    }

    /// Hands out leased units, and says whether to ask for more.
    pub(super) fn take(&mut self, rule: &Arc<Rule>, now: Moment, cost: u64) -> Served {
        let lease = rule.lease().unwrap_or_default();
        if !Arc::ptr_eq(&self.rule, rule) {
            self.rule = Arc::clone(rule);
            (self.plain_until, self.remaining) = (None, u64::MAX);
        }
        self.demand.add(now, lease, cost);
        let mut valid = self.held.iter_mut();
        let decision = valid.find_map(|held| {
            let may_serve = held.is_of(rule) && !held.time_left(now).is_zero();
            may_serve.then(|| held.take(cost)).flatten()
        });
        let share = self.share(now, lease);
        self.is_asked |= share.is_some();
        Served {
            decision,
            share,
            generation: self.generation,
        }
    }

    /// The units to lease next. `None` if what is held suffices, or if takes are to be plain.
    fn share(&mut self, now: Moment, lease: Duration) -> Option<u64> {
        let is_plain = self
            .plain_until
            .is_some_and(|since| now.since(since) < self.plain_for);
        if self.is_asked || is_plain {
            return None;
        }
        if lease < 2 * self.round_trip {
            // Most of a lease would be over before it is there. Later it may be worth it again.
            self.round_trip = Duration::ZERO;
            self.be_plain(now, lease);
            return None;
        }
        let demand = self.demand.of_a_period();
        if demand < MIN_SHARE {
            return None;
        }
        // A little more than was asked for; and what others may take of the rest is not known.
        let share = demand.saturating_add(demand / 8).min(self.remaining / 4);
        if share < MIN_SHARE {
            // The store may have more by now: the next lease finds out.
            self.be_plain(now, lease);
            return None;
        }
        let held = self.held.iter().filter(|held| held.is_of(&self.rule));
        // What ends before the next lease could be there is as good as gone.
        let soon = (2 * self.round_trip).max(lease / 8);
        let left: u64 = held
            .filter(|held| held.time_left(now) > soon)
            .map(HeldLease::left)
            .sum();
        (left < share / 4).then_some(share)
    }

    fn be_plain(&mut self, now: Moment, lease: Duration) {
        (self.plain_until, self.plain_for) = (Some(now), PLAIN_LEASES * lease);
        self.remaining = u64::MAX;
    }

    /// The store has answered about a lease. Returns the end of the lease, if it is held now.
    pub(super) fn answered(
        &mut self,
        held: Option<HeldLease>,
        decision: Option<&Decision>,
        generation: u64,
        asked_at: Moment,
        now: Moment,
    ) -> Option<tokio::time::Instant> {
        self.is_asked = false;
        self.round_trip = now.since(asked_at);
        let lease = self.rule.lease().unwrap_or_default();
        self.remaining = decision.map_or(0, Decision::remaining);
        let held = held.filter(|_| self.generation == generation);
        let Some(held) = held else {
            self.be_plain(now, lease);
            return None;
        };
        let ends_at = held.ends_at();
        self.held.push(held);
        Some(ends_at)
    }

    /// The question about a lease has got no answer.
    pub(super) fn gave_up(&mut self) {
        self.is_asked = false;
    }

    /// Ends a lease. Returns the receipt of what is left of it.
    pub(super) fn end(&mut self, receipt: Receipt) -> Option<Receipt> {
        let at = self
            .held
            .iter()
            .position(|held| held.receipt() == receipt)?;
        self.held.remove(at).receipt_of_the_rest()
    }

    /// Nothing that is held, or asked for, counts any more.
    pub(super) fn reset(&mut self) {
        self.held.clear();
        self.generation += 1;
    }
}
