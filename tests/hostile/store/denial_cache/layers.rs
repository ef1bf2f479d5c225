//! The cache in layers: charges, waiting requests, shadow rules, reloads.

use crate::prelude::*;

/// A handler gives its charge back while others are denied: the next request is granted at once.
#[tokio::test(start_paused = true)]
async fn a_handler_that_refunds() {
    let inner = Distant::new(MemoryStore::new());
    let store = Resilient::new(inner).build();
    let app = app_with_refunds(RateLimitLayer::new("refunds", HOUR, 1).store(Arc::clone(&store)));
    for _ in 0..20 {
        assert_eq!(status(&app, "/fails").await, StatusCode::OK, "law 14");
    }
    // With a handler that refunds later, by the response.
    for _ in 0..20 {
        let response = send(&app, "/").await;
        assert_eq!(response.status(), StatusCode::OK, "law 14");
        for _ in 0..3 {
            assert_eq!(status(&app, "/").await, StatusCode::TOO_MANY_REQUESTS);
        }
        let charges = Charges::from_extensions(response.extensions());
        assert_eq!(give_back_all(&charges).await, 1);
        assert_eq!(give_back_all(&charges).await, 0);
    }
}

/// Law 14 for requests that wait, beside a flood that is told denials: all that is free is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_beside_a_flood() {
    const MAX: u64 = 50;
    const WINDOW: Duration = millis(250);
    let (_server, _proxy, store) = far_within(millis(6), millis(500)).await;
    let store = Resilient::new(store).build();
    let layer = || RateLimitLayer::new("waits", WINDOW, MAX).store(Arc::clone(&store));
    let waits = app_with_refunds(layer().wait(Duration::from_secs(5)));
    let hurries = app_with_refunds(layer());
    let began = Instant::now();
    let flood = spawn_each(0..10, hurries.clone(), |_, hurries| async move {
        let mut allowed = 0_u64;
        while began.elapsed() < millis(2_000) {
            allowed += u64::from(send(&hurries, "/").await.status().is_success());
            sleep(millis(1)).await;
        }
        allowed
    });
    sleep(millis(20)).await;
    let waiting = join_all((0..200).map(|_| send(&waits, "/"))).await;
    let took = began.elapsed();
    let allowed = waiting.iter().filter(|it| it.status().is_success());
    let allowed = allowed.count() as u64 + done(flood).await.iter().sum::<u64>();
    assert!(allowed >= 200, "{allowed}");
    // 250 units are there in one second; the flood had its part of each refill.
    assert!(took < Duration::from_secs(5), "law 14: {took:?}");
    let windows = 2_000 / 250;
    assert!(allowed >= windows * MAX * 8 / 10, "law 14: {allowed}");
}

/// A request that begins to wait while its key's denial is told is admitted when a unit is free,
/// and hears within about a second that another process gave one back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_begins_with_a_cached_denial() {
    let (server, store) = near().await;
    let other = connect(&server.url, PATIENT).await;
    let store = Resilient::new(store).build();
    for (window, is_refunded) in [(millis(400), false), (millis(1_900), true)] {
        let path = format!("begins-{window:?}");
        let one = take(&rule(&path, 1, window), "x");
        let layer = RateLimitLayer::new(&path, window, 1).store(Arc::clone(&store));
        let layer = layer.key(|_: &http::request::Parts| Ok(Key::from("x")));
        let app = app_with_refunds(layer.wait(Duration::from_secs(2)));
        let charged = decide(&other, &one).await;
        let charged_at = Instant::now();
        // The layer's rule is one of its own: the layer's requests keep its denial.
        for _ in 0..5 {
            drop(timeout(millis(3), send(&app, "/")).await);
        }
        let waiting = tokio::spawn(async move { send(&app, "/").await.status() });
        sleep(millis(30)).await;
        if is_refunded {
            let receipt = charged.receipt().expect("charged");
            assert_eq!(refund(&other, &one, &receipt).await, 1);
        }
        assert_eq!(waiting.await.expect("no panic"), StatusCode::OK);
        let took = charged_at.elapsed();
        let in_window = window + millis(100);
        let bound = if is_refunded {
            millis(1_300)
        } else {
            in_window
        };
        assert!(took < bound, "law 14: {took:?}, refunded {is_refunded}");
    }
}

/// A shadow rule whose denials are told by the cache denies nobody, and counts each of them.
#[tokio::test]
async fn a_shadow_rule_counts_what_is_told() {
    let store = Resilient::new(MemoryStore::new()).build();
    let shadow = per_hour("shadow", 2).into_shadow();
    let enforced = per_hour("enforced", 5).with_shadow(per_hour("enforced", 2));
    let limits = Limits::new(Rules::from_iter([shadow, enforced])).store(store);
    let shadow = app_with_refunds(limits.layer("shadow"));
    for _ in 0..50 {
        assert_eq!(send(&shadow, "/").await.status(), StatusCode::OK);
    }
    let counted = kit::counters(&limits, "shadow");
    assert_eq!(counted.decisions(DecisionOutcome::ShadowDenied), 48);
    assert_eq!(counted.decisions(DecisionOutcome::Allowed), 2);
    let enforced = app_with_refunds(limits.layer("enforced"));
    let mut allowed = 0;
    for _ in 0..50 {
        allowed += u32::from(send(&enforced, "/").await.status().is_success());
    }
    assert_eq!(allowed, 5, "law 1 and 14");
    let counted = kit::counters(&limits, "enforced");
    let denials: Vec<_> = counted.shadow_denials.to_vec();
    assert!(denials[0].1 >= 3, "{denials:?}");
}

/// A reload with a larger quota is granted at once, under a flood, each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_a_flood() {
    let text = |max: u64| format!("[rules.feed]\nmax-count = {max}\nwindow = \"1h\"\n");
    let file = LimitsFile::new(text(1));
    let store = Resilient::new(MemoryStore::new());
    let store = store.denial_cache(HOUR).build();
    let limits = file.limits().store(store);
    let app = app_with_refunds(limits.layer("feed"));
    let _flood = background((0..4).map(|_| {
        let app = app.clone();
        async move {
            loop {
                send(&app, "/").await;
                yield_now().await;
            }
        }
    }));
    for max in 2..30_u64 {
        file.reload(&limits, text(max));
        let reloaded = Instant::now();
        // One of the flood, or this one, gets the unit that is free.
        loop {
            let used = limits.snapshot().rule("feed").expect("a layer").units;
            assert!(used <= max, "law 1: {used} of {max}");
            if used == max {
                break;
            }
            assert!(reloaded.elapsed() < PATIENT, "law 14: {used} of {max}");
            yield_now().await;
        }
    }
}

/// Denials that are told reach no other layer: two rules of one key and cost, in layers in layers.
#[tokio::test]
async fn layers_in_layers() {
    let store = Resilient::new(MemoryStore::new()).build();
    let layer = |path, max| RateLimitLayer::new(path, HOUR, max).store(Arc::clone(&store));
    let app = Router::new().route("/", get(async || "1"));
    let app = app.layer((layer("outer", 30), layer("inner", 10)));
    let mut allowed = 0;
    for _ in 0..100 {
        allowed += u32::from(send(&app, "/").await.status().is_success());
    }
    assert_eq!(allowed, 10);
    // 30 requests reached the inner layer.
    let outer: Take = take(&rule("outer", 30, HOUR), "");
    let outer = Take::new(Arc::clone(outer.rule()), Key::default());
    assert_eq!(remaining(&store, &outer).await, 0);
    assert!(!is_allowed(&store.take(&outer).await));
    assert_eq!(decide(&store, &outer).await.source(), Source::Cache);
}
