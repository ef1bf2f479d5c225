//! What is said of a plan: fields, problem documents, `check`, `peek` and `reset`, counters and
//! what is published, in Redis and in memory.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use kit::Redis;
use kit::random::Random;
use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate::metrics::{DecisionOutcome, RuleSnapshot};
use tidegate::rule::{Policy, Quotas};
use tidegate::test_util::ManualClock;
use tidegate::{Header, Headers, Limits, MemoryStore, Quota, Rule, Store};

use super::{ALGORITHMS, of_own, quotas, seen, send, status, with_plans, wrap};
use kit::{HOUR, PATIENT, connect};

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

fn clocked() -> (ManualClock, MemoryStore) {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    (clock.clone(), MemoryStore::new().clock(clock))
}

async fn stores() -> (Redis, [Arc<dyn Store>; 2]) {
    let server = Redis::start();
    let redis: Arc<dyn Store> = Arc::new(connect(&server.url, PATIENT).await);
    (server, [Arc::new(clocked().1), redis])
}

fn of_file(store: Arc<dyn Store>) -> Limits {
    Limits::from_toml(FILE).expect("valid").store(store)
}

/// The key that the file's extractor makes.
fn key(name: &str) -> tidegate::Key {
    Header::new("x-key").key(name)
}

#[tokio::test]
async fn fields_and_problems_are_those_of_the_plan() {
    let (_server, stores) = stores().await;
    for store in stores {
        let service = wrap(of_file(store).layer("api"));
        let field = |answer: &str| -> Vec<String> {
            let lines = answer.split("\"ratelimit").skip(1);
            lines
                .map(|it| it.split("\\\")").next().expect("some").to_owned())
                .collect()
        };
        let own = seen(send(&service, "x", None).await).await;
        assert!(own.contains(r#"\"api\";q=3;w=3600"#), "{own}");
        assert!(own.contains(r#"\"api\";r=2;t=3600"#), "{own}");
        assert!(!own.contains("daily"), "{:?}", field(&own));
        let pro = seen(send(&service, "x", Some("pro")).await).await;
        assert!(
            pro.contains(r#"\"api-1h\";q=20;w=3600,\"daily\";q=9;w=86400"#),
            "{pro}"
        );
        assert!(pro.contains(r#"\"daily\";r=7"#), "{pro}");
        assert!(!pro.contains("q=3"), "{pro}");
        for _ in 0..7 {
            assert_eq!(status(&service, "x", Some("pro")).await, 200);
        }
        let denied = seen(send(&service, "x", Some("pro")).await).await;
        assert!(denied.starts_with("429"), "{denied}");
        assert!(
            denied.contains(r#"\"violated-policies\":[\"daily\"]"#),
            "{denied}"
        );
        let own = seen(send(&service, "x", None).await).await;
        assert!(own.contains(r#"\"violated-policies\":[\"api\"]"#), "{own}");
        let none = seen(send(&service, "x", Some("none")).await).await;
        assert!(none.contains(r#"\"api\";q=0;w=60"#), "{none}");
        assert!(!none.contains("retry-after"), "no wait helps: {none}");
        let other = seen(send(&service, "y", None).await).await;
        assert!(other.contains("r=2"), "another key: {other}");
    }
}

/// The older generations of fields, too.
#[tokio::test]
async fn older_fields_are_those_of_the_plan() {
    for (headers, own, pro) in [
        (Headers::Draft7, "limit=3,", "limit=9,"),
        (Headers::Legacy, "\"3\"", "\"9\""),
    ] {
        let service = wrap(of_file(Arc::new(clocked().1)).layer("api").headers(headers));
        let first = seen(send(&service, "x", None).await).await;
        let second = seen(send(&service, "x", Some("pro")).await).await;
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
        let service = wrap(limits.layer("api"));
        assert_eq!(status(&service, "x", Some("pro")).await, 200);
        assert!(limits.check("api", key("x")).plan("pro").await.is_ok());
        assert!(limits.check("api", key("x")).await.is_ok());
        let left = async |plan: &str| {
            let peek = limits.peek("api", key("x"));
            let left = match plan {
                "" => peek.await,
                _ => peek.plan(plan).await,
            };
            let left = left.expect("an answer").expect("there is a rule");
            left.quotas()
                .iter()
                .map(|state| state.remaining())
                .collect::<Vec<_>>()
        };
        for (plan, expected) in [
            ("", &[0][..]),
            ("pro", &[17, 6]),
            ("none", &[0]),
            ("no such plan", &[0]),
        ] {
            assert_eq!(left(plan).await, expected, "{plan}");
        }
        let refused = limits.check("api", key("x")).plan("no such plan").await;
        let refused = refused.expect_err("own quotas apply");
        assert_eq!(refused.rule().plan(), None);
        let refused = limits
            .check("api", key("x"))
            .plan("none")
            .await
            .expect_err("0 of 0");
        assert_eq!(
            (refused.rule().plan(), refused.retry_after()),
            (Some("none"), None)
        );
        // More than a quota's max of one plan, not of the other.
        assert!(limits.check("api", key("y")).cost(9).await.is_err());
        assert!(
            limits
                .check("api", key("y"))
                .cost(9)
                .plan("pro")
                .await
                .is_ok()
        );
        // Given back, it is given back under all plans.
        let admitted = limits
            .check("api", key("z"))
            .cost(9)
            .plan("pro")
            .await
            .expect("room");
        let charge = admitted.charge.expect("it was charged");
        assert!(limits.check("api", key("z")).await.is_err());
        assert_eq!(charge.refund().await.expect("an answer"), 9);
        assert!(limits.check("api", key("z")).cost(3).await.is_ok());
        assert!(limits.reset("api", key("x")).await.expect("an answer"));
        for (plan, expected) in [("", &[3][..]), ("pro", &[20, 9])] {
            assert_eq!(left(plan).await, expected, "{plan}");
        }
        assert!(!limits.reset("api", key("x")).await.expect("an answer"));
    }
}

/// Refunds under plans: what one plan was charged and given back leaves no plan with more or less.
#[tokio::test]
async fn refunds_are_of_all_plans() {
    let (_server, stores) = stores().await;
    for store in stores {
        for algorithm in ALGORITHMS {
            let rule = of_own("refunded", &[(10, HOUR)]).with_algorithm(algorithm);
            let rule = with_plans(
                rule,
                &[
                    ("day", &[(40, 24 * HOUR)]),
                    ("pro", &[(30, HOUR), (50, 2 * HOUR)]),
                ],
            );
            let limits = Limits::new([rule]).store(Arc::clone(&store));
            let mut random = Random::new(0x9e);
            let (mut kept, mut charges) = (0, Vec::new());
            for _ in 0..60 {
                let plan = ["", "day", "pro"][random.below(3) as usize];
                let check = limits.check("refunded", "x").cost(1 + random.below(3));
                let check = if plan.is_empty() {
                    check
                } else {
                    check.plan(plan)
                };
                if let Ok(admitted) = check.await {
                    let charge = admitted.charge.expect("it was charged");
                    kept += charge.receipt().units();
                    charges.push(charge);
                }
                if random.is(40) && !charges.is_empty() {
                    let at = random.below(charges.len() as u64) as usize;
                    let charge = charges.swap_remove(at);
                    let back = charge.refund().await.expect("an answer");
                    // A bucket gives back what has not begun to drain.
                    assert!(back <= charge.receipt().units());
                    let is_gcra = algorithm == tidegate::Algorithm::Gcra;
                    assert!(
                        is_gcra || back == charge.receipt().units(),
                        "{algorithm:?}: {back}"
                    );
                    kept -= back;
                }
                let Some(expected) = 40_u64.checked_sub(kept) else {
                    panic!("{algorithm:?}: {kept} units of at most 40 kept");
                };
                let day = limits.peek("refunded", "x").plan("day").await;
                let day = day.expect("an answer").expect("a rule").remaining();
                match algorithm {
                    tidegate::Algorithm::Gcra => assert!(day >= expected, "{day} < {expected}"),
                    _ => assert_eq!(day, expected, "{algorithm:?}"),
                }
            }
        }
    }
}

fn decided(rule: &RuleSnapshot) -> [u64; 3] {
    [
        DecisionOutcome::Allowed,
        DecisionOutcome::Denied,
        DecisionOutcome::Never,
    ]
    .map(|outcome| rule.decisions(outcome))
}

/// Whatever is asked: the plans' sums and the own quotas' are the rule's.
#[tokio::test]
async fn sums_are_right() {
    let (_, store) = clocked();
    let limits = of_file(Arc::new(store));
    let service = wrap(limits.layer("api"));
    let mut random = Random::new(5);
    let (mut of_plan, mut unknown) = ([[0_u64; 2]; 3], 0);
    for at in 0..2_000_u64 {
        let name = format!("k{}", random.below(150));
        let plan = ["", "none", "pro", "free\n\u{7f}", "PRO"][random.below(5) as usize];
        let is_ok = match at % 2 {
            0 => status(&service, &name, (!plan.is_empty()).then_some(plan)).await == 200,
            _ if plan.is_empty() => limits.check("api", key(&name)).await.is_ok(),
            _ => limits.check("api", key(&name)).plan(plan).await.is_ok(),
        };
        let which = ["none", "pro"].iter().position(|it| *it == plan);
        of_plan[which.map_or(0, |it| it + 1)][usize::from(!is_ok)] += 1;
        unknown += u64::from(which.is_none() && !plan.is_empty());
    }
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("api").expect("it is used");
    let plans: Vec<_> = rule
        .plans
        .iter()
        .map(|it| (&*it.name, it.allowed, it.denied))
        .collect();
    let [none, pro] = [of_plan[1], of_plan[2]];
    assert_eq!(plans, [("none", none[0], none[1]), ("pro", pro[0], pro[1])]);
    assert_eq!(rule.unknown_plans, unknown);
    let [allowed, denied, never] = decided(rule);
    assert_eq!(allowed, of_plan.iter().map(|it| it[0]).sum::<u64>());
    assert_eq!(denied + never, of_plan.iter().map(|it| it[1]).sum::<u64>());
    assert_eq!(rule.units, allowed);
    let text = published(&limits);
    for line in [
        format!(
            "tidegate_plan_decisions_total{{rule=\"api\",plan=\"pro\",outcome=\"allowed\"}} {}",
            pro[0]
        ),
        format!(
            "tidegate_plan_decisions_total{{rule=\"api\",plan=\"pro\",outcome=\"denied\"}} {}",
            pro[1]
        ),
        format!("tidegate_unknown_plans_total{{rule=\"api\"}} {unknown}"),
    ] {
        assert!(
            text.lines().any(|it| sorted(it) == sorted(&line)),
            "{line} not in {text}"
        );
    }
}

/// Labels come in any order.
fn sorted(line: &str) -> Vec<char> {
    let mut chars: Vec<char> = line.chars().collect();
    chars.sort_unstable();
    chars
}

fn published(limits: &Limits) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || limits.publish_metrics());
    recorder.handle().render()
}

/// Thousands of quotas with names from a table: clients see the names, metrics have none of them.
#[tokio::test]
async fn names_from_a_table_are_no_labels() {
    let (_, store) = clocked();
    let limits = of_file(Arc::new(store));
    let layer = limits.layer("api").quotas(|head| {
        let name = head.headers.get("x-key")?.to_str().ok()?;
        let policy = Policy::new(name, Quota::per_hour(1));
        Some(Arc::new(Quotas::with_policies([policy]).ok()?))
    });
    let service = wrap(layer);
    let before = published(&limits).lines().count();
    for at in 0..1_500 {
        let name = format!("tenant{at}");
        let answer = seen(send(&service, &name, Some("pro")).await).await;
        assert!(
            answer.contains(&format!(r#"\"{name}\";q=1;w=3600"#)),
            "{answer}"
        );
        let denied = seen(send(&service, &name, None).await).await;
        let mut expected = String::new();
        write!(expected, r#"\"violated-policies\":[\"{name}\"]"#).expect("a text");
        assert!(denied.contains(&expected), "{denied}");
    }
    let text = published(&limits);
    assert!(!text.contains("tenant"), "{text}");
    assert!(
        text.lines().count() < before + 20,
        "{before} lines, then {text}"
    );
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("api").expect("it is used");
    assert_eq!(decided(rule), [1_500, 1_500, 0]);
    assert!(rule.denials.len() < 10, "{:?}", rule.denials);
    println!("{:?} {:?}", rule.denials, rule.plans);
}

/// Quotas without names of a rule whose own have names, and the other way round.
#[tokio::test]
async fn names_of_derived_quotas() {
    let own = Policy::new("quick", Quota::per_second(5));
    let rule = Rule::with_policies("named", [own]).expect("valid");
    let two = quotas(&[(5, Duration::from_secs(1)), (9, HOUR)]);
    let rule = Arc::new(rule.with_plan("two", two).expect("valid"));
    let names = |rule: &Rule| -> Vec<String> {
        rule.policies()
            .iter()
            .map(|policy| policy.name().to_owned())
            .collect()
    };
    assert_eq!(
        names(&rule.of_plan("two").expect("a plan")),
        ["named-1s", "named-1h"]
    );
    let one = Arc::new(quotas(&[(5, HOUR)]));
    assert_eq!(names(&rule.of_quotas(one)), ["named"]);
}
