use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

#[cfg(feature = "tracing")]
use super::denial_summary::DenialSummaries;
use super::named_counters::NamedCounters;
use super::rule_snapshot::{DecisionOutcome, PlanSnapshot};
use super::table::{Numbers, RuleSnapshot};
use crate::decision::{Decision, Source};
use crate::error::{KeyErrorKind, StoreErrorKind};
use crate::key::KeyExtractor;
use crate::rule::Rule;
use crate::summed_log::BoundedLines;
#[cfg(feature = "tracing")]
use crate::summed_log::SummedLog;
use crate::sync::lock;

/// What all layers of one path count.
///
/// An allowed request of cost 1 adds to one of these numbers, and to another one near the limit.
#[derive(Debug, Default)]
pub(crate) struct RuleCounters {
    pub(crate) numbers: Numbers,
    quota_denials: QuotaDenials,
    allowed_by_plan: NamedCounters,
    denied_by_plan: NamedCounters,
    shadow_quota_denials: QuotaDenials,
    near_limit_ratio: NearLimit,
    /// Requests of a path without a rule.
    pub(crate) unmatched: AtomicCounter,
    /// Requests that have failed, under a lock-out.
    pub(crate) failures: AtomicCounter,
    #[cfg(feature = "tracing")]
    summaries: DenialSummaries,
    /// When a line about denials is due.
    #[cfg(feature = "tracing")]
    pub(crate) denials_log: SummedLog,
    pub(crate) lockout_lines: Arc<BoundedLines>,
    /// What makes the keys of layers that have a key of their own.
    extractors: Mutex<Vec<Weak<dyn KeyExtractor>>>,
}

impl RuleCounters {
    /// Counters that count a request as near the limit from this part of a quota on.
    pub(crate) fn new(near_limit_ratio: NearLimit) -> Self {
        Self {
            near_limit_ratio,
            ..Self::default()
        }
    }

    /// A layer has this key of its own.
    pub(crate) fn add_extractor(&self, extractor: &Arc<dyn KeyExtractor>) {
        let mut extractors = lock(&self.extractors);
        extractors.retain(|known| known.strong_count() > 0);
        extractors.push(Arc::downgrade(extractor));
    }

    /// The keys that layers have of their own.
    pub(crate) fn extractors(&self) -> Vec<Arc<dyn KeyExtractor>> {
        let extractors = lock(&self.extractors);
        extractors.iter().filter_map(Weak::upgrade).collect()
    }

    /// The decision about a request of this cost.
    #[inline]
    pub(crate) fn decided(&self, rule: &Arc<Rule>, decision: &Decision, cost: u64) {
        self.count(DecisionOutcome::from_decision(decision), decision.source());
        if let Some(plan) = rule.plan() {
            let decided = if decision.is_allowed() {
                &self.allowed_by_plan
            } else {
                &self.denied_by_plan
            };
            decided.count(plan, |_| true);
        }
        if !decision.is_allowed() {
            self.quota_denials.add(rule, decision);
            return;
        }
        // The units beyond one for each: the sum is exact, since numbers wrap around.
        if cost != 1 {
            self.numbers.units.add(cost.wrapping_sub(1));
        }
        // A fallback knows what is left of a share, and not of the limit.
        let is_known = decision.source() != Source::Fallback;
        if is_known && self.near_limit_ratio.is_near(rule, decision) {
            self.numbers.near_limit.add(1);
        }
    }

    /// What a shadow rule would have decided about a request of this cost.
    pub(crate) fn shadow_decided(&self, rule: &Arc<Rule>, decision: &Decision, cost: u64) {
        // Permits of a shadow rule have no limit.
        if !decision.is_allowed() || decision.quotas().iter().any(|it| it.is_exceeded()) {
            self.count(DecisionOutcome::ShadowDenied, decision.source());
            self.shadow_quota_denials.add(rule, decision);
        } else {
            self.decided(rule, decision, cost);
        }
    }

    #[inline]
    pub(crate) fn count(&self, outcome: DecisionOutcome, source: Source) {
        self.numbers.decisions[outcome as usize][source as usize].add(1);
    }

    /// A store failed, whether or not a fallback decided in its place.
    pub(crate) fn store_failed(&self, kind: StoreErrorKind) {
        self.numbers.store_errors[kind as usize].add(1);
    }

    /// A request had no key.
    pub(crate) fn key_failed(&self, kind: KeyErrorKind) {
        self.numbers.key_errors[kind as usize].add(1);
    }

    /// Units were given back.
    pub(crate) fn refunded(&self, units: u64) {
        if units > 0 {
            self.numbers.refunds.add(1);
            self.numbers.refunded_units.add(units);
        }
    }

    /// More was used than reserved: so many units were charged, and forgiven.
    pub(crate) fn owed(&self, charged: u64, forgiven: u64) {
        if charged > 0 || forgiven > 0 {
            self.numbers.owed_units.add(charged);
            self.numbers.forgiven_units.add_at_most(forgiven);
        }
    }

    /// Logs how many requests of this path were denied since the last time. Returns whether there
    /// were any.
    #[cfg(feature = "tracing")]
    pub(crate) fn log_denials(&self, path: &str) -> bool {
        let counted = self.numbers(path);
        let allowed = counted.decisions(DecisionOutcome::Allowed);
        self.summaries.log(path, counted.denied(), allowed)
    }

    /// What was counted under this rule.
    pub(crate) fn snapshot(&self, rule: &Rule) -> RuleSnapshot {
        let shadow = rule.is_shadow().then_some(rule);
        let plans = rule.plans().map(|plan| PlanSnapshot {
            name: plan.to_owned(),
            allowed: self.allowed_by_plan.get(plan),
            denied: self.denied_by_plan.get(plan),
        });
        RuleSnapshot {
            denials: self.quota_denials.snapshot(rule),
            plans: plans.collect(),
            shadow_denials: shadow.map_or_else(Vec::new, |shadow| {
                self.shadow_quota_denials.snapshot(shadow)
            }),
            ..self.numbers(rule.path())
        }
    }

    /// A snapshot without what rules give names to: quotas and plans.
    pub(crate) fn numbers(&self, path: &str) -> RuleSnapshot {
        let mut counted = self.numbers.snapshot(path);
        let allowed = counted.decisions(DecisionOutcome::Allowed);
        // A request of cost 0 may be in the second number and not in the first yet.
        counted.units = allowed.saturating_add_signed(counted.units as i64);
        // Among the decisions: nothing else counts them.
        counted.blocked = counted.decisions_by(DecisionOutcome::Denied, Source::Operator);
        counted
    }
}

/// A number that many threads add to. Its readers see every addition, in no particular order.
#[derive(Debug, Default)]
pub(crate) struct AtomicCounter(AtomicU64);

impl AtomicCounter {
    #[inline]
    pub(crate) fn add(&self, number: u64) {
        // What counting costs is measured against a build with this flag: `benches/counters.sh`.
        if !cfg!(tidegate_uncounted) {
            self.0.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// Adds a number of any size: the sum ends at the largest one.
    fn add_at_most(&self, number: u64) {
        let add = |sum: u64| Some(sum.saturating_add(number));
        let relaxed = Ordering::Relaxed;
        self.0.fetch_update(relaxed, relaxed, add).ok();
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// From which part of a quota on an allowed request counts as near the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NearLimit {
    /// What may remain of a quota near its limit, in thousandths.
    free_permille: u64,
}

impl NearLimit {
    /// The ratio in thousandths is at most the whole; others become the nearest that is possible.
    pub(crate) fn new(ratio: f64) -> Self {
        // A cast of a float saturates, and makes 0 of what is no number.
        let used = ((ratio * 1_000.0).round() as u64).min(1_000);
        Self {
            free_permille: 1_000 - used,
        }
    }

    /// Whether so much of a quota is used. That as many requests run as may is usual, and no quota.
    /// Quotas have at most 15 digits: nothing overflows.
    #[inline]
    pub(super) fn is_near(self, rule: &Rule, decision: &Decision) -> bool {
        let algorithm = rule.algorithm().algorithm();
        let mut quotas = rule.policies().iter().zip(decision.quotas());
        quotas.any(|(policy, state)| {
            let limit = algorithm.limit(&policy.quota());
            let is_near = state.remaining() * 1_000 <= limit * self.free_permille;
            is_near && !policy.is_concurrent()
        })
    }
}

impl Default for NearLimit {
    fn default() -> Self {
        Self { free_permille: 200 }
    }
}

/// Denials by the quotas that had no room, by the quotas' names.
#[derive(Debug, Default)]
pub(super) struct QuotaDenials(NamedCounters);

impl QuotaDenials {
    /// Counts a denial for each quota that denied the take.
    pub(super) fn add(&self, rule: &Rule, decision: &Decision) {
        let policies = rule.policies();
        let is_in_use = |name: &str| policies.iter().any(|policy| policy.name() == name);
        for policy in decision.denied_by(policies) {
            self.0.count(policy.name(), is_in_use);
        }
    }

    /// The name of each quota of the rule and of its plans, and its denials.
    pub(super) fn snapshot(&self, rule: &Rule) -> Vec<(String, u64)> {
        let names = rule.all_policy_names().into_iter();
        let denials = names.map(|name| {
            let number = self.0.get(&name);
            (name, number)
        });
        denials.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::named_counters::MAX_NAMES;
    use super::*;
    use crate::decision::Verdict;
    use crate::quota::Quota;

    /// A recorder would keep the largest number that it was ever told.
    #[test]
    fn a_snapshot_amid_requests_of_cost_0_has_no_units() {
        let counters = RuleCounters::default();
        let rule = Rule::new("free", [Quota::per_second(1)]).expect("valid");
        counters.numbers.units.add(0_u64.wrapping_sub(1));
        assert_eq!(counters.snapshot(&rule).units, 0);
        counters.count(DecisionOutcome::Allowed, Source::Local);
        assert_eq!(counters.snapshot(&rule).units, 0);
        counters.count(DecisionOutcome::Allowed, Source::Local);
        assert_eq!(counters.snapshot(&rule).units, 1);
    }

    use crate::decision::QuotaState;
    use crate::rule::Policy;

    /// A rule with one quota of this name, which denies one request.
    fn deny(denials: &QuotaDenials, name: &str) -> Vec<(String, u64)> {
        let policy = Policy::new(name, Quota::per_second(1));
        let rule = Rule::with_policies("search", [policy]).expect("valid");
        let state = QuotaState::from_micros(0, 0);
        let decision = Decision::new(Verdict::Never, Source::Local, 1, [state].into_iter());
        let rule = Arc::new(rule);
        denials.add(&rule, &decision);
        denials.snapshot(&rule)
    }

    #[test]
    fn a_name_that_comes_back_goes_on_counting() {
        let denials = QuotaDenials::default();
        assert_eq!(deny(&denials, "quick"), [("quick".to_owned(), 1)]);
        assert_eq!(deny(&denials, "renamed"), [("renamed".to_owned(), 1)]);
        assert_eq!(deny(&denials, "quick"), [("quick".to_owned(), 2)]);
    }

    #[test]
    fn names_are_bounded() {
        let denials = QuotaDenials::default();
        for number in 0..MAX_NAMES + 9 {
            deny(&denials, &number.to_string());
            let names = denials.0.len();
            assert!(names <= MAX_NAMES + 1, "{names}");
        }
    }
}
