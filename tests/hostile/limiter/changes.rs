//! Rates that change, are deleted and expire under those who wait.

use crate::*;

const LONG: Duration = Duration::from_secs(30);

/// What happens while callers sleep for half a minute.
#[derive(Debug, Clone, Copy)]
enum Change {
    Set,
    Keep,
    Delete,
    DeleteAndSet,
    Expire,
    DeletedByHand,
}

const CHANGES: [Change; 6] = [
    Change::Set,
    Change::Keep,
    Change::Delete,
    Change::DeleteAndSet,
    Change::Expire,
    Change::DeletedByHand,
];

async fn make(change: Change, by: &RateLimiter, server: &Server) {
    let more = overall(1_000, LONG);
    match change {
        Change::Set => by.sets(more).await,
        Change::Keep => by.replaces(more).await,
        Change::Delete => assert!(by.delete().await.expect("an answer")),
        Change::DeleteAndSet => {
            assert!(by.delete().await.expect("an answer"));
            assert!(by.sets_first(more).await);
        }
        Change::Expire => assert!(by.expire(millis(1)).await.expect("an answer")),
        Change::DeletedByHand => run(server, &format!("DEL {}", by.name())),
    }
}

fn is_right(change: Change, answer: Option<LimiterErrorKind>) -> bool {
    match change {
        Change::Delete | Change::Expire | Change::DeletedByHand => {
            answer == Some(LimiterErrorKind::UnknownLimiter)
        }
        // Who asks in between is told.
        Change::DeleteAndSet => matches!(answer, None | Some(LimiterErrorKind::UnknownLimiter)),
        _ => answer.is_none(),
    }
}

/// Law 14: sleepers hear of a change by their own process at once, and of any other within a
/// second; a newcomer does not stand behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sleeps_through_a_change() {
    let (server, _proxy, home) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    let cases = CHANGES
        .into_iter()
        .flat_map(|change| [(change, false), (change, true)]);
    let cases = cases.map(async |(change, is_foreign)| {
        let name = format!("{change:?}-{is_foreign}");
        let limiter = limiter(&home, &name, 1, LONG).await;
        assert!(limiter.takes(1).await);
        let mut sleepers = sleepers(&limiter, 6);
        sleep(millis(300)).await;
        assert!(sleepers.try_join_next().is_none(), "{name}: one is served");
        let by = RateLimiter::new(if is_foreign { &abroad } else { &home }, &*name);
        make(change, &by, &server).await;
        sleep(millis(5)).await;
        let newcomer = limiter.try_acquire(1);
        let newcomer = timeout(2 * SECOND, newcomer).await.expect("at once");
        assert!(is_right(change, kind(newcomer)), "{name}: a newcomer");
        // Expiry and deletion by hand are changes that this process did not make.
        let is_known = !is_foreign && !matches!(change, Change::DeletedByHand | Change::Expire);
        let within = if is_known { millis(700) } else { millis(1_700) };
        let heard = timeout(within, async {
            while let Some(answer) = sleepers.join_next().await {
                let answer = answer.expect("no panic");
                assert!(is_right(change, answer), "{name}: {answer:?}");
            }
        });
        let in_time = heard.await.is_ok();
        (name.clone(), in_time)
    });
    let heard = join_all(cases).await;
    let late: Vec<_> = heard.iter().filter(|(_, in_time)| !in_time).collect();
    assert!(late.is_empty(), "late: {late:?}");
}

/// `FLUSHALL` takes rates away; who waits is told, and the limiter can be set anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_flushed() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let limiter = limiter(&redis, "flushed", 1, LONG).await;
    assert!(limiter.takes(1).await);
    let waiting = [limiter.clone(), limiter.clone().fair()]
        .map(|limiter| tokio::spawn(async move { kind(limiter.acquire(1).await) }));
    sleep(millis(100)).await;
    run(&server, "FLUSHALL");
    for waiting in waiting {
        let answer = timeout(millis(2_500), waiting).await.expect("law 6");
        let answer = answer.expect("no panic");
        assert_eq!(answer, Some(LimiterErrorKind::UnknownLimiter));
    }
    assert!(limiter.sets_first(overall(2, LONG)).await);
    assert!(limiter.takes(2).await);
    assert!(!limiter.takes(1).await);
    check_expiries(&server, &["flushed"]);
}

/// Law 1 under a rate that goes up and down with what was granted kept: in each phase the grants of
/// that phase alone fit the rate, and no interval at all holds more than the highest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_goes_up_and_down() {
    const INTERVAL: Duration = millis(100);
    let (server, _proxy, far) = far_server(millis(2)).await;
    let handles = [far, handle(&server.url).await];
    let limiter = limiter(&handles[1], "wavy", 3, INTERVAL).await;
    let monitor = Monitor::start(&server.url);
    let mut waiters = JoinSet::new();
    for at in 0..60 {
        let limiter = RateLimiter::new(&handles[at % 2], "wavy").fair_if(at % 3 != 0);
        waiters.spawn(async move {
            loop {
                limiter.waits(1).await;
            }
        });
    }
    let mut phases = Vec::new();
    for rate in [3, 8, 2, 6, 3, 7, 2, 1, 5] {
        let next = overall(rate, INTERVAL);
        limiter.replaces(next).await;
        let began = server.millis();
        sleep(millis(250)).await;
        phases.push((rate, began, server.millis()));
    }
    waiters.shutdown().await;
    let grants = monitor.grants_of(&server.url, "wavy");
    grants.check(8, INTERVAL);
    grants.check_phases(INTERVAL, &phases);
}

/// Who reserved a place under a rate that is gone does not come beside those who were granted anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_end_with_their_rate() {
    const INTERVAL: Duration = millis(200);
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "places", 10, INTERVAL).await;
    let mut waiters = JoinSet::new();
    for _ in 0..60 {
        let fair = limiter.clone().fair();
        waiters.spawn(async move { while fair.acquire(1).await.is_ok() {} });
    }
    sleep(millis(300)).await;
    for round in 0..4 {
        limiter.sets(overall(2, INTERVAL)).await;
        // From here on nothing is forgotten.
        let monitor = Monitor::start(&server.url);
        sleep(millis(700)).await;
        let used = monitor.check(&server.url, "places", 2, INTERVAL);
        assert!(used >= 4, "{used} of 6 in round {round}");
        limiter.sets(overall(10, INTERVAL)).await;
        sleep(millis(50)).await;
    }
    waiters.shutdown().await;
}

/// Who waits for more than a rate that was lowered gives is told, and nobody stands behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_became_impossible() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    for name in ["plain", "fair"] {
        let limiter = limiter(&redis, name, 10, LONG)
            .await
            .fair_if(name == "fair");
        let seen = kind(limiter.acquire(11).await);
        assert_eq!(seen, Some(LimiterErrorKind::AboveRate));
        let seen = kind(limiter.acquire(u64::MAX).await);
        assert_eq!(seen, Some(LimiterErrorKind::AboveRate));
        let in_vain = limiter.try_acquire_for(11, Duration::MAX).await;
        assert_eq!(kind(in_vain), Some(LimiterErrorKind::AboveRate));
        assert!(limiter.takes(5).await);
        let (big, small) = (limiter.clone(), limiter.clone());
        let mut bigs = JoinSet::new();
        for _ in 0..20 {
            let big = big.clone();
            bigs.spawn(async move { kind(big.acquire(8).await) });
        }
        sleep(millis(100)).await;
        let smalls = tokio::spawn(async move { small.acquire(6).await });
        sleep(millis(50)).await;
        let fewer = overall(7, LONG);
        limiter.replaces(fewer).await;
        let began = Instant::now();
        while let Some(answer) = bigs.join_next().await {
            let answer = answer.expect("no panic");
            assert_eq!(answer, Some(LimiterErrorKind::AboveRate), "{name}");
        }
        assert!(
            began.elapsed() < millis(700),
            "{name}: {:?}",
            began.elapsed()
        );
        // What is free goes to those who ask: two of seven.
        let two = timeout(2 * SECOND, limiter.acquire(2));
        if name == "plain" {
            two.await.expect("law 14").expect("a permit");
        }
        smalls.abort();
    }
}

/// Of many who set the first rate one does; of many who delete it one has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_writers_and_last_deleters() {
    let (server, _proxy, far) = far_server(millis(2)).await;
    let handles = [far, handle(&server.url).await];
    for _ in 0..10 {
        let limiters: Vec<_> = (0..40)
            .map(|at| RateLimiter::new(&handles[at % 2], "raced"))
            .collect();
        let sets = limiters
            .iter()
            .zip(1..)
            .map(|(limiter, permits)| limiter.try_set_rate(overall(permits, LONG)));
        let sets = timeout(PATIENT, join_all(sets)).await.expect("law 6");
        let first: Vec<_> = (1..)
            .zip(sets)
            .filter_map(|(permits, set)| set.expect("an answer").then_some(permits))
            .collect();
        let rate = limiters[0]
            .stored_rate()
            .await
            .expect("an answer")
            .expect("a rate");
        assert_eq!(first, [rate.permits()]);
        let deletes = join_all(limiters.iter().map(RateLimiter::delete)).await;
        let deletes = deletes
            .into_iter()
            .filter(|is| *is.as_ref().expect("an answer"));
        assert_eq!(deletes.count(), 1);
    }
    check_expiries(&server, &[]);
}

/// A rate that is kept alive for its interval alone serves all who wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_lives_for_its_interval() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let rate = Rate::overall(2, millis(100)).and_then(|rate| rate.with_keep_alive(millis(100)));
    let rate = rate.expect("a rate");
    for name in ["plain", "fair"] {
        let limiter = RateLimiter::new(&redis, name).fair_if(name == "fair");
        limiter.sets(rate).await;
        let served = join_all((0..10).map(|_| limiter.acquire(1))).await;
        let failed = served.iter().filter(|answer| answer.is_err()).count();
        assert_eq!(failed, 0, "{name}: {served:?}");
    }
    sleep(millis(2_500)).await;
    let left: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut server.connection())
        .expect("the keys");
    assert!(left.is_empty(), "law 4: {left:?}");
}

/// A release is a change, too: who sleeps hears of one by the own process at once, and of another
/// process's within a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sleeps_through_a_release() {
    let (server, _proxy, home) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    for is_fair in [false, true] {
        for is_foreign in [false, true] {
            let name = format!("{is_fair}-{is_foreign}");
            let limiter = limiter(&home, &name, 4, LONG).await;
            let by = RateLimiter::new(if is_foreign { &abroad } else { &home }, &*name);
            let permit = by.acquire_permit(2).await.expect("a permit");
            by.waits(2).await;
            let sleeper = limiter.fair_if(is_fair);
            let sleeps = tokio::spawn(async move {
                sleeper.acquire(1).await?;
                sleeper.acquire(3).await
            });
            sleep(millis(200)).await;
            assert_eq!(permit.release().await.expect("an answer"), 2, "{name}");
            sleep(if is_foreign {
                millis(1_500)
            } else {
                millis(500)
            })
            .await;
            assert_eq!(by.free().await, 1, "{name}: one has woken up");
            assert_eq!(by.gives_back(2).await, 2, "{name}");
            let within = if is_foreign {
                millis(2_000)
            } else {
                millis(700)
            };
            let served = timeout(within, sleeps).await;
            let served = served.unwrap_or_else(|_| panic!("{name}: sleeps through a release"));
            served.expect("no panic").expect("permits");
        }
    }
}
