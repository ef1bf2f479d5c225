//! Those who wait for a permit.

use super::*;

/// How many run, and the most that ever did.
#[derive(Default)]
struct Running(AtomicUsize, AtomicUsize);

impl Running {
    async fn work(&self, time: Duration) {
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.fetch_max(now, Ordering::SeqCst);
        sleep(time).await;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

fn running_app(layer: RateLimitLayer, running: &Arc<Running>, time: Duration) -> Router {
    let running = Arc::clone(running);
    let handler = any(move || {
        let running = Arc::clone(&running);
        async move { running.work(time).await }
    });
    Router::new().route("/", handler.layer(layer))
}

/// Five processes take turns: whoever waits in one is woken by the release of another, and never
/// more than max run in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_take_turns() {
    let server = Redis::start();
    let running = Arc::new(Running::default());
    let mut processes = Vec::new();
    for _ in 0..5 {
        let limits = limits(at_a_time(3), store_at(&server.url, PATIENT).await);
        let layer = limits.layer("p").wait(2 * PATIENT);
        processes.push(running_app(layer, &running, millis(2)));
    }
    let start = |number: usize| kit::http::start(&processes[number % 5], 0, "/", "");
    let answers = done((0..600).map(start)).await;
    assert!(answers.iter().all(|it| it.status == 200));
    assert!(running.most() <= 3);
    until_held(&server, 0).await;
}

/// One bound for permits and quotas; who waits for both goes when both are there.
#[tokio::test(start_paused = true)]
async fn one_bound_for_permits_and_quotas() {
    // When the permit comes back, how long the second one waits, and when it is admitted. The quota
    // has a unit again after 2 s.
    for (back, bound, expected) in [
        (1_000, 3_000, Some(2_000)),
        (2_500, 3_000, Some(2_500)),
        (1_000, 1_500, None),
        (4_000, 3_000, None),
    ] {
        let rule = kit::owned_rule("p", 1, 2 * SECOND).with_max_concurrent(1);
        let limits = limits(rule.expect("valid"), MemoryStore::new().tokio_clock());
        let first = admitted(&limits, "k").await;
        tokio::spawn(async move {
            sleep(millis(back)).await;
            drop(first);
        });
        let began = Instant::now();
        let second = limits.check("p", "k").wait(millis(bound)).await;
        let after = began.elapsed();
        let case = format!("{back} {bound}: {after:?}");
        assert_eq!(second.is_ok(), expected.is_some(), "{case}");
        assert!(after <= millis(bound + 20), "{case}");
        if let Some(expected) = expected {
            let is_right = (millis(expected)..millis(expected + 20)).contains(&after);
            assert!(is_right, "{case}");
        }
        drop(second);
        sleep(5 * SECOND).await;
        assert_eq!(left(&limits, "k").await, 1);
    }
}

/// Plans with numbers of their own share what runs: of 1, 2 and 4, the smaller ones wait longer.
#[tokio::test]
async fn plans_wait_for_the_same_permits() {
    on_both(async |store| {
        let mut rule = at_a_time(4);
        for (name, max) in [("one", 1), ("two", 2)] {
            let quotas = Quotas::with_policies([Policy::concurrent(max)]).expect("valid");
            rule = rule.with_plan(name, quotas).expect("valid");
        }
        let limits = limits(rule, store);
        let check = |plan| limits.check("p", "k").plan(plan);
        let first = admitted(&limits, "k").await;
        check("one").await.expect_err("one runs");
        let second = check("two").await.expect("two may");
        let third = admitted(&limits, "k").await;
        let [one, two] = ["one", "two"].map(|plan| {
            let waits = check(plan).wait(PATIENT);
            tokio::spawn(waits.into_future())
        });
        sleep(millis(50)).await;
        drop(third);
        sleep(millis(50)).await;
        assert!(!one.is_finished() && !two.is_finished(), "two run");
        drop(second);
        let two = two.await.expect("no panic").expect("one runs");
        assert!(!one.is_finished());
        drop((first, two));
        drop(one.await.expect("no panic").expect("none runs"));
        until_free(&limits, "k", 4).await;
    })
    .await;
}
