use std::sync::Arc;

use smallvec::SmallVec;

use super::moment::Moment;
use crate::algorithm::{LeaseEnd, MODULUS_MASK};
use crate::clock::nanos;
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::rule::{CountName, Rule};

/// The leases of one rule and key.
///
/// It reads no clock and asks no store: its functions get the time and the answers.
pub(super) struct KeyLeases {
    name: CountName,
    /// In the order in which they end. Two, while one takes over from the other.
    held: SmallVec<[LeasedUnits; 2]>,
    demand: Demand,
    /// Whether the store is asked for a lease.
    is_asked: bool,
    /// Changes with every reset: leases that were asked for before are void.
    generation: u64,
    /// Since when no lease is asked for.
    plain_since: Option<Moment>,
    /// In nanoseconds.
    plain_for: u64,
    /// What the tightest quota had left when the store answered last.
    remaining: u64,
    /// How many nanoseconds the store took to answer.
    round_trip: u64,
}

/// What becomes of a take.
pub(super) struct Served {
    /// The answer; `None` if the store has to be asked.
    pub(super) decision: Option<Decision>,
    /// The lease that the store is to be asked for.
    pub(super) wanted: Option<WantedLease>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct WantedLease {
    pub(super) units: u64,
    generation: u64,
    asked_at: Moment,
}

/// Fewer units in the time of a lease are not worth a lease.
const MIN_SHARE: u64 = 8;

/// After a lease was denied, takes are plain for as long as this number of leases.
const PLAIN_LEASES: u64 = 4;

/// How many nanoseconds a lease of this rule lasts.
fn lease_of(rule: &Rule) -> u64 {
    rule.lease().map_or(0, nanos)
}

impl KeyLeases {
    pub(super) fn new(name: &CountName, now: Moment) -> Self {
        Self {
            name: name.clone(),
            held: SmallVec::new(),
            demand: Demand::new(now),
            is_asked: false,
            generation: 0,
            plain_since: None,
            plain_for: 0,
            remaining: u64::MAX,
            round_trip: 0,
        }
    }

    pub(super) fn is_of(&self, name: &CountName) -> bool {
        self.name == *name
    }

    /// Whether another key may have the place.
    pub(super) fn is_idle(&self, now: Moment) -> bool {
        let period = lease_of(&self.name.rule);
        !self.is_asked && self.held.is_empty() && self.demand.is_idle(now, period)
    }

    /// Hands out leased units, and says whether to ask for more.
    pub(super) fn take(&mut self, rule: &Arc<Rule>, now: Moment, cost: u64) -> Served {
        let lease = lease_of(rule);
        if !Arc::ptr_eq(&self.name.rule, rule) {
            self.name.rule = Arc::clone(rule);
            (self.plain_since, self.remaining) = (None, u64::MAX);
        }
        let mut valid = self.held.iter_mut();
        let decision = valid.find_map(|held| {
            let may_serve = held.is_of(rule) && held.time_left(now) > 0;
            may_serve.then(|| held.take(cost)).flatten()
        });
        if decision.is_some() {
            self.demand.add(now, lease, cost);
        }
        let share = self.share(now, lease);
        self.is_asked |= share.is_some();
        let wanted = share.map(|units| WantedLease {
            units,
            generation: self.generation,
            asked_at: now,
        });
        Served { decision, wanted }
    }

    /// The store has granted a take under this rule.
    pub(super) fn granted(&mut self, rule: &Rule, now: Moment, cost: u64) {
        self.demand.add(now, lease_of(rule), cost);
    }

    /// The units to lease next. `None` if what is held suffices, or if takes are to be plain.
    fn share(&mut self, now: Moment, lease: u64) -> Option<u64> {
        let is_plain = self
            .plain_since
            .is_some_and(|since| now.since(since) < self.plain_for);
        if self.is_asked || is_plain {
            return None;
        }
        if lease / 2 < self.round_trip {
            // Most of a lease would be over before it is there. Later it may be worth it again.
            self.round_trip = 0;
            self.be_plain(now, lease);
            return None;
        }
        let demand = self.demand.of_a_period(now, lease);
        if demand < MIN_SHARE {
            return None;
        }
        // A little more than was granted; and what others may take of the rest is not known.
        let share = demand.saturating_add(demand / 8).min(self.remaining / 4);
        if share < MIN_SHARE {
            // The store may have more by now: the next lease finds out.
            self.be_plain(now, lease);
            return None;
        }
        let held = self.held.iter().filter(|held| held.is_of(&self.name.rule));
        // What ends before the next lease could be there is as good as gone.
        let soon = self.round_trip.saturating_mul(2).max(lease / 8);
        let left: u64 = held
            .filter(|held| held.time_left(now) > soon)
            .map(LeasedUnits::left)
            .sum();
        (left < share / 4).then_some(share)
    }

    fn be_plain(&mut self, now: Moment, lease: u64) {
        (self.plain_since, self.plain_for) = (Some(now), PLAIN_LEASES * lease);
        self.remaining = u64::MAX;
    }

    /// The store has answered about a lease under this rule. If it is held now, returns when it
    /// began and for how many nanoseconds it lasts.
    pub(super) fn answered(
        &mut self,
        rule: &Arc<Rule>,
        decision: Option<&Decision>,
        wanted: &WantedLease,
        now: Moment,
    ) -> Option<(Moment, u64)> {
        self.is_asked = false;
        self.round_trip = now.since(wanted.asked_at);
        let lease = lease_of(&self.name.rule);
        self.remaining = decision.map_or(0, Decision::remaining);
        // What a fallback admits is not the fleet's: it is not held.
        let held = decision.filter(|decision| decision.failure().is_none());
        let held = held.and_then(|decision| LeasedUnits::new(rule, decision, wanted.asked_at));
        let held = held.filter(|_| self.generation == wanted.generation);
        let Some(held) = held else {
            self.be_plain(now, lease);
            return None;
        };
        let term = (held.asked_at, held.length);
        self.held.push(held);
        Some(term)
    }

    /// Asks for no lease any more: none could end.
    pub(super) fn stay_plain(&mut self, now: Moment) {
        (self.plain_since, self.plain_for) = (Some(now), u64::MAX);
    }

    /// The question about a lease has got no answer.
    pub(super) fn gave_up(&mut self) {
        self.is_asked = false;
    }

    /// Ends a lease. Returns the receipt of what is left of it.
    pub(super) fn end(&mut self, receipt: Receipt) -> Option<Receipt> {
        let mut held = self.held.iter();
        let at = held.position(|held| held.receipt == receipt)?;
        self.held.remove(at).receipt_of_the_rest()
    }

    /// Takes out what is held. Returns the receipts of what is left of it.
    pub(super) fn take_back(&mut self) -> Vec<Receipt> {
        self.generation += 1;
        let held = self.held.drain(..);
        held.filter_map(|held| held.receipt_of_the_rest()).collect()
    }

    /// Nothing that is held, or asked for, counts any more.
    pub(super) fn reset(&mut self) {
        self.held.clear();
        self.generation += 1;
    }
}

/// How many units were granted in the last period, and in the one that runs.
struct Demand {
    began: Moment,
    running: u64,
    last: u64,
}

impl Demand {
    const fn new(now: Moment) -> Self {
        Self {
            began: now,
            running: 0,
            last: 0,
        }
    }

    /// Units are granted. Periods are as long as leases.
    fn add(&mut self, now: Moment, period: u64, units: u64) {
        self.begin_period(now, period);
        self.running = self.running.saturating_add(units);
    }

    /// Units of the last whole period, or of the running one if these are more.
    fn of_a_period(&mut self, now: Moment, period: u64) -> u64 {
        self.begin_period(now, period);
        self.last.max(self.running)
    }

    /// Begins a period if the running one is over.
    fn begin_period(&mut self, now: Moment, period: u64) {
        let elapsed = now.since(self.began);
        if elapsed >= period {
            self.last = if elapsed < 2 * period {
                self.running
            } else {
                0
            };
            (self.began, self.running) = (now, 0);
        }
    }

    fn is_idle(&self, now: Moment, period: u64) -> bool {
        now.since(self.began) >= 2 * period
    }
}

/// Units that were charged ahead, until their lease ends.
struct LeasedUnits {
    rule: Arc<Rule>,
    /// The charge of all units.
    receipt: Receipt,
    /// The first of them, which were handed out.
    used: u64,
    /// Before the store was asked: it charged the units at this moment or later.
    asked_at: Moment,
    /// In nanoseconds.
    length: u64,
    /// The state of each quota, as of the charge. Most rules have one quota.
    states: SmallVec<[QuotaState; 1]>,
}

impl LeasedUnits {
    /// The lease of an allowed take under this rule. `None` if nothing was charged.
    fn new(rule: &Arc<Rule>, decision: &Decision, asked_at: Moment) -> Option<Self> {
        let receipt = decision.receipt()?;
        let states = SmallVec::from(decision.quotas());
        let mut length = nanos(rule.lease()?);
        if rule.algorithm().algorithm().lease_end() == Some(LeaseEnd::WithTheWindow) {
            // The store decided after it was asked, so the windows end later than that.
            let resets = states.iter().map(QuotaState::reset_after_micros);
            let ends_after = resets.min().unwrap_or(0);
            length = length.min(ends_after.saturating_mul(1_000));
        }
        Some(Self {
            rule: Arc::clone(rule),
            receipt,
            used: 0,
            asked_at,
            length,
            states,
        })
    }

    /// Units that were not handed out.
    const fn left(&self) -> u64 {
        self.receipt.units() - self.used
    }

    fn is_of(&self, rule: &Arc<Rule>) -> bool {
        Arc::ptr_eq(&self.rule, rule)
    }

    /// How many nanoseconds units may be handed out yet; 0 if the lease has ended.
    const fn time_left(&self, now: Moment) -> u64 {
        self.length.saturating_sub(now.since(self.asked_at))
    }

    /// Hands out units, if there are as many.
    fn take(&mut self, cost: u64) -> Option<Decision> {
        if self.left() < cost {
            return None;
        }
        self.used += cost;
        // The store would have given this receipt if it had been asked for the units one by one.
        let serial = self.serial_before().wrapping_add(self.used) & MODULUS_MASK;
        let receipt = Some(Receipt::new(self.receipt.stamp(), serial, cost));
        // This process has these units for sure; what the store has left, others may have taken.
        let left = self.left();
        let states = self.states.iter().map(|state| state.for_lease(left));
        let (verdict, source) = (Verdict::Allowed, Source::Lease);
        Some(Decision::from_states(
            verdict, source, cost, states, receipt,
        ))
    }

    /// The receipt of the units that are left, to give them back; `None` if there are none.
    fn receipt_of_the_rest(&self) -> Option<Receipt> {
        let rest = Receipt::new(self.receipt.stamp(), self.receipt.serial(), self.left());
        (rest.units() > 0).then_some(rest)
    }

    /// The serial number before the first unit.
    const fn serial_before(&self) -> u64 {
        self.receipt.serial().wrapping_sub(self.receipt.units()) & MODULUS_MASK
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::Quota;
    use crate::store::leases::moment::Clocks;

    const LEASE: Duration = Duration::from_millis(20);

    fn lease(asked_at: Moment) -> LeasedUnits {
        let rule = Rule::new("a", [Quota::per_second(100)]).expect("valid");
        let rule = Arc::new(rule.with_lease(LEASE).expect("leases"));
        let state = QuotaState::from_micros(90, 1_020_000);
        let receipt = Some(Receipt::new(5, 30, 10));
        let decision = Decision::from_state(Verdict::Allowed, Source::Redis, 10, state, receipt);
        LeasedUnits::new(&rule, &decision, asked_at).expect("charged")
    }

    /// A machine that is paused stops one clock, and a step moves the other.
    #[test]
    fn it_ends_by_the_clock_that_advanced_more() {
        let asked_at = Clocks::both().now();
        let lease = lease(asked_at);
        let left = |monotonic: u64, wall: u64| {
            let now = asked_at.later(
                Duration::from_millis(monotonic),
                Duration::from_millis(wall),
            );
            lease.time_left(now) / 1_000_000
        };
        assert_eq!(left(0, 0), 20);
        assert_eq!(left(19, 3), 1);
        assert_eq!(left(3, 19), 1);
        assert_eq!((left(20, 0), left(0, 20), left(0, 9_999)), (0, 0, 0));
    }

    /// What a store says is not trusted: a number without bounds does not lengthen a lease.
    #[test]
    fn a_window_without_an_end_ends_no_lease_later() {
        let rule = Rule::new("a", [Quota::per_second(100)]).expect("valid");
        let rule = rule.with_algorithm(crate::algorithm::Algorithm::FixedWindow);
        let rule = Arc::new(rule.with_lease(LEASE).expect("leases"));
        let state = QuotaState::from_micros(90, u64::MAX);
        let receipt = Some(Receipt::new(5, 30, 10));
        let decision = Decision::from_state(Verdict::Allowed, Source::Redis, 10, state, receipt);
        let now = Clocks::both().now();
        let lease = LeasedUnits::new(&rule, &decision, now).expect("charged");
        assert_eq!(lease.time_left(now), nanos(LEASE));
    }

    /// As if the store had been asked for one after the other.
    #[test]
    fn each_take_has_a_receipt_of_its_own() {
        let mut lease = lease(Clocks::both().now());
        let mut next = |cost| {
            lease
                .take(cost)
                .map(|decision| (decision.receipt(), decision.remaining()))
        };
        assert_eq!(next(3), Some((Some(Receipt::new(5, 23, 3)), 7)));
        assert_eq!(next(8), None, "more than is left");
        assert_eq!(next(1), Some((Some(Receipt::new(5, 24, 1)), 6)));
        assert_eq!(lease.receipt_of_the_rest(), Some(Receipt::new(5, 30, 6)));
        assert!(lease.take(6).is_some());
        assert_eq!(lease.receipt_of_the_rest(), None);
    }
}
