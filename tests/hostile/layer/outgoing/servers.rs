//! Holds in a real Redis: bad values and outages.

use super::*;

/// Law 10, for takes, holds and resets, and never a denial that nobody said. `store holds::` has more
/// values.
#[tokio::test]
async fn bad_values_under_the_hold_heal() {
    let server = Redis::start();
    let limits = limits(1_000).store(store_on(&server).await);
    hold(&limits, "us", HOUR).await;
    let names = keys(&server, "*");
    assert_eq!(names.len(), 1, "{names:?}");
    let name = &names[0];
    let (digits, pair) = ("9".repeat(4_096), [&b"1"[..], b"a"]);
    let texts = "garbage -nan 1e400 99999999999999999999999999 9007199254740993
        18446744073709551616 0x7fffffffffffffff";
    let texts = words(texts).into_iter().chain([" 5 ", &digits]);
    let bytes = texts.map(str::as_bytes).chain([&b"\xff\x00\xfe"[..]]);
    let strings = bytes.map(|value| ("SET", vec![value]));
    let types = ["SADD", "PFADD", "HSET", "ZADD"].map(|word| (word, pair.to_vec()));
    let mut admin = server.connection();
    for (word, values) in strings.chain(types) {
        let shown = format!("{word} {:?}", &values[0][..values[0].len().min(40)]);
        let mut put = || {
            cmd("DEL").arg(name).exec(&mut admin).expect("deleted");
            let mut command = cmd(word);
            let put = command.arg(name).arg(&values).exec(&mut admin);
            put.expect("written");
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
