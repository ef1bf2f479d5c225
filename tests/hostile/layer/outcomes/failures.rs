//! Refunds that fail: what is not given back stays charged and is counted, and requests go on.

use super::*;

/// Stores that panic or fail: each refund is asked once and counted lost, and answers
/// are what they were.
#[tokio::test]
async fn stores_that_misbehave() {
    type Refund = fn() -> StoreFuture<u64>;
    let panics_later = || {
        StoreFuture::boxed(async {
            tokio::task::yield_now().await;
            panic!("a store of a test, later")
        })
    };
    let fails = || {
        let error = StoreError::new(StoreErrorKind::Unavailable, "it is gone");
        StoreFuture::ready(Err(error))
    };
    let refunds: [(&str, Refund); 3] = [
        ("fails at once", fails),
        ("panics later", panics_later),
        ("panics at once", || panic!("a store of a test")),
    ];
    for (what, refund) in refunds {
        let asked = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&asked);
        let store = Stub::in_memory().refund_fn(move |_, _, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            refund()
        });
        let (limits, service) = world(of("a", 100, &["2xx"]), store);
        for used in 1..=10 {
            let answer = timeout(PATIENT, start(&service, ""))
                .await
                .expect("in time");
            assert_eq!(answer.expect("no panic"), 200, "{what}");
            assert_eq!(left(&limits, "a").await, 100 - used, "{what}");
        }
        flushed(&limits).await;
        assert_eq!(asked.load(Ordering::Relaxed), 10, "{what}");
        assert_eq!(counted(&limits, "a"), (0, 0, 10), "{what}");
    }
}

/// Lost on the way there, and lost on the way back: each is asked once, whatever becomes of it.
#[tokio::test(start_paused = true)]
async fn refunds_that_are_lost() {
    for (fate, expected) in [(Fate::QuestionLost, 90), (Fate::ReplyLost, 100)] {
        let distant = Distant::new(MemoryStore::new()).ways(5, 5);
        let (limits, service) = world(of("a", 100, &["2xx"]), distant.clone());
        distant.refunds_are(fate);
        pass(&service, 200, 10).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a"), (0, 0, 10), "{fate:?}");
        distant.refunds_are(Fate::Answered);
        sleep(30 * SECOND).await;
        assert_eq!(left(&limits, "a").await, expected, "{fate:?}");
    }
}

/// Redis goes between the take and the refund, and comes back: answers are whole and in time, what
/// is lost is counted, and later refunds arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_goes_between_take_and_refund() {
    let garbage = Mode::Garbage(b"-ERR no\r\n");
    for mode in [Mode::BlackHole, Mode::Reset, garbage, Mode::HalfClosed] {
        let server = Redis::start();
        let proxy = Proxy::start(&server.url).await;
        let store = RedisStore::connect(&*proxy.url).await.expect("a server");
        let (limits, service) = world(of("a", 1_000, &["2xx"]), store.timeout(SECOND));
        pass(&service, 200, 1).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a"), (1, 1, 0));
        let slow: Vec<_> = (0..20).map(|_| start(&service, "x-sleep: 500")).collect();
        until_left(&limits, "a", 980).await;
        proxy.all(mode);
        let began = Instant::now();
        assert_eq!(done(slow).await, [200; 20], "{mode:?}");
        assert!(began.elapsed() < PATIENT / 2);
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a"), (1, 1, 20), "{mode:?}");
        proxy.all(Mode::Pass);
        until(200, async || send(&service, 200).await).await;
        flushed(&limits).await;
        let left = left(&limits, "a").await;
        assert!((980..=1_000).contains(&left), "{mode:?}: {left}");
        assert_eq!(counted(&limits, "a").0, 2, "{mode:?}");
    }
}

/// The ACL forbids what a refund needs, from now on: lost, counted, and takes go on.
#[tokio::test]
async fn the_acl_forbids_refunds() {
    let server = Redis::start();
    run(&server, "ACL SETUSER app on nopass ~* +@all");
    let url = server.url.replace("//", "//app:x@");
    for algorithm in ALGORITHMS {
        let is_bucket = algorithm == Algorithm::Gcra;
        let store = connect(&url, PATIENT).await;
        let rule = of("a", 1_000, &["2xx"]).with_algorithm(algorithm);
        let (limits, service) = world(rule, store);
        pass(&service, 200, 1).await;
        flushed(&limits).await;
        // The key of the count only.
        run(&server, "ACL SETUSER app resetkeys ~CurrentLimiter:*");
        pass(&service, 200, 5).await;
        flushed(&limits).await;
        let (refunds, units, lost) = counted(&limits, "a");
        assert_eq!(refunds, units, "{algorithm:?}");
        let used = 1_000 - left(&limits, "a").await;
        match is_bucket {
            // What has begun to drain is not given back, and not lost.
            true => assert!(refunds + lost <= 6, "{refunds} {lost}"),
            false => assert_eq!((refunds + lost, used), (6, lost), "{algorithm:?}"),
        }
        run(&server, "ACL SETUSER app ~*");
        pass(&service, 200, 1).await;
        flushed(&limits).await;
        assert!(
            is_bucket || counted(&limits, "a").0 == refunds + 1,
            "{algorithm:?}"
        );
        reset(&limits, "a").await;
    }
}

/// A wrong type under the key, its loss, and a foreign one, between take and refund.
#[tokio::test]
async fn bad_state_between_take_and_refund() {
    let server = Redis::start();
    for algorithm in ALGORITHMS {
        for command in [
            "SET # foreign",
            "LPUSH # foreign",
            "HSET # not ours",
            "SADD # foreign",
            "ZADD # 1 foreign",
            "DEL #",
            "FLUSHALL",
        ] {
            run(&server, "FLUSHALL");
            let store = connect(&server.url, PATIENT).await;
            let rule = of("a", 100, &["2xx"]).with_algorithm(algorithm);
            let (limits, service) = world(rule, store);
            let gate = Gate::new();
            let held = gate.start(&service);
            until_left(&limits, "a", 99).await;
            let keys = kit::keys(&server, "*:a*");
            assert!(!keys.is_empty());
            let delete = || {
                keys.iter()
                    .for_each(|key| run(&server, &format!("DEL {key}")))
            };
            for key in &keys {
                run(&server, &format!("DEL {key}"));
                run(&server, &command.replace('#', key));
            }
            gate.open();
            assert_eq!(held.await.expect("no panic"), 200);
            flushed(&limits).await;
            let case = format!("{algorithm:?} {command}");
            let (_, units, _) = counted(&limits, "a");
            assert_eq!(units, 0, "{case}: nothing was there to be given back");
            // It heals, at the latest when the foreign value is gone.
            if send(&service, 500).await != 500 {
                delete();
                assert_eq!(send(&service, 500).await, 500, "{case}");
            }
            for _ in 0..2 {
                assert_eq!(left(&limits, "a").await, 99, "{case}");
                assert_eq!(send(&service, 200).await, 200, "{case}");
                flushed(&limits).await;
            }
            assert_eq!(left(&limits, "a").await, 99, "{case}");
        }
    }
}
