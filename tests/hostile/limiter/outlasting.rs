//! `acquire` and `try_acquire_for` outlast a Redis that does not answer, is away, is loading or
//! takes no writes, and ask again at a bounded pace.

use std::time::Duration;

use futures_util::future::join_all;
use kit::Redis as Server;
use kit::log::Log;
use kit::proxy::{Mode, Proxy};
use redis::{Commands, cmd};
use tidegate::Redis;
use tidegate::limiter::{Generation, LimiterErrorKind, Rate, RateLimiter};
use tidegate::store::StoreErrorKind;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::limiter;

const HOUR: Duration = Duration::from_secs(3_600);
/// The default of `Redis::timeout`.
const TIMEOUT: Duration = Redis::DEFAULT_TIMEOUT;
/// What a busy machine may take longer.
const SLACK: Duration = Duration::from_millis(700);

async fn by_default(url: &str) -> Redis {
    Redis::connect(url).await.expect("a running server")
}

type Acquired = JoinHandle<Result<(), LimiterErrorKind>>;

fn acquire(limiter: &RateLimiter) -> Acquired {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(1).await.map_err(|error| error.kind()) })
}

async fn is_granted(acquired: Acquired) {
    let acquired = timeout(Duration::from_secs(10), acquired).await;
    let acquired = acquired.expect("it asks again within a second or so");
    assert_eq!(acquired.expect("no panic"), Ok(()));
}

#[tokio::test]
async fn slow_answers_end_no_wait() {
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, 1_000, 3_600_000).await;
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

    let patient = limiter.try_acquire_for(1, Duration::from_secs(20));
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
    let limiter = limiter(&redis, 1, 600).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let time = Duration::from_millis(1_500);
    let denied_first = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire_for(1, time).await }
    });
    sleep(Duration::from_millis(200)).await;
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
    let limiter = limiter(&redis, 10, 1_000).await;
    let mut connection = server.connection();
    // It loads for a second.
    cmd("DEBUG")
        .arg(&["POPULATE", "1000000"])
        .exec(&mut connection)
        .expect("fills");
    cmd("SAVE").exec(&mut connection).expect("saves");
    server.kill();
    let waiting = [acquire(&limiter), acquire(&limiter.clone().fair())];
    sleep(Duration::from_millis(300)).await;
    server.respawn();
    for acquired in waiting {
        is_granted(acquired).await;
    }
}

#[tokio::test]
async fn a_replica_ends_no_wait() {
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, 10, 1_000).await;
    server.follow("redis://127.0.0.1:1");
    let waiting = [acquire(&limiter), acquire(&limiter.clone().fair())];
    sleep(Duration::from_millis(500)).await;
    assert!(waiting.iter().all(|acquired| !acquired.is_finished()));
    cmd("REPLICAOF")
        .arg(&["NO", "ONE"])
        .exec(&mut server.connection())
        .expect("is a master again");
    for acquired in waiting {
        is_granted(acquired).await;
    }
}

/// What does not pass by itself ends a call at once.
#[tokio::test]
async fn what_stays_ends_a_wait() {
    let mut server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, 10, 1_000).await;
    let nobody = RateLimiter::new(&redis, "nobody");
    let unknown = nobody.acquire(1).await.expect_err("no rate");
    assert_eq!(unknown.kind(), LimiterErrorKind::UnknownLimiter);
    cmd("ACL")
        .arg(&["SETUSER", "default", "-evalsha"])
        .exec(&mut server.connection())
        .expect("is set");
    let refused = timeout(Duration::from_secs(5), limiter.acquire(1)).await;
    let refused = refused.expect("it ends").expect_err("no permission");
    assert_eq!(
        refused.kind(),
        LimiterErrorKind::Store(StoreErrorKind::Refused)
    );

    // Without a rate of its own, a limiter ends with the data of the server.
    server.kill();
    let waiting = acquire(&limiter);
    sleep(Duration::from_millis(100)).await;
    server.restart();
    let ended = timeout(Duration::from_secs(10), waiting).await;
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
        let limiter = limiter(&redis, 1, 3_600_000).await.generation(generation);
        let limiter = if is_fair { limiter.fair() } else { limiter };
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
        let mut connection = server.connection();
        assert_eq!(limiter.available_permits().await.expect("an answer"), 0);
        let grants: u64 = connection.zcard("{partner}:permits").expect("a set");
        let left: i64 = connection.get("{partner}:value").expect("a number");
        assert_eq!((grants, left), (1, 0), "{generation:?}, fair: {is_fair}");
    }
}

/// A caller that leaves after its reply was lost gives back what it was granted.
#[tokio::test]
async fn a_lost_grant_of_a_caller_that_leaves_comes_back() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = by_default(&proxy.url).await;
    let limiter = limiter(&redis, 1, 3_600_000).await;
    for is_fair in [false, true] {
        let limiter = limiter.clone();
        let limiter = if is_fair { limiter.fair() } else { limiter };
        proxy.all(Mode::Delay {
            calls: Duration::ZERO,
            replies: 2 * TIMEOUT,
        });
        let left = timeout(3 * TIMEOUT, limiter.acquire(1)).await;
        assert!(left.is_err(), "no reply comes in time");
        proxy.all(Mode::Pass);
        let began = Instant::now();
        while limiter.available_permits().await.ok() != Some(1) {
            assert!(began.elapsed() < Duration::from_secs(8), "it is lost");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Ten thousand callers that wait for a server cost it a handful of calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_asks_again_together() {
    const CROWD: u64 = 10_000;
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, 2 * CROWD, 3_600_000).await;
    let calls = || {
        let mut connection = server.connection();
        let stats: redis::InfoDict = cmd("INFO")
            .arg("commandstats")
            .query(&mut connection)
            .expect("stats");
        let stat: String = stats.get("cmdstat_evalsha").expect("was called");
        let calls = stat.split(',').find_map(|pair| pair.strip_prefix("calls="));
        let calls = calls.expect("a field").parse::<u64>();
        calls.expect("a number")
    };
    let before = calls();
    server.signal("STOP");
    let crowd: Vec<_> = (0..CROWD).map(|_| acquire(&limiter)).collect();
    sleep(Duration::from_secs(5)).await;
    server.signal("CONT");
    for acquired in crowd {
        is_granted(acquired).await;
    }
    let left = limiter.available_permits().await.expect("an answer");
    assert_eq!(left, CROWD, "each is charged once");
    // All of them are granted by 157 calls of 64. The first 16 calls, and one after each pause, are
    // sent in vain.
    let calls = calls() - before;
    println!("{calls} calls");
    assert!(calls < 157 + 50, "{calls} calls");
}

#[tokio::test]
async fn an_outage_is_logged_once() {
    let server = Server::start();
    let redis = by_default(&server.url).await;
    let limiters = [limiter(&redis, 100, 60_000).await, {
        let other = RateLimiter::new(&redis, "other");
        let set = other.try_set_rate(Rate::overall(100, HOUR).expect("valid"));
        assert!(set.await.expect("an answer"));
        other
    }];
    let log = Log::start();
    server.signal("STOP");
    let waits = join_all(limiters.iter().map(|limiter| limiter.acquire(1)));
    let go_on = async {
        sleep(Duration::from_secs(2)).await;
        server.signal("CONT");
    };
    let (waits, ()) = tokio::join!(waits, go_on);
    assert!(waits.iter().all(Result::is_ok));
    let lines = log.lines();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("wait and ask again"), 1, "{lines:?}");
    assert_eq!(count("is answered again"), 1, "{lines:?}");
}
