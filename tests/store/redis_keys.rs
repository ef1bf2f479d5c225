//! What stands in Redis: names, expiry and size.

use kit::limiter_oracle::parse;

use crate::prelude::*;
use crate::take;

/// A test of each of these laws for each algorithm.
macro_rules! for_each_algorithm {
    ($($law:ident),+ $(,)?) => {
        $(mod $law {
            use tidegate::Algorithm;

            for_each_algorithm!(@tests $law {
                sliding_log SlidingLog,
                sliding_window SlidingWindow,
                gcra Gcra,
                fixed_window FixedWindow,
            });
        })+
    };
    (@tests $law:ident { $($name:ident $algorithm:ident,)+ }) => {
        #[test]
        fn is_for_all() {
            assert_eq!([$(Algorithm::$algorithm),+], Algorithm::ALL);
        }

        $(#[tokio::test]
        async fn $name() {
            super::$law(Algorithm::$algorithm).await;
        })+
    };
}

for_each_algorithm!(
    one_script_call_for_a_take,
    every_key_expires,
    what_was_given_back_expires,
    a_longer_window_lives_longer,
    rules_that_take_turns_keep_the_expiry,
    an_idle_limiter_leaves_nothing_behind,
    the_clock_is_the_servers,
    no_time_but_the_deadline_is_sent,
    a_denial_while_the_clock_is_back_writes_nothing,
    a_clock_that_goes_back_leaves_an_expiry,
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

/// The expiry is not set anew at every charge, but it is when a rule's window became longer.
async fn a_longer_window_lives_longer(algorithm: Algorithm) {
    let (server, store) = started().await;
    for round in 0..5 {
        let path = format!("p{round}");
        ask(&store, &take_by(algorithm, &path, &[quota(5, 100)])).await;
        ask(&store, &take_by(algorithm, &path, &[quota(5, 60_000)])).await;
        let expiry = server.life(&key_by(algorithm, &path));
        assert!(expiry >= 60_000, "{expiry}");
    }
}

/// The expiry is set anew for the longer window, however often the shorter one was charged between.
async fn rules_that_take_turns_keep_the_expiry(algorithm: Algorithm) {
    let (server, store, clock) = by_hand().await;
    let long = take_by(algorithm, "p", &[quota(100, 60_000)]);
    let short = take_by(algorithm, "p", &[quota(100, 1_000)]);
    charged(&store, &long).await;
    for _ in 0..20 {
        clock.set(clock.now() + 1_000_000);
        charged(&store, &short).await;
    }
    charged(&store, &long).await;
    let expiry = server.life(&key_by(algorithm, "p"));
    assert!((59_000..=67_500).contains(&expiry), "{expiry}");
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
    // Long enough to be given back in time on a busy machine.
    charged_and_given_back(&store, &take_by(algorithm, "s", &[quota(2, 600)])).await;
    let names = server.names();
    let mut expected = vec![key_by(algorithm, "p"), key_by(algorithm, "s")];
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

/// Behind a shorter window a log keeps as many units apart as the largest max before, with those
/// inside of that window. What is older becomes one, with the stamp of its last unit.
#[tokio::test]
async fn older_units_become_one_when_a_window_becomes_shorter() {
    let stores = kit::clocked::Stores::start().await;
    let seconds = |at: u64| at * 1_000_000;
    for (name, inside, at, left) in [
        // Five are inside of 2 s: the unit at 0 s counts as one at 106 s.
        ("five", 5, 125, 0),
        ("five, later", 5, 167, 2),
        // Three are: all are told apart.
        ("three", 3, 125, 3),
    ] {
        let quotas = [(5, 600), (5, 600), (6, 2), (7, 60)];
        let quotas = quotas.map(|(max, window)| [quota(max, 1_000 * window)]);
        let steps = [(0, 1), (106, 1), (109, inside), (at, 0)];
        let mut count = Count::default();
        let mut pure = 0;
        for (quotas, (at, cost)) in quotas.iter().zip(steps) {
            let now = 1_800_000_000_000_777 + seconds(at);
            let decision = count.take(Algorithm::SlidingLog, now, quotas, cost);
            pure = decision.remaining();
        }
        assert_eq!(pure, left, "{name}");
        for clocked in &stores.all {
            let began = clocked.clock.now();
            let mut remaining = 0;
            for (quotas, (at, cost)) in quotas.iter().zip(steps) {
                clocked.clock.set(began + seconds(at));
                let take = take(name, quotas).with_cost(cost);
                remaining = match cost {
                    0 => look(&*clocked.store, &take).await.remaining(),
                    _ => ask(&*clocked.store, &take).await.remaining(),
                };
            }
            assert_eq!(remaining, left, "{name} {}", clocked.name);
        }
    }
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
    let mut monitor = std::process::Command::new("redis-cli");
    monitor
        .args(["-u", &server.url, "MONITOR"])
        .stdout(std::process::Stdio::piped());
    let mut monitor = monitor.spawn().expect("redis-cli starts");
    let lines = std::io::BufReader::new(monitor.stdout.take().expect("is piped"));
    let mut lines = std::io::BufRead::lines(lines).map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("OK"));
    let mut call = || {
        let call = lines.find(|line| line.contains("\"EVALSHA\""));
        call.expect("the call")
    };
    let take = take_by(algorithm, "p", &[quota(5, 60_000)]);
    let receipt = charged(&store, &take).await;
    // The mode of keys, where the records begin, and the rule: one quota, an
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
    let records = u8::try_from(4 + rule.len()).expect("short");
    // Its rule begins at 4; one row, a cost of 1, one take, and the deadline.
    let record = [0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1];
    let question = [&[0, 0, records][..], &rule, &record].concat();
    let key = key_by(algorithm, "p");
    // The question, the number of the call, and nothing else.
    let deadline = |asked: &str| {
        let (_, rest) = asked.split_once(&format!(r#""{key}" ""#)).expect("the key");
        let (asked_bytes, number_of_call) = rest.rsplit_once("\" \"").expect("two arguments");
        let number_of_call = number_of_call.trim_end_matches('"').parse::<u64>();
        assert!(number_of_call.expect("a number") < 1 << 48, "{asked}");
        let bytes = unescaped(asked_bytes);
        let deadline = bytes.strip_prefix(&question[..]).expect("the question");
        assert_eq!(deadline.len(), 7, "{asked}");
        let bytes = deadline.iter().map(|byte| u64::from(*byte));
        bytes.fold(0, |sum, byte| sum << 8 | byte)
    };
    let asked = call();
    let time_left = deadline(&asked) - receipt.stamp();
    // A bit less than the time-out was left when it was charged.
    assert!((10_000_000..30_000_000).contains(&time_left), "{asked}");

    // The receipt, which ends with the units that were charged and those to give back, and the
    // number of the call.
    store.refund(&take, &receipt).await.expect("answers");
    // Behind it stands the window of its counter, if it has one.
    let expected = match algorithm {
        Algorithm::SlidingLog => r#"\x01\x00\x00\x00\x00\x00\x00\x01\x00""#,
        _ => r#"\x01\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x03\x93\x87\x00""#,
    };
    let asked = call();
    let keys = format!(r#" "2" "{key}" "{{{key}}}:back" "#);
    assert!(asked.contains(&keys), "{asked}");
    let (asked, _) = asked.rsplit_once(' ').expect("the number of the call");
    assert!(asked.ends_with(expected), "{asked}");
    monitor.kill().expect("our child");
    monitor.wait().expect("our child");
}

/// What `MONITOR` shows of bytes.
fn unescaped(shown: &str) -> Vec<u8> {
    let (_, _, mut words) = parse(format!("+0.0 [0 lua] \"{shown}\"").as_bytes());
    words.remove(0)
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

/// What was charged in the future is pulled back with the next charge, and so is the expiry.
async fn a_clock_that_goes_back_leaves_an_expiry(algorithm: Algorithm) {
    let (server, store, clock) = by_hand().await;
    let take = take_by(algorithm, "p", &[quota(3, 60_000)]);
    assert_eq!(allowed(&store, &take, 2).await, 2);
    clock.set(clock.now() - 5_000_000);
    assert_eq!(allowed(&store, &take, 3).await, 1, "nothing is forgiven");
    let expiry = server.life(&key_by(algorithm, "p"));
    assert!((60_000..=67_500).contains(&expiry), "{expiry}");
    clock.set(clock.now() + 60_000_000);
    let seen = allowed(&store, &take, 4).await;
    assert_eq!(seen, 3, "one window later all is back");
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
