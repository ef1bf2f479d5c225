//! Names of plans that a client chose: counted, logged once, never a label, and no burden.

use std::sync::Arc;
use std::time::Duration;

use kit::Redis;
use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate::rule::Plan;
use tidegate::{Limits, MemoryStore, Rule};
use tracing::Level;

use super::{of_own, quotas, request, seen, send, status, with_plans, wrap};
use kit::full_log::Log;
use kit::{HOUR, PATIENT, connect};

fn hostile() -> Vec<String> {
    let long = "x".repeat(1 << 20);
    let wide = "\u{1F980}".repeat(40);
    [
        "",
        " ",
        "pro ",
        "Pro",
        "pro\0",
        "pro\n",
        "\r\nERROR a line of its own",
        "\u{1b}[2J\u{1b}[31m",
        "\u{202e}orp",
        "\u{0}",
        "\"",
        "{}",
        "plans.pro",
        "a:b{c}",
        "\u{feff}pro",
        &wide,
        &long,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn with_pro(path: &str) -> Rule {
    with_plans(of_own(path, &[(1_000_000, HOUR)]), &[("pro", &[(5, HOUR)])])
}

#[tokio::test]
async fn hostile_names_are_counted_and_logged_once_for_each_rule() {
    for name in hostile() {
        let log = Log::start();
        let limits = Limits::new([with_pro("one"), with_pro("two")]);
        let services = ["one", "two"].map(|path| wrap(limits.layer(path)));
        let _ = log.text();
        for service in &services {
            for _ in 0..20 {
                let answer = seen(send(service, "x", Some(&name)).await).await;
                assert!(answer.starts_with("200"), "{answer}");
                assert!(answer.contains("q=1000000"), "own quotas: {answer}");
            }
            assert!(limits.check("one", "x").plan(&name).await.is_ok());
        }
        let text = log.text();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.contains("plan") && !line.trim_start().starts_with("DEBUG"))
            .filter(|line| !line.trim_start().starts_with("TRACE"))
            .collect();
        assert_eq!(
            lines.len(),
            2,
            "{:?}: {lines:?}",
            name.chars().take(9).collect::<String>()
        );
        for line in &lines {
            let cut = line.chars().count() < 400 && !line.contains(&"x".repeat(65));
            assert!(cut, "{line}");
            assert!(line.chars().all(|char| !char.is_control()), "{line:?}");
            assert!(
                !line.contains('\u{202e}') && !line.contains('\u{feff}'),
                "{line:?}"
            );
        }
        for line in text.lines() {
            assert!(line.len() < 2_000, "an event of {} bytes", line.len());
        }
        let snapshot = limits.snapshot();
        let unknown = ["one", "two"].map(|path| snapshot.rule(path).expect("used").unknown_plans);
        assert_eq!(unknown, [22, 20]);
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || limits.publish_metrics());
        let published = recorder.handle().render();
        assert!(published.len() < 40_000, "{} bytes", published.len());
        assert_eq!(published.matches("plan=").count(), 4, "{published}");
    }
}

/// Thousands of names: one line, a number, and no memory.
#[tokio::test]
async fn a_flood_of_names() {
    let log = Log::start();
    let limits = Limits::new([with_pro("flood")]).store(MemoryStore::new());
    let service = wrap(limits.layer("flood"));
    let flood = async |from: usize| {
        for at in from..from + 3_000 {
            let name = format!("{at}-{}", "n".repeat(500));
            assert_eq!(status(&service, "x", Some(&name)).await, 200);
            assert!(limits.check("flood", "x").plan(&name).await.is_ok());
            if at % 500 == 0 {
                let _ = log.text();
            }
        }
    };
    flood(0).await;
    let snapshot = || limits.snapshot().rule("flood").expect("used").clone();
    let plans = snapshot().plans.len();
    let warnings = limits.warnings().len();
    assert_eq!((plans, snapshot().unknown_plans), (1, 6_000));
    flood(3_000).await;
    assert_eq!(
        (snapshot().plans.len(), limits.warnings().len()),
        (plans, warnings)
    );
    let said = log.lines_of(Level::WARN);
    assert!(said.is_empty(), "said again: {said:?}");
}

/// A rule without plans does not ask for one, and calls no closure.
#[tokio::test]
async fn a_rule_without_plans_does_not_ask() {
    let limits = Limits::new([of_own("plain", &[(9, HOUR)])]).plan(|_| panic!("it is asked"));
    let service = wrap(limits.layer("plain"));
    assert_eq!(status(&service, "x", Some("pro")).await, 200);
    let own = wrap(limits.layer("plain").plan(|_| panic!("it is asked")));
    assert_eq!(status(&own, "x", Some("pro")).await, 200);
    assert_eq!(
        limits.snapshot().rule("plain").expect("used").unknown_plans,
        0
    );
}

/// The layer's closure comes before that of `Limits`, that before the extension: also where it says
/// that there is none.
#[tokio::test]
async fn who_says_the_plan() {
    fn from_field<'a>(head: &'a http::request::Parts, name: &str) -> Option<&'a str> {
        head.headers.get(name)?.to_str().ok()
    }
    let plain = Limits::new([with_pro("a")]);
    let limits = Limits::new([with_pro("a")]).plan(|head| from_field(head, "x-of-limits"));
    let by_limits = wrap(limits.layer("a"));
    let by_layer = wrap(
        limits
            .layer("a")
            .plan(|head| from_field(head, "x-of-layer")),
    );
    let by_extension = wrap(plain.layer("a"));
    for (service, field, expected) in [
        (&by_extension, "x-of-limits", "q=5"),
        (&by_limits, "x-of-limits", "q=5"),
        (&by_limits, "x-of-layer", "q=1000000"),
        (&by_layer, "x-of-layer", "q=5"),
        (&by_layer, "x-of-limits", "q=1000000"),
    ] {
        let mut request = request("x", Some("pro"));
        request
            .headers_mut()
            .insert(field, "pro".parse().expect("a value"));
        let answer = tower::ServiceExt::oneshot(service.clone(), request)
            .await
            .expect("no error");
        let answer = seen(answer).await;
        assert!(answer.contains(expected), "{field}, {expected}: {answer}");
    }
}

/// Names of configured plans may be anything that is not empty; each is found again.
#[tokio::test]
async fn configured_names_of_all_kinds() {
    let server = Redis::start();
    let store = connect(&server.url, PATIENT).await;
    let mut rule = of_own("odd", &[(1_000, HOUR)]);
    let names: Vec<_> = hostile()
        .into_iter()
        .filter(|name| !name.is_empty())
        .collect();
    for (at, name) in names.iter().enumerate() {
        let own = quotas(&[(at as u64 + 2, Duration::from_secs(60 + at as u64))]);
        rule = rule.with_plan(name, own).expect("a name");
    }
    let rule = Arc::new(rule);
    assert_eq!(rule.plans().count(), names.len());
    assert!(rule.plans().is_sorted());
    let limits = Limits::new([Rule::clone(&rule)]).store(store);
    let service = wrap(limits.layer("odd"));
    for (at, name) in names.iter().enumerate() {
        assert_eq!(Plan::new(name.as_str()).name(), name);
        let answer = seen(send(&service, "x", Some(name)).await).await;
        assert!(answer.contains(&format!("q={};", at + 2)), "{answer}");
    }
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || limits.publish_metrics());
    let published = recorder.handle().render();
    let bad: Vec<_> = published
        .lines()
        .filter(|line| {
            !line.starts_with("# ") && !line.starts_with("tidegate_") && !line.is_empty()
        })
        .collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(
        limits.snapshot().rule("odd").expect("used").unknown_plans,
        0
    );
}
