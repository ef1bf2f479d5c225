use std::sync::Arc;
use std::time::Duration;

use super::moment::Moment;
use crate::algorithm::LeaseEnd;
use crate::decision::{Decision, QuotaState, Receipt, Ruling, Source};
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
    length: Duration,
    /// When each quota is whole again, as of the charge.
    resets: Resets,
}

/// One duration for each quota, in microseconds. Most rules have one quota.
type Resets = smallvec::SmallVec<[u64; 1]>;

/// Serial numbers are modulo this.
const MODULUS_MASK: u64 = (1 << 52) - 1;

impl HeldLease {
    /// The lease of an allowed take under this rule. `None` if nothing was charged.
    pub(super) fn new(rule: &Arc<Rule>, decision: &Decision, asked_at: Moment) -> Option<Self> {
        let receipt = decision.receipt()?;
        let resets = decision.quotas().iter().map(QuotaState::reset_after_micros);
        let resets: Resets = resets.collect();
        let mut length = rule.lease()?;
        if rule.algorithm().algorithm().lease_end() == Some(LeaseEnd::WithTheWindow) {
            // The store decided after it was asked, so the windows end later than that.
            let ends_after = resets.iter().min().copied().unwrap_or(0);
            length = length.min(Duration::from_micros(ends_after));
        }
        Some(Self {
            rule: Arc::clone(rule),
            receipt,
            used: 0,
            asked_at,
            length,
            resets,
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

    /// How long units may be handed out yet; zero if the lease has ended.
    pub(super) fn time_left(&self, now: Moment) -> Duration {
        self.length.saturating_sub(now.since(self.asked_at))
    }

    /// When the lease ends at the latest, by the monotonic clock.
    pub(super) fn ends_at(&self) -> tokio::time::Instant {
        self.asked_at.plus(self.length)
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
        let mut states = self
            .resets
            .iter()
            .map(|reset| QuotaState::from_micros(left, *reset));
        Some(match self.resets.len() {
            1 => {
                let state = states.next().expect("there is one");
                Decision::of_one(Ruling::Allowed, Source::Lease, state, receipt)
            }
            _ => Decision::of_many(Ruling::Allowed, Source::Lease, states, receipt),
        })
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
