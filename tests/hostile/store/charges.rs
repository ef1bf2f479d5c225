//! Law 15: whatever is given back, and however often it is asked for, returns only units that this
//! caller was charged and that still count.

use crate::prelude::*;

/// However many clones, copies and direct questions ask at once, a receipt gives back once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_ask_for_one_charge() {
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        let take = hourly(algorithm, "once", 10, 4);
        let (mine, other) = (clocked.charge(&take).await, clocked.charge(&take).await);
        let asking = spawn_each(0..90, mine.clone(), |at, mine| async move {
            if at % 3 == 0 {
                yield_now().await;
            }
            give_back(&mine).await
        });
        assert_eq!(done(asking).await.iter().sum::<u64>(), 4, "{case}");
        assert_eq!(clocked.remaining(&take).await, 6, "{case}");
        assert_eq!(give_back(&other).await, 4, "{case}");
        assert_eq!(clocked.remaining(&take).await, 10, "{case}");
    }
}

/// Receipts that no store gave take nothing from anybody, and harm nobody.
#[tokio::test]
async fn receipts_that_were_made_up() {
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        let take = hourly(algorithm, "made-up", 8, 5);
        let charge = clocked.charge(&take).await;
        let (stamp, serial) = (charge.receipt().stamp(), charge.receipt().serial());
        let made_up = [
            (0, 0, 5),
            (stamp - 1, serial, 5),
            (stamp + 1, serial, 5),
            (stamp + 3_600_000_000, serial, 5),
            ((1 << 53) - 1, serial, 5),
            (stamp - 3_600_000_000, serial, 5),
            (stamp, (1 << 52) - 1, 5),
            (0, 0, 0),
            (stamp, serial, 0),
        ];
        for (stamp, serial, units) in made_up {
            let receipt = Receipt::new(stamp, serial, units);
            if let Ok(back) = clocked.store.refund(&take, &receipt).await {
                assert!(back <= units, "{case}: {back} for {receipt:?}");
            }
            let left = clocked.remaining(&take).await;
            assert!(left <= 8, "{case}: {left} behind {receipt:?}");
        }
        assert!(give_back(&charge).await <= 5, "{case}");
        assert!(clocked.remaining(&take).await <= 8, "{case}");
    }
}

/// The largest costs that there are, charged and given back so often that their sum is beyond every
/// number that a store can write down.
#[tokio::test]
async fn the_largest_costs() {
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        for micros in [0, 1, 1_000] {
            let case = format!("{case} {micros} us");
            let rule = by(algorithm, "largest", Quota::MAX_UNITS, Quota::MAX_WINDOW);
            let take = take(&rule, micros).with_cost(Quota::MAX_UNITS / 2);
            let mut all: Vec<Charge> = Vec::new();
            for round in 0..40 {
                let case = format!("{case}, round {round}");
                clocked.advance(Duration::from_micros(micros));
                let mine = clocked.charge(&take).await;
                assert!(mine.receipt().serial() < 1 << 52, "{case}: {mine:?}");
                for charge in &all {
                    assert_eq!(give_back(charge).await, 0, "{case}: {charge:?}");
                }
                assert_eq!(give_back(&mine).await, Quota::MAX_UNITS / 2, "{case}");
                all.push(mine);
            }
            assert_eq!(clocked.remaining(&take).await, Quota::MAX_UNITS, "{case}");
        }
    }
}

/// A server far away, and a store that callers share.
async fn shared_far() -> (Redis, Proxy, Arc<dyn Store>) {
    let (server, proxy, store) = far(millis(10)).await;
    (server, proxy, Arc::new(store))
}

/// The answer to a refund is lost: to ask again does nothing, also after another caller's take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_refund() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let direct = connect(&server.url, PATIENT).await;
    for algorithm in Algorithm::ALL {
        let store: Arc<dyn Store> = Arc::new(connect(&proxy.url, millis(100)).await);
        let take = hourly(algorithm, "lost", 4, 4);
        let mine = charge(&store, &take).await;
        proxy.all(Mode::LoseReplies(1));
        let lost = mine.refund().await;
        assert!(lost.is_err(), "{algorithm:?}: {lost:?}");
        proxy.all(Mode::Pass);
        // It was done all the same.
        let theirs = receipt_of(&direct, &take.clone().with_cost(3)).await;
        let before = remaining(&direct, &take).await;
        let back = answered(|| mine.refund()).await;
        assert_eq!(back, 0, "{algorithm:?}: it is another caller's");
        assert_eq!(remaining(&direct, &take).await, before, "{algorithm:?}");
        refund(&direct, &take, &theirs).await;
    }
}

/// Refunds that are dropped at any moment have happened or not; asking again does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_that_are_dropped() {
    let (_server, _proxy, store) = shared_far().await;
    for algorithm in Algorithm::ALL {
        let take = hourly(algorithm, "dropped", 200, 2);
        let charges = join_all((0..100).map(|_| charge(&store, &take))).await;
        assert_eq!(remaining(&store, &take).await, 0);
        drop(charges[0].refund());
        let left = remaining(&store, &take).await;
        assert_eq!(left, 0, "{algorithm:?}: never begun");
        let dropped = charges.iter().enumerate().map(async |(at, charge)| {
            let after = Duration::from_micros(at as u64 * 200);
            timeout(after, charge.refund()).await.is_err()
        });
        let dropped = join_all(dropped).await;
        assert!(dropped.contains(&true), "{algorithm:?}");
        // Those that were dropped have been given back, or are not any more.
        sleep(millis(100)).await;
        let left = remaining(&store, &take).await;
        let answered = dropped.iter().filter(|is_dropped| !**is_dropped).count() as u64;
        assert!(left + 1 >= 2 * answered, "{algorithm:?}: {left}");
        for charge in &charges {
            // A future that was dropped before its first poll had asked for nothing.
            assert!(give_back(charge).await <= 2, "{algorithm:?}");
        }
        for charge in &charges {
            assert_eq!(give_back(charge).await, 0);
        }
    }
}

/// Fifty keys of each round are asked about in these steps, one key after the other or all keys in
/// turn. Of a take the step says whether it is allowed; `None` is a refund of an earlier charge, or
/// a reset.
pub(crate) async fn in_the_order_of_arrival(steps: &[Option<bool>], is_reset: bool) {
    const KEYS: usize = 50;
    let (server, _proxy, store) = far(millis(4)).await;
    let clock = clock_at(1_800_000_000_000_000);
    let store: Arc<dyn Store> = Arc::new(store.clock(clock.clone()));
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "in order", 1, HOUR);
        for round in 0..6 {
            if is_reset {
                // Resets need no script that was loaded before. Takes without one are sent again.
                run(&server, "SCRIPT FLUSH");
                remaining(&store, &take_of(&rule, &Key::default(), 1)).await;
            }
            let takes = (0..KEYS).map(|key| take(&rule, format!("{round}-{key}")));
            let takes: Vec<_> = takes.collect();
            let charged = takes.iter().filter(|_| !is_reset);
            let charges = join_all(charged.map(|take| charge(&store, take))).await;
            let (mut answers, mut refunds, mut resets) = (Vec::new(), Vec::new(), Vec::new());
            let mut ask = |key: usize, step: usize| match steps[step] {
                Some(is_allowed) => {
                    let case = format!("{algorithm:?}, round {round}, key {key}, step {step}");
                    answers.push((store.take(&takes[key]), is_allowed, case));
                }
                None if is_reset => resets.push(store.reset(&takes[key])),
                None => refunds.push(store.refund(&takes[key], &charges[key].receipt())),
            };
            for at in 0..KEYS * steps.len() {
                match round % 2 {
                    0 => ask(at / steps.len(), at % steps.len()),
                    _ => ask(at % KEYS, at / KEYS),
                }
            }
            for units in join_all(refunds).await {
                assert_eq!(units.expect("an answer"), 1, "{algorithm:?}");
            }
            for reset in join_all(resets).await {
                reset.expect("an answer");
            }
            let answers = answers.into_iter();
            let answers = answers.map(async |(answer, is_allowed, case)| {
                let answer = answer.await.expect("a decision");
                assert_eq!(answer.is_allowed(), is_allowed, "{case}: {answer:?}");
            });
            join_all(answers).await;
            clock.set(clock.now() + 1_500);
        }
    }
}

/// Refunds in the order of arrival: a take that was asked before a refund of its key is denied, one
/// that was asked after it is allowed, however many travel together.
#[tokio::test]
async fn refunds_in_the_order_of_arrival() {
    in_the_order_of_arrival(&[Some(false), None, Some(true), Some(false)], false).await;
}

/// Law 13: thousands of refunds of one key, in turns with its takes, split no calls of other keys.
#[tokio::test]
async fn refunds_of_one_key_split_no_calls_of_others() {
    const REFUNDS: u64 = 3_000;
    let (server, _proxy, store) = far(millis(4)).await;
    let hot = hourly(Algorithm::SlidingLog, "hot", 9_000, 1);
    let other = by(Algorithm::SlidingLog, "others", 9_000, HOUR);
    let receipt = receipt_of(&store, &hot).await;
    run(&server, "CONFIG RESETSTAT");
    let (mut refunds, mut takes) = (Vec::new(), Vec::new());
    for at in 0..REFUNDS {
        takes.push(store.take(&take(&other, at % 50)));
        refunds.push(store.refund(&hot, &receipt));
        takes.push(store.take(&hot));
    }
    let (takes, refunds) = (join_all(takes).await, join_all(refunds).await);
    assert!(takes.iter().all(is_allowed));
    let units: u64 = refunds.into_iter().map(|units| units.expect("units")).sum();
    assert_eq!(units, 1);
    // Two for each refund of the hot key and the take behind it.
    let of_others = server.script_calls() - 2 * REFUNDS;
    assert!(of_others < 100, "{of_others} calls for {REFUNDS} takes");
}

/// More refunds of one key than a store remembers: none is given back twice.
#[tokio::test]
async fn more_refunds_than_are_remembered() {
    const MANY: u64 = 70_000;
    let clocked = &Stores::start().await.all[0];
    for algorithm in Algorithm::ALL {
        let rule = by(algorithm, "remembered", MANY, HOUR * 87_600);
        let take = take_of(&rule, &Key::default(), 1);
        let mut charges = Vec::new();
        for _ in 0..MANY {
            clocked.advance(Duration::from_micros(7));
            charges.push(clocked.charge(&take).await.receipt());
        }
        let mut back = [0; 3];
        for total in &mut back {
            for receipt in &charges {
                *total += refund(&clocked.store, &take, receipt).await;
            }
        }
        assert!(back[0] >= 65_536, "{algorithm:?}: {back:?}");
        assert!(back.iter().sum::<u64>() <= MANY, "{algorithm:?}: {back:?}");
        assert_eq!(back[1..], [0, 0], "{algorithm:?}");
        let left = clocked.remaining(&take).await;
        assert!(left <= MANY, "{algorithm:?}: {left}");
    }
}

/// One of two stores does not answer: the other one's charge is given back all the same, the error
/// says so, and asking again gives back the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_stores_does_not_answer() {
    let server = Redis::start();
    let away: Arc<dyn Store> = Arc::new(connect(&server.url, millis(100)).await);
    let near: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let layer =
        |path, store: &Arc<dyn Store>| RateLimitLayer::new(path, HOUR, 5).store(Arc::clone(store));
    let app = kit::app(layer("inner", &near));
    let app = app.layer(layer("middle", &away));
    let app = app.layer(layer("outer", &near));
    let response = send(&app, "/").await;
    let charges = Charges::from_extensions(response.extensions());
    assert_eq!(charges.len(), 3);
    server.signal("STOP");
    charges.refund().await.expect_err("one does not answer");
    let look = |path| hourly(Algorithm::SlidingLog, path, 5, 1);
    assert_eq!(remaining(&near, &look("outer")).await, 5);
    assert_eq!(remaining(&near, &look("inner")).await, 5);
    server.signal("CONT");
    let back = answered(|| charges.refund()).await;
    assert!(back <= 1, "the near ones were given back before: {back}");
    let direct = connect(&server.url, PATIENT).await;
    assert_eq!(remaining(&direct, &look("middle")).await, 5);
    assert_eq!(give_back_all(&charges).await, 0);
}

/// A service that uses a request again, extensions and all, gives each charge back once.
#[tokio::test]
async fn a_request_that_is_sent_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let handler = service_fn(async |request: Request<Body>| {
        let charges = Charges::from_extensions(request.extensions());
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Seen(Arc::new(charges)));
        Ok::<_, Infallible>(response)
    });
    let layer = RateLimitLayer::new("again", HOUR, 5).store(Arc::clone(&store));
    let service = layer.layer(handler);
    let seen = async |request| {
        let response = service.clone().oneshot(request).await.expect("never fails");
        response.extensions().get::<Seen>().expect("seen").0.clone()
    };
    let look = hourly(Algorithm::SlidingLog, "again", 5, 1);
    let first = seen(kit::http::get("/")).await;
    let mut again = kit::http::get("/");
    again.extensions_mut().insert(first.clone());
    let all = seen(again).await;
    assert_eq!(remaining(&store, &look).await, 3);
    let back = give_back_all(&all).await + give_back_all(&first).await;
    assert_eq!(back, 2);
    assert_eq!(remaining(&store, &look).await, 5);
}

#[derive(Debug, Clone)]
struct Seen(Arc<Charges>);

/// Law 1 under a mix of takes and refunds from many tasks: no window holds more than its max of
/// units that were not given back, by the store's own stamps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_holds_more_than_was_kept() {
    const MAX: u64 = 40;
    let window = millis(400);
    let (_server, redis) = near().await;
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(redis.clone()),
        Arc::new(MemoryStore::new()),
        Resilient::new(redis).build(),
    ];
    for (place, store) in stores.iter().enumerate() {
        for algorithm in Algorithm::ALL {
            let case = format!("{} {algorithm:?}", store.name());
            let rule = by(algorithm, &format!("mix{place}"), MAX, window);
            let tasks = (0..8_u64).map(|seed| {
                let (store, rule) = (Arc::clone(store), Arc::clone(&rule));
                tokio::spawn(async move {
                    let (mut random, mut mine) = (Random::new(seed + 1), Vec::new());
                    let began = Instant::now();
                    while began.elapsed() < window * 4 {
                        let take = take_of(&rule, &Key::default(), 1 + random.below(4));
                        if let Some(receipt) = decide(&store, &take).await.receipt() {
                            mine.push((receipt, take, None));
                        }
                        for _ in 0..random.below(3) {
                            let recent = mine.len().min(6) as u64;
                            if recent == 0 {
                                continue;
                            }
                            let at = mine.len() - 1 - random.below(recent) as usize;
                            let (receipt, take, back) = &mut mine[at];
                            if back.is_none() {
                                *back = Some(refund(&store, take, receipt).await);
                            }
                        }
                        sleep(millis(random.below(4))).await;
                    }
                    mine
                })
            });
            let (mut kept, mut returned) = (Vec::new(), 0);
            for (receipt, _, back) in done(tasks).await.into_iter().flatten() {
                let back = back.unwrap_or(0);
                assert!(back <= receipt.units(), "{case}: {back} of {receipt:?}");
                kept.push((receipt.stamp(), receipt.units() - back));
                returned += back;
            }
            assert!(returned > 0, "{case}: nothing was given back");
            kept.sort_unstable();
            let micros = window.as_micros() as u64;
            // The others may hold their max twice in some windows.
            let most = match algorithm {
                Algorithm::SlidingLog | Algorithm::SlidingWindow => MAX,
                _ => 2 * MAX,
            };
            for (at, (first, _)) in kept.iter().enumerate() {
                let inside = kept[at..].iter();
                let inside = inside.take_while(|(stamp, _)| stamp - first < micros);
                let sum: u64 = inside.map(|(_, units)| units).sum();
                assert!(sum <= most, "{case}: {sum} of {most} in a window");
            }
        }
    }
}

/// Law 8: a log that is longer than a refund may rewrite gives back, or does not, in memory as in
/// Redis, and what was not given back is still charged.
#[tokio::test]
async fn refunds_of_a_long_log() {
    const MANY: usize = 5_000;
    const ORDER: [usize; 14] = [
        0, 1, 400, 902, 903, 904, 905, 906, 1_000, 4_999, 0, 903, 904, 905,
    ];
    let stores = Stores::start().await;
    let mut seen = Vec::new();
    for clocked in &stores.all[..2] {
        let take = hourly(Algorithm::SlidingLog, "long", MANY as u64, 1);
        let mut charges = Vec::new();
        for _ in 0..MANY {
            clocked.advance(millis(1));
            charges.push(clocked.charge(&take).await);
        }
        let (mut answers, mut sum) = (Vec::new(), 0);
        for at in ORDER {
            let back = give_back(&charges[at]).await;
            answers.push((at, back, clocked.remaining(&take).await));
            sum += back;
        }
        assert_eq!(clocked.remaining(&take).await, sum, "{}", clocked.name);
        seen.push(answers);
    }
    assert_eq!(seen[0], seen[1], "memory and Redis");
}
