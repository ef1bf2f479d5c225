//! Law 9 and law 6 across runtimes: a store that outlives its own, and futures that outlive stores.

use crate::prelude::*;

/// The runtime that the store was made in ends: guests get an answer or an error, in time.
#[test]
fn the_home_runtime_ends() {
    let (home, guest, server) = (runtime(), runtime(), Redis::start());
    let store = home.block_on(connect(&server.url, millis(200)));
    let rule = rule("orphans", 1_000_000, HOUR);
    let pending = {
        let (store, rule) = (store.clone(), rule.clone());
        guest.spawn(async move {
            let mut longest = Duration::ZERO;
            let (mut decisions, mut failures) = (0, 0);
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(2) {
                let asked = Instant::now();
                let takes = takes_of(&rule, 70);
                match kit::ask_all(&store, &takes).await {
                    Ok(_) => decisions += 1,
                    Err(_) => failures += 1,
                }
                longest = longest.max(asked.elapsed());
                sleep(millis(1)).await;
            }
            (decisions, failures, longest)
        })
    };
    std::thread::sleep(millis(200));
    drop(home);
    let (decisions, _failures, longest) = guest.block_on(pending).expect("no panic");
    assert!(decisions > 0);
    assert!(longest < millis(200 + 500), "law 6: {longest:?}");
    // What most often brings it about.
    let error = guest.block_on(async { store.take(&takes_of(&rule, 1)[0]).await });
    let text = error.expect_err("nobody asks").to_string();
    assert!(text.contains("#[tokio::test]"), "{text}");
}

/// Takes of a store that is dropped are answered in time: by a decision, or by an error.
#[tokio::test]
async fn a_store_dropped_while_takes_are_pending() {
    let server = Redis::start();
    let proxy = behind(&server, millis(20)).await;
    for _ in 0..10 {
        let store = connect(&proxy.url, PATIENT).await;
        let rule = rule("dropped", 1_000_000, HOUR);
        let takes = takes_of(&rule, 200);
        let pending: Vec<_> = takes.iter().map(|take| store.take(take)).collect();
        drop(store);
        let answers = timeout(Duration::from_secs(5), join_all(pending)).await;
        for answer in answers.expect("law 6").iter().filter(|it| it.is_err()) {
            assert_eq!(kind(answer), Some(StoreErrorKind::Unavailable));
        }
    }
}

/// A dropped store leaves no connection behind.
#[tokio::test]
async fn dropped_stores_close_their_connections() {
    let server = Redis::start();
    for _ in 0..20 {
        let store = connect(&server.url, PATIENT).await;
        let rule = rule("gone", 1_000, HOUR);
        let takes = takes_of(&rule, 200);
        let _ = timeout(Duration::from_micros(300), kit::ask_all(&store, &takes)).await;
    }
    let is_alone = async || {
        let list: String = server.run("CLIENT LIST");
        // This look itself is one.
        list.lines().count() <= 1
    };
    within(millis(3_000), "no connection is left", is_alone).await;
}
