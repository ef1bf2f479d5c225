//! A server that crashes, stops, refuses or gets lost: every call ends in time or lasts until the
//! server is back, and nothing is half-written.

use std::time::Duration;

use futures_util::future::join_all;
use kit::proxy::{Mode, Proxy};
use redis::{Commands, cmd};
use tidegate::Redis;
use tidegate::limiter::{LimiterError, LimiterErrorKind, Rate, RateLimiter};
use tidegate::store::StoreErrorKind;
use tokio::time::{Instant, sleep, timeout};

use crate::{assert_comes_to_rest, limiter};

const TIMEOUT: Duration = Duration::from_millis(300);
/// What a busy machine may take longer.
const SLACK: Duration = Duration::from_millis(700);

async fn connect(url: &str) -> Redis {
    let redis = Redis::connect(url).await.expect("a running server");
    redis.timeout(TIMEOUT)
}

/// How a call went; no kind of error: it still waits.
type Answer = Result<bool, Option<LimiterErrorKind>>;

/// Asks in every way at once, each on a limiter of its own; how it went, in time.
async fn ask_in_every_way(redis: &Redis) -> Vec<Answer> {
    let asked = (0..7).map(|way| async move {
        let limiter = RateLimiter::new(redis, format!("way {way}"));
        let began = Instant::now();
        let answer = match way {
            0 => limiter.try_acquire(1).await,
            1 => limiter.try_acquire_for(1, TIMEOUT).await,
            2 | 3 => {
                let limiter = if way == 2 { limiter } else { limiter.fair() };
                match timeout(TIMEOUT + SLACK / 2, limiter.acquire(1)).await {
                    Ok(acquired) => acquired.map(|()| true),
                    Err(_) => return Err(None),
                }
            }
            4 => limiter.release(1).await.map(|_| true),
            5 => limiter.available_permits().await.map(|_| true),
            _ => limiter.stored_rate().await.map(|_| true),
        };
        let took = began.elapsed();
        assert!(took < TIMEOUT + SLACK, "way {way}: {took:?}");
        answer.map_err(|error: LimiterError| Some(error.kind()))
    });
    join_all(asked).await
}

/// A limiter for each way, of 3 permits in 300 ms.
async fn a_limiter_each(redis: &Redis) {
    for way in 0..7 {
        let limiter = RateLimiter::new(redis, format!("way {way}"));
        let set =
            limiter.try_set_rate(Rate::overall(3, Duration::from_millis(300)).expect("valid"));
        assert!(set.await.expect("an answer"));
    }
}

/// In the end each of them has all its permits, and nothing but rates is left.
async fn assert_all_are_free(redis: &Redis, server: &kit::Redis, within: Duration) {
    let began = Instant::now();
    for way in 0..7 {
        let limiter = RateLimiter::new(redis, format!("way {way}"));
        while limiter.available_permits().await.ok() != Some(3) {
            assert!(began.elapsed() < within, "way {way}");
            sleep(Duration::from_millis(5)).await;
        }
    }
    sleep(Duration::from_millis(3 * 300 + 1_300)).await;
    let names: Vec<String> = server.connection().keys("*").expect("names");
    assert_eq!(names.len(), 7, "only rates are left: {names:?}");
}

/// The value and what is granted add up to the rate.
fn assert_adds_up(connection: &mut redis::Connection, name: &str, rate: i64) {
    let value: Option<i64> = connection
        .get(format!("{{{name}}}:value"))
        .expect("a number");
    let members: Vec<Vec<u8>> = connection
        .zrange(format!("{{{name}}}:permits"), 0, -1)
        .expect("a set");
    let granted: i64 = members
        .iter()
        .map(|member| {
            let permits = member[member.len() - 4..].try_into().expect("four bytes");
            i64::from(u32::from_le_bytes(permits))
        })
        .sum();
    assert_eq!(value.unwrap_or(rate) + granted, rate, "{name}");
}

fn is_store<T: std::fmt::Debug>(result: &Result<T, LimiterErrorKind>) -> bool {
    matches!(result, Err(LimiterErrorKind::Store(_)))
}

/// No way to ask is answered: `acquire` waits on, and everything else fails.
fn none_is_answered(answers: &[Answer]) -> bool {
    let mut answers = answers.iter().enumerate();
    answers.all(|(way, answer)| match answer {
        Err(None) => way == 2 || way == 3,
        Err(Some(kind)) => matches!(kind, LimiterErrorKind::Store(_)) && way != 2 && way != 3,
        Ok(_) => false,
    })
}

#[tokio::test]
async fn a_server_that_crashes_under_waiters() {
    let mut server = kit::Redis::start();
    let redis = connect(&server.url).await;
    let limiter = limiter(&redis, 1, 1_000).await;
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let fair = limiter.clone().fair();
    let reserved = tokio::spawn(async move { fair.acquire(1).await });
    sleep(Duration::from_millis(50)).await;
    let waiters: Vec<_> = (0..16)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(1).await })
        })
        .collect();
    sleep(Duration::from_millis(100)).await;
    server.kill();
    server.restart();
    let began = Instant::now();
    for waiter in waiters {
        let answer = waiter
            .await
            .expect("no panic")
            .map_err(|error| error.kind());
        let unknown = Err(LimiterErrorKind::UnknownLimiter);
        assert!(answer == unknown || is_store(&answer), "{answer:?}");
    }
    assert!(began.elapsed() < Duration::from_millis(2_300) + SLACK);
    let reserved = reserved.await.expect("no panic");
    let reserved = reserved.map_err(|error| error.kind());
    let unknown = Err(LimiterErrorKind::UnknownLimiter);
    assert!(reserved == unknown || is_store(&reserved), "{reserved:?}");
    let unknown = limiter.acquire(1).await.expect_err("an error").kind();
    assert_eq!(unknown, LimiterErrorKind::UnknownLimiter);
    let set = limiter.try_set_rate(Rate::overall(1, Duration::from_millis(50)).expect("valid"));
    assert!(set.await.expect("an answer"));
    limiter.acquire(1).await.expect("an answer");
}

#[tokio::test]
async fn a_server_that_is_gone() {
    let mut server = kit::Redis::start();
    let redis = connect(&server.url).await;
    a_limiter_each(&redis).await;
    server.kill();
    for _ in 0..3 {
        let answers = ask_in_every_way(&redis).await;
        assert!(none_is_answered(&answers), "{answers:?}");
    }
    server.restart();
    a_limiter_each_when_it_is_back(&redis).await;
}

async fn a_limiter_each_when_it_is_back(redis: &Redis) {
    let began = Instant::now();
    while redis_is_away(redis).await {
        assert!(began.elapsed() < Duration::from_secs(5));
        sleep(Duration::from_millis(20)).await;
    }
    a_limiter_each(redis).await;
    let answers = ask_in_every_way(redis).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

async fn redis_is_away(redis: &Redis) -> bool {
    RateLimiter::new(redis, "nobody").exists().await.is_err()
}

#[tokio::test]
async fn a_server_that_is_stopped_for_a_while() {
    let server = kit::Redis::start();
    let redis = connect(&server.url).await;
    a_limiter_each(&redis).await;
    server.signal("STOP");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        let answers = ask_in_every_way(&redis).await;
        assert!(none_is_answered(&answers), "{answers:?}");
    }
    server.signal("CONT");
    // What was executed late counts for an interval; what was reserved, for one from its slot.
    assert_all_are_free(&redis, &server, Duration::from_millis(3_500)).await;
}

/// Who has been told of an error has no place in the order.
#[tokio::test]
async fn reservations_that_nobody_heard_of_are_given_back() {
    let server = kit::Redis::start();
    let redis = connect(&server.url).await;
    let limiter = limiter(&redis, 1, 500).await;
    server.signal("STOP");
    for _ in 0..3 {
        let fair = limiter.clone().fair();
        let waits = join_all((0..10).map(|_| fair.try_acquire_for(1, TIMEOUT / 3)));
        for waited in waits.await {
            let answer = waited.map_err(|error| error.kind());
            assert!(is_store(&answer), "{answer:?}");
        }
    }
    server.signal("CONT");
    // Some of them may have been executed when their connection was lost.
    let few = Duration::from_millis(2_000) + SLACK;
    let began = Instant::now();
    while limiter.available_permits().await.ok() != Some(1) {
        assert!(began.elapsed() < few, "thirty slots of 500 ms are kept");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn clients_are_paused() {
    let server = kit::Redis::start();
    let redis = connect(&server.url).await;
    a_limiter_each(&redis).await;
    for what in ["ALL", "WRITE"] {
        let pause = |millis: u64| {
            let mut connection = server.connection();
            let mut pause = cmd("CLIENT");
            pause
                .arg("PAUSE")
                .arg(millis)
                .arg(what)
                .exec(&mut connection)
        };
        pause(900).expect("pauses");
        let answers = ask_in_every_way(&redis).await;
        let late = Err(Some(LimiterErrorKind::Store(StoreErrorKind::Timeout)));
        assert!(none_is_answered(&answers[..6]), "{answers:?}");
        for way in [0, 1, 4, 5] {
            assert_eq!(answers[way], late, "way {way}");
        }
        sleep(Duration::from_millis(900)).await;
        assert_all_are_free(&redis, &server, Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn scripts_are_flushed_all_the_time() {
    let server = kit::Redis::start();
    let redis = connect(&server.url).await;
    let redis = redis.timeout(Duration::from_secs(20));
    let limiter = limiter(&redis, 5, 60).await;
    let monitor = kit::limiter_monitor::Monitor::start(&server.url);
    let mut connection = server.connection();
    let flushing = std::thread::spawn(move || {
        for _ in 0..300 {
            cmd("SCRIPT")
                .arg("FLUSH")
                .exec(&mut connection)
                .expect("is flushed");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    while !flushing.is_finished() {
        limiter.acquire(2).await.expect("an answer");
        limiter.release(1).await.expect("an answer");
        limiter.clone().fair().acquire(1).await.expect("an answer");
    }
    flushing.join().expect("no panic");
    assert_comes_to_rest(&limiter, &server, Duration::from_millis(200)).await;
    let grants = &monitor.grants(&server.url)["{partner}:permits"];
    assert!(grants.fullest(60_000) <= 5);
}

/// The call is executed, but the answer is lost with the connection.
#[tokio::test]
async fn the_connection_breaks_between_call_and_answer() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let direct = connect(&server.url).await;
    a_limiter_each(&direct).await;
    proxy.cut_after(Duration::from_millis(400));
    let began = Instant::now();
    let redis = connect(&proxy.url).await.timeout(Duration::from_secs(5));
    server.signal("STOP");
    let asked = (0..4).map(|way| {
        let limiter = RateLimiter::new(&redis, format!("way {way}"));
        tokio::spawn(async move {
            match way {
                0 => limiter.try_acquire(1).await,
                1 => limiter.try_acquire_for(1, Duration::from_secs(60)).await,
                2 => limiter.acquire(1).await.map(|()| true),
                _ => limiter.fair().acquire(1).await.map(|()| true),
            }
        })
    });
    let mut asked: Vec<_> = asked.collect();
    let cut = asked.remove(0).await.expect("no panic");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let kind = cut.expect_err("an error").kind();
    assert_eq!(kind, LimiterErrorKind::Store(StoreErrorKind::Unavailable));
    proxy.cut_after(Duration::from_secs(3600));
    server.signal("CONT");
    for asked in join_all(asked).await {
        assert!(asked.expect("no panic").expect("it outlasts the cut"));
    }
    for way in 0..4 {
        // Each was granted once at most: what a lost call granted is not charged again.
        assert_adds_up(&mut server.connection(), &format!("way {way}"), 3);
        let limiter = RateLimiter::new(&direct, format!("way {way}"));
        let available = limiter.available_permits().await.expect("an answer");
        // It may have been given back by now.
        assert!((2..=3).contains(&available), "way {way}: {available}");
    }
    assert_all_are_free(&direct, &server, Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_replica_takes_nothing() {
    let server = kit::Redis::start();
    let redis = connect(&server.url).await;
    a_limiter_each(&redis).await;
    let mut connection = server.connection();
    let replicate = |connection: &mut redis::Connection, host: &str, port: &str| {
        cmd("REPLICAOF")
            .arg(host)
            .arg(port)
            .exec(connection)
            .expect("is told");
    };
    replicate(&mut connection, "127.0.0.1", "1");
    let answers = ask_in_every_way(&redis).await;
    // A link that is made anew may not be there yet for the others.
    assert!(none_is_answered(&answers[..4]), "{answers:?}");
    let read_only = Err(Some(LimiterErrorKind::Store(StoreErrorKind::ReadOnly)));
    assert!(answers[..4].contains(&read_only), "{answers:?}");
    replicate(&mut connection, "NO", "ONE");
    let began = Instant::now();
    while !ask_in_every_way(&redis).await.iter().all(Result::is_ok) {
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

/// A server that is full refuses as a whole: what is counted still adds up.
#[tokio::test]
async fn a_full_server_writes_nothing_in_part() {
    let server = kit::Redis::start();
    let redis = crate::connect(&server).await;
    let mut connection = server.connection();
    let fill = |connection: &mut redis::Connection, limit: u64| {
        for (name, value) in [
            ("maxmemory-policy", "noeviction"),
            ("maxmemory", &*limit.to_string()),
        ] {
            cmd("CONFIG")
                .arg("SET")
                .arg(name)
                .arg(value)
                .exec(connection)
                .expect("is set");
        }
    };
    let full = LimiterErrorKind::Store(StoreErrorKind::OutOfMemory);
    let limiter = limiter(&redis, 9, 80).await;
    for round in 0..30 {
        let held = 1 + round % 4;
        assert!(
            limiter
                .try_acquire_for(held, Duration::from_secs(1))
                .await
                .expect("an answer")
        );
        sleep(Duration::from_millis(round % 5 * 20)).await;
        fill(&mut connection, 1);
        let answers = [
            limiter.try_acquire(1).await.map(u64::from),
            limiter.clone().fair().acquire(1).await.map(|()| 1),
            limiter.release(1).await,
            limiter.try_acquire(9).await.map(u64::from),
        ];
        // Whoever gets along without memory may have succeeded.
        for answer in &answers {
            if let Err(error) = answer {
                assert_eq!(error.kind(), full);
            }
        }
        assert!(answers.iter().any(Result::is_err));
        fill(&mut connection, 0);
        if connection.exists("{partner}:value").expect("a number") {
            assert_adds_up(&mut connection, "partner", 9);
        }
    }
    assert_comes_to_rest(&limiter, &server, Duration::from_millis(300)).await;
}

/// Calls that their callers have given up grant nothing when a server that stood still goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_after_their_deadline_grant_nothing() {
    let server = kit::Redis::start();
    let redis = connect(&server.url).await;
    let limiter = limiter(&redis, 1_000, 3_600_000).await;
    let fair = limiter.clone().fair();
    server.signal("STOP");
    let asked = (0..40).map(|number| {
        let limiter = if number % 2 == 0 { &limiter } else { &fair };
        limiter.try_acquire(1)
    });
    for answer in join_all(asked).await {
        let error = answer.expect_err("a server that stands still").kind();
        assert_eq!(error, LimiterErrorKind::Store(StoreErrorKind::Timeout));
    }
    server.signal("CONT");
    let began = Instant::now();
    loop {
        let stats: String = cmd("INFO")
            .arg("errorstats")
            .query(&mut server.connection())
            .expect("an answer");
        if stats.contains("errorstat_LATE") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{stats}");
        sleep(Duration::from_millis(20)).await;
    }
    let left = server.connection().get::<_, u64>("{partner}:value");
    assert!(left.is_err() || left == Ok(1_000), "{left:?}");
}

/// The reply to one call is lost, and those to later calls are not: none is taken for another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_is_not_taken_for_that_to_another_call() {
    let server = kit::Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = connect(&proxy.url).await;
    let used = RateLimiter::new(&redis, "used");
    let free = RateLimiter::new(&redis, "free");
    for limiter in [&used, &free] {
        let set =
            limiter.try_set_rate(Rate::overall(1, Duration::from_secs(3_600)).expect("valid"));
        assert!(set.await.expect("an answer"));
    }
    assert!(used.try_acquire(1).await.expect("an answer"));

    proxy.present(Mode::LoseReplies(1));
    let asked_later = async {
        sleep(Duration::from_millis(50)).await;
        free.try_acquire(1).await
    };
    let (refused, granted) = tokio::join!(used.try_acquire(1), asked_later);
    assert_ne!(refused.ok(), Some(true));
    assert_ne!(granted.ok(), Some(false));
}
