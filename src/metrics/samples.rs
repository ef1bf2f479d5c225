//! The samples of the metrics that have labels beside the rule's.

use ::metrics::Label;

use super::rule_snapshot::DecisionOutcome;
use super::table::RuleSnapshot;
use crate::decision::Source;

/// Publishes the numbers of a metric: one for each set of labels, which come beside the rule's.
pub(super) type Samples = fn(&RuleSnapshot, &mut Publish<'_>);

type Publish<'a> = dyn FnMut(Vec<Label>, u64) + 'a;

/// What may be decided is there from the start, and the rest once it is above 0.
pub(super) fn decisions(rule: &RuleSnapshot, publish: &mut Publish<'_>) {
    for outcome in DecisionOutcome::ALL {
        for source in Source::ALL {
            let number = rule.decisions_by(outcome, source);
            if number > 0 || rule.possible.contains(&(outcome, source)) {
                let source = label("source", source.name());
                publish(vec![label("outcome", outcome.name()), source], number);
            }
        }
    }
}

pub(super) fn plan_decisions(rule: &RuleSnapshot, publish: &mut Publish<'_>) {
    use DecisionOutcome::{Allowed, Denied};
    for plan in &rule.plans {
        for (outcome, number) in [(Allowed, plan.allowed), (Denied, plan.denied)] {
            let name = Label::new("plan", plan.name.clone());
            publish(vec![name, label("outcome", outcome.name())], number);
        }
    }
}

/// Rules without plans have none.
pub(super) fn unknown_plans(rule: &RuleSnapshot, publish: &mut Publish<'_>) {
    if !rule.plans.is_empty() || rule.unknown_plans > 0 {
        publish(Vec::new(), rule.unknown_plans);
    }
}

/// Rules without a lock-out have none.
pub(super) fn lockouts(rule: &RuleSnapshot, publish: &mut Publish<'_>) {
    let mut possible = rule.possible.iter();
    if rule.lockouts > 0 || possible.any(|it| it.0 == DecisionOutcome::LockedOut) {
        publish(Vec::new(), rule.lockouts);
    }
}

pub(super) fn by_quota(denials: &[(String, u64)], publish: &mut Publish<'_>) {
    for (quota, number) in denials {
        publish(vec![Label::new("quota", quota.clone())], *number);
    }
}

pub(super) fn errors(rule: &RuleSnapshot, publish: &mut Publish<'_>) {
    for (kind, number) in rule.errors() {
        publish(vec![label("kind", kind)], number);
    }
}

fn label(name: &'static str, value: &'static str) -> Label {
    Label::from_static_parts(name, value)
}
