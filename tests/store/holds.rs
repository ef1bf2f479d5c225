//! Keys that a partner's answer holds. `tests/histories` compares the memory store and the scripts.

use crate::prelude::*;

/// A take of a rule whose keys a partner's answer may hold.
fn outgoing(algorithm: Algorithm) -> Take {
    let rule = Rule::clone(&by(algorithm, "p", 1_000, HOUR)).with_outgoing();
    Take::new(Arc::new(rule.expect("one subject")), Key::from("us"))
}

async fn hold(store: &dyn Store, take: &Take) -> Duration {
    store.hold(take, HOUR).await.expect("an answer")
}

/// A hold is a key of its own, with an expiry; one that nobody here wrote holds nothing.
#[tokio::test]
async fn its_key() {
    let (server, store) = started().await;
    let take = outgoing(Algorithm::SlidingLog);
    hold(&store, &take).await;
    assert!(ask(&store, &take).await.is_on_hold());
    let names = kit::keys(&server, "*~until");
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    let is_right = name.starts_with('{') && name.ends_with("p:us}~until");
    assert!(is_right, "{name}");
    let left = server.life(name);
    assert!((3_500_000..=3_602_000).contains(&left), "{left}");

    for foreign in ["", "x", "-1", "nan", "inf", "9e99", "1e300", "0"] {
        let () = server.connection().set(name, foreign).expect("set");
        assert!(ask(&store, &take).await.is_allowed(), "{foreign:?}");
        assert_eq!(hold(&store, &take).await, HOUR, "{foreign:?}");
        assert!(store.reset(&take).await.expect("an answer"), "{foreign:?}");
    }
    run(&server, &format!("RPUSH {name} x"));
    assert!(ask(&store, &take).await.is_allowed());
    assert_eq!(hold(&store, &take).await, HOUR);
    assert!(ask(&store, &take).await.is_on_hold());
}

/// While the store fails, the fallback of the process that heard it obeys.
#[tokio::test(start_paused = true)]
async fn a_fallback_obeys() {
    let away = Stub::answering(MemoryStore::new(), |_| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "away");
        Some(StoreFuture::ready(Err(error)))
    });
    let store = Resilient::bare(away).fallback(Share::of_processes(2));
    let take = outgoing(Algorithm::Gcra);
    assert!(ask(&store, &take).await.is_allowed());
    drop(store.hold(&take, HOUR).await);
    let held = ask(&store, &take).await;
    assert!(held.is_on_hold(), "{held:?}");
    drop(store.reset(&take).await);
    assert!(ask(&store, &take).await.is_allowed());
}
