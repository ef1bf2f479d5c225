//! Values at their ends: time-outs, costs, quotas, windows; rules that change; clocks that step.

use tidegate::rule::SharedRules;

use crate::prelude::*;
use crate::usual_and_general::contents;

const START: u64 = 1_700_000_000_000_000;

/// Law 6: a time-out of nothing is answered at once, and one without end is not at all too early.
#[tokio::test]
async fn time_outs_at_their_ends() {
    let (_server, store) = near().await;
    let one = take(&rule("one", 1_000, HOUR), "");
    for hardly in [0, 1, 1_000].map(Duration::from_nanos) {
        let store = store.clone().timeout(hardly);
        let began = Instant::now();
        let answers = join_all((0..100).map(|_| store.take(&one))).await;
        assert!(began.elapsed() < millis(500), "{:?}", began.elapsed());
        for answer in answers.iter().filter(|answer| answer.is_err()) {
            assert_eq!(kind(answer), Some(StoreErrorKind::Timeout));
        }
        let _ = kit::ask_all(&store, &vec![one.clone(); 1_000]).await;
    }
    for endless in [Duration::MAX, Duration::from_secs(u64::MAX / 1_000_000)] {
        let store = store.clone().timeout(endless);
        decide(&store, &one).await;
        let thousand = kit::ask_all(&store, &vec![one.clone(); 1_000]).await;
        assert_eq!(thousand.expect("decisions").len(), 1_000);
        let other = take(one.rule(), "x");
        let receipt = receipt_of(&store, &other).await;
        assert_eq!(refund(&store, &other, &receipt).await, 1);
    }
}

/// Law 8 at the ends of costs, quotas and windows.
#[tokio::test]
async fn numbers_at_their_ends() {
    const MOST: u64 = Quota::MAX_UNITS;
    const MAXES: [u64; 4] = [0, 1, 2, MOST];
    const COSTS: [u64; 8] = [0, 1, 2, u64::MAX, MOST, MOST + 1, 1 << 53, 1];
    let (_server, store) = near().await;
    let clock = clock_at(START);
    let memory = MemoryStore::new().clock(clock.clone());
    let store = store.clone().clock(clock.clone());
    let (nano, micro) = (Duration::from_nanos(1), Duration::from_micros(1));
    let windows = [nano, micro, millis(7), HOUR, Quota::MAX_WINDOW];
    let of_window = |window| MAXES.map(|max| kit::quota(max, window));
    let quotas = windows.map(of_window).concat();
    let ways = quotas.iter();
    let ways = ways.flat_map(|quota| Algorithm::ALL.map(|it| (quota, it)));
    for (number, (quota, algorithm)) in ways.enumerate() {
        let (max, window) = (quota.max(), quota.window());
        let rule = by(algorithm, &format!("ends{number}"), max, window);
        let mut receipts = Vec::new();
        for step in [0, 1, 999, 1_000, 7_000_000] {
            clock.set(clock.now() + step);
            for cost in COSTS {
                let take = take(&rule, "").with_cost(cost);
                let answer = decide(&store, &take).await;
                let expected = decide(&memory, &take).await;
                let case = format!("{algorithm:?} {max} in {window:?}: {cost}");
                assert_eq!(answer.is_allowed(), expected.is_allowed(), "{case}");
                assert_eq!(answer.retry_after(), expected.retry_after(), "{case}");
                assert_eq!(answer.quotas(), expected.quotas(), "{case}");
                if cost > max {
                    assert!(!answer.is_allowed(), "{case}");
                    let burst_fits = algorithm == Algorithm::Gcra && cost <= quota.burst();
                    assert!(answer.retry_after().is_none() || burst_fits, "{case}");
                }
                if let (Some(ours), Some(theirs)) = (answer.receipt(), expected.receipt()) {
                    receipts.push((take, ours, theirs));
                }
            }
        }
        for (take, ours, theirs) in receipts {
            let ours = refund(&store, &take, &ours).await;
            let theirs = refund(&memory, &take, &theirs).await;
            assert_eq!(ours, theirs, "{algorithm:?} {max} in {window:?}");
        }
    }
}

/// Law 2, also while the clock is back: denied takes and looks change nothing at all.
#[tokio::test]
async fn denied_while_the_clock_is_back() {
    let (server, store) = near().await;
    let clock = clock_at(START);
    let store = store.clone().clock(clock.clone());
    let quotas = [kit::quota(5, Duration::from_secs(10)), kit::quota(8, HOUR)];
    let takes = Algorithm::ALL.map(|algorithm| {
        let rule = Rule::new("back", quotas).expect("valid");
        take(&Arc::new(rule.with_algorithm(algorithm)), "")
    });
    for take in &takes {
        for _ in 0..9 {
            decide(&store, take).await;
        }
    }
    let before = contents(&server);
    let seconds = [5, 11, 7_200].map(|it| it * 1_000_000);
    for back in [0, 1, 999, 1_000, START].into_iter().chain(seconds) {
        clock.set(START - back);
        for take in &takes {
            for cost in [0, 1, 4, 6, 100, u64::MAX] {
                let decision = decide(&store, &take.clone().with_cost(cost)).await;
                let case = format!("{back} back, {cost}: {take:?}");
                assert_eq!(decision.is_allowed(), cost == 0, "{case}");
            }
        }
        assert!(contents(&server) == before, "changed {back} back");
    }
}

/// A rule of one quota, by this algorithm.
fn rules(path: &str, algorithm: Algorithm, max: u64, window: Duration) -> Rules {
    Rules::from_iter([Rule::clone(&by(algorithm, path, max, window))])
}

/// Law 1 while rules change under load: of the quotas that take turns, the largest bounds all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_that_change_under_load() {
    let (_server, store) = near().await;
    for algorithm in Algorithm::ALL {
        let turns = [(50, HOUR), (100, HOUR), (1, 2 * HOUR), (100, 3 * HOUR)];
        let rules = |(max, window)| rules("changes", algorithm, max, window);
        let admitted = admit(&store, "changes", 600, |at| rules(turns[at % 4])).await;
        // A busy machine may have left something.
        let rest = admit(&store, "changes", 120, |_| rules((100, HOUR))).await;
        assert_eq!(admitted + rest, 100, "{algorithm:?}: {rest} at last");
    }
}

/// A rule that changes its algorithm starts afresh, and finds its count when it changes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn algorithms_that_change_under_load() {
    const PATH: &str = "algorithms";
    let (_server, store) = near().await;
    let rules = |at: usize| rules(PATH, Algorithm::ALL[at % 4], 40, 24 * HOUR);
    let mut admitted = admit(&store, PATH, 1_500, rules).await;
    // A busy machine may have left something.
    for at in 0..4 {
        admitted += admit(&store, PATH, 60, |_| rules(at)).await;
    }
    assert_eq!(admitted, 160);
}

/// How many of these requests a layer admits while its rules are replaced all the time.
async fn admit(
    store: &RedisStore,
    path: &str,
    requests: u64,
    rules: impl Fn(usize) -> Rules,
) -> u64 {
    let shared = SharedRules::new(rules(0));
    let app = kit::app(RateLimitLayer::from_rules(&shared, path, store.clone()));
    let all = done(spawn_each(0..requests, app, |at, app| async move {
        sleep(Duration::from_micros(at * 500)).await;
        let status = kit::http::status(&app, "/").await;
        let is_expected = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        assert!(is_expected, "{status}");
        u64::from(status == StatusCode::OK)
    }));
    tokio::pin!(all);
    for at in 1.. {
        tokio::select! {
            all = &mut all => return all.iter().sum(),
            () = sleep(Duration::from_micros(700)) => shared.replace(rules(at)),
        }
    }
    unreachable!("all requests are answered")
}
