//! A plan has all else of its rule, in whatever order the rule was made, and a changed clone of a
//! rule has none of what its original derived.

use std::sync::Arc;
use std::time::Duration;

use tidegate::rule::OnError;
use tidegate::{Algorithm, Header, Key, MemoryStore, Quota, Rule, Store, Take};

use super::{of_own, quotas};
use kit::{HOUR, millis};

type Set = fn(Rule) -> Rule;

fn pro() -> tidegate::rule::Quotas {
    quotas(&[(50, Duration::from_secs(30)), (500, HOUR)])
}

const SETTERS: [Set; 6] = [
    |rule| rule.with_plan("pro", pro()).expect("valid"),
    |rule| rule.with_key(Header::new("x-key")),
    |rule| rule.with_cost(3),
    |rule| rule.with_prefix("odd:"),
    |rule| rule.with_on_error(OnError::Proceed),
    |rule| {
        let rule = rule.with_algorithm(Algorithm::SlidingWindow);
        rule.with_lease(millis(20)).expect("valid")
    },
];

type Facts = (
    String,
    Option<String>,
    u64,
    Option<Duration>,
    Option<OnError>,
    bool,
    Vec<Quota>,
);

fn facts(rule: &Rule) -> Facts {
    (
        rule.id().to_owned(),
        rule.prefix().map(str::to_owned),
        rule.cost(),
        rule.lease(),
        rule.on_error(),
        rule.is_shadow(),
        rule.quotas().to_vec(),
    )
}

fn made(order: &[usize]) -> Rule {
    let rule = of_own("p", &[(5, Duration::from_secs(10))]);
    order.iter().fold(rule, |rule, at| SETTERS[*at](rule))
}

#[test]
fn any_order_of_the_setters() {
    let mut expected = None;
    for first in 0..6 {
        for plan_at in 0..6 {
            let mut order: Vec<usize> = (1..6).map(|at| 1 + (at + first) % 5).collect();
            order.insert(plan_at, 0);
            let rule = Arc::new(made(&order));
            let derived = [
                rule.of_plan("pro").expect("a plan"),
                rule.of_quotas(Arc::new(quotas(&[(2, HOUR)]))),
            ];
            let said = derived.map(|one| {
                assert_eq!((one.id(), one.prefix()), (rule.id(), rule.prefix()));
                let name =
                    |rule: &Arc<Rule>| Take::new(Arc::clone(rule), Key::from("x")).name("d:");
                assert_eq!(name(&one), name(&rule), "one count");
                let charged = Take::new(Arc::clone(&one), Key::from("x"))
                    .quotas()
                    .to_vec();
                (facts(&one), charged)
            });
            let said = format!("{said:?}");
            let expected = expected.get_or_insert_with(|| said.clone());
            assert_eq!(expected, &said, "{order:?}");
        }
    }
}

/// What a rule derived before is not what its changed clone derives.
#[test]
fn a_changed_clone() {
    let rule = Arc::new(made(&[0]));
    let other = Arc::new(quotas(&[(2, 2 * HOUR)]));
    let (plan, table) = (
        rule.of_plan("pro").expect("a plan"),
        rule.of_quotas(Arc::clone(&other)),
    );
    for (at, set) in SETTERS[1..].iter().enumerate() {
        let clone = Arc::new(set(Rule::clone(&rule)));
        let facts_of = facts(&clone);
        for derived in [
            clone.of_plan("pro").expect("a plan"),
            clone.of_quotas(Arc::clone(&other)),
        ] {
            let mut says = facts(&derived);
            says.6 = facts_of.6.clone();
            assert_eq!(says, facts_of, "setter {}", at + 1);
        }
    }
    let shadow = Arc::new(Rule::clone(&rule).into_shadow());
    for derived in [
        shadow.of_plan("pro").expect("a plan"),
        shadow.of_quotas(Arc::clone(&other)),
    ] {
        assert!(derived.is_shadow() && derived.id() == shadow.id());
    }
    let more = Arc::new(
        Rule::clone(&rule)
            .with_plan("day", quotas(&[(9, 24 * HOUR)]))
            .expect("valid"),
    );
    let charged = |rule: &Arc<Rule>| {
        let take = Take::new(Arc::clone(rule), Key::from("x"));
        take.quotas().iter().map(Quota::window).max().expect("some")
    };
    for one in [
        &more,
        &more.of_plan("pro").expect("a plan"),
        &more.of_quotas(other),
    ] {
        assert_eq!(charged(one), 24 * HOUR, "{one:?}");
    }
    assert_eq!((charged(&plan), charged(&table)), (HOUR, 2 * HOUR));
}

/// One plan is one rule as long as its rule lives: caches and leases go by the rule.
#[test]
fn the_same_rule_each_time() {
    let rule = Arc::new(made(&[0]));
    let plan = || rule.of_plan("pro").expect("a plan");
    assert!(Arc::ptr_eq(&plan(), &plan()));
    let of = |max| rule.of_quotas(Arc::new(quotas(&[(max, HOUR)])));
    assert!(
        Arc::ptr_eq(&of(3), &of(3)),
        "equal quotas, however often they were made"
    );
    let first = of(3);
    (100..1_200).for_each(|max| drop(of(max)));
    assert_eq!(facts(&of(3)), facts(&first));
    assert!(rule.of_plan("Pro").is_none() && rule.of_plan("").is_none());
    assert_eq!((first.plan(), plan().plan()), (None, Some("pro")));
    assert!(Arc::ptr_eq(&plan(), &plan()));
}

/// How many of these many quotas have the rule of the time before.
fn kept(algorithm: Algorithm, number: u64, of: fn(u64) -> (u64, Duration)) -> usize {
    let rule = Arc::new(of_own("p", &[(5, Duration::from_secs(10))]).with_algorithm(algorithm));
    let all = || (0..number).map(|at| rule.of_quotas(Arc::new(quotas(&[of(at)]))));
    all().for_each(drop);
    let before: Vec<_> = all().collect();
    all()
        .zip(before)
        .filter(|(now, before)| Arc::ptr_eq(now, before))
        .count()
}

fn check_kept(of: fn(u64) -> (u64, Duration)) {
    let wrong = super::ALGORITHMS.map(|algorithm| {
        let kept = [2, 3, 100, 1_024].map(|number| kept(algorithm, number, of));
        println!("{algorithm:?}: {kept:?}");
        kept != [2, 3, 100, 1_024]
    });
    assert_eq!(wrong, [false; 4]);
}

#[test]
fn rules_of_1024_different_windows_are_kept() {
    check_kept(|at| (7, millis(60_000 + at)));
}

#[test]
fn rules_of_1024_different_maxima_are_kept() {
    check_kept(|at| (7 + at, HOUR));
}

/// A derived rule's rules and plans go with it: nothing keeps the rule when nobody has it.
#[tokio::test]
async fn rules_are_not_kept() {
    let rule = Arc::new(made(&[0]));
    let weak = [
        Arc::downgrade(&rule),
        Arc::downgrade(&rule.of_plan("pro").expect("a plan")),
        Arc::downgrade(&rule.of_quotas(Arc::new(quotas(&[(3, HOUR)])))),
    ];
    let store = MemoryStore::new();
    for one in &weak {
        let take = Take::new(one.upgrade().expect("it is there"), Key::from("x"));
        assert!(store.take(&take).await.expect("a decision").is_allowed());
    }
    drop(rule);
    assert!(weak.iter().all(|one| one.upgrade().is_none()));
}
