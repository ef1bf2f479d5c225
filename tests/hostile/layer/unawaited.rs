//! What a process owes although no request waits for it: refunds, settlements, the release of
//! permits, holds. No time-out of a request ends it, `flush` waits for it, and the end of a runtime
//! counts what is lost.

use kit::log::Log;

use crate::*;

/// The shortest of time-outs, without a breaker that opens.
async fn impatient(url: &str, timeout: Duration) -> Resilient<RedisStore> {
    let store = RedisStore::connect(url).await.expect("a running server");
    let store = Resilient::new(store).timeout(timeout).failures(None);
    store.denial_cache(None)
}

/// A hundred units for an hour, and three at a time, whose permits do not end by themselves.
fn rule() -> Rule {
    let rule = per_hour("p", 100).with_max_concurrent(3).expect("valid");
    rule.with_permit_lease(24 * HOUR).expect("valid")
}

fn partner() -> Rule {
    per_minute("partner", 80).with_outgoing().expect("valid")
}

/// Limits on this server, and all that they may owe: a settlement, a permit, a hold.
struct Debtor {
    limits: Limits,
    owes: Vec<Box<dyn FnOnce() + Send>>,
}

impl Debtor {
    async fn new(store: impl Store) -> Self {
        let limits = kit::limits([rule(), partner()], store);
        let began = Instant::now();
        // A machine that is busy needs more than a short time-out.
        let admitted = loop {
            assert!(began.elapsed() < PATIENT);
            if let Ok(admitted) = limits.check("p", "k").cost(10).await
                && let Ok(turn) = limits.outgoing("partner").ready("k").await
            {
                break (admitted, turn);
            }
        };
        let (admitted, turn) = admitted;
        let meter = admitted.charge.expect("it was charged").meter();
        meter.add(4);
        let permit = admitted.permit.expect("it has one");
        let fields = HeaderMap::from_iter([("retry-after".parse().expect("a name"), 50.into())]);
        let hears = move || turn.observe_response(StatusCode::TOO_MANY_REQUESTS, &fields);
        Self {
            limits,
            owes: vec![
                Box::new(|| drop(meter)),
                Box::new(|| drop(permit)),
                Box::new(hears),
            ],
        }
    }

    fn takes_over(&mut self) -> impl FnOnce() + Send + 'static {
        let owes = std::mem::take(&mut self.owes);
        || owes.into_iter().for_each(|owes| owes())
    }

    /// Whether all of it has reached the server.
    fn has_paid(server: &Redis) -> bool {
        let held = |name: &String| name.ends_with("~until");
        kit::permits_held(server) == 0 && kit::keys(server, "*").iter().any(held)
    }
}

#[test]
fn it_is_sent_within_two_turns_of_a_slow_runtime() {
    for (turn, time_out) in SLOW {
        still_runtime().block_on(async {
            let server = Arc::new(Redis::start());
            let mut debtor = Debtor::new(impatient(&server.url, time_out).await).await;
            let (seen, mut act) = (Arc::clone(&server), Some(debtor.takes_over()));
            let turns = turns_until(turn, move |passed| {
                act.take().into_iter().for_each(|act| act());
                passed > 1 && holds_soon(|| Debtor::has_paid(&seen))
            });
            let turns = turns.await;
            assert!(turns <= 2, "{turns} turns of {turn:?}");
            assert!(debtor.limits.flush(PATIENT).await);
            let rule = &debtor.limits.snapshot().rules[0];
            assert_eq!((rule.refunded_units, rule.refunds_lost), (6, 0));
        });
    }
}

/// Answers that take longer than the time-out.
#[tokio::test]
async fn slow_answers_lose_nothing() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let mut debtor = Debtor::new(impatient(&proxy.url, millis(50)).await).await;
    let log = Log::start();
    proxy.delay(Duration::ZERO, millis(300));
    debtor.takes_over()();
    assert!(!debtor.limits.flush(millis(100)).await, "no answer yet");
    assert!(debtor.limits.flush(PATIENT).await);
    let rule = &debtor.limits.snapshot().rules[0];
    assert_eq!((rule.refunded_units, rule.refunds_lost), (6, 0));
    assert!(Debtor::has_paid(&server));
    let lines = log.lines();
    assert!(lines.iter().all(|line| !line.contains("hold")), "{lines:?}");
}

/// A permit that may have been granted to a caller that has left.
#[tokio::test]
async fn a_flush_waits_for_what_was_granted_to_nobody() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&*proxy.url).await.expect("a server");
    let limits = kit::limits([rule()], store.timeout(millis(200)));
    drop(limits.check("p", "k").await.expect("free"));
    assert!(limits.flush(PATIENT).await);
    proxy.all(Mode::Hold);
    let asked = limits.check("p", "k").into_future();
    timeout(millis(20), asked).await.expect_err("it leaves");
    assert!(!limits.flush(millis(20)).await, "nothing is answered");
    proxy.all(Mode::Pass);
    assert!(limits.flush(PATIENT).await);
    assert_eq!(kit::permits_held(&server), 0);
}

/// Time-outs of 0 to 5 ms, and callers that leave at any moment: they leave no tasks and no permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_of_impatient_callers() {
    let calls: u64 = from_env("TIDEGATE_CALLS", 5_000);
    let server = Redis::start();
    let store = RedisStore::connect(&*server.url).await.expect("a server");
    let limits: Vec<_> = (0..6)
        .map(|timeout| kit::limits([rule()], store.clone().timeout(millis(timeout))))
        .collect();
    let tasks = alive_tasks();
    let mut admitted = 0;
    for round in 0..calls / 100 {
        let answers = crowd(100, |at| {
            let mut random = Random::new(round * 100 + at);
            let limits = limits[random.below(6) as usize].clone();
            async move {
                let patience = Duration::from_micros(random.below(8_000));
                let asked = limits.check("p", "k").cost(0).into_future();
                timeout(patience, asked).await.is_ok_and(|it| it.is_ok())
            }
        });
        admitted += answers.await.into_iter().filter(|it| *it).count();
    }
    let left = alive_tasks();
    println!(
        "{admitted} admitted, {} tasks more",
        left as i64 - tasks as i64
    );
    assert!(left <= tasks + 64, "{left} tasks, {tasks} before");
    assert!(admitted > 0);
    let began = Instant::now();
    while kit::permits_held(&server) > 0 {
        assert!(began.elapsed() < 3 * SECOND, "a permit is held by nobody");
        sleep(millis(10)).await;
    }
}

#[test]
fn the_end_of_a_runtime_counts_what_is_lost() {
    let server = Redis::start();
    let runtime = still_runtime();
    let log = Log::start();
    runtime.block_on(async {
        let mut debtor = Debtor::new(impatient(&server.url, SECOND).await).await;
        debtor.takes_over()();
    });
    drop(runtime);
    let lines = log.lines().join("\n");
    // The hold is asked for by its task, which did not begin.
    let calls = lines.matches("had no answer when their runtime ended");
    assert!(calls.count() > 0 && lines.contains("calls=2"), "{lines}");
}
