//! The safe set-up in one line: names, addresses and runtimes that make no sense, setters after the
//! first use, and what is left of a store that is dropped.

use super::*;

fn take(path: &str) -> Take {
    Take::new(per_hour(path, 100).into(), Key::default())
}

/// Names and addresses that make no sense are errors, which show no secret and no panic.
#[tokio::test]
async fn names_and_addresses() {
    let url = "redis://us3r:s3cret@127.0.0.1:1";
    let long = "a".repeat(65);
    let wrong = [
        "", "a b", "a:b", "{a}", "ä", "a\n", "a\0", "a%", "a/b", "*", "a?", "[a]", &long,
        "\u{202e}",
    ];
    let hides = |text: String| {
        assert!(!text.contains("s3cret") && !text.contains("us3r"), "{text}");
    };
    for name in wrong {
        let error = Resilient::redis(url, name).expect_err(name);
        let kind = StoreErrorKind::Configuration;
        assert_eq!(error.kind(), kind, "{name:?}: {error}");
        hides(format!("{error} {error:?}"));
    }
    for name in ["a", "A-z.0_9", &"b".repeat(64), "..", "-"] {
        let store = Resilient::redis(url, name).expect(name);
        let warnings = store.condition().warnings;
        hides(format!("{store:?} {} {warnings:?}", store.name()));
    }
    let wrong = words("redis//s3cret http://s3cret@x redis://:s3cret@ redis://h:s3cret");
    for address in wrong.into_iter().chain([""]) {
        let error = Resilient::redis(address, "shop").expect_err(address);
        hides(format!("{error} {error:?}"));
    }
    let began = Instant::now();
    let nobody = shop(url);
    let error = nobody.connect().await.expect_err("nobody is there");
    assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    let took = began.elapsed();
    let most = RedisStore::CONNECT_TIMEOUT + Duration::from_secs(3);
    assert!(took < most, "{took:?}");
}

#[test]
fn a_store_that_outlives_its_runtime() {
    let server = Server::start();
    let store = kit::runtime().block_on(async { shop(&server.url).processes(1) });
    let decision = kit::runtime().block_on(async { store.take(&take("p")).await });
    let decision = decision.expect("a fallback");
    assert_eq!(decision.source(), Source::Fallback);
}

/// All keys of a service have its name in front, whatever its rules say: so two services never
/// count together.
#[tokio::test]
async fn two_services_on_one_redis() {
    let server = Server::start();
    let service = async |name: &str| {
        let store = Resilient::redis(&*server.url, name).expect("an address");
        let store = store.connect().await.expect("a server");
        store.timeout(PATIENT).denial_cache(None)
    };
    const NAMES: [&str; 3] = ["shop", "shop-2", "sho"];
    let services = join_all(NAMES.map(service)).await;
    let mut rules = Vec::new();
    for algorithm in Algorithm::ALL {
        let prefixes = ["", "shop:", "{eu}:", "p:CurrentLimiter:"].into_iter();
        for prefix in prefixes.map(Some).chain([None]) {
            let mut one = per_hour("login", 2).with_algorithm(algorithm);
            if let Some(prefix) = prefix {
                one = one.with_prefix(prefix);
            }
            rules.push(one.clone());
            rules.push(one.into_shadow());
        }
    }
    for rule in &rules {
        let take = Take::new(rule.clone().into(), Key::from("al:ice"));
        for service in &services {
            let first = service.take(&take).await.expect("a decision");
            let second = service.take(&take).await.expect("a decision");
            assert_eq!((first.remaining(), second.remaining()), (1, 0), "{rule:?}");
            let receipt = first.receipt().expect("it was charged");
            let _ = service.refund(&take, &receipt).await;
        }
    }
    let keys = keys(&server, "*");
    assert!(keys.len() > 60, "{keys:?}");
    for key in keys {
        let is_ours = NAMES.iter().any(|name| {
            key.starts_with(&format!("{name}:"))
                || key.starts_with(&format!("{{{name}:")) && key.ends_with(":back")
                || key.contains("{eu}")
        });
        assert!(is_ours, "{key}");
        assert!(!key.starts_with("CurrentLimiter"), "{key}");
    }
}

/// Stores that are made and dropped, used or not, at every stage of connecting: no task and no
/// connection stays.
#[tokio::test]
async fn stores_that_are_dropped() {
    let server = Server::start();
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    for round in 0..40 {
        let store = shop(&server.url);
        let store = store.processes(2);
        match round % 4 {
            0 => {}
            1 => drop(store.take(&take("p")).await),
            2 => drop(timeout(millis(2), store.clone().connect()).await),
            _ => {
                let pending = store.take(&take("p"));
                drop(store);
                drop(pending.await);
            }
        }
        let nobody = Resilient::redis("redis://127.0.0.1:1", "shop").expect("an address");
        let nobody = nobody.failures(1).probe_every(millis(1));
        let _ = nobody.take(&take("p")).await;
    }
    eventually("no task and no connection is left", async || {
        let list: String = query(&server, "CLIENT LIST");
        list.lines().count() <= 1 && tasks.num_alive_tasks() <= before
    })
    .await;
}
