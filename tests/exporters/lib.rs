//! Two `Limits` with one path whose counters are published, and what an exporter has to show of
//! them.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidegate::decision::Source;
use tidegate::metrics::DecisionOutcome;
use tidegate::{Limits, Quota, Rule};
use tokio::time::sleep;

/// Counters above 0 by their names and labels.
pub type Counters = BTreeMap<String, u64>;

/// Asks before the recorder is there, for three seconds, and after it; returns what the snapshots
/// count. By then the exporter was told, and once a second it is told again.
pub async fn counted(install: impl FnOnce()) -> Counters {
    let both = [5, 10].map(|max| {
        let rule = Rule::new("api", [Quota::per_hour(max)]).expect("a rule");
        let limits = Limits::new([rule]);
        limits.publish_metrics_every_second();
        limits
    });
    ask(&both, 12).await;
    sleep(Duration::from_secs(3)).await;
    install();
    sleep(Duration::from_secs(2)).await;
    ask(&both, 8).await;
    sleep(Duration::from_secs(4)).await;

    let mut counters = Counters::new();
    for limits in &both {
        let snapshot = limits.snapshot();
        let rule = snapshot.rule("api").expect("it is used");
        for outcome in DecisionOutcome::ALL {
            for source in Source::ALL {
                let labels = [("outcome", outcome.name()), ("source", source.name())];
                let number = rule.decisions_by(outcome, source);
                add(&mut counters, "tidegate_decisions_total", labels, number);
            }
        }
        for (quota, number) in &rule.denials {
            let labels = [("quota", &**quota)];
            add(&mut counters, "tidegate_denials_total", labels, *number);
        }
        add(&mut counters, "tidegate_units_total", [], rule.units);
    }
    assert_eq!(counters["tidegate_units_total rule=api"], 15);
    counters
}

async fn ask(both: &[Limits; 2], times: usize) {
    for limits in both {
        for _ in 0..times {
            let _ = limits.check("api", "alice").await;
        }
    }
}

fn add<'a, const N: usize>(
    counters: &mut Counters,
    name: &str,
    labels: [(&'a str, &'a str); N],
    number: u64,
) {
    note(
        counters,
        name,
        [("rule", "api")].into_iter().chain(labels),
        number,
    );
}

/// Adds what an exporter shows, if it is compared.
pub fn note<'a>(
    counters: &mut Counters,
    name: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    number: u64,
) {
    let is_compared = ["decisions", "denials", "units"]
        .iter()
        .any(|it| name == format!("tidegate_{it}_total"));
    if is_compared && number > 0 {
        let labels = labels
            .into_iter()
            .map(|(key, value)| format!(" {key}={value}"));
        let mut labels: Vec<_> = labels.collect();
        labels.sort();
        *counters
            .entry(name.to_owned() + &labels.concat())
            .or_default() += number;
    }
}

/// A daemon of StatsD: its port, and the sums of the counters that it is sent.
pub fn daemon() -> (u16, Arc<Mutex<Counters>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").port();
    let sums: Arc<Mutex<Counters>> = Arc::default();
    let seen = Arc::clone(&sums);
    thread::spawn(move || {
        let mut packet = vec![0; 65_536];
        while let Ok(length) = socket.recv(&mut packet) {
            let text = String::from_utf8_lossy(&packet[..length]);
            for line in text.lines() {
                sum(&mut seen.lock().expect("no panic"), line);
            }
        }
    });
    (port, sums)
}

/// Adds a line such as `name:5|c|#key:value,key:value`.
fn sum(counters: &mut Counters, line: &str) {
    let mut parts = line.split('|');
    let Some((name, number)) = parts.next().and_then(|it| it.split_once(':')) else {
        return;
    };
    if parts.next() == Some("c") {
        let tags = parts
            .find_map(|it| it.strip_prefix('#'))
            .unwrap_or_default();
        let tags = tags.split(',').filter_map(|it| it.split_once(':'));
        note(counters, name, tags, number.parse().expect("a number"));
    }
}
