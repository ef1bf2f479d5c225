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

async fn stores() -> (Redis, [Arc<dyn Store>; 2]) {
    let (server, redis) = kit::near().await;
    (server, [Arc::new(clocked().1), Arc::new(redis)])
}

fn of_file(store: impl Store) -> Limits {
    Limits::from_toml(FILE).expect("valid").store(store)
}

#[tokio::test]
async fn fields_and_problems_are_those_of_the_plan() {
    let (_server, stores) = stores().await;
    for store in stores {
        let service = wrap(of_file(store).layer("api"));
        let check = async |key, plan, has: &[&str], has_not: &str| {
            let answer = see(&service, key, plan).await;
            assert!(has.iter().all(|it| answer.contains(it)), "{answer}");
            assert!(has_not.is_empty() || !answer.contains(has_not), "{answer}");
        };
        let own = [r#"\"api\";q=3;w=3600"#, r#"\"api\";r=2;t=3600"#];
        check("x", None, &own, "daily").await;
        let policy = r#"\"api-1h\";q=20;w=3600,\"daily\";q=9;w=86400"#;
        let pro = Some("pro");
        check("x", pro, &[policy, r#"\"daily\";r=7"#], "q=3").await;
        assert_eq!(admitted(&service, "x", pro, 7).await, 7);
        let problem = r#"\"violated-policies\":[\"daily\"]"#;
        check("x", pro, &["429", problem], "").await;
        let problem = r#"\"violated-policies\":[\"api\"]"#;
        check("x", None, &["429", problem], "").await;
        // No wait helps.
        check("x", Some("none"), &[r#"\"api\";q=0;w=60"#], "retry-after").await;
        check("y", None, &["r=2"], "").await;
    }
    // The older generations of fields, too.
    for (headers, own, pro) in [
        (Headers::Draft7, "limit=3,", "limit=9,"),
        (Headers::Legacy, "\"3\"", "\"9\""),
    ] {
        let service = wrap(of_file(clocked().1).layer("api").headers(headers));
        let first = see(&service, "x", None).await;
        let second = see(&service, "x", Some("pro")).await;
        assert!(first.contains(own) && !first.contains(pro), "{first}");
        assert!(second.contains(pro) && !second.contains(own), "{second}");
    }
}

/// `check`, `peek` and `reset` are about the count of the layers, whatever plan is named.
#[tokio::test]
async fn calls_count_with_the_layers() {
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = of_file(store);
        let check = |name| limits.check("api", key(name));
        let left = async |plan| left(&limits, "api", key("x"), plan).await;
        let service = wrap(limits.layer("api"));
        assert_eq!(status(&service, "x", Some("pro")).await, 200);
        assert!(check("x").plan("pro").await.is_ok());
        assert!(check("x").await.is_ok());
        assert_eq!(left(None).await, [0]);
        assert_eq!(left(Some("pro")).await, [17, 6]);
        for plan in ["none", "no such plan"] {
            assert_eq!(left(Some(plan)).await, [0], "{plan}");
        }
        let refused = check("x").plan("no such plan").await;
        assert_eq!(refused.expect_err("own quotas apply").rule().plan(), None);
        let refused = check("x").plan("none").await.expect_err("0 of 0");
        assert_eq!(refused.rule().plan(), Some("none"));
        assert_eq!(refused.retry_after(), None);
        // More than a quota's max of one plan, not of the other.
        assert!(check("y").cost(9).await.is_err());
        assert!(check("y").cost(9).plan("pro").await.is_ok());
        // Given back, it is given back under all plans.
        let admitted = check("z").cost(9).plan("pro").await.expect("room");
        let charge = admitted.charge.expect("it was charged");
        assert!(check("z").await.is_err());
        assert_eq!(charge.refund().await.expect("an answer"), 9);
        assert!(check("z").cost(3).await.is_ok());
        assert!(limits.reset("api", key("x")).await.expect("an answer"));
        assert_eq!(left(None).await, [3]);
        assert_eq!(left(Some("pro")).await, [20, 9]);
        assert!(!limits.reset("api", key("x")).await.expect("an answer"));
    }
}

/// Refunds under plans: what one plan was charged and given back leaves no plan with more or less.
#[tokio::test]
async fn refunds_are_of_all_plans() {
    let (_server, stores) = stores().await;
    for store in stores {
        for algorithm in ALGORITHMS {
            let is_gcra = algorithm == Algorithm::Gcra;
            let rule = of_own("refunded", &[(10, HOUR)]).with_algorithm(algorithm);
            let pro: (&str, Pairs<'_>) = ("pro", &[(30, HOUR), (50, 2 * HOUR)]);
            let rule = with_plans(rule, &[("day", &[(40, DAY)]), pro]);
            let limits = Limits::new([rule]).store(Arc::clone(&store));
            let mut random = Random::new(0x9e);
            let (mut kept, mut charges) = (0, Vec::new());
            for _ in 0..60 {
                let plan = ["", "day", "pro"][random.below(3) as usize];
                let check = limits.check("refunded", "x").cost(1 + random.below(3));
                let check = match plan {
                    "" => check.await,
                    _ => check.plan(plan).await,
                };
                if let Ok(admitted) = check {
                    let charge = admitted.charge.expect("it was charged");
                    kept += charge.receipt().units();
                    charges.push(charge);
                }
                if random.is(40) && !charges.is_empty() {
                    let at = random.below(charges.len() as u64) as usize;
                    let charge = charges.swap_remove(at);
                    let back = charge.refund().await.expect("an answer");
                    // A bucket gives back what has not begun to drain.
                    let units = charge.receipt().units();
                    let is_right = back == units || is_gcra && back < units;
                    assert!(is_right, "{algorithm:?}: {back}");
                    kept -= back;
                }
                assert!(kept <= 40, "{algorithm:?}: {kept} units of at most 40 kept");
                let day = left(&limits, "refunded", Key::from("x"), Some("day")).await[0];
                let is_right = day == 40 - kept || is_gcra && day > 40 - kept;
                assert!(is_right, "{algorithm:?}: {day}, {kept} kept");
            }
        }
    }
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
