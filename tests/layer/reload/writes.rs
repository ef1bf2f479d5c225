//! Writes that take time: no half of one is applied.

use std::fs::OpenOptions;
use std::io::Write;

use super::*;

/// The rules in force, as one maximum for each of these paths.
fn maxima(service: &Service) -> [Option<u64>; 3] {
    let rules = service.limits.rules().load();
    ["getId", "search", "unused"].map(|path| Some(rules.get(path)?.quotas()[0].max()))
}

/// Truncates, writes a valid half, and appends the rest 200 ms later. Begins at every point between
/// two readings.
#[tokio::test(start_paused = true)]
async fn two_halves_within_200_ms() {
    let service = Service::watched().await;
    let mut max = 5;
    for offset in (0..2_300).step_by(50) {
        sleep(Duration::from_millis(offset)).await;
        let (before, after) = (maxima(&service), 5 + (max + 1) % 5);
        let text = rules(after);
        // Valid, and without the rule that no layer uses.
        let (first, second) = text.split_at(text.find("[rules.unused]").expect("is there"));
        service.write(first);
        for _ in 0..20 {
            sleep(Duration::from_millis(10)).await;
            assert_eq!(maxima(&service), before);
        }
        let mut file = OpenOptions::new().append(true).open(&service.file);
        let file = file.as_mut().expect("is there");
        file.write_all(second.as_bytes()).expect("is written");
        for _ in 0..100 {
            sleep(SETTLED / 100).await;
            let now = maxima(&service);
            let is_whole = now == before || now == [Some(after); 3];
            assert!(is_whole, "{now:?} at {offset}");
        }
        assert_eq!(maxima(&service), [Some(after); 3], "at {offset}");
        max = after;
    }
    assert_eq!(service.limits.status().failures, 0);
}

/// A write that stops in the middle for longer is an edit, if it parses.
#[tokio::test(start_paused = true)]
async fn what_parses_and_stays_is_an_edit() {
    let service = Service::watched().await;
    let text = rules(7);
    service
        .apply(&text[..text.find("[rules.unused]").expect("is there")])
        .await;
    assert_eq!(maxima(&service), [Some(7), Some(7), None]);
}

/// The same for a reload that is called, which reads once: with every kind of value.
#[tokio::test]
async fn cut_off_at_every_byte_and_reloaded() {
    let text = "prefix = \"a:\"\n[rules.getId]\nmax-count = 7\nwindow = \"1h\"\nalgorithm = \
                \"gcra\"\nburst = 9\ncost = 2\n[rules.search]\nquotas = [\n  { max-count = 7, \
                window = \"1h\" },\n  { max-count = 9, window = \"1d\", name = \"daily\" },\n]\n\
                enabled = true\n";
    let service = Service::start();
    let mut outcomes = [0; 2];
    for length in 0..=text.len() {
        service.write(&text[..length]);
        let outcome = service.limits.reload(&service.file);
        assert_eq!(outcome.is_err(), !service.error().is_empty());
        outcomes[usize::from(outcome.is_ok())] += 1;
        service.maximum().await;
        let rules = service.limits.rules().load();
        for path in ["getId", "search"] {
            assert!(rules.get(path).is_some(), "{length}: {path}");
        }
    }
    assert!(outcomes.iter().all(|number| *number > 5), "{outcomes:?}");
    service.check(7).await;
}

impl Service {
    /// The maxima of both routes, which are limited.
    async fn maximum(&self) -> [u64; 2] {
        let of = async |path| quota(&self.app, path).await.expect("limited");
        [of("/getId").await, of("/search").await]
    }
}

/// Nothing is applied while no two readings agree.
#[tokio::test(start_paused = true)]
async fn a_file_that_changes_all_the_time() {
    let service = Service::watched().await;
    for number in 0..600 {
        service.write(format!("{}# {number}", rules(7)));
        sleep(Duration::from_millis(50)).await;
        assert_eq!(service.version(), 1);
    }
    service.check(5).await;
    settle().await;
    service.check(7).await;
    assert_eq!(service.error(), "");
}
