//! What is said of a plan: fields, problem documents, `check`, `peek` and `reset`, counters and
//! what is published, in Redis and in memory.

use super::*;

const FILE: &str = r#"
[rules.api]
max-count = 3
window = "1h"
key = "header:x-key"

[rules.api.plans.pro]
quotas = [
  { max-count = 20, window = "1h" },
  { max-count = 9, window = "1d", name = "daily" },
]

[rules.api.plans.none]
max-count = 0
window = "1m"
"#;

fn of_file(store: impl Store) -> Limits {
    Limits::from_toml(FILE).expect("valid").store(store)
}

fn decided(rule: &RuleSnapshot) -> [u64; 3] {
    use DecisionOutcome::{Allowed, Denied, Never};
    [Allowed, Denied, Never].map(|outcome| rule.decisions(outcome))
}

/// Whatever is asked: the plans' sums and the own quotas' are the rule's.
#[tokio::test]
async fn sums_are_right() {
    let limits = of_file(clocked().1);
    let service = wrap(limits.layer("api"));
    let mut random = Random::new(5);
    let (mut of_plan, mut unknown) = ([[0_u64; 2]; 3], 0);
    for at in 0..2_000 {
        let name = format!("k{}", random.below(150));
        let plans = ["none", "pro", "free\n\u{7f}", "PRO"];
        let plan = plans.get(random.below(5) as usize).copied();
        let check = limits.check("api", key(&name));
        let is_ok = match (at % 2, plan) {
            (0, _) => status(&service, &name, plan).await == 200,
            (_, None) => check.await.is_ok(),
            (_, Some(plan)) => check.plan(plan).await.is_ok(),
        };
        let which = ["none", "pro"].iter().position(|it| Some(*it) == plan);
        of_plan[which.map_or(0, |it| it + 1)][usize::from(!is_ok)] += 1;
        unknown += u64::from(which.is_none() && plan.is_some());
    }
    let rule = counters(&limits, "api");
    let plans = rule
        .plans
        .iter()
        .map(|it| (&*it.name, it.allowed, it.denied));
    let [none, pro] = [of_plan[1], of_plan[2]];
    let expected = [("none", none[0], none[1]), ("pro", pro[0], pro[1])];
    assert_eq!(plans.collect::<Vec<_>>(), expected);
    assert_eq!(rule.unknown_plans, unknown);
    let [allowed, denied, never] = decided(&rule);
    assert_eq!(allowed, of_plan.iter().map(|it| it[0]).sum::<u64>());
    assert_eq!(denied + never, of_plan.iter().map(|it| it[1]).sum::<u64>());
    assert_eq!(rule.units, allowed);
    let decisions = "tidegate_plan_decisions_total{rule=\"api\",plan=\"pro\"";
    let text = published(&limits);
    for line in [
        format!("{decisions},outcome=\"allowed\"}} {}", pro[0]),
        format!("{decisions},outcome=\"denied\"}} {}", pro[1]),
        format!("tidegate_unknown_plans_total{{rule=\"api\"}} {unknown}"),
    ] {
        let is_there = text.lines().any(|it| sorted(it) == sorted(&line));
        assert!(is_there, "{line} not in {text}");
    }
}

/// Labels come in any order.
fn sorted(line: &str) -> Vec<char> {
    let mut chars: Vec<char> = line.chars().collect();
    chars.sort_unstable();
    chars
}

/// Thousands of quotas with names from a table: clients see the names, metrics have none of them.
#[tokio::test]
async fn names_from_a_table_are_no_labels() {
    let limits = of_file(clocked().1);
    let layer = limits.layer("api").plan_value(|head| {
        let policy = Policy::new(field(head, "x-key")?, Quota::per_hour(1));
        Plan::of([policy]).ok()
    });
    let service = wrap(layer);
    let before = published(&limits).lines().count();
    for at in 0..1_500 {
        let name = format!("tenant{at}");
        let answer = see(&service, &name, Some("pro")).await;
        let policy = format!(r#"\"{name}\";q=1;w=3600"#);
        assert!(answer.contains(&policy), "{answer}");
        let denied = see(&service, &name, None).await;
        let problem = format!(r#"\"violated-policies\":[\"{name}\"]"#);
        assert!(denied.contains(&problem), "{denied}");
    }
    let text = published(&limits);
    assert!(!text.contains("tenant"), "{text}");
    let lines = text.lines().count();
    assert!(lines < before + 20, "{before} lines, then {text}");
    let rule = counters(&limits, "api");
    assert_eq!(decided(&rule), [1_500, 1_500, 0]);
    assert!(rule.denials.len() < 10, "{:?}", rule.denials);
}

/// Quotas without names of a rule whose own have names, and the other way round.
#[tokio::test]
async fn names_of_derived_quotas() {
    let own = Policy::new("quick", Quota::per_second(5));
    let rule = Rule::with_policies("named", [own]).expect("valid");
    let rule = Arc::new(with_plans(rule, &[("two", &[(5, SECOND), (9, HOUR)])]));
    let names = |rule: &Rule| -> Vec<String> {
        let policies = rule.policies().iter();
        policies.map(|policy| policy.name().to_owned()).collect()
    };
    let two = rule.of_plan("two").expect("a plan");
    assert_eq!(names(&two), ["named-1s", "named-1h"]);
    let one = Arc::new(quotas(&[(5, HOUR)]));
    assert_eq!(
        names(
            &rule
                .under(&Plan::from(Quotas::clone(&one)))
                .expect("it fits")
        ),
        ["named"]
    );
}
