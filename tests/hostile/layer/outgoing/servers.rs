//! Holds in a real Redis: bad values, losses, outages, neighbours in one call, slots.

use std::sync::Arc;

use futures_util::future::join_all;
use kit::Redis;
use tidegate::decision::Verdict;
use tidegate::{Algorithm, Key, Resilient, Store, Take};
use tokio::time::{Instant, sleep};

use kit::store_on;
use kit::{HOUR, PATIENT, behind, check_expiries, connect, per_hour, roomy, run, take};

use super::*;

pub(super) fn names(server: &Redis) -> Vec<Vec<u8>> {
    let names = redis::cmd("KEYS").arg("*").query(&mut server.connection());
    names.expect("the keys")
}

/// The key that a hold has written.
async fn name_of_hold(server: &Redis, limits: &Limits) -> Vec<u8> {
    limits.hold("partner", "us", HOUR).await.expect("held");
    let names = names(server);
    assert_eq!(names.len(), 1, "{names:?}");
    names[0].clone()
}

/// Law 10, for takes, holds and resets, and never a denial that nobody said.
#[tokio::test]
async fn bad_values_under_the_hold_heal() {
    let server = Redis::start();
    let limits = limits(1_000).store(store_on(&server).await);
    let name = name_of_hold(&server, &limits).await;
    let mut admin = server.connection();
    let strings: [&[u8]; 14] = [
        b"",
        b"garbage",
        b"-5",
        b"nan",
        b"-nan",
        b"inf",
        b"1e400",
        b"99999999999999999999999999",
        b"9007199254740993",
        b"18446744073709551616",
        b"0x7fffffffffffffff",
        b" 5 ",
        b"\xff\x00\xfe",
        &[b'9'; 4_096],
    ];
    let mut bad = Vec::new();
    for value in strings {
        let mut command = redis::cmd("SET");
        command.arg(&name).arg(value);
        bad.push((String::from_utf8_lossy(value).into_owned(), command));
    }
    for (word, value) in [("RPUSH", 1), ("SADD", 1), ("PFADD", 1)] {
        let mut command = redis::cmd(word);
        command.arg(&name).arg(value);
        bad.push((word.to_owned(), command));
    }
    for word in ["HSET", "ZADD"] {
        let mut command = redis::cmd(word);
        command.arg(&name).arg(1).arg("a");
        if word == "ZADD" {
            command = redis::cmd(word).arg(&name).arg(1).arg("a").to_owned();
        }
        bad.push((word.to_owned(), command));
    }
    for (shown, command) in bad {
        let shown = &shown[..shown.len().min(40)];
        let put = |admin: &mut redis::Connection| {
            redis::cmd("DEL").arg(&name).exec(admin).expect("deleted");
            command.exec(admin).expect("written");
        };
        put(&mut admin);
        let first = limits.outgoing("partner").ready("us").await;
        if let Err(refused) = &first {
            panic!("{shown}: {refused}");
        }
        put(&mut admin);
        let time = limits.hold("partner", "us", 60 * SECOND).await;
        assert_eq!(time.expect(shown), 60 * SECOND, "{shown}");
        let left = held(&limits, "us").await;
        assert!(
            left.is_some_and(|it| it <= 60 * SECOND),
            "{shown}: {left:?}"
        );
        put(&mut admin);
        limits.reset("partner", "us").await.expect(shown);
        assert_eq!(held(&limits, "us").await, None, "{shown}");
        limits.reset("partner", "us").await.expect(shown);
    }
}

/// A server that loses its data: the hold is lost with it, and nothing else goes wrong.
#[tokio::test]
async fn a_server_that_loses_its_data() {
    let mut server = Redis::start();
    let limits = limits(5).store(store_on(&server).await);
    for round in 0..2 {
        limits.hold("partner", "us", HOUR).await.expect("held");
        assert!(held(&limits, "us").await.is_some());
        if round == 0 {
            run(&server, "FLUSHALL");
            run(&server, "SCRIPT FLUSH");
        } else {
            server.kill();
            server.restart();
        }
        let begun = Instant::now();
        while limits.outgoing("partner").ready("us").await.is_err() {
            assert!(begun.elapsed() < PATIENT, "round {round}");
            sleep(millis(10)).await;
        }
        run(&server, "SCRIPT FLUSH");
        limits
            .hold("partner", "us", HOUR)
            .await
            .expect("held again");
        assert!(held(&limits, "us").await.is_some());
    }
    check_expiries(&server, &[]);
}

/// While Redis is away, who has heard of a hold obeys it; a reset ends it there, too.
#[tokio::test]
async fn a_fallback_obeys_what_its_process_has_heard() {
    let mut server = Redis::start();
    let resilient = || {
        let store = Resilient::redis(&*server.url, "shop").expect("an address");
        limits(1_000).store(
            store
                .timeout(2 * SECOND)
                .processes(1)
                .probe_every(millis(100)),
        )
    };
    let [heard, other] = [resilient(), resilient()];
    heard.hold("partner", "us", HOUR).await.expect("held");
    assert!(held(&heard, "us").await.is_some() && held(&other, "us").await.is_some());
    server.kill();
    for round in 0..20 {
        assert!(held(&heard, "us").await.is_some(), "round {round}");
        assert_eq!(held(&heard, "them").await, None);
    }
    // A hold that only the fallback takes.
    let _ = heard.hold("partner", "later", 60 * SECOND).await;
    assert!(held(&heard, "later").await.is_some());
    // Until Redis has been asked, and whatever it answers, it has heard nothing.
    let _ = other.outgoing("partner").ready("later").await;
    server.restart();
    let begun = Instant::now();
    while heard.hold("partner", "us", HOUR).await.is_err() {
        assert!(begun.elapsed() < PATIENT);
        sleep(millis(20)).await;
    }
    while held(&other, "us").await.is_none() {
        assert!(begun.elapsed() < PATIENT, "the other process obeys again");
        sleep(millis(20)).await;
    }
    assert!(heard.reset("partner", "us").await.expect("an answer"));
    assert_eq!(held(&heard, "us").await, None);
    server.kill();
    for _ in 0..20 {
        assert_eq!(
            held(&heard, "us").await,
            None,
            "a reset ends it in the fallback"
        );
    }
}

/// Takes of other rules, of other keys and of no outgoing rule, in the same flights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_in_one_flight() {
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let store = connect(&proxy.url, PATIENT).await;
    let plain: Arc<Rule> = Arc::new(roomy("plain"));
    let outgoing = |path: &str, algorithm| {
        let rule = per_hour(path, 1_000_000).with_algorithm(algorithm);
        Arc::new(rule.with_outgoing().expect("one subject"))
    };
    let rules = [
        plain,
        outgoing("log", Algorithm::SlidingLog),
        outgoing("window", Algorithm::SlidingWindow),
        outgoing("gcra", Algorithm::Gcra),
        outgoing("fixed", Algorithm::FixedWindow),
    ];
    let is_held = |rule: &Rule, key: u64| rule.is_outgoing() && key.is_multiple_of(3);
    let takes = |round: u64| {
        let mut takes: Vec<(Take, bool)> = Vec::new();
        for key in 0..60 {
            for rule in &rules {
                let cost = (key + round) % 4;
                takes.push((take(rule, key).with_cost(cost), is_held(rule, key)));
            }
        }
        takes
    };
    for rule in rules.iter().filter(|it| it.is_outgoing()) {
        let holds = (0..60).filter(|key| is_held(rule, *key));
        let holds = holds
            .map(|key| store.hold(&take(rule, key), HOUR))
            .collect::<Vec<_>>();
        for answer in join_all(holds).await {
            assert_eq!(answer.expect("an answer"), HOUR);
        }
    }
    for round in 0..10 {
        let takes = takes(round);
        // Holds of other keys are on their way among them.
        let others = (0..50).map(|key| store.hold(&take(&rules[1], 1_000 + key), HOUR));
        let others = others.collect::<Vec<_>>();
        let answers = takes
            .iter()
            .map(|(take, _)| store.take(take))
            .collect::<Vec<_>>();
        let (others, answers) = tokio::join!(join_all(others), join_all(answers));
        assert!(others.iter().all(Result::is_ok));
        for ((take, is_held), answer) in takes.iter().zip(answers) {
            let verdict = answer.expect("a decision").verdict();
            let found = matches!(verdict, Verdict::OnHold { .. });
            let expected = *is_held && take.cost() > 0;
            assert!(
                take.cost() == 0 || found == expected,
                "{take:?}: {verdict:?}"
            );
        }
    }
    check_expiries(&server, &[]);
}

#[tokio::test]
async fn a_hold_in_another_process_and_a_remembered_denial() {
    let server = Redis::start();
    let resilient = || {
        let store = Resilient::redis(&*server.url, "shop").expect("an address");
        limits(1).store(store.timeout(2 * SECOND))
    };
    let [here, there] = [resilient(), resilient()];
    here.hold("partner", "us", 2 * SECOND).await.expect("held");
    for _ in 0..10 {
        assert!(held(&here, "us").await.is_some() && held(&there, "us").await.is_some());
    }
    there.reset("partner", "us").await.expect("an answer");
    let begun = Instant::now();
    while held(&here, "us").await.is_some() {
        assert!(
            begun.elapsed() < SECOND,
            "a denial is remembered for too long"
        );
        sleep(millis(5)).await;
    }
    let key = Key::from("other");
    here.hold("partner", key.clone(), HOUR).await.expect("held");
    assert!(held(&there, key).await.is_some(), "at its next take");
}
