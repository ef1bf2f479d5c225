//! A server that crashes, stops, refuses or gets lost: every call ends in time or lasts until the
//! server is back, and nothing is half-written.

use kit::Redis as Server;

use crate::*;

const TIMEOUT: Duration = millis(300);
/// What a busy machine may take longer, besides what the kernel counts.
const SLACK: Duration = millis(700);
const WAYS: usize = 7;

async fn connect(url: &str) -> Redis {
    handle(url).await.timeout(TIMEOUT)
}

fn of_way(redis: &Redis, way: usize) -> RateLimiter {
    RateLimiter::new(redis, format!("way{way}"))
}

/// A limiter for each way, of 3 permits in 300 ms.
async fn a_limiter_each(redis: &Redis) {
    for way in 0..WAYS {
        assert!(of_way(redis, way).sets_first(overall(3, millis(300))).await);
    }
}

/// In the end each of them has all its permits, and nothing but rates is left.
async fn all_become_free(redis: &Redis, server: &Server, within: Duration) {
    let stopwatch = server.stopwatch();
    for way in 0..WAYS {
        let limiter = of_way(redis, way);
        let is_free = async || limiter.available_permits().await.ok() == Some(3);
        eventually(&format!("way {way} is free"), is_free).await;
    }
    let waited = stopwatch.waited();
    assert!(waited < within, "{waited:?}");
    eventually("only rates are left", async || server.names().len() == WAYS).await;
}

/// The value and what is granted add up to the rate.
fn assert_adds_up(server: &Server, name: &str, rate: i64) {
    let value: Option<i64> = server.run(&format!("GET {{{name}}}:value"));
    let members: Vec<Vec<u8>> = server.run(&format!("ZRANGE {{{name}}}:permits 0 -1"));
    let permits = members.iter().map(|member| {
        let permits = member.last_chunk::<4>().expect("four bytes");
        i64::from(u32::from_le_bytes(*permits))
    });
    let granted: i64 = permits.sum();
    assert_eq!(value.unwrap_or(rate) + granted, rate, "{name}");
}

fn is_store(kind: Option<LimiterErrorKind>) -> bool {
    matches!(kind, Some(LimiterErrorKind::Store(_)))
}

const UNKNOWN: Option<LimiterErrorKind> = Some(LimiterErrorKind::UnknownLimiter);

#[tokio::test]
async fn a_server_that_crashes_under_waiters() {
    let mut server = Server::start();
    let limiter = limiter(&connect(&server.url).await, 1, 60_000).await;
    assert!(limiter.takes(1).await);
    let waiters: Vec<_> = (0..17)
        .map(|at| {
            let limiter = limiter.fair_if(at == 0);
            tokio::spawn(async move { kind(limiter.acquire(1).await) })
        })
        .collect();
    sleep(millis(100)).await;
    server.kill();
    server.restart();
    let stopwatch = Stopwatch::here();
    for waiter in waiters {
        let told = waiter.await.expect("no panic");
        assert!(told == UNKNOWN || is_store(told), "{told:?}");
    }
    assert!(stopwatch.waited() < millis(2_300) + SLACK);
    assert_eq!(kind(limiter.acquire(1).await), UNKNOWN);
    assert!(limiter.sets_first(overall(1, millis(50))).await);
    limiter.waits(1).await;
}

/// Who has been told of an error has no place in the order.
#[tokio::test]
async fn reservations_that_nobody_heard_of_are_given_back() {
    let server = Server::start();
    let limiter = limiter(&connect(&server.url).await, 1, 500).await;
    server.signal("STOP");
    for _ in 0..3 {
        let fair = limiter.clone().fair();
        let waits = join_all((0..10).map(|_| fair.try_acquire_for(1, TIMEOUT / 3)));
        for waited in waits.await {
            let told = kind(waited);
            assert!(is_store(told), "{told:?}");
        }
    }
    server.signal("CONT");
    // Some of them may have been executed when their connection was lost.
    let stopwatch = server.stopwatch();
    let is_free = async || limiter.available_permits().await.ok() == Some(1);
    eventually("no slot is kept", is_free).await;
    let waited = stopwatch.waited();
    let is_right = waited < millis(2_000) + SLACK;
    assert!(is_right, "thirty slots of 500 ms are kept: {waited:?}");
}

#[tokio::test]
async fn scripts_are_flushed_all_the_time() {
    let server = Server::start();
    let limiter = limiter(&handle(&server.url).await, 5, 60).await;
    let monitor = Monitor::start(&server.url);
    let mut connection = server.connection();
    let flushing = std::thread::spawn(move || {
        for _ in 0..300 {
            let flush = redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection);
            flush.expect("is flushed");
            std::thread::sleep(millis(1));
        }
    });
    while !flushing.is_finished() {
        limiter.waits(2).await;
        limiter.gives_back(1).await;
        limiter.clone().fair().waits(1).await;
    }
    flushing.join().expect("no panic");
    comes_to_rest(&limiter, &server).await;
    monitor.check(&server.url, "partner", 5, millis(60));
}

/// The call is executed, but the answer is lost with the connection.
#[tokio::test]
async fn the_connection_breaks_between_call_and_answer() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let direct = connect(&server.url).await;
    a_limiter_each(&direct).await;
    proxy.cut_after(millis(400));
    let stopwatch = Stopwatch::here();
    let redis = handle(&proxy.url).await;
    server.signal("STOP");
    let asked = (0..4).map(|way| {
        let limiter = of_way(&redis, way);
        tokio::spawn(async move {
            match way {
                0 => limiter.try_acquire(1).await,
                1 => limiter.try_acquire_for(1, 60 * SECOND).await,
                2 => limiter.acquire(1).await.map(|()| true),
                _ => limiter.fair().acquire(1).await.map(|()| true),
            }
        })
    });
    let mut asked: Vec<_> = asked.collect();
    let cut = kind(asked.remove(0).await.expect("no panic"));
    let waited = stopwatch.waited();
    assert!(waited < 2 * SECOND, "{waited:?}");
    let seen = cut;
    assert_eq!(
        seen,
        Some(LimiterErrorKind::Store(StoreErrorKind::Unavailable))
    );
    proxy.cut_after(HOUR);
    server.signal("CONT");
    for asked in join_all(asked).await {
        assert!(asked.expect("no panic").expect("it outlasts the cut"));
    }
    for way in 0..4 {
        // Each was granted once at most: what a lost call granted is not charged again.
        assert_adds_up(&server, &format!("way{way}"), 3);
        let available = of_way(&direct, way).free().await;
        // It may have been given back by now.
        assert!((2..=3).contains(&available), "way {way}: {available}");
    }
    all_become_free(&direct, &server, SECOND).await;
}

/// A server that is full refuses as a whole: what is counted still adds up.
#[tokio::test]
async fn a_full_server_writes_nothing_in_part() {
    let server = Server::start();
    run(&server, "CONFIG SET maxmemory-policy noeviction");
    let limiter = limiter(&handle(&server.url).await, 9, 80).await;
    for round in 0..30 {
        assert!(limiter.takes_within(1 + round % 4, PATIENT).await);
        sleep(millis(round % 5 * 10)).await;
        run(&server, "CONFIG SET maxmemory 1");
        let answers = [
            kind(limiter.try_acquire(1).await),
            kind(limiter.clone().fair().acquire(1).await),
            kind(limiter.release(1).await),
            kind(limiter.try_acquire(9).await),
        ];
        // Whoever gets along without memory may have succeeded.
        let full = LimiterErrorKind::Store(StoreErrorKind::OutOfMemory);
        let is_right = answers.iter().flatten().all(|told| *told == full);
        assert!(is_right, "{answers:?}");
        assert!(answers.contains(&Some(full)));
        run(&server, "CONFIG SET maxmemory 0");
        if server.life("{partner}:value") != -2 {
            assert_adds_up(&server, "partner", 9);
        }
    }
    comes_to_rest(&limiter, &server).await;
}

/// Calls that their callers have given up grant nothing when a server that stood still goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_after_their_deadline_grant_nothing() {
    let server = Server::start();
    let limiter = limiter(&connect(&server.url).await, 1_000, 3_600_000).await;
    let fair = limiter.clone().fair();
    server.signal("STOP");
    let asked = (0..40).map(|number| [&limiter, &fair][number % 2].try_acquire(1));
    for answer in join_all(asked).await {
        let timed_out = Some(LimiterErrorKind::Store(StoreErrorKind::Timeout));
        assert_eq!(kind(answer), timed_out, "a server that stands still");
    }
    server.signal("CONT");
    let is_late = async || {
        server
            .run::<String>("INFO errorstats")
            .contains("errorstat_LATE")
    };
    eventually("they are refused", is_late).await;
    let left: Option<u64> = server.run("GET {partner}:value");
    assert!(left.is_none_or(|left| left == 1_000), "{left:?}");
}

/// The reply to one call is lost, and those to later calls are not: none is taken for another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_is_not_taken_for_that_to_another_call() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = connect(&proxy.url).await;
    let [used, free] = ["used", "free"].map(|name| RateLimiter::new(&redis, name));
    for limiter in [&used, &free] {
        assert!(limiter.sets_first(overall(1, HOUR)).await);
    }
    assert!(used.takes(1).await);

    proxy.present(Mode::LoseReplies(1));
    let asked_later = async {
        sleep(millis(50)).await;
        free.try_acquire(1).await
    };
    let (refused, granted) = tokio::join!(used.try_acquire(1), asked_later);
    assert_ne!(refused.ok(), Some(true));
    assert_ne!(granted.ok(), Some(false));
}
