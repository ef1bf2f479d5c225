//! Law 13: ten thousand who wait, big requests beside small ones, callers that never stop asking.

use crate::*;

const CROWD: usize = 10_000;

/// How often the server was asked to run a script.
fn script_calls(server: &Server) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut server.connection())
        .expect("statistics");
    let calls = stats.lines().filter_map(|line| {
        let is_script = line.starts_with("cmdstat_eval") || line.starts_with("cmdstat_fcall");
        let calls = line.split_once("calls=")?.1.split(',').next()?;
        is_script.then(|| calls.parse::<u64>().expect("a number"))
    });
    calls.sum()
}

/// Ten thousand wait for one name; all are served, at a handful of calls for each refill, and
/// callers of another name hardly notice.
async fn a_crowd_is_served(is_fair: bool) {
    const RATE: u64 = 2_000;
    const INTERVAL: Duration = millis(200);
    let server = Server::start();
    let proxy = behind(&server, millis(2)).await;
    // The default time-out, which is what most use.
    let redis = tidegate::Redis::connect(&*proxy.url)
        .await
        .expect("a server");
    let crowded = limiter(&redis, "crowded", RATE, INTERVAL).await;
    let crowded = crowded.fair_if(is_fair);
    let patient = redis.clone().timeout(PATIENT);
    let aside = limiter(&patient, "aside", 1_000_000, HOUR).await;
    let stalls = Stalls::watch(&[&proxy.url], millis(100)).await;
    let (began, before) = (Instant::now(), script_calls(&server));
    let ended = Arc::<AtomicUsize>::default();
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (crowded, ended) = (crowded.clone(), Arc::clone(&ended));
        crowd.spawn(async move {
            let asked = Instant::now();
            let answer = crowded.acquire(1).await;
            ended.fetch_add(1, Ordering::Relaxed);
            answer.err().map(|error| Lost::since(asked, error))
        });
    }
    let (mut asked, mut longest) = (0, Duration::ZERO);
    while ended.load(Ordering::Relaxed) < CROWD {
        let started = Instant::now();
        assert!(aside.try_acquire(1).await.expect("law 13"));
        longest = longest.max(started.elapsed());
        asked += 1;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(30), "{ended:?} are served");
        sleep(millis(5)).await;
    }
    let lost: Vec<_> = crowd.join_all().await.into_iter().flatten().collect();
    let proven: Vec<_> = lost
        .iter()
        .filter(|lost| !stalls.excuse(lost, millis(200)))
        .collect();
    assert!(
        proven.is_empty(),
        "{} are lost: {:?}",
        proven.len(),
        proven[0]
    );
    let took = began.elapsed();
    let calls = script_calls(&server) - before - asked;
    println!("{took:?}, {calls} calls, longest beside it {longest:?}");
    // At 64 in a call, those who come take 160 calls, and those who are refused then ask again.
    let refills = took.as_millis() as u64 / 200 + 1;
    assert!(calls < 1_000 + 100 * refills, "{calls} calls in {took:?}");
    check_expiries(&server, &["crowded", "aside"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_crowd() {
    a_crowd_is_served(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_crowd() {
    a_crowd_is_served(true).await;
}

/// A crowd that leaves all at once leaves no place behind: whoever comes then is next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_leaves() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let abroad = handle(&server.url).await;
    let limiter = limiter(&redis, "left", 2, millis(500)).await;
    for _ in 0..3 {
        let mut crowd = JoinSet::new();
        for _ in 0..2_000 {
            let fair = limiter.clone().fair();
            crowd.spawn(async move { fair.acquire(1).await });
        }
        sleep(millis(300)).await;
        drop(crowd);
        let stranger = RateLimiter::new(&abroad, "left").fair();
        let ours = limiter.clone().fair();
        let served = async { tokio::join!(stranger.acquire(1), ours.acquire(1)) };
        let served = timeout(5 * SECOND, served).await;
        let (stranger, ours) = served.expect("nobody is before them");
        stranger.and(ours).expect("permits");
    }
    becomes_available(&limiter, 2, 3 * SECOND).await;
    check_expiries(&server, &["left"]);
}

/// A fair request for all there is is served in its turn, whatever small ones come behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_big_request_beside_small_ones() {
    const INTERVAL: Duration = millis(100);
    let (server, _proxy, far) = far_server(millis(2)).await;
    let handles = [far, handle(&server.url).await];
    let first = limiter(&handles[0], "big", 10, INTERVAL).await.fair();
    let monitor = Monitor::start(&server.url);
    let mut small = JoinSet::new();
    for at in 0..30 {
        let fair = RateLimiter::new(&handles[at % 2], "big").fair();
        small.spawn(async move {
            loop {
                fair.waits(1).await;
            }
        });
    }
    sleep(millis(200)).await;
    for _ in 0..5 {
        let big = timeout(3 * SECOND, first.acquire(10)).await;
        big.expect("in its turn").expect("permits");
    }
    small.shutdown().await;
    let used = monitor.check(&server.url, "big", 10, INTERVAL);
    assert!(used >= 50, "{used}");
    becomes_available(&first, 10, 2 * SECOND).await;
}

/// Who asks in a tight loop, for far more than there is, costs others neither time nor permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_never_stop_asking() {
    let (server, _proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "asked", 10, millis(100)).await;
    let aside = super::limiter(&redis, "aside", 1_000_000, HOUR).await;
    let monitor = Monitor::start(&server.url);
    let mut greedy = JoinSet::new();
    for at in 0..50_u64 {
        let limiter = limiter.fair_if(at % 2 == 0);
        greedy.spawn(async move {
            loop {
                let _ = match at % 5 {
                    0 => limiter.try_acquire(0).await.is_ok(),
                    1 => limiter.try_acquire(u64::MAX).await.is_ok(),
                    2 => limiter
                        .try_acquire_for(10, Duration::from_nanos(1))
                        .await
                        .is_ok(),
                    3 => limiter.release(at).await.is_ok(),
                    _ => timeout(millis(1), limiter.acquire(9)).await.is_ok(),
                };
                tokio::task::yield_now().await;
            }
        });
    }
    let began = Instant::now();
    let calls = join_all((0..100).map(|_| aside.try_acquire(1))).await;
    assert!(calls.iter().all(|call| matches!(call, Ok(true))), "law 13");
    for _ in 0..100 {
        assert!(aside.try_acquire(1).await.expect("law 13"));
    }
    let took = began.elapsed();
    assert!(took < 10 * SECOND, "law 13: {took:?}");
    greedy.shutdown().await;
    monitor.check(&server.url, "asked", 10, millis(100));
    becomes_available(&limiter, 10, 2 * SECOND).await;
    check_expiries(&server, &["asked", "aside"]);
}

/// Free permits at a distance: each caller gets them in about one round trip, however many ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_permits_at_a_distance() {
    let (_server, _proxy, redis) = far_server(millis(2)).await;
    let limiter = limiter(&redis, "far", 1_000_000, HOUR).await;
    for is_fair in [false, true] {
        let limiter = limiter.fair_if(is_fair);
        let hasty = join_all((0..100).map(|_| limiter.try_acquire_for(1, millis(500)))).await;
        let refused = hasty.iter().filter(|got| !matches!(got, Ok(true))).count();
        assert_eq!(refused, 0, "law 14: of a hundred that are free");
        let began = Instant::now();
        crowd(200, |_| {
            let limiter = limiter.clone();
            async move {
                for _ in 0..10 {
                    limiter.waits(1).await;
                }
            }
        })
        .await;
        let took = began.elapsed();
        assert!(took < 2 * SECOND, "2,000 grants took {took:?}");
    }
}

/// Thousands of names that are all waited for at the same time: a bystander is served, and so is
/// each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_thousands_of_names() {
    const NAMES: usize = 2_000;
    let (_server, _proxy, redis) = far_server(millis(2)).await;
    let aside = limiter(&redis, "aside", 1_000_000, HOUR).await;
    let sets = (0..NAMES).map(|at| {
        let redis = redis.clone();
        async move {
            let limiter = limiter(&redis, &format!("name-{at}"), 1, millis(700)).await;
            limiter
                .try_acquire(1)
                .await
                .map(|is_granted| (limiter, is_granted))
        }
    });
    let limiters = join_all(sets).await;
    let mut waiters = JoinSet::new();
    for made in limiters {
        let (limiter, is_granted) = made.expect("an answer");
        assert!(is_granted);
        let fair = limiter.clone().fair();
        waiters.spawn(async move { limiter.acquire(1).await });
        waiters.spawn(async move { fair.acquire(1).await });
    }
    let (mut longest, began) = (Duration::ZERO, Instant::now());
    let mut served = 0;
    while served < 2 * NAMES {
        let asked = Instant::now();
        assert!(aside.try_acquire(1).await.expect("law 13"));
        longest = longest.max(asked.elapsed());
        while let Some(ended) = waiters.try_join_next() {
            ended.expect("no panic").expect("a permit");
            served += 1;
        }
        assert!(began.elapsed() < PATIENT, "{served} are served");
        sleep(millis(2)).await;
    }
    println!("in {:?}, longest beside it {longest:?}", began.elapsed());
    // It comes behind four thousand first questions, each of another name.
    assert!(longest < Duration::from_secs(12), "law 13: {longest:?}");
}

/// The earlier generations under callers that leave, plain as they are: all who stay are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_of_earlier_generations() {
    const INTERVAL: Duration = millis(100);
    let (server, _proxy, redis) = far_server(millis(2)).await;
    for (name, generation) in [("first", Generation::First), ("second", Generation::Second)] {
        let limiter = limiter(&redis, name, 20, INTERVAL)
            .await
            .generation(generation);
        let mut crowd = JoinSet::new();
        for at in 0..150_u64 {
            let limiter = limiter.clone();
            crowd.spawn(async move {
                if at % 3 == 0 {
                    let _ = timeout(millis(at % 70), limiter.acquire(2)).await;
                } else {
                    limiter.waits(1).await;
                }
            });
        }
        let all = timeout(10 * SECOND, async {
            while let Some(ended) = crowd.join_next().await {
                ended.expect("no panic");
            }
        });
        all.await.unwrap_or_else(|_| panic!("{name}: law 13"));
        let asked = limiter.try_acquire_for(20, 3 * SECOND).await;
        assert!(asked.expect("an answer"), "{name}: law 14");
    }
    check_expiries(&server, &["first", "second"]);
}
