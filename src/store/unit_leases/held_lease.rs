use std::sync::Arc;

use smallvec::SmallVec;

use super::moment::{Moment, nanos};
use crate::algorithm::LeaseEnd;
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::rule::Rule;

/// Units that were charged ahead, until their lease ends.
#[derive(Debug)]
pub(super) struct HeldLease {
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

/// Serial numbers are modulo this.
const MODULUS_MASK: u64 = (1 << 52) - 1;

impl HeldLease {
    /// The lease of an allowed take under this rule. `None` if nothing was charged.
    pub(super) fn new(rule: &Arc<Rule>, decision: &Decision, asked_at: Moment) -> Option<Self> {
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
    pub(super) const fn left(&self) -> u64 {
        self.receipt.units() - self.used
    }

    pub(super) fn is_of(&self, rule: &Arc<Rule>) -> bool {
        Arc::ptr_eq(&self.rule, rule)
    }

    pub(super) const fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// How many nanoseconds units may be handed out yet; 0 if the lease has ended.
    pub(super) const fn time_left(&self, now: Moment) -> u64 {
        self.length.saturating_sub(now.since(self.asked_at))
    }

    /// When the lease began, and for how many nanoseconds.
    pub(super) const fn term(&self) -> (Moment, u64) {
        (self.asked_at, self.length)
    }

    /// Hands out units, if there are as many.
    pub(super) fn take(&mut self, cost: u64) -> Option<Decision> {
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
    pub(super) fn receipt_of_the_rest(&self) -> Option<Receipt> {
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
    use crate::store::unit_leases::moment::Clocks;

    const LEASE: Duration = Duration::from_millis(20);

    fn lease(asked_at: Moment) -> HeldLease {
        let rule = Rule::new("a", [Quota::per_second(100)]).expect("valid");
        let rule = Arc::new(rule.with_lease(LEASE).expect("leases"));
        let state = QuotaState::from_micros(90, 1_020_000);
        let receipt = Some(Receipt::new(5, 30, 10));
        let decision = Decision::from_state(Verdict::Allowed, Source::Redis, 10, state, receipt);
        HeldLease::new(&rule, &decision, asked_at).expect("charged")
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
        let rule = rule.with_algorithm(crate::Algorithm::FixedWindow);
        let rule = Arc::new(rule.with_lease(LEASE).expect("leases"));
        let state = QuotaState::from_micros(90, u64::MAX);
        let receipt = Some(Receipt::new(5, 30, 10));
        let decision = Decision::from_state(Verdict::Allowed, Source::Redis, 10, state, receipt);
        let now = Clocks::both().now();
        let lease = HeldLease::new(&rule, &decision, now).expect("charged");
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
