use std::sync::Arc;
use std::time::Duration;

use super::counter::Counter;
use super::decision_outcome::DecisionOutcome;
#[cfg(feature = "tracing")]
use super::denial_summary::{DenialSummaries, DenialSummary};
use super::latency::Latency;
use super::near_limit::NearLimit;
use super::quota_denials::QuotaDenials;
use super::rule_snapshot::RuleSnapshot;
use crate::decision::{Decision, Source};
use crate::error::{KeyErrorKind, StoreErrorKind};
use crate::rule::Rule;

/// What all layers of one path count.
///
/// An allowed request of cost 1 adds to one of these numbers, and to another one near the limit.
#[derive(Debug, Default)]
pub(crate) struct RuleCounters {
    decisions: [[Counter; Source::ALL.len()]; DecisionOutcome::ALL.len()],
    quota_denials: QuotaDenials,
    shadow_quota_denials: QuotaDenials,
    /// The units of allowed requests beyond one for each. A request of cost 0 takes one away: the
    /// sum is exact, since numbers wrap around.
    units_beyond_one: Counter,
    near_limit: Counter,
    near_limit_ratio: NearLimit,
    refunds: Counter,
    refunded_units: Counter,
    store_errors: [Counter; StoreErrorKind::ALL.len()],
    key_errors: [Counter; KeyErrorKind::ALL.len()],
    shadow_errors: Counter,
    proceeded: Counter,
    waiting: Counter,
    waited: Counter,
    unmatched: Counter,
    latency: Latency,
    #[cfg(feature = "tracing")]
    summaries: DenialSummaries,
}

impl RuleCounters {
    /// Counters that count a request as near the limit from this part of a quota on.
    pub(crate) fn new(near_limit_ratio: NearLimit) -> Self {
        Self {
            near_limit_ratio,
            ..Self::default()
        }
    }

    /// The decision about a request of this cost.
    #[inline]
    pub(crate) fn decided(&self, rule: &Arc<Rule>, decision: &Decision, cost: u64) {
        self.count(DecisionOutcome::of(decision), decision.source());
        if !decision.is_allowed() {
            self.quota_denials.add(rule, decision);
            return;
        }
        if cost != 1 {
            self.units_beyond_one.add(cost.wrapping_sub(1));
        }
        if self.near_limit_ratio.is_near(rule, decision) {
            self.near_limit.add(1);
        }
    }

    /// What a shadow rule would have decided about a request of this cost. What a candidate allows
    /// is not counted: its request is counted by the decision of the rule itself.
    pub(crate) fn shadow_decided(&self, rule: &Arc<Rule>, decision: &Decision, cost: u64) {
        if !decision.is_allowed() {
            self.count(DecisionOutcome::ShadowDenied, decision.source());
            self.shadow_quota_denials.add(rule, decision);
        } else if !rule.is_candidate() {
            self.decided(rule, decision, cost);
        }
    }

    #[inline]
    fn count(&self, outcome: DecisionOutcome, source: Source) {
        self.decisions[outcome as usize][source as usize].add(1);
    }

    /// A store failed, whether or not a fallback decided in its place.
    pub(crate) fn store_failed(&self, kind: StoreErrorKind) {
        self.store_errors[kind as usize].add(1);
    }

    /// There is no answer of a shadow rule.
    pub(crate) fn shadow_failed(&self) {
        self.shadow_errors.add(1);
    }

    /// A request had no key.
    pub(crate) fn key_failed(&self, kind: KeyErrorKind) {
        self.key_errors[kind as usize].add(1);
    }

    /// A request was admitted without a decision.
    pub(crate) fn proceeded(&self) {
        self.proceeded.add(1);
    }

    /// Units were given back.
    pub(crate) fn refunded(&self, units: u64) {
        if units > 0 {
            self.refunds.add(1);
            self.refunded_units.add(units);
        }
    }

    /// A request begins to wait for units.
    pub(crate) fn begins_to_wait(&self) {
        self.waiting.add(1);
        self.waited.add(1);
    }

    /// A request that waited does not wait any more.
    pub(crate) fn ends_waiting(&self) {
        self.waiting.subtract(1);
    }

    /// There is no rule for the path of a request.
    pub(crate) fn unmatched(&self) {
        self.unmatched.add(1);
    }

    /// A store answered after this time.
    pub(crate) fn answered_after(&self, latency: Duration) {
        self.latency.add(latency);
    }

    /// What happened since the last summary of denials, if another one is due.
    #[cfg(feature = "tracing")]
    pub(crate) fn denial_summary(&self) -> Option<DenialSummary> {
        self.summaries.next(|| {
            let [allowed, denied, never, _] = self.decisions.each_ref();
            let sum = |sources: &[Counter]| sources.iter().map(Counter::get).sum::<u64>();
            (sum(denied) + sum(never), sum(allowed))
        })
    }

    pub(crate) fn number_of_unmatched(&self) -> u64 {
        self.unmatched.get()
    }

    pub(crate) fn snapshot(&self, rule: &Rule) -> RuleSnapshot {
        let decisions = self.decisions.each_ref();
        let decisions = decisions.map(|sources| sources.each_ref().map(Counter::get));
        let allowed = decisions[DecisionOutcome::Allowed as usize]
            .iter()
            .sum::<u64>();
        let shadow = if rule.is_shadow() {
            Some(rule)
        } else {
            rule.shadow().map(|it| &**it)
        };
        RuleSnapshot {
            path: rule.path().to_owned(),
            // A request of cost 0 may be in the second number and not in the first yet.
            units: allowed.saturating_add_signed(self.units_beyond_one.get() as i64),
            decisions,
            denials: self.quota_denials.snapshot(rule),
            shadow_denials: shadow.map_or_else(Vec::new, |shadow| {
                self.shadow_quota_denials.snapshot(shadow)
            }),
            near_limit: self.near_limit.get(),
            refunds: self.refunds.get(),
            refunded_units: self.refunded_units.get(),
            store_errors: self.store_errors.each_ref().map(Counter::get),
            key_errors: self.key_errors.each_ref().map(Counter::get),
            shadow_errors: self.shadow_errors.get(),
            proceeded: self.proceeded.get(),
            waiting: self.waiting.get(),
            waited: self.waited.get(),
            latency: self.latency.snapshot(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    /// A recorder would keep the largest number that it was ever told.
    #[test]
    fn a_snapshot_amid_requests_of_cost_0_has_no_units() {
        let counters = RuleCounters::default();
        let rule = Rule::new("free", [Quota::per_second(1)]).expect("valid");
        counters.units_beyond_one.add(0_u64.wrapping_sub(1));
        assert_eq!(counters.snapshot(&rule).units(), 0);
        counters.count(DecisionOutcome::Allowed, Source::Local);
        assert_eq!(counters.snapshot(&rule).units(), 0);
        counters.count(DecisionOutcome::Allowed, Source::Local);
        assert_eq!(counters.snapshot(&rule).units(), 1);
    }
}
