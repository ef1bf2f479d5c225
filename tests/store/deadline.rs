//! What is late is not charged: a script that runs after the deadline does nothing.

use crate::prelude::*;
use crate::take;

/// A connection is given up while it is silent, and a new one takes its time.
async fn peek_when_back(store: &RedisStore, take: &Take) -> Decision {
    let is_back = async || store.peek(take).await.is_ok();
    eventually("it is back", is_back).await;
    store.peek(take).await.expect("a decision")
}

/// Takes that were given up while the server stood still are not charged when it goes on, and those
/// of patient callers in the same calls are.
#[tokio::test]
async fn late_takes_charge_nothing() {
    let (server, patient) = started().await;
    let hasty = patient.clone().timeout(millis(100));
    // Keys that are known and new, of one quota and of several, and several takes of a key.
    let mut takes = Vec::new();
    for algorithm in Algorithm::ALL {
        let two = Rule::new("two", [Quota::per_hour(50), Quota::per_day(500)]).expect("valid");
        let two = Arc::new(two.with_algorithm(algorithm));
        takes.extend((0..18).map(|at| kit::take(&two, ["new", "a", "b"][at % 3])));
        takes.extend(["new", "a"].map(|key| kit::take(&by(algorithm, "one", 300, 24 * HOUR), key)));
    }
    for take in takes.iter().filter(|take| *take.key() != Key::from("new")) {
        ask(&patient, take).await;
    }
    let mut left = BTreeMap::new();
    for take in &takes {
        left.insert(take.name(""), remaining(&patient, take).await);
    }

    run(&server, "CLIENT PAUSE 600");
    // Takes of one key that are late and in time are told apart; of other keys all are late.
    let is_shared = |take: &Take| take.rule().path() == "two" && *take.key() != Key::from("b");
    let asked = takes.iter().flat_map(|take| {
        let in_time = is_shared(take).then(|| patient.take(take));
        [hasty.take(take)].into_iter().chain(in_time)
    });
    let mut answers = join_all(asked).await.into_iter();
    for take in &takes {
        let late = answers.next().expect("an answer");
        assert_eq!(
            late.expect_err("no decision").kind(),
            StoreErrorKind::Timeout
        );
        if is_shared(take) {
            let in_time = answers.next().expect("an answer");
            assert!(is_allowed(&in_time), "{in_time:?}");
            left.entry(take.name("")).and_modify(|left| *left -= 1);
        }
    }
    for take in &takes {
        let now = peek_when_back(&patient, take).await;
        assert_eq!(now.remaining(), left[&take.name("")], "{take:?}");
        assert!(ask(&patient, take).await.is_allowed(), "and it goes on");
        left.entry(take.name("")).and_modify(|left| *left -= 1);
    }
}

/// A server that opens connections and runs no scripts for a while: no new connection is better than
/// the one on which it still has to answer.
#[tokio::test]
async fn a_connection_that_runs_no_script_replaces_none() {
    let (server, patient) = started().await;
    let hasty = patient.clone().timeout(millis(100));
    let take = take("p", &[Quota::per_hour(1_000)]);
    ask(&patient, &take).await;
    run(&server, "CLIENT PAUSE 2500 WRITE");
    let (answer, late) = futures_util::future::join(patient.take(&take), hasty.take(&take)).await;
    late.expect_err("too late");
    assert!(answer.expect("it is answered").is_allowed());
}

/// A store behind a proxy, through which a take was decided.
async fn behind_proxy(server: &Redis, take: &Take) -> (RedisStore, Proxy) {
    let proxy = Proxy::start(&server.url).await;
    let store = RedisStore::connect(&proxy.url).await;
    let store = store.expect("a running server").timeout(PATIENT);
    assert!(ask(&store, take).await.is_allowed());
    (store, proxy)
}

/// The reply as it would be if a server with another clock had come too late: see
/// `lua/formats.md`.
fn is_late(reply: &mut Vec<u8>) {
    const CLOCK: u64 = 1_900_000_000_000_000;
    // No mark, and no number.
    reply[8..16].fill(0);
    reply[16..23].copy_from_slice(&CLOCK.to_be_bytes()[1..]);
    reply.truncate(23);
    reply.extend([3, 0, 1]);
}

/// A clock that was set, or another server's after a failover, is learnt within the take that finds
/// out.
#[tokio::test]
async fn a_clock_that_jumps_costs_a_call_more() {
    let server = Redis::start();
    let take = take("p", &[Quota::per_hour(100)]);
    let (store, proxy) = behind_proxy(&server, &take).await;
    let edit = is_late as fn(&mut Vec<u8>);
    let before = server.script_calls();
    proxy.present(Mode::Edit { edit, replies: 1 });
    assert!(ask(&store, &take).await.is_allowed());
    assert_eq!(server.script_calls(), before + 2);

    // A clock that is always ahead makes no sense, and the question is not asked for ever.
    let replies = 1_000;
    proxy.present(Mode::Edit { edit, replies });
    let before = server.script_calls();
    let error = store.take(&take).await.expect_err("no decision");
    assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}");
    let calls = server.script_calls() - before;
    assert!((2..=8).contains(&calls), "{calls} calls");

    // Back to the old clock: no call more, since the deadline is only too late now.
    proxy.present(Mode::Pass);
    let before = server.script_calls();
    assert!(ask(&store, &take).await.is_allowed());
    assert_eq!(server.script_calls(), before + 1);
    assert_eq!(proxy.accepted(), 1, "the connection is well");
}

/// Something between us and the server gives a call somebody else's reply, or half of one: the take
/// is an error, is not sent again, and the connection is given up, because the replies behind that
/// one are somebody else's, too.
async fn replies_are_edited(edit: fn(&mut Vec<u8>)) {
    let server = Redis::start();
    let take = take("p", &[Quota::per_hour(100)]);
    let (store, proxy) = behind_proxy(&server, &take).await;
    proxy.present(Mode::Edit { edit, replies: 1 });
    let error = store.take(&take).await.expect_err("no decision");
    assert_eq!(error.kind(), StoreErrorKind::Protocol, "{error}");
    let looked = peek_when_back(&store, &take).await;
    assert_eq!(looked.remaining(), 98, "it was charged once");
    assert!(proxy.accepted() > 1, "another connection");
}

#[tokio::test]
async fn edited_replies_are_noticed() {
    // Another call's, half of one, more than one, and an unknown verdict.
    replies_are_edited(|reply| reply[7] ^= 1).await;
    replies_are_edited(|reply| reply.truncate(20)).await;
    replies_are_edited(|reply| reply.truncate(3)).await;
    replies_are_edited(|reply| reply.push(0)).await;
    replies_are_edited(|reply| reply[23] = 77).await;
}

/// A time-out that is as good as none.
#[tokio::test]
async fn the_longest_timeouts_decide() {
    let server = Redis::start();
    let years = |number: u64| Duration::from_secs(number * 365 * 24 * 60 * 60);
    for timeout in [years(2), years(400), millis(u64::MAX), Duration::MAX] {
        let store = store_on(&server).await.timeout(timeout);
        let take = take("p", &[Quota::per_hour(100)]);
        assert!(ask(&store, &take).await.is_allowed(), "{timeout:?}");
        let receipt = ask(&store, &take).await.receipt().expect("charged");
        assert_eq!(store.refund(&take, &receipt).await.expect("answers"), 1);
    }
}

/// The server refuses what is later than the earliest of the time-outs around a store, through
/// every wrapper and behind an `Arc`; a wrapper's longer time-out makes the store's no longer.
#[tokio::test]
async fn takes_that_are_late_for_a_wrapper_charge_nothing() {
    let server = Redis::start();
    let patient = Arc::new(store_on(&server).await);
    let resilient = |timeout| {
        let store = Resilient::new(Arc::clone(&patient)).timeout(timeout);
        store.failures(None).build()
    };
    let short = millis(100);
    let hasty = Arc::new((*patient).clone().timeout(short));
    let guarded = Resilient::bare(Arc::clone(&patient)).in_flight(9);
    let guarded = Resilient::bare(guarded).failures(10);
    let stores = [
        resilient(short),
        Arc::new(Resilient::bare(resilient(short)).timeout(PATIENT)),
        Arc::new(Resilient::bare(guarded).timeout(short)),
        Resilient::new(hasty).timeout(PATIENT).build(),
    ];
    let of = |at| take(&format!("p{at}"), &[Quota::per_hour(1_000)]);
    let takes: Vec<_> = (0..stores.len()).map(of).collect();
    // The first take of a connection learns what the server's clock shows.
    for take in &takes {
        ask(&*patient, take).await;
    }
    run(&server, "CLIENT PAUSE 600");
    let began = Instant::now();
    let asked = stores.iter().zip(&takes);
    let answers = asked.map(|(store, take)| store.take(take));
    for answer in join_all(answers).await {
        let error = answer.expect_err("no decision");
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
        let text = error.to_string();
        assert!(text.ends_with("did not answer within 100ms"), "{text}");
    }
    assert!(began.elapsed() < Duration::from_secs(15));
    for take in &takes {
        let now = peek_when_back(&patient, take).await;
        assert_eq!(now.remaining(), 999, "{}", take.rule().path());
    }
}
