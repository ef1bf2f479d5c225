//! Keys that a partner's answer holds. `tests/histories` compares the memory store and the scripts.

use crate::prelude::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn outgoing(path: &str, algorithm: Algorithm, quotas: &[Quota]) -> Arc<Rule> {
    let rule = Rule::new(path, quotas.to_vec()).expect("valid");
    let rule = rule.with_algorithm(algorithm).with_outgoing();
    Arc::new(rule.expect("one subject"))
}

fn connection(server: &Redis) -> redis::Connection {
    let client = redis::Client::open(&*server.url).expect("an address");
    client.get_connection().expect("a running server")
}

/// A hold is a key of its own, with an expiry; one that nobody here wrote holds nothing.
#[tokio::test]
async fn its_key() {
    let server = Redis::start();
    let store = store_on(&server).await;
    let take = Take::new(
        outgoing("p", Algorithm::SlidingLog, &[Quota::per_hour(1_000)]),
        Key::from("us"),
    );
    store.hold(&take, HOUR).await.expect("an answer");
    assert!(store.take(&take).await.expect("decides").is_on_hold());
    let mut server_side = connection(&server);
    let names: Vec<String> = cmd("KEYS")
        .arg("*~until")
        .query(&mut server_side)
        .expect("a list");
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    assert!(
        name.starts_with('{') && name.ends_with("p:us}~until"),
        "{name}"
    );
    let left: i64 = cmd("PTTL")
        .arg(name)
        .query(&mut server_side)
        .expect("a time");
    assert!((3_500_000..=3_602_000).contains(&left), "{left}");

    for foreign in ["", "x", "-1", "nan", "inf", "9e99", "1e300", "0"] {
        let () = cmd("SET")
            .arg(name)
            .arg(foreign)
            .query(&mut server_side)
            .expect("set");
        assert!(
            store.take(&take).await.expect("decides").is_allowed(),
            "{foreign:?}"
        );
        assert_eq!(
            store.hold(&take, HOUR).await.expect("an answer"),
            HOUR,
            "{foreign:?}"
        );
        assert!(store.reset(&take).await.expect("an answer"), "{foreign:?}");
    }
    let () = cmd("RPUSH")
        .arg(name)
        .arg("x")
        .query(&mut server_side)
        .expect("pushed");
    assert!(store.take(&take).await.expect("decides").is_allowed());
    assert_eq!(store.hold(&take, HOUR).await.expect("an answer"), HOUR);
    assert!(store.take(&take).await.expect("decides").is_on_hold());
}

/// While the store fails, the fallback of the process that heard it obeys.
#[tokio::test(start_paused = true)]
async fn a_fallback_obeys() {
    let away = Stub::answering(MemoryStore::new(), |_| {
        let error = tidegate::StoreError::new(tidegate::store::StoreErrorKind::Unavailable, "away");
        Some(tidegate::store::StoreFuture::ready(Err(error)))
    });
    let store = Resilient::bare(away).fallback(Share::of_processes(2));
    let take = Take::new(
        outgoing("p", Algorithm::Gcra, &[Quota::per_hour(1_000)]),
        Key::from("us"),
    );
    assert!(store.take(&take).await.expect("decides").is_allowed());
    drop(store.hold(&take, HOUR).await);
    let held = store.take(&take).await.expect("decides");
    assert!(held.is_on_hold(), "{held:?}");
    drop(store.reset(&take).await);
    assert!(store.take(&take).await.expect("decides").is_allowed());
}

/// A reset ends a hold also while a reload says that the rule is not outgoing.
#[tokio::test]
async fn a_reset_ends_it_under_any_rule() {
    let server = Redis::start();
    let (memory, redis) = (MemoryStore::new(), store_on(&server).await);
    let quota = [Quota::per_hour(1_000)];
    let take = |rule: Arc<Rule>| Take::new(rule, Key::from("us"));
    let obeys = take(outgoing("p", Algorithm::Gcra, &quota));
    let plain = Rule::new("p", quota).expect("valid");
    let plain = take(Arc::new(plain.with_algorithm(Algorithm::Gcra)));
    let stores: [&dyn Store; 2] = [&memory, &redis];
    for store in stores {
        store.hold(&obeys, HOUR).await.expect("an answer");
        assert!(store.take(&plain).await.expect("decides").is_allowed());
        assert!(store.take(&obeys).await.expect("decides").is_on_hold());
        assert!(store.reset(&plain).await.expect("an answer"));
        assert!(store.take(&obeys).await.expect("decides").is_allowed());
    }
}
