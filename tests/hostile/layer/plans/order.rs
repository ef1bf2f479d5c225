//! A plan has all else of its rule, in whatever order the rule was made, and a changed clone of a
//! rule has none of what its original derived.

use super::*;

type Set = fn(Rule) -> Rule;

const SETTERS: [Set; 6] = [
    |rule| with_plans(rule, &[("pro", &[(50, MINUTE / 2), (500, HOUR)])]),
    |rule| rule.with_key(Header::new("x-key")),
    |rule| rule.with_cost(3),
    |rule| rule.with_prefix("odd:"),
    |rule| rule.with_on_error(OnError::Proceed),
    |rule| rule.with_algorithm(Algorithm::SlidingWindow),
];

/// All that derived rules have of their rule.
fn facts(rule: &Rule) -> String {
    let kept = (rule.cost(), rule.on_error(), rule.is_shadow());
    format!("{:?} {:?} {kept:?}", rule.id(), rule.prefix())
}

fn made(order: &[usize]) -> Rule {
    let rule = of_own("p", &[(5, 10 * SECOND)]);
    order.iter().fold(rule, |rule, at| SETTERS[*at](rule))
}

/// What a rule makes of its plan, and of quotas from a table.
fn derived(rule: &Arc<Rule>, table: Pairs<'_>) -> [Arc<Rule>; 2] {
    let pro = rule.of_plan("pro").expect("a plan");
    let value = rule.under(&Plan::from(quotas(table)));
    [value.expect("it fits"), pro]
}

fn take(rule: &Arc<Rule>) -> Take {
    take_of(rule, "x", 1)
}

#[test]
fn any_order_of_the_setters() {
    let mut expected = None;
    for first in 0..6 {
        for plan_at in 0..6 {
            let mut order: Vec<usize> = (1..6).map(|at| 1 + (at + first) % 5).collect();
            order.insert(plan_at, 0);
            let rule = Arc::new(made(&order));
            let said = derived(&rule, &[(2, HOUR)]).map(|one| {
                assert_eq!((one.id(), one.prefix()), (rule.id(), rule.prefix()));
                assert_eq!(take(&one).name("d:"), take(&rule).name("d:"), "one count");
                (
                    facts(&one),
                    one.quotas().to_vec(),
                    take(&one).quotas().to_vec(),
                )
            });
            let expected = expected.get_or_insert_with(|| said.clone());
            assert_eq!(expected, &said, "{order:?}");
        }
    }
}

/// What a rule derived before is not what its changed clone derives.
#[test]
fn a_changed_clone() {
    let table: Pairs<'_> = &[(2, 2 * HOUR)];
    let rule = Arc::new(made(&[0]));
    for (at, set) in SETTERS[1..].iter().enumerate() {
        let clone = Arc::new(set(Rule::clone(&rule)));
        for derived in derived(&clone, table) {
            assert_eq!(facts(&derived), facts(&clone), "setter {}", at + 1);
        }
    }
    let shadow = Arc::new(Rule::clone(&rule).into_shadow());
    for derived in derived(&shadow, table) {
        assert!(derived.is_shadow() && derived.id() == shadow.id());
    }
}

/// One plan is one rule as long as its rule lives: caches go by the rule.
#[test]
fn the_same_rule_each_time() {
    let rule = Arc::new(made(&[0]));
    let plan = || rule.of_plan("pro").expect("a plan");
    assert!(Arc::ptr_eq(&plan(), &plan()));
    let of = |max| {
        rule.under(&Plan::from(quotas(&[(max, HOUR)])))
            .expect("it fits")
    };
    let is_same = Arc::ptr_eq(&of(3), &of(3));
    assert!(is_same, "equal quotas, however often they were made");
    let first = of(3);
    (100..1_200).for_each(|max| drop(of(max)));
    assert_eq!(facts(&of(3)), facts(&first));
    assert_eq!(of(3).quotas(), first.quotas());
    assert!(rule.of_plan("Pro").is_none() && rule.of_plan("").is_none());
    assert_eq!((first.plan(), plan().plan()), (None, Some("pro")));
    assert!(Arc::ptr_eq(&plan(), &plan()));
}

/// A derived rule's rules and plans go with it: nothing keeps the rule when nobody has it.
#[tokio::test]
async fn rules_are_not_kept() {
    let rule = Arc::new(made(&[0]));
    let [plan, table] = derived(&rule, &[(3, HOUR)]);
    let weak = [&rule, &plan, &table].map(Arc::downgrade);
    drop((plan, table));
    let store = MemoryStore::new();
    for one in &weak {
        let one = one.upgrade().expect("it is there");
        assert!(ask(&store, &one, 1).await.is_allowed());
    }
    drop(rule);
    assert!(weak.iter().all(|one| one.upgrade().is_none()));
}
