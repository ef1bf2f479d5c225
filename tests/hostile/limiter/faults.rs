//! Replies that are lost, servers that stop, hang, forget and die under those who wait.

use crate::*;

/// The default of `Redis::timeout`, and what a busy machine adds.
const IN_TIME: Duration = millis(200 + 500);

/// The connection is cut at every moment between a call and its reply. What was granted to nobody
/// is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost() {
    let (server, proxy, redis) = far_server(millis(4)).await;
    let limiter = limiter(&redis, "lost", 1_000, HOUR).await;
    let (mut granted, mut failed) = (0, 0);
    for round in 0..24_u64 {
        let calls = (0..5_u64).map(|at| {
            let limiter = limiter.fair_if(at % 2 == 0);
            tokio::spawn(async move {
                match at % 3 {
                    0 => limiter.acquire(2).await.map(|()| true),
                    1 => limiter.try_acquire(2).await,
                    _ => limiter.acquire_permit(2).await.map(|_| true),
                }
            })
        });
        let calls: Vec<_> = calls.collect();
        sleep(Duration::from_micros(round * 250)).await;
        proxy.present(if round % 2 == 0 {
            Mode::Reset
        } else {
            Mode::HalfClosed
        });
        for call in calls {
            match call.await.expect("no panic") {
                Ok(is_granted) => granted += u64::from(is_granted) * 2,
                Err(error) => {
                    assert!(is_store(Some(error.kind())), "{error}");
                    failed += 1;
                }
            }
        }
    }
    println!("{granted} granted, {failed} calls failed");
    assert!(failed > 0 && granted > 0);
    becomes_available(&limiter, 1_000 - granted, 8 * SECOND).await;
    check_expiries(&server, &["lost"]);
}

/// Replies come after the callers' time: nothing of what they were granted stays charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_come_late() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let redis = by_default(&proxy.url).await.timeout(millis(100));
    limiter(&redis.clone().timeout(PATIENT), "late", 1_000, HOUR).await;
    let limiter = RateLimiter::new(&redis, "late");
    let mut granted = 0;
    for round in 0..6 {
        proxy.delay(Duration::ZERO, millis(160));
        let asked = Instant::now();
        let calls = (0..20).map(|at| {
            let limiter = limiter.fair_if(at % 2 == 0);
            async move { limiter.try_acquire(3).await }
        });
        for answer in join_all(calls).await {
            granted += u64::from(answer.unwrap_or(false)) * 3;
        }
        let took = asked.elapsed();
        let is_right = took < millis(100) + millis(500);
        assert!(is_right, "law 6: {took:?} in round {round}");
        proxy.all(Mode::Pass);
        sleep(millis(100)).await;
    }
    becomes_available(&limiter, 1_000 - granted, 8 * SECOND).await;
}

/// A server that dies takes the rate with it. Who waits is told within seconds, and the limiter
/// works again as soon as it has a rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies() {
    let mut server = Server::start();
    let redis = by_default(&server.url).await;
    let limiter = limiter(&redis, "dies", 1, HOUR).await;
    assert!(limiter.takes(1).await);
    let sleepers = sleepers(&limiter, 20);
    sleep(millis(100)).await;
    server.kill();
    sleep(millis(300)).await;
    let asked = Instant::now();
    let answer = kind(limiter.try_acquire(1).await);
    assert!(is_store(answer), "{answer:?}");
    let took = asked.elapsed();
    assert!(took < IN_TIME, "law 6: {took:?}");
    server.restart();
    let ended = timeout(8 * SECOND, sleepers.join_all()).await;
    for answer in ended.expect("law 6: nobody sleeps on") {
        let is_told = is_store(answer) || answer == Some(LimiterErrorKind::UnknownLimiter);
        assert!(is_told, "{answer:?}");
    }
    let began = Instant::now();
    while limiter.try_set_rate(overall(5, HOUR)).await.is_err() {
        assert!(began.elapsed() < 3 * SECOND, "it is back");
        sleep(millis(20)).await;
    }
    assert!(limiter.clone().fair().takes(5).await);
    assert!(!limiter.takes(1).await);
    check_expiries(&server, &["dies"]);
}

/// Scripts are flushed, writes are paused and connections are killed under those who wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_a_hostile_operator() {
    const INTERVAL: Duration = millis(100);
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "hostile", 10, INTERVAL).await;
    let monitor = Monitor::start(&server.url);
    let mut callers = JoinSet::new();
    for at in 0..100 {
        let limiter = limiter.fair_if(at % 2 == 0);
        callers.spawn(async move { limiter.acquire(1).await });
    }
    for at in 0..60 {
        run(&server, "SCRIPT FLUSH");
        if at % 20 == 5 {
            run(&server, "CLIENT PAUSE 60 WRITE");
        }
        sleep(millis(10)).await;
    }
    let answers = timeout(10 * SECOND, callers.join_all()).await;
    let answers = answers.expect("all are served");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    monitor.check(&server.url, "hostile", 10, INTERVAL);
    check_expiries(&server, &["hostile"]);
}
