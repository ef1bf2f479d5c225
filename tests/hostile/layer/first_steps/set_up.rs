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

/// Outside of a runtime it is an error. A store that outlives its runtime fails, and says so.
#[test]
fn without_a_runtime() {
    let server = Server::start();
    let error = Resilient::redis(&*server.url, "shop").expect_err("no runtime");
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(RedisStore::connect_lazy(&*server.url).is_err());
    assert!(tidegate::Redis::connect_lazy(&*server.url).is_err());

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = runtime.block_on(async { Resilient::redis(&*server.url, "shop") });
    let store = store.expect("an address").processes(1);
    drop(runtime);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let decision = runtime.block_on(async { store.take(&take("p")).await });
    let decision = decision.expect("a fallback");
    assert_eq!(decision.source(), Source::Fallback);
}

/// Setters after the first use, on clones, in any order: what was counted stays, clones that were
/// there stay as they were, and all count together.
#[tokio::test]
async fn setters_after_the_first_use() {
    let server = Server::start();
    let store = connected(&server.url).await.timeout(PATIENT);
    let mut all = vec![store];
    let mut random = Random::new(12);
    for number in 1..=40 {
        let one = all[random.below(all.len() as u64) as usize].clone();
        let one = match random.below(8) {
            0 => one.processes(3),
            1 => one.failures(None),
            2 => one.denial_cache(None),
            3 => one.denial_cache(millis(50)),
            4 => one.in_flight(4),
            5 => one.fallback(None),
            6 => one.probe_every(millis(20)),
            _ => one.timeout(PATIENT),
        };
        let decision = one.take(&take("p")).await.expect("a decision");
        assert_eq!(decision.remaining(), 100 - number, "they count together");
        all.push(one);
    }
    // A setter on a clone that was used does not change the clone.
    let lasting = all[0].clone();
    let hasty = lasting.clone().timeout(Duration::ZERO);
    assert!(hasty.take(&take("p")).await.is_err());
    assert!(lasting.take(&take("p")).await.is_ok());
    let of_arc: Arc<dyn Store> = lasting.clone().build();
    let decision = of_arc.take(&take("p")).await.expect("a decision");
    assert_eq!(decision.remaining(), 58);
    assert!(lasting.connect().await.is_ok());
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
            rules.push(one.clone().into_shadow());
            if let Ok(leased) = one.with_lease(millis(50)) {
                rules.push(leased.with_prefix(format!("leased {prefix:?}:")));
            }
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

/// A number of processes of 0 panics, as the docs say, and says what to do.
#[tokio::test]
async fn no_processes() {
    let store = Resilient::new(MemoryStore::new());
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.processes(0)));
    assert!(panics.is_err());
}

/// A test that pauses tokio's clock, and a layer with the default store: time that passes there
/// gives the limit back, or the log says what to do.
#[tokio::test(start_paused = true)]
async fn a_paused_clock_with_the_default_store() {
    let limits = "[rules.a]\nmax-count = 2\nwindow = \"10s\"";
    let limits = Limits::from_toml(limits).expect("valid");
    let layers = [
        RateLimitLayer::new("p", Duration::from_secs(10), 2),
        limits.layer("a"),
    ];
    for layer in layers {
        let log = kit::full_log::Log::start();
        let app = app(layer);
        for _ in 0..3 {
            for expected in [200, 200, 429] {
                let response = send(&app, "/").await;
                let status = response.status();
                let hint = log.text() + &text(response).await;
                let is_told = hint.contains("tokio_clock");
                assert!(status == expected || is_told, "{status}: {hint}");
            }
            sleep(Duration::from_secs(11)).await;
        }
    }
}

/// A mistake in an inline table names the key and the line.
#[test]
fn mistakes_in_inline_tables() {
    let values = ["twenty", "many", "5 per minute"];
    let mut unnamed = Vec::new();
    for value in values {
        for text in [
            format!("[rules.login]\n\nmax-count = {value}"),
            format!("[rules]\n\nlogin = {{ max-count = {value}, window = \"1m\" }}"),
            format!("[rules]\n\nlogin = {{ window = \"1m\", max-count = {value} }}"),
            format!("\n\nrules = {{ login = {{ max-count = {value}, window = \"1m\" }} }}"),
            format!("[rules.login]\nquotas = [\n{{ max-count = {value}, window = \"1m\" }}]"),
        ] {
            let error = Limits::from_toml(&text).expect_err(&text).to_string();
            let is_named = error.contains("max-count");
            let has_line = error.contains("line 3") || error.contains(":3");
            if !is_named || !has_line {
                unnamed.push(format!("{text:?}: {error}"));
            }
        }
    }
    assert!(unnamed.is_empty(), "{unnamed:#?}");
}

/// Layers take stores of one name for one server: different servers have different names.
#[tokio::test]
async fn names_of_servers() {
    let addresses = words(
        "redis://127.0.0.1:1 redis://127.0.0.1:2 redis://localhost:1 redis://[::1]:1
        redis-cluster://127.0.0.1:1 redis-sentinel://127.0.0.1:1/one
        redis-sentinel://127.0.0.1:1/two redis-sentinel://127.0.0.1:1,127.0.0.1:2/one
        unix:///tmp/one.sock unix:///tmp/two.sock",
    );
    let name = |address: &&str| Resilient::redis(*address, "shop").expect(address).name();
    let names: std::collections::BTreeSet<_> = addresses.iter().map(name).collect();
    assert_eq!(names.len(), addresses.len(), "{names:?}");
}

/// The status shows a hash of hex digits.
#[test]
fn the_hash_in_the_status() {
    let limits = Limits::from_toml("[rules.a]\nmax-count = 2\nwindow = \"10s\"").expect("valid");
    let text = format!("{:?}", limits.status());
    let hash = text.split("hash").nth(1).expect("a hash");
    let digits = hash.chars().filter(char::is_ascii_hexdigit).count();
    assert!(digits >= 16 && !hash.starts_with(": ["), "{text}");
}
