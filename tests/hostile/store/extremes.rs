//! Values at their ends: time-outs, costs, quotas, windows; rules that change; clocks that step.

use tidegate::rule::SharedRules;
use tower::ServiceExt;

use crate::prelude::*;

const START: u64 = 1_700_000_000_000_000;

/// Law 6: a time-out of nothing is answered at once, and one without end is not at all too early.
#[tokio::test]
async fn time_outs_at_their_ends() {
    let (_server, store) = near().await;
    let one = take(&rule("one", 1_000, HOUR), "");
    for hardly in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(1),
    ] {
        let store = store.clone().timeout(hardly);
        let began = Instant::now();
        let answers = join_all((0..100).map(|_| store.take(&one))).await;
        assert!(began.elapsed() < millis(500), "{:?}", began.elapsed());
        for answer in answers {
            if let Err(error) = answer {
                assert_eq!(error.kind(), StoreErrorKind::Timeout);
            }
        }
        let _ = kit::ask_all(&store, &vec![one.clone(); 1_000]).await;
    }
    for endless in [Duration::MAX, Duration::from_secs(u64::MAX / 1_000_000)] {
        let store = store.clone().timeout(endless);
        decide(&store, &one).await;
        let thousand = kit::ask_all(&store, &vec![one.clone(); 1_000]).await;
        assert_eq!(thousand.expect("decisions").len(), 1_000);
        let receipt = store.take(&take(&one.rule().clone(), "x")).await;
        let receipt = receipt.expect("a decision").receipt().expect("charged");
        let refunded = store.refund(&take(one.rule(), "x"), &receipt).await;
        assert_eq!(refunded.expect("an answer"), 1);
    }
}

/// Law 8 at the ends of costs, quotas and windows.
#[tokio::test]
async fn numbers_at_their_ends() {
    let (_server, store) = near().await;
    let clock = clock_at(START);
    let memory = MemoryStore::new().clock(clock.clone());
    let store = store.clone().clock(clock.clone());
    let windows = [
        Duration::from_nanos(1),
        Duration::from_micros(1),
        millis(7),
        HOUR,
    ];
    let windows = windows.into_iter().chain([Quota::MAX_WINDOW]);
    let maxes = [0, 1, 2, Quota::MAX_UNITS];
    let costs = [
        0,
        1,
        2,
        u64::MAX,
        Quota::MAX_UNITS,
        Quota::MAX_UNITS + 1,
        1 << 53,
        1,
    ];
    let mut number = 0;
    for window in windows {
        for max in maxes {
            for algorithm in Algorithm::ALL {
                number += 1;
                let quota = Quota::new(window, max).expect("valid");
                let rule = Rule::new(&format!("ends{number}"), [quota]).expect("valid");
                let rule = Arc::new(rule.with_algorithm(algorithm));
                let mut receipts = Vec::new();
                for step in [0, 1, 999, 1_000, 7_000_000] {
                    clock.set(clock.now() + step);
                    for cost in costs {
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
    }
}

/// What stands in Redis, and until when.
fn everything(server: &Redis) -> Vec<(String, i64, Vec<u8>)> {
    let mut connection = server.connection();
    let mut keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut connection)
        .expect("keys");
    keys.sort();
    let of = |key: String| {
        let expires = redis::cmd("PEXPIRETIME").arg(&key).query(&mut connection);
        let contents = redis::cmd("DUMP").arg(&key).query(&mut connection);
        (key, expires.expect("a time"), contents.expect("contents"))
    };
    keys.into_iter().map(of).collect()
}

/// Law 2, also while the clock is back: denied takes and looks change nothing at all.
#[tokio::test]
async fn denied_while_the_clock_is_back() {
    let (server, store) = near().await;
    let clock = ManualClock::default();
    let store = store.clone().clock(clock.clone());
    let quotas = [Quota::new(Duration::from_secs(10), 5), Quota::new(HOUR, 8)];
    let quotas = quotas.map(|quota| quota.expect("valid"));
    let mut takes: Vec<Take> = Vec::new();
    for algorithm in Algorithm::ALL {
        let rule = Rule::new("back", quotas)
            .expect("valid")
            .with_algorithm(algorithm);
        takes.push(take(&Arc::new(rule), ""));
    }
    clock.set(START);
    for take in &takes {
        for _ in 0..9 {
            let _ = decide(&store, take).await;
        }
    }
    let before = everything(&server);
    for back in [
        0,
        1,
        999,
        1_000,
        5_000_000,
        11_000_000,
        7_200_000_000,
        START,
    ] {
        clock.set(START - back);
        for take in &takes {
            for cost in [0, 1, 4, 6, 100, u64::MAX] {
                let decision = store.take(&take.clone().with_cost(cost)).await;
                let decision = decision.expect("a decision");
                let fits = cost == 0;
                assert_eq!(decision.is_allowed(), fits, "{back} back, {cost}: {take:?}");
            }
        }
        assert!(everything(&server) == before, "changed {back} back");
    }
}

/// Law 1 while rules change under load: of the quotas that take turns, the largest bounds all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_that_change_under_load() {
    let (_server, store) = near().await;
    for algorithm in Algorithm::ALL {
        let rules = |max, window| -> Rules {
            let quota = Quota::new(window, max).expect("valid");
            let rule = Rule::new("changes", [quota]).expect("valid");
            [rule.with_algorithm(algorithm)].into_iter().collect()
        };
        let shared = SharedRules::new(rules(100, HOUR));
        let admitted = admit(&store, &shared, 600, |at| match at % 4 {
            0 => rules(50, HOUR),
            1 => rules(100, HOUR),
            2 => rules(1, 2 * HOUR),
            _ => rules(100, 3 * HOUR),
        })
        .await;
        // A busy machine may have left something.
        let rest = admit(&store, &shared, 120, |_| rules(100, HOUR)).await;
        assert_eq!(admitted + rest, 100, "{algorithm:?}: {rest} at last");
    }
}

/// A rule that changes its algorithm starts afresh, and one that changes back finds its count:
/// all together admit each quota once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn algorithms_that_change_under_load() {
    let (_server, store) = near().await;
    let rules = |at: usize| -> Rules {
        let quota = Quota::new(24 * HOUR, 40).expect("valid");
        let rule = Rule::new("algorithms", [quota]).expect("valid");
        [rule.with_algorithm(Algorithm::ALL[at % 4])]
            .into_iter()
            .collect()
    };
    let shared = SharedRules::new(rules(0));
    let mut admitted = admit(&store, &shared, 1_500, rules).await;
    // A busy machine may have left something.
    for at in 0..4 {
        admitted += admit(&store, &shared, 60, |_| rules(at)).await;
    }
    assert_eq!(admitted, 160);
}

/// How many of these requests a layer admits while its rules are replaced all the time.
async fn admit(
    store: &tidegate::RedisStore,
    shared: &SharedRules,
    requests: usize,
    rules: impl Fn(usize) -> Rules,
) -> u64 {
    let path = shared
        .load()
        .iter()
        .next()
        .expect("a rule")
        .path()
        .to_owned();
    let layer = RateLimitLayer::from_rules(shared, &path, store.clone());
    let app = Router::new().route("/", get(async || "1").layer(layer));
    let admitted = Arc::<AtomicU64>::default();
    let requests = (0..requests).map(|at| {
        let (app, admitted) = (app.clone(), Arc::clone(&admitted));
        tokio::spawn(async move {
            sleep(Duration::from_micros(at as u64 * 500)).await;
            let request = kit::http::get("/");
            let status = app.oneshot(request).await.expect("no error").status();
            match status {
                StatusCode::OK => admitted.fetch_add(1, Ordering::Relaxed),
                status => {
                    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
                    0
                }
            };
        })
    });
    let requests: Vec<_> = requests.collect();
    let all = join_all(requests);
    tokio::pin!(all);
    for at in 0.. {
        tokio::select! {
            all = &mut all => {
                all.into_iter().for_each(|one| one.expect("no panic"));
                break;
            }
            () = sleep(Duration::from_micros(700)) => shared.replace(rules(at)),
        }
    }
    admitted.load(Ordering::Relaxed)
}
