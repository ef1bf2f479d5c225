//! What stands in Redis: names, expiry and size.

use tidegate::rule::Period;

use crate::prelude::*;
use crate::take;

kit::for_each_algorithm!(async
    one_script_call_for_a_take,
    every_key_expires,
    what_was_given_back_expires,
    a_longer_window_lives_longer,
    an_idle_limiter_leaves_nothing_behind,
    the_clock_is_the_servers,
    no_time_but_the_deadline_is_sent,
    a_denial_while_the_clock_is_back_writes_nothing,
);

/// The name of the count of a take by nobody in particular.
fn key_by(algorithm: Algorithm, path: &str) -> String {
    let suffix = match algorithm {
        Algorithm::SlidingLog => "",
        Algorithm::SlidingWindow => "~window",
        Algorithm::Gcra => "~gcra",
        Algorithm::FixedWindow => "~fixed",
        other => panic!("no name of {other:?}"),
    };
    format!("CurrentLimiter:{path}{suffix}")
}

/// A take of 1 by nobody in particular, counted in this way.
fn take_by(algorithm: Algorithm, path: &str, quotas: &[Quota]) -> Take {
    let take = take(path, quotas);
    let rule = Rule::clone(take.rule()).with_algorithm(algorithm);
    Take::new(Arc::new(rule), Key::default())
}

/// A server, and a store whose clock a test moves.
async fn by_hand() -> (Redis, RedisStore, ManualClock) {
    let (server, clock) = (Redis::start(), ManualClock::default());
    clock.set(1_800_000_000_000_000);
    let store = store_on(&server).await.clock(clock.clone());
    (server, store, clock)
}

/// Charges a take of 1.
async fn charged(store: &RedisStore, take: &Take) -> Receipt {
    ask(store, take).await.receipt().expect("it was charged")
}

async fn look(store: &dyn Store, take: &Take) -> Decision {
    store.peek(take).await.expect("a decision")
}

/// Charges 2 and gives them back; a bucket keeps that one of which a part has drained.
async fn charged_and_given_back(store: &RedisStore, take: &Take) -> Receipt {
    let take = take.clone().with_cost(2);
    let receipt = charged(store, &take).await;
    let back = store.refund(&take, &receipt).await.expect("answers");
    assert!((1..=2).contains(&back), "{back}");
    receipt
}

fn quota(max: u64, window: u64) -> Quota {
    kit::quota(max, millis(window))
}

async fn one_script_call_for_a_take(algorithm: Algorithm) {
    let (server, store) = started().await;
    // The first take of a store asks what the server's clock shows.
    ask(&store, &take_by(algorithm, "first", &[quota(1, 10_000)])).await;
    run(&server, "CONFIG RESETSTAT");
    let quotas = [quota(5, 10_000), quota(50, 60_000)];
    let take = take_by(algorithm, "p", &quotas);
    assert_eq!(allowed(&store, &take, 20).await, 5);
    let all = ask_all(&store, &vec![take; 30]).await;
    all.expect("decisions");
    assert_eq!(calls(&server, "evalsha"), 21);
    for command in words("eval script|load time| multi hello") {
        assert_eq!(calls(&server, command), 0, "{command}");
    }
}

#[tokio::test]
async fn names_are_prefix_path_and_key() {
    let (server, store) = started().await;
    let ours = store.clone().prefix("ours:");
    let rule = Rule::new("getId", [quota(5, 60_000)]).expect("valid");
    let own = Arc::new(rule.clone().with_prefix("own:"));
    let rule = Arc::new(rule);
    let key = Key::default().with("{x}").with("a b");
    for (store, take) in [
        (&store, Take::new(rule.clone(), Key::default())),
        (&store, Take::new(rule.clone(), key)),
        (&ours, Take::new(rule, Key::default())),
        (&ours, Take::new(own, Key::default())),
    ] {
        ask(store, &take).await;
    }
    let limiter = "CurrentLimiter:getId CurrentLimiter:getId:%7Bx%7D:a%20b";
    let expected = [words(limiter), words("ours:getId own:getId")].concat();
    assert_eq!(server.names(), expected);
}

/// Law 4: the expiry covers the longest window, and not much more; denials and looks leave it
/// alone.
async fn every_key_expires(algorithm: Algorithm) {
    let (server, store) = started().await;
    for (path, quotas, times) in [
        // The first is what the scripts have a way of its own for.
        ("one", vec![quota(1, 60_000)], 1),
        ("two", vec![quota(1, 300), quota(5, 60_000)], 4),
    ] {
        let key = key_by(algorithm, path);
        let take = take_by(algorithm, path, &quotas);
        charged(&store, &take).await;
        let first = server.life(&key);
        assert!((60_000..=67_500).contains(&first), "{path}: {first}");
        sleep(millis(20)).await;
        let denied = ask(&store, &take).await;
        assert!(!denied.is_allowed());
        look(&store, &take).await;
        let later = server.life(&key);
        assert!((1..first).contains(&later), "{path}: {first}, then {later}");

        // Every later charge covers its own window, too.
        for _ in 1..times {
            sleep(millis(310)).await;
            if ask(&store, &take).await.is_allowed() {
                let expiry = server.life(&key);
                assert!((60_000..=67_500).contains(&expiry), "{path}: {expiry}");
            }
        }
    }
    // The same of one that is allowed again and again.
    let take = take_by(algorithm, "often", &[quota(100, 60_000)]);
    for _ in 0..12 {
        charged(&store, &take).await;
        let expiry = server.life(&key_by(algorithm, "often"));
        assert!((60_000..=67_500).contains(&expiry), "{expiry}");
        sleep(millis(110)).await;
    }
}

/// Law 4: so does what stands beside it, and a refund does not leave the count without its expiry.
async fn what_was_given_back_expires(algorithm: Algorithm) {
    let (server, store) = started().await;
    for (path, quotas) in [
        ("one", vec![quota(9, 60_000)]),
        ("two", vec![quota(9, 1_000), quota(9, 60_000)]),
    ] {
        let count = key_by(algorithm, path);
        let apart = format!("{{{count}}}:back");
        let take = take_by(algorithm, path, &quotas);
        // The only one, and one of several.
        for others in [0, 2] {
            for _ in 0..others {
                charged(&store, &take).await;
            }
            charged_and_given_back(&store, &take).await;
            let count = server.life(&count);
            assert!((59_000..=67_500).contains(&count), "{path}: {count}");
            // A bucket keeps beside it what was given back.
            let apart = server.life(&apart);
            match algorithm {
                Algorithm::Gcra => assert!((60_000..=67_500).contains(&apart), "{path}: {apart}"),
                _ => assert_eq!(apart, -2, "{path}: there is no such key"),
            }
        }
    }
}

/// The expiry is not set anew at every charge, but it is for a longer window, however often a
/// shorter one was charged between, and where the clock went back.
async fn a_longer_window_lives_longer(algorithm: Algorithm) {
    let (server, store, clock) = by_hand().await;
    let take = |window| take_by(algorithm, "p", &[quota(100, window)]);
    let charged_long = async |least: i64| {
        charged(&store, &take(60_000)).await;
        let expiry = server.life(&key_by(algorithm, "p"));
        assert!((least..=67_500).contains(&expiry), "{expiry}");
    };
    charged(&store, &take(100)).await;
    charged_long(60_000).await;
    for _ in 0..20 {
        clock.set(clock.now() + 1_000_000);
        charged(&store, &take(1_000)).await;
    }
    charged_long(59_000).await;
    clock.set(clock.now() - 5_000_000);
    charged_long(60_000).await;
}

async fn an_idle_limiter_leaves_nothing_behind(algorithm: Algorithm) {
    let (server, store) = started().await;
    allowed(&store, &take_by(algorithm, "p", &[quota(3, 5)]), 5).await;
    // Of one quota, and of several.
    for quotas in [vec![quota(1, 5)], vec![quota(1, 5), quota(2, 7)]] {
        let denied = take_by(algorithm, "q", &quotas).with_cost(3);
        assert!(!ask(&store, &denied).await.is_allowed());
        let look = take_by(algorithm, "r", &quotas);
        self::look(&store, &look).await;
    }
    // Long enough to be given back, or more to be used, in time on a busy machine.
    charged_and_given_back(&store, &take_by(algorithm, "s", &[quota(2, 600)])).await;
    let owes = take_by(algorithm, "t", &[quota(10, 600)]);
    let receipt = charged(&store, &owes).await;
    let owed = store.owe(&owes.with_cost(70), &receipt).await;
    assert!((19..=20).contains(&owed.expect("answers")));
    let names = server.names();
    let mut expected = ["p", "s", "t"].map(|path| key_by(algorithm, path)).to_vec();
    if algorithm == Algorithm::Gcra {
        expected.push(format!("{{{}}}:back", key_by(algorithm, "s")));
    }
    assert_eq!(names, expected, "a denial or a look made a key");
    eventually("all expire", async || server.names().is_empty()).await;
}

/// The set is bounded by the smaller of max and the window in milliseconds.
#[tokio::test]
async fn the_set_stays_small() {
    let (server, store, clock) = by_hand().await;
    for (path, max, millis) in [("few", 20, 60_000), ("short", 1_000_000, 50)] {
        let take = take(path, &[quota(max, millis)]);
        for step in 0..3_000_u64 {
            clock.set(clock.now() + 400 * (step % 5));
            ask(&store, &take).await;
        }
        let members: u64 = server.run(&format!("ZCARD CurrentLimiter:{path}"));
        // A window that does not begin with a millisecond touches one more.
        assert!(members <= max.min(millis) + 1, "{path}: {members}");
    }
}

/// Also while a longer window of an earlier rule still needs something of it.
#[tokio::test]
async fn the_set_stays_small_when_a_window_becomes_shorter() {
    let (server, store, clock) = by_hand().await;
    ask(&store, &take("p", &[quota(30, 86_400_000)])).await;
    let short = take("p", &[quota(1_000, 1_000)]);
    let mut largest = 0;
    for _ in 0..1_200 {
        clock.set(clock.now() + 7_000);
        ask(&store, &short).await;
        let members: u64 = server.run("ZCARD CurrentLimiter:p");
        largest = largest.max(members);
    }
    // One every 7 ms in the short window; the long one needs 30 units.
    assert!((140..=150).contains(&largest), "{largest}");
    let expiry = server.life("CurrentLimiter:p");
    assert!((86_300_000..86_403_000).contains(&expiry), "{expiry}");
}

/// Law 7: the stamps are the server's.
async fn the_clock_is_the_servers(algorithm: Algorithm) {
    let (server, store) = started().await;
    let time = || {
        let (seconds, micros): (u64, u64) = server.run("TIME");
        seconds * 1_000_000 + micros
    };
    let take = take_by(algorithm, "p", &[quota(5, 60_000)]);
    let before = time();
    let receipt = charged_and_given_back(&store, &take).await;
    let after = time();
    assert!((before..=after).contains(&receipt.stamp()), "{receipt:?}");
    let stamp = newest_stamp(&mut server.connection(), algorithm, &key_by(algorithm, "p"));
    assert_eq!(stamp, receipt.stamp(), "what is stored");
}

/// When something was charged last: a log's largest score, or the second number of another state.
fn newest_stamp(connection: &mut redis::Connection, algorithm: Algorithm, key: &str) -> u64 {
    if algorithm == Algorithm::SlidingLog {
        let set: Vec<(Vec<u8>, f64)> = connection.zrange_withscores(key, 0, -1).expect("the set");
        let [(_, stamp)] = &*set else {
            panic!("one take, but {} members", set.len());
        };
        return *stamp as u64;
    }
    let state: Vec<u8> = connection.get(key).expect("the state");
    let mut stamp = [0; 8];
    stamp[1..].copy_from_slice(&state[8..15]);
    u64::from_be_bytes(stamp)
}

/// Law 7: whatever the application's clock says, it is not sent along. The deadline is by the
/// server's.
async fn no_time_but_the_deadline_is_sent(algorithm: Algorithm) {
    let server = Redis::start();
    let store = store_on(&server).await.timeout(Duration::from_secs(30));
    let monitor = Monitor::start(&server.url);
    let take = take_by(algorithm, "p", &[quota(5, 60_000)]);
    let receipt = charged(&store, &take).await;
    store.refund(&take, &receipt).await.expect("answers");
    let mut calls = Vec::new();
    monitor.replay(&server.url, |_, _, words| {
        calls.extend((words[0] == b"EVALSHA").then_some(words));
    });
    let [asked, refunded] = &calls[..] else {
        panic!("{calls:?}");
    };
    // The kind of the call, where the records begin, the call id, and the rule: one quota, an
    // expiry of 67,500 ms, a slice of 3,750,000 us, and a quota of 5 in 60,000,000 us.
    let mut rule = vec![1];
    let numbers: &[u64] = match algorithm {
        // 64 sub-windows.
        Algorithm::SlidingWindow => &[64],
        // A burst of 5, a life of 60,000,000 us, and 1 in 12,000,000 us.
        Algorithm::Gcra => &[5, 60_000_000, 1, 12_000_000],
        _ => &[],
    };
    for number in [67_500, 3_750_000, 5, 60_000_000].iter().chain(numbers) {
        rule.extend(&number.to_be_bytes()[1..]);
    }
    let records = u8::try_from(12 + rule.len()).expect("short");
    // Its rule begins at 12; one row, one take, a cost of 1, and the deadline.
    let record = [0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1];
    let key = key_by(algorithm, "p");
    // The question, and nothing else.
    let [_, _, _, name, asked] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(*name, key.as_bytes());
    // A lone take.
    let (id, rule_and_record) = (&asked[3..11], [rule, record.to_vec()].concat());
    let question = [&[3, 0, records], id, &rule_and_record].concat();
    assert!(id.starts_with(&[0, 0]), "{asked:?}");
    let deadline = asked.strip_prefix(&question[..]).expect("the question");
    // Behind it the expiry stands as a text.
    let deadline = deadline.strip_suffix(b"67500").expect("an expiry");
    assert_eq!(deadline.len(), 7, "{asked:?}");
    let deadline = deadline
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let time_left = deadline - receipt.stamp();
    // A bit less than the time-out was left when it was charged.
    assert!((10_000_000..30_000_000).contains(&time_left), "{asked:?}");

    // The receipt, which ends with the units that were charged and those to give back, and the
    // number of the call. Behind it stands the window of its counter, if it has one.
    let mut ends = vec![1, 0, 0, 0, 0, 0, 0, 1];
    match algorithm {
        Algorithm::SlidingLog => ends.push(0),
        _ => ends.extend([1, 0, 0, 0, 0x03, 0x93, 0x87, 0]),
    }
    let back = format!("{{{key}}}:back");
    assert_eq!(
        refunded[2..5],
        ["2", &key, &back].map(|it| it.as_bytes().to_vec())
    );
    assert!(
        refunded[refunded.len() - 2].ends_with(&ends),
        "{refunded:?}"
    );
}

/// Law 2: while the clock is back a denial writes nothing, so that nothing is forgiven when the
/// clock returns.
async fn a_denial_while_the_clock_is_back_writes_nothing(algorithm: Algorithm) {
    let server = Redis::start();
    let mut connection = server.connection();
    let clock = clock_at(1_800_000_000_000_000);
    let redis: &dyn Store = &store_on(&server).await.clock(clock.clone());
    let memory: &dyn Store = &tidegate::MemoryStore::new().clock(clock.clone());
    let key = key_by(algorithm, "p");
    for quotas in [
        vec![quota(2, 60_000)],
        vec![quota(2, 60_000), quota(9, 90_000)],
    ] {
        let now = clock.now();
        let take = take_by(algorithm, "p", &quotas);
        for store in [redis, memory] {
            assert_eq!(allowed(store, &take, 2).await, 2);
        }
        let dump = |connection: &mut redis::Connection| -> Vec<u8> {
            cmd("DUMP").arg(&key).query(connection).expect("bytes")
        };
        let (before, lives) = (dump(&mut connection), server.life(&key));
        for back in [1, 60_000_000, 3_600_000_000] {
            clock.set(now - back);
            for store in [redis, memory] {
                assert!(!ask(store, &take).await.is_allowed(), "nothing is forgiven");
                look(store, &take).await;
            }
        }
        assert_eq!(before, dump(&mut connection), "a denial wrote");
        assert!(server.life(&key) <= lives);
        clock.set(now);
        for store in [redis, memory] {
            assert_eq!(allowed(store, &take, 9).await, 0, "{}", store.name());
        }
        clock.set(now + 600_000_000);
    }
}

/// Who would have been charged is told so, and nobody else: a script may remove what counts no
/// longer, and then it may write. Each answer is true of its own key.
#[tokio::test]
async fn a_server_without_memory() {
    let (server, store, clock) = by_hand().await;
    let month = || Policy::calendar(Period::MONTH, 20);
    let mut rules = vec![Rule::with_policies("month", [month()]).expect("valid")];
    let (second, two) = (quota(3, 1_000), quota(9, 2_000));
    for quotas in [vec![second], vec![second, two], vec![second, quota(1, 1)]] {
        let rule = Rule::new(&format!("p{}", rules.len()), quotas).expect("valid");
        rules.extend(Algorithm::ALL.map(|algorithm| rule.clone().with_algorithm(algorithm)));
    }
    for rule in rules.into_iter().map(Arc::new) {
        // Some were charged, of windows that have ended since, and some are used up.
        let takes: Vec<_> = (0..100).map(|key| kit::take(&rule, key)).collect();
        for (at, take) in takes.iter().enumerate() {
            for _ in 0..at % 3 {
                charged(&store, take).await;
                clock.set(clock.now() + 1_001);
            }
        }
        clock.set(clock.now() + 3_000_000);
        let mut left = Vec::new();
        for (at, take) in takes.iter().enumerate() {
            let whole = look(&store, take).await.remaining();
            if at % 4 == 0 {
                charged(&store, &take.clone().with_cost(whole)).await;
            }
            left.push(if at % 4 == 0 { 0 } else { whole });
        }
        run(&server, "CONFIG SET maxmemory 1");
        let answers = join_all(takes.iter().map(|take| store.take(take))).await;
        run(&server, "CONFIG SET maxmemory 0");
        for ((take, answer), left) in takes.iter().zip(answers).zip(left) {
            let now = look(&store, take).await.remaining();
            match answer {
                Ok(decision) => {
                    assert_eq!(decision.is_allowed(), left > 0, "{take:?}: {decision:?}");
                    assert_eq!(now, left.saturating_sub(1), "it is charged: {take:?}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::OutOfMemory);
                    assert!(left > 0, "it would not have been charged: {take:?}");
                    assert_eq!(now, left, "it is not charged: {take:?}");
                }
            }
        }
        check_expiries(&server, &[]);
    }
}

/// A merge never leaves the key without its expiry, whatever was removed meanwhile.
#[tokio::test]
async fn a_key_without_its_oldest_entry_still_expires() {
    let (server, store, clock) = by_hand().await;
    let take = take("p", &[quota(9, 60_000)]);
    ask(&store, &take).await;
    clock.set(clock.now() + 3_000);
    ask(&store, &take).await;
    run(&server, "ZREMRANGEBYRANK CurrentLimiter:p 0 0");
    clock.set(clock.now() + 1);
    ask(&store, &take).await;
    let expiry = server.life("CurrentLimiter:p");
    assert!(expiry > 0, "{expiry}");
}

/// Of a limit of 5, how many takes of a key pass that asks all the time beside a flood, where Redis
/// evicts by this policy.
async fn passed_beside_a_flood(policy: &str) -> Option<usize> {
    let server = Redis::start();
    let mut set = cmd("CONFIG");
    set.arg(&["SET", "maxmemory-policy", policy]);
    set.exec(&mut server.connection()).ok()?;
    server.run::<()>("CONFIG SET maxmemory 4mb");
    let store = RedisStore::connect(&server.url).await.expect("connects");
    let store = store.timeout(PATIENT);
    let rule = rule("login", 5, HOUR);
    let mut passed = 0;
    for number in 0..40_000 {
        let key = |text: &str| Take::new(Arc::clone(&rule), Key::from(text));
        let other = key(&format!("{number}"));
        let _ = store.take(&other).await.expect("something is evicted");
        if number % 10 == 0 {
            let answer = store.take(&key("guesser")).await;
            passed += usize::from(answer.expect("an answer").is_allowed());
        }
    }
    Some(passed)
}

/// A denial writes nothing, so who is denied most is evicted first by when it was written last. Redis
/// has that policy since 8.6; the nightly has such a server.
#[tokio::test]
async fn who_is_denied_most_is_evicted_by_lrm() {
    if let Some(passed) = passed_beside_a_flood("allkeys-lrm").await {
        assert!(passed >= 10, "{passed}");
        assert_eq!(passed_beside_a_flood("allkeys-lru").await, Some(5));
    }
}
