//! What the log is told: each change once, whatever the number of requests.

use kit::http;
use kit::log::Log;

use super::*;

/// A fallback around it that has half of everything.
fn shared(flaky: &FlakyStore) -> Resilient<FlakyStore> {
    Resilient::new(flaky.clone()).fallback(Share::of_processes(2))
}

/// Asks a hundred times a second.
async fn ask_often(store: &dyn Store, times: usize) {
    for _ in 0..times {
        ask(store, &take()).await;
        sleep(SECOND / 100).await;
    }
}

/// Each outage is told once by the fallback and once by the breaker, with the reason, and so is its
/// end.
#[tokio::test(start_paused = true)]
async fn an_outage_is_told_once_and_its_end_too() {
    let log = Log::start();
    let flaky = FlakyStore::new(Mode::Works);
    let store = shared(&flaky).build();
    ask(&store, &take()).await;
    assert!(log.lines().is_empty());
    for _ in 0..2 {
        flaky.set(Mode::Fails(Kind::Timeout));
        ask_often(&store, 500).await;
        let [fallback, open] = &*log.lines() else {
            panic!("not two lines");
        };
        let lines = [
            ("the fallback decides", fallback),
            ("breaker is open", open),
        ];
        for (text, line) in lines {
            let is_told = line.contains("WARN") && line.contains(text);
            assert!(is_told && line.contains("the store is broken"), "{line}");
            assert!(line.contains("store=\"flaky\""), "{line}");
        }
        flaky.set(Mode::Works);
        ask_often(&store, 500).await;
        let [closed, decides] = &*log.lines() else {
            panic!("not two lines");
        };
        assert!(closed.contains("breaker is closed again"), "{closed}");
        assert!(decides.contains("the store decides again"), "{decides}");
        for line in [closed, decides] {
            assert!(line.contains("INFO"), "{line}");
        }
        // Of the next one it may tell again.
        advance(10 * SECOND).await;
    }
}

/// A cached denial does not tell whether the store decides.
#[tokio::test(start_paused = true)]
async fn a_cached_denial_is_no_recovery() {
    let log = Log::start();
    for share in [Some(Share::of_processes(2)), None] {
        let flaky = FlakyStore::new(Mode::Works);
        let store = Resilient::new(flaky.clone()).fallback(share).build();
        let rule = rule(quota(1, 600 * SECOND)).with_key(Header::new("tenant"));
        let layer = RateLimitLayer::from_rule(rule).store(store);
        let app = app(layer);
        let status = async |tenant: &str| {
            let fields = format!("tenant: {tenant}");
            http::ask(&app, "/", &fields).await.status
        };
        assert_eq!((status("a").await, status("a").await), (200, 429));
        flaky.set(Mode::Fails(Kind::Timeout));
        for tenant in ["b", "c", "d"] {
            let expected = if share.is_some() { 200 } else { 503 };
            assert_eq!(status(tenant).await, expected);
            assert_eq!(status("a").await, 429);
        }
        assert_eq!(flaky.asked(), 5, "the cache answers");
        let lines = log.lines();
        let warnings = lines.iter().filter(|line| line.contains("WARN"));
        assert_eq!(warnings.count(), 1, "{lines:?}");
    }
}

/// A breaker that tries and fails, tries and fails has not closed in between.
#[tokio::test(start_paused = true)]
async fn trials_are_not_told() {
    let log = Log::start();
    let flaky = FlakyStore::new(Mode::Writes(Kind::ReadOnly));
    let store = shared(&flaky).build();
    ask_often(&store, 1_000).await;
    assert_eq!(log.lines().len(), 2);
}

/// A store that fails every other time is no flood of lines.
#[tokio::test(start_paused = true)]
async fn ups_and_downs_are_told_every_ten_seconds() {
    let log = Log::start();
    let flaky = FlakyStore::new(Mode::Works);
    let store = shared(&flaky).failures(1).build();
    for _ in 0..200 {
        flaky.set(Mode::Fails(Kind::Timeout));
        ask(&store, &take()).await;
        flaky.set(Mode::Works);
        sleep(SECOND).await;
        ask(&store, &take()).await;
    }
    // Of fallback and breaker, each ten seconds.
    assert_eq!(log.lines().len(), 4 * 200 / 10);
}

/// What a rule counts on and its store has not.
#[tokio::test]
async fn a_missing_fallback_is_told_once() {
    let log = Log::start();
    let rule = rule(quota(5, SECOND)).with_on_error(OnError::Fallback);
    let status = async |store: Arc<dyn Store>| {
        let layer = RateLimitLayer::from_rule(rule.clone()).store(store);
        let statuses = http::statuses(&app(layer), "/", "", 50).await;
        assert_eq!(statuses, [503; 50]);
        log.lines()
    };
    let flaky = || FlakyStore::new(Mode::Fails(Kind::Timeout));
    let lines = status(Arc::new(flaky())).await;
    let is_it = |line: &&String| line.contains("the rule says \"fallback\"");
    assert_eq!(lines.iter().filter(is_it).count(), 1, "{lines:?}");
    let bare = Resilient::new(flaky()).build();
    assert_eq!(status(bare).await.iter().filter(is_it).count(), 1);
    // One that is there and has no room is another matter.
    let full = Resilient::new(flaky()).fallback(Share::of_processes(1));
    let full = full.fallback_keys(0).build();
    assert_eq!(status(full).await.iter().filter(is_it).count(), 0);
}
