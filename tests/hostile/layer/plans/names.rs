//! Names of plans that a client chose: counted, logged once, never a label, and no burden.

use tracing::Level;

use super::*;
use kit::full_log::Log;

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
                let answer = see(service, "x", Some(&name)).await;
                assert!(answer.starts_with("200"), "{answer}");
                assert!(answer.contains("q=1000000"), "own quotas: {answer}");
            }
            assert!(limits.check("one", "x").plan(&name).await.is_ok());
        }
        let text = log.text();
        let is_told = |line: &str| !["DEBUG", "TRACE"].iter().any(|it| line.starts_with(it));
        let lines = text
            .lines()
            .filter(|line| line.contains("plan") && is_told(line.trim_start()));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), 2, "{:.9}: {lines:?}", name);
        for line in &lines {
            let is_cut = line.chars().count() < 400 && !line.contains(&"x".repeat(65));
            assert!(is_cut, "{line}");
            let is_odd = |char: char| char.is_control() || "\u{202e}\u{feff}".contains(char);
            assert!(!line.contains(is_odd), "{line:?}");
        }
        let longest = text.lines().map(str::len).max();
        assert!(longest < Some(2_000), "an event of {longest:?} bytes");
        let unknown = ["one", "two"].map(|path| counters(&limits, path).unknown_plans);
        assert_eq!(unknown, [22, 20]);
        let published = published(&limits);
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
        let plans = counters(&limits, "flood").plans.len();
        (plans, limits.warnings().len())
    };
    let first = flood(0).await;
    let found = (first.0, counters(&limits, "flood").unknown_plans);
    assert_eq!(found, (1, 6_000));
    assert_eq!(flood(3_000).await, first);
    let said = log.lines_of(Level::WARN);
    assert!(said.is_empty(), "said again: {said:?}");
}

/// A rule without plans does not ask for one, and calls no closure.
#[tokio::test]
async fn a_rule_without_plans_does_not_ask() {
    let limits = Limits::new([of_own("plain", &[(9, HOUR)])]).plan(|_| panic!("it is asked"));
    let own = limits.layer("plain").plan(|_| panic!("it is asked"));
    for layer in [limits.layer("plain"), own] {
        assert_eq!(status(&wrap(layer), "x", Some("pro")).await, 200);
    }
    assert_eq!(counters(&limits, "plain").unknown_plans, 0);
}

/// Names of configured plans may be anything that is not empty; each is found again.
#[tokio::test]
async fn configured_names_of_all_kinds() {
    let (_server, store) = kit::near().await;
    let mut rule = of_own("odd", &[(1_000, HOUR)]);
    let names = hostile().split_off(1);
    for (at, name) in (0..).zip(&names) {
        let own: Pairs<'_> = &[(at + 2, Duration::from_secs(60 + at))];
        rule = with_plans(rule, &[(name, own)]);
    }
    let rule = Arc::new(rule);
    assert_eq!(rule.plans().count(), names.len());
    assert!(rule.plans().is_sorted());
    let limits = Limits::new([Rule::clone(&rule)]).store(store);
    let service = wrap(limits.layer("odd"));
    for (at, name) in names.iter().enumerate() {
        assert_eq!(Plan::new(name.as_str()).name(), Some(name.as_str()));
        let answer = see(&service, "x", Some(name)).await;
        assert!(answer.contains(&format!("q={};", at + 2)), "{answer}");
    }
    let published = published(&limits);
    let is_good =
        |line: &str| line.is_empty() || ["# ", "tidegate_"].iter().any(|it| line.starts_with(it));
    let bad: Vec<_> = published.lines().filter(|line| !is_good(line)).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(counters(&limits, "odd").unknown_plans, 0);
}
