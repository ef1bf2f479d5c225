use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;

use super::counter::Counter;
use crate::decision::Decision;
use crate::rule::Rule;
use crate::sync::lock;

/// Beyond this number of names, those that the rule does not have any more are forgotten. A rule
/// that is changed back continues with its numbers, and ever new names take no memory.
const MAX_NAMES: usize = 64;

/// Denials by the quotas that had no room, by the quotas' names. A quota keeps its number when the
/// rule changes.
#[derive(Debug, Default)]
pub(super) struct QuotaDenials {
    /// The counters of the rule that denied last, in the order of its quotas.
    last: ArcSwapOption<RuleDenials>,
    by_name: Mutex<Vec<(Box<str>, Arc<Counter>)>>,
}

#[derive(Debug)]
struct RuleDenials {
    rule: Arc<Rule>,
    counters: Box<[Arc<Counter>]>,
}

impl QuotaDenials {
    /// Counts a denial for each quota that denied the take.
    pub(super) fn add(&self, rule: &Arc<Rule>, decision: &Decision) {
        let last = self.last.load();
        match &*last {
            Some(last) if Arc::ptr_eq(&last.rule, rule) => last.add(decision),
            _ => {
                let denials = Arc::new(self.denials_of(rule));
                denials.add(decision);
                self.last.store(Some(denials));
            }
        }
    }

    fn denials_of(&self, rule: &Arc<Rule>) -> RuleDenials {
        let mut by_name = lock(&self.by_name);
        let policies = rule.policies();
        if by_name.len() > MAX_NAMES {
            by_name.retain(|(name, _)| policies.iter().any(|policy| policy.name() == &**name));
        }
        let counters = policies.iter().map(|policy| {
            let known = by_name.iter().find(|(name, _)| **name == *policy.name());
            let known = known.map(|(_, counter)| Arc::clone(counter));
            known.unwrap_or_else(|| {
                let counter = Arc::<Counter>::default();
                by_name.push((policy.name().into(), Arc::clone(&counter)));
                counter
            })
        });
        RuleDenials {
            counters: counters.collect(),
            rule: Arc::clone(rule),
        }
    }

    /// The name of each quota of the rule, and its denials.
    pub(super) fn snapshot(&self, rule: &Rule) -> Vec<(String, u64)> {
        let by_name = lock(&self.by_name);
        let names = rule.policies().iter().map(|policy| policy.name());
        let denials = names.map(|name| {
            let known = by_name.iter().find(|(known, _)| **known == *name);
            (
                name.to_owned(),
                known.map_or(0, |(_, counter)| counter.get()),
            )
        });
        denials.collect()
    }
}

impl RuleDenials {
    fn add(&self, decision: &Decision) {
        let counters = decision.denied_by(&self.counters);
        counters.for_each(|counter| counter.add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{QuotaState, Source, Verdict};
    use crate::quota::Quota;
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
        for number in 0..10 * MAX_NAMES {
            deny(&denials, &number.to_string());
            let names = denials.by_name.lock().expect("no panic").len();
            assert!(names <= MAX_NAMES + 1, "{names}");
        }
    }
}
