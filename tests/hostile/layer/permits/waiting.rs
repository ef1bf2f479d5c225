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

/// One key takes a quarter of the places. All are served, some leave, and a bystander is answered
/// meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_wait_on_one_name() {
    on_both(async |store| {
        let limits = limits(at_a_time(40), store);
        let running = Arc::new(Running::default());
        let layer = limits.layer("p").max_waiting(40_000).wait(15 * PATIENT);
        let app = running_app(layer, &running, Duration::ZERO);
        let first = join_all((0..40).map(|_| admitted(&limits, "k"))).await;
        let start = |_| kit::http::start(&app, 0, "/", "");
        let all: Vec<_> = (0..10_000).map(start).collect();
        let began = Instant::now();
        while kit::counters(&limits, "p").waiting < 10_000 {
            assert!(began.elapsed() < PATIENT, "they do not all wait");
            sleep(millis(5)).await;
        }
        all.iter().step_by(10).for_each(JoinHandle::abort);
        drop(first);
        drop(admitted(&limits, "bystander").await);
        let answers = join_all(all).await;
        let served = answers
            .iter()
            .flatten()
            .filter(|it| it.status == 200)
            .count();
        let gone = answers.iter().filter(|it| it.is_err()).count();
        assert_eq!(served + gone, 10_000, "{served} served, {gone} gone");
        assert!(gone <= 1_000 && running.most() <= 40);
        until_free(&limits, "k", 40).await;
    })
    .await;
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

/// While ten wait: more may run, fewer, and none.
#[tokio::test]
async fn rules_that_change_while_requests_wait() {
    on_both(async |store| {
        let limits = limits(at_a_time(1), store);
        let first = admitted(&limits, "k").await;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ask = |number: usize| -> Vec<_> {
            let ask = |_| {
                let (waits, heard) = (waits(&limits, "k"), Arc::clone(&heard));
                tokio::spawn(async move {
                    let admitted = waits.await.expect("no panic");
                    heard.lock().expect("no panic").push(admitted);
                })
            };
            (0..number).map(ask).collect()
        };
        let take_heard = || std::mem::take(&mut *heard.lock().expect("no panic"));
        let number = || heard.lock().expect("no panic").len();
        let until_heard = async |expected| {
            eventually("they have heard", async || number() >= expected).await;
        };
        let asked = ask(10);
        sleep(millis(100)).await;
        replace(&limits, at_a_time(4));
        until_heard(3).await;
        replace(&limits, at_a_time(2));
        sleep(millis(100)).await;
        assert_eq!(number(), 3, "four run");
        drop(take_heard());
        // The first one still runs, so one more may.
        until_heard(1).await;
        drop(first);
        until_heard(2).await;
        replace(&limits, at_a_time(50));
        until_heard(7).await;
        done(asked).await;
        assert!(take_heard().iter().all(Result::is_ok));
        // None may run: whoever waits hears it long before the end of its patience.
        replace(&limits, at_a_time(1));
        let first = limits.check("p", "k").wait(PATIENT).await.expect("free");
        let asked = ask(3);
        sleep(millis(100)).await;
        replace(&limits, at_a_time(0));
        until_heard(3).await;
        done(asked).await;
        assert!(take_heard().iter().all(Result::is_err));
        drop(first);
        replace(&limits, at_a_time(2));
        until_free(&limits, "k", 2).await;
    })
    .await;
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

/// A rule that has no number any more admits those who wait, as it admits those who come.
#[tokio::test]
async fn a_number_that_goes_admits_who_waits() {
    on_both(async |store| {
        for rules in [Rules::from([without_a_number()]), Rules::default()] {
            let limits = limits(at_a_time(1), Arc::clone(&store));
            let first = admitted(&limits, "k").await;
            let second = limits.check("p", "k").wait(PATIENT / 2).into_future();
            let second = tokio::spawn(second);
            sleep(millis(100)).await;
            limits.rules().replace(rules);
            let second = second.await.expect("no panic");
            drop(second.expect("nothing limits it any more"));
            drop(first);
            replace(&limits, at_a_time(1));
            until_free(&limits, "k", 1).await;
        }
    })
    .await;
}
