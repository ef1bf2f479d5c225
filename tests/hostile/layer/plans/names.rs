//! Names of plans that a client chose: counted, logged once, never a label, and no burden.

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

/// A rule without plans does not ask for one, calls no closure, and knows of no unknown one.
#[tokio::test]
async fn a_rule_without_plans_does_not_ask() {
    let limits = Limits::new([of_own("plain", &[(9, HOUR)])]);
    let asking = limits.clone().plan(|_| panic!("it is asked"));
    let own = limits.layer("plain").plan(|_| panic!("it is asked"));
    for layer in [limits.layer("plain"), asking.layer("plain"), own] {
        assert_eq!(status(&wrap(layer), "x", Some("pro")).await, 200);
    }
    assert_eq!(counters(&limits, "plain").unknown_plans, 0);
}
