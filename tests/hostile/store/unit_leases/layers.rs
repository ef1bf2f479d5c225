//! Leases in layers: two layers of one rule, and reloads.

use crate::prelude::*;

const LEASE: Duration = millis(50);

fn of(path: &str, max: u64, window: Duration) -> Rule {
    Rule::clone(&leased(Algorithm::SlidingLog, path, max, window, LEASE))
}

/// Whether a lease decided about the request.
fn is_by_lease(answer: &http::Response<axum::body::Body>) -> u32 {
    let decision = Decision::from_extensions(answer.extensions()).expect("decided");
    u32::from(decision.source() == Source::Lease)
}

async fn charged(store: &impl Store, rule: &Rule) -> u64 {
    spent(store, &take_of(&Arc::new(rule.clone()), &Key::default(), 1)).await
}

/// Two layers of one path on one store, of which each has a rule of its own: together the quota,
/// to the last unit, with fields that never say more than there is.
#[tokio::test]
async fn two_layers_on_one_store() {
    const MAX: u64 = 2_500;
    let store = Arc::new(Resilient::bare(MemoryStore::new()));
    let apps = [0, 1].map(|_| {
        let layer = RateLimitLayer::from_rule(of("two", MAX, HOUR)).store(Arc::clone(&store));
        app_with_refunds(layer.headers(Headers::Draft11))
    });
    let (mut allowed, mut denied, mut by_lease, mut at) = (0, 0, 0, 0);
    while denied < 150 {
        at += 1;
        yield_now().await;
        let answer = send(&apps[at % 2], "/").await;
        by_lease += is_by_lease(&answer);
        let field = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
        let (field, policy) = (field("ratelimit"), field("ratelimit-policy"));
        assert!(policy.contains(&format!("q={MAX};w=3600")), "{policy}");
        if answer.status() == StatusCode::OK {
            (allowed, denied) = (allowed + 1, 0);
        } else {
            denied += 1;
            sleep(millis(2)).await;
        }
        let (_, left) = field.split_once("r=").expect("r");
        let left = left.split(';').next().expect("one").parse::<u64>();
        let left = left.expect("a number");
        assert!(left <= MAX - allowed, "{field} after {allowed} of {MAX}");
    }
    assert_eq!(allowed, MAX);
    assert!(by_lease > 100, "{by_lease}");
}

/// Hot reloads under load: leases are added, removed, made longer; the quota is raised and
/// lowered; the algorithm stays. Never more is used than the largest quota so far.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load() {
    let text = |max: u64, lease: u64| {
        let lease = (lease > 0).then(|| format!("lease = \"{lease}ms\"\n"));
        let lease = lease.unwrap_or_default();
        format!("[rules.feed]\nmax-count = {max}\nwindow = \"1h\"\n{lease}")
    };
    let file = LimitsFile::new(text(500, 50));
    let (memory, store) = leasing_memory();
    let limits = file.limits().store(store);
    let app = app_with_refunds(limits.layer("feed"));
    let load = background((0..4).map(|_| {
        let app = app.clone();
        async move {
            loop {
                send(&app, "/").await;
                sleep(Duration::from_micros(500)).await;
            }
        }
    }));
    let used = || limits.snapshot().rule("feed").expect("a layer").units;
    let mut largest = 500;
    let maxes = [1_000, 1_000, 1_500, 700, 2_500, 2_600, 3_200];
    for (max, lease) in maxes.into_iter().zip([50, 0, 20, 200, 200, 0, 10]) {
        file.reload(&limits, text(max, lease));
        largest = largest.max(max);
        let is_used = async || {
            assert!(used() <= largest, "law 1: {} of {largest}", used());
            used() >= max
        };
        within(Duration::from_secs(5), "law 14: all is used", is_used).await;
    }
    drop(load);
    sleep(millis(500)).await;
    assert_eq!(used(), largest, "law 14");
    assert_eq!(charged(&memory, &of("feed", 5_000, HOUR)).await, used());
}
