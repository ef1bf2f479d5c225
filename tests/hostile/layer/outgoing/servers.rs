//! Holds in a real Redis: bad values, losses, outages, neighbours in one call, slots.

use super::*;

/// Law 10, for takes, holds and resets, and never a denial that nobody said.
#[tokio::test]
async fn bad_values_under_the_hold_heal() {
    let server = Redis::start();
    let limits = limits(1_000).store(store_on(&server).await);
    hold(&limits, "us", HOUR).await;
    let names = keys(&server, "*");
    assert_eq!(names.len(), 1, "{names:?}");
    let name = &names[0];
    let digits = [b'9'; 4_096];
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
        &digits,
    ];
    let strings = strings.map(|value| ("SET", vec![value]));
    let types = ["RPUSH", "SADD", "PFADD"].map(|word| (word, vec![&b"1"[..]]));
    let pairs = ["HSET", "ZADD"].map(|word| (word, vec![&b"1"[..], b"a"]));
    let mut admin = server.connection();
    for (word, values) in strings.into_iter().chain(types).chain(pairs) {
        let shown = format!("{word} {:?}", &values[0][..values[0].len().min(40)]);
        let mut put = || {
            redis::cmd("DEL")
                .arg(name)
                .exec(&mut admin)
                .expect("deleted");
            let mut command = redis::cmd(word);
            command
                .arg(name)
                .arg(&values)
                .exec(&mut admin)
                .expect("written");
        };
        put();
        let first = limits.outgoing("partner").ready("us").await;
        assert!(first.is_ok(), "{shown}: {:?}", first.err());
        put();
        let time = limits.hold("partner", "us", MINUTE).await;
        assert_eq!(time.expect(&shown), MINUTE, "{shown}");
        let left = held(&limits, "us").await;
        assert!(left.is_some_and(|it| it <= MINUTE), "{shown}: {left:?}");
        put();
        limits.reset("partner", "us").await.expect(&shown);
        assert_eq!(held(&limits, "us").await, None, "{shown}");
        limits.reset("partner", "us").await.expect(&shown);
    }
}

/// A server that loses its data: the hold is lost with it, and nothing else goes wrong.
#[tokio::test]
async fn a_server_that_loses_its_data() {
    let mut server = Redis::start();
    let limits = limits(5).store(store_on(&server).await);
    for is_killed in [false, true] {
        hold(&limits, "us", HOUR).await;
        assert!(is_held(&limits, "us").await);
        if is_killed {
            server.kill();
            server.restart();
        } else {
            run(&server, "FLUSHALL");
            run(&server, "SCRIPT FLUSH");
        }
        let partner = limits.outgoing("partner");
        eventually("a turn", async || partner.ready("us").await.is_ok()).await;
        run(&server, "SCRIPT FLUSH");
        hold(&limits, "us", HOUR).await;
        assert!(is_held(&limits, "us").await);
    }
    check_expiries(&server, &[]);
}

/// While Redis is away, who has heard of a hold obeys it; a reset ends it there, too.
#[tokio::test]
async fn a_fallback_obeys_what_its_process_has_heard() {
    let mut server = Redis::start();
    let [heard, other] = [process(&server, 1_000), process(&server, 1_000)];
    hold(&heard, "us", HOUR).await;
    assert!(is_held(&heard, "us").await && is_held(&other, "us").await);
    server.kill();
    for round in 0..20 {
        assert!(is_held(&heard, "us").await, "round {round}");
        assert_eq!(held(&heard, "them").await, None);
    }
    // A hold that only the fallback takes.
    let _ = heard.hold("partner", "later", MINUTE).await;
    assert!(is_held(&heard, "later").await);
    // Until Redis has been asked, and whatever it answers, it has heard nothing.
    let _ = other.outgoing("partner").ready("later").await;
    server.restart();
    let holds = async || heard.hold("partner", "us", HOUR).await.is_ok();
    eventually("it holds", holds).await;
    let is_so = async || is_held(&other, "us").await;
    eventually("the other obeys again", is_so).await;
    assert!(reset(&heard, "us").await);
    assert_eq!(held(&heard, "us").await, None);
    server.kill();
    for _ in 0..20 {
        let held = held(&heard, "us").await;
        assert_eq!(held, None, "a reset ends it in the fallback");
    }
}

/// Takes of other rules, of other keys and of no outgoing rule, in the same flights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_in_one_flight() {
    let (server, _proxy, store) = kit::far(millis(4)).await;
    let outgoing = Algorithm::ALL.map(|algorithm| {
        let rule = per_hour(&format!("{algorithm:?}"), 1_000_000).with_algorithm(algorithm);
        Arc::new(rule.with_outgoing().expect("one subject"))
    });
    for rule in &outgoing {
        let holds = (0..60_u64).step_by(3).map(|key| take(rule, key));
        let holds = holds.map(|take| store.hold(&take, HOUR));
        for answer in join_all(holds.collect::<Vec<_>>()).await {
            assert_eq!(answer.expect("an answer"), HOUR);
        }
    }
    let plain = [Arc::new(kit::roomy("plain"))];
    for round in 0..10 {
        // Holds of other keys are on their way among them.
        let others = (0..50).map(|key| store.hold(&take(&outgoing[0], 1_000 + key), HOUR));
        let others: Vec<_> = others.collect();
        let takes = (0..60_u64).flat_map(|key| {
            let rules = plain.iter().chain(&outgoing);
            rules.map(move |rule| (take(rule, key).with_cost((key + round) % 4), key % 3 == 0))
        });
        let takes: Vec<_> = takes.collect();
        let answers: Vec<_> = takes.iter().map(|(take, _)| store.take(take)).collect();
        let (others, answers) = tokio::join!(join_all(others), join_all(answers));
        assert!(others.iter().all(Result::is_ok));
        for ((take, is_key_held), answer) in takes.iter().zip(answers) {
            let verdict = answer.expect("a decision").verdict();
            let is_on_hold = matches!(verdict, Verdict::OnHold { .. });
            let is_held = *is_key_held && take.rule().is_outgoing();
            assert_eq!(is_on_hold, is_held, "{take:?}: {verdict:?}");
        }
    }
    check_expiries(&server, &[]);
}

#[tokio::test]
async fn a_hold_in_another_process_and_a_remembered_denial() {
    let server = Redis::start();
    let [here, there] = [process(&server, 1), process(&server, 1)];
    hold(&here, "us", 2 * SECOND).await;
    for _ in 0..10 {
        assert!(is_held(&here, "us").await && is_held(&there, "us").await);
    }
    reset(&there, "us").await;
    let begun = Instant::now();
    eventually("a turn", async || !is_held(&here, "us").await).await;
    let took = begun.elapsed();
    let is_right = took < SECOND;
    assert!(is_right, "a denial is remembered for too long: {took:?}");
    hold(&here, "other", HOUR).await;
    assert!(is_held(&there, "other").await, "at its next take");
}
