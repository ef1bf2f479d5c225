//! `acquire` and `try_acquire_for` outlast a Redis that does not answer, is away, is loading or
//! takes no writes, and ask again at a bounded pace.

use kit::log::Log;
use tokio::time::Instant;

use crate::*;

/// The default of `Redis::timeout`.
const TIMEOUT: Duration = Redis::DEFAULT_TIMEOUT;
/// What a busy machine may take longer.
const SLACK: Duration = millis(700);

type Acquired = JoinHandle<Result<(), LimiterErrorKind>>;

fn acquire(limiter: &RateLimiter) -> Acquired {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(1).await.map_err(|error| error.kind()) })
}

async fn is_granted(acquired: Acquired) {
    let acquired = timeout(10 * SECOND, acquired).await;
    let acquired = acquired.expect("it asks again within a second or so");
    assert_eq!(acquired.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn slow_answers_end_no_wait() {
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, "partner", 1_000, HOUR).await;
    let timed_out = LimiterErrorKind::Store(StoreErrorKind::Timeout);
    server.signal("STOP");
    let waiting = [acquire(&limiter), acquire(&limiter.clone().fair())];
    let began = Instant::now();
    let once = limiter.try_acquire(1).await.expect_err("no answer");
    assert_eq!(once.kind(), timed_out);
    assert!(began.elapsed() < TIMEOUT + SLACK);

    // It tries for all of its time, and no longer.
    let (time, began) = (3 * TIMEOUT, Instant::now());
    let tried = limiter.try_acquire_for(1, time).await;
    assert_eq!(tried.expect_err("no answer").kind(), timed_out);
    let took = began.elapsed();
    assert!((time..time + SLACK).contains(&took), "{took:?}");

    let patient = limiter.try_acquire_for(1, PATIENT);
    let go_on = async {
        sleep(5 * TIMEOUT).await;
        server.signal("CONT");
    };
    let (patient, ()) = tokio::join!(patient, go_on);
    assert!(patient.expect("it outlasts the stop"));
    for acquired in waiting {
        is_granted(acquired).await;
    }
}

/// An error is what a caller in time hears who was denied before.
#[tokio::test]
async fn the_last_answer_counts() {
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, "partner", 1, millis(600)).await;
    assert!(limiter.takes(1).await);
    let time = millis(1_500);
    let denied_first = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire_for(1, time).await }
    });
    sleep(millis(200)).await;
    server.signal("STOP");
    let answer = denied_first.await.expect("no panic");
    let kind = answer.expect_err("no answer").kind();
    assert_eq!(kind, LimiterErrorKind::Store(StoreErrorKind::Timeout));
    server.signal("CONT");
}

#[tokio::test]
async fn a_server_that_is_away_or_loading_ends_no_wait() {
    let mut server = Server::start_with(&["--enable-debug-command", "yes"]);
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, "partner", 10, millis(1_000)).await;
    // It loads for a second.
    run(&server, "DEBUG POPULATE 1000000");
    run(&server, "SAVE");
    server.kill();
    let waiting = [acquire(&limiter), acquire(&limiter.clone().fair())];
    sleep(millis(300)).await;
    server.respawn();
    for acquired in waiting {
        is_granted(acquired).await;
    }
}

#[tokio::test]
async fn a_replica_ends_no_wait() {
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, "partner", 10, millis(1_000)).await;
    server.follow("redis://127.0.0.1:1");
    let waiting = [acquire(&limiter), acquire(&limiter.clone().fair())];
    sleep(millis(500)).await;
    assert!(waiting.iter().all(|acquired| !acquired.is_finished()));
    run(&server, "REPLICAOF NO ONE");
    for acquired in waiting {
        is_granted(acquired).await;
    }
}

/// What does not pass by itself ends a call at once.
#[tokio::test]
async fn what_stays_ends_a_wait() {
    let mut server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, "partner", 10, millis(1_000)).await;
    let nobody = RateLimiter::new(&redis, "nobody");
    let unknown = nobody.acquire(1).await.expect_err("no rate");
    assert_eq!(unknown.kind(), LimiterErrorKind::UnknownLimiter);
    run(&server, "ACL SETUSER default -evalsha");
    let refused = timeout(5 * SECOND, limiter.acquire(1)).await;
    let refused = refused.expect("it ends").expect_err("no permission");
    let seen = refused.kind();
    assert_eq!(seen, LimiterErrorKind::Store(StoreErrorKind::Refused));

    // Without a rate of its own, a limiter ends with the data of the server.
    server.kill();
    let waiting = acquire(&limiter);
    sleep(millis(100)).await;
    server.restart();
    let ended = timeout(10 * SECOND, waiting).await;
    let ended = ended.expect("it ends").expect("no panic");
    assert_eq!(ended, Err(LimiterErrorKind::UnknownLimiter));
}

/// A call is executed, and its reply is lost: the caller has what it was granted then, once.
#[tokio::test]
async fn a_grant_whose_reply_was_lost_is_charged_once() {
    for (generation, is_fair) in [
        (Generation::Third, false),
        (Generation::Third, true),
        (Generation::Second, false),
    ] {
        let server = Server::start();
        let proxy = Proxy::start(&server.url).await;
        let redis = by_default(&proxy.url).await;
        let limiter = limiter(&redis, "partner", 1, HOUR)
            .await
            .generation(generation);
        let limiter = limiter.fair_if(is_fair);
        // Longer than the call may take.
        proxy.present(Mode::Delay {
            calls: Duration::ZERO,
            replies: 2 * TIMEOUT,
        });
        let acquired = acquire(&limiter);
        sleep(TIMEOUT + TIMEOUT / 4).await;
        proxy.all(Mode::Pass);
        // There is no other permit for an hour.
        is_granted(acquired).await;
        assert_eq!(limiter.free().await, 0);
        let grants: u64 = server.run("ZCARD {partner}:permits");
        let left: i64 = server.run("GET {partner}:value");
        assert_eq!((grants, left), (1, 0), "{generation:?}, fair: {is_fair}");
    }
}

/// A caller that leaves after its reply was lost gives back what it was granted.
#[tokio::test]
async fn a_lost_grant_of_a_caller_that_leaves_comes_back() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = by_default(&proxy.url).await;
    let limiter = limiter(&redis, "partner", 1, HOUR).await;
    for is_fair in [false, true] {
        let limiter = limiter.fair_if(is_fair);
        proxy.delay(Duration::ZERO, 2 * TIMEOUT);
        let left = timeout(3 * TIMEOUT, limiter.acquire(1)).await;
        assert!(left.is_err(), "no reply comes in time");
        proxy.all(Mode::Pass);
        super::becomes_available(&limiter, 1, 8 * SECOND).await;
    }
}

/// Ten thousand callers that wait for a server cost it a handful of calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_asks_again_together() {
    const CROWD: u64 = 10_000;
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, "partner", 2 * CROWD, HOUR).await;
    let before = server.script_calls();
    server.signal("STOP");
    let crowd: Vec<_> = (0..CROWD).map(|_| acquire(&limiter)).collect();
    sleep(5 * SECOND).await;
    server.signal("CONT");
    for acquired in crowd {
        is_granted(acquired).await;
    }
    let left = limiter.free().await;
    assert_eq!(left, CROWD, "each is charged once");
    // All of them are granted by 157 calls of 64. The first 16 calls, and one after each pause, are
    // sent in vain.
    let calls = server.script_calls() - before;
    println!("{calls} calls");
    assert!(calls < 157 + 50, "{calls} calls");
}

#[tokio::test]
async fn an_outage_is_logged_once() {
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiters = [
        limiter(&redis, "partner", 100, HOUR).await,
        limiter(&redis, "other", 100, HOUR).await,
    ];
    let log = Log::start();
    server.signal("STOP");
    let waits = join_all(limiters.iter().map(|limiter| limiter.acquire(1)));
    let go_on = async {
        sleep(2 * SECOND).await;
        server.signal("CONT");
    };
    let (waits, ()) = tokio::join!(waits, go_on);
    assert!(waits.iter().all(Result::is_ok));
    let lines = log.lines();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("wait and ask again"), 1, "{lines:?}");
    assert_eq!(count("is answered again"), 1, "{lines:?}");
}
