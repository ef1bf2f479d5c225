//! Layers in a row over doors: after a time-out the server is not asked again, and every other one
//! is, whatever their names are.

use tidegate::store::ServerId;
use tokio::time::Instant;

use crate::prelude::*;

const TIMEOUT: Duration = millis(50);

/// A handler behind a layer of each of these stores; requests pass where a store fails.
fn app(stores: &[Arc<dyn Store>]) -> Router {
    let app = Router::new().route("/", any(async || "1"));
    stores.iter().enumerate().fold(app, |app, (at, store)| {
        let rule = per_hour(&format!("layer{at}"), 1_000).with_on_error(OnError::Proceed);
        app.layer(RateLimitLayer::from_rule(rule).store(Arc::clone(store)))
    })
}

async fn passes(app: &Router) -> Duration {
    let began = Instant::now();
    assert_eq!(kit::http::status(app, "/").await, StatusCode::OK);
    began.elapsed()
}

/// A store that hangs.
fn silent() -> Distant {
    let inner = Distant::new(MemoryStore::new().tokio_clock()).ways(1, 1);
    inner.takes_are(Fate::Silence);
    inner
}

/// A store that hangs, of this name, on this server.
fn on(inner: &Distant, name: &'static str, server: Option<&'static str>) -> Stub {
    Stub::around(inner.clone())
        .named(name)
        .capabilities_fn(move |_| {
            let mut capabilities = tidegate::store::Capabilities::default();
            capabilities.server = server.map(ServerId::of);
            capabilities
        })
}

/// A custom store that names no server, shared by layers as one `Arc`, and by the layers of `Limits`:
/// a request pays for its time-out once.
#[tokio::test(start_paused = true)]
async fn one_door_of_several_layers_costs_one_time_out() {
    let inner = silent();
    let door = || Resilient::bare(inner.clone()).timeout(TIMEOUT);
    let shared: Arc<dyn Store> = door().build();
    let app_of_shared = app(&[Arc::clone(&shared), Arc::clone(&shared), shared]);
    assert_eq!(passes(&app_of_shared).await, TIMEOUT, "one `Arc`");
    assert_eq!(inner.asked(), 1);

    let paths = ["first", "second", "third"];
    let rules = paths.map(|path| per_hour(path, 1_000).with_on_error(OnError::Proceed));
    let limits = Limits::new(Rules::from_iter(rules)).store(door());
    let of_limits = Router::new().route("/", any(async || "1"));
    let add = |app: Router, path: &&str| app.layer(limits.layer(path));
    let of_limits = paths.iter().fold(of_limits, add);
    assert_eq!(passes(&of_limits).await, TIMEOUT, "layers of `Limits`");
}

/// Stores are told apart by their servers and not by their names, also inside of doors and `Arc`s.
#[tokio::test(start_paused = true)]
async fn servers_and_not_names() {
    let inner = silent();
    let door = |name, server| -> [Arc<dyn Store>; 3] {
        let store = || on(&inner, name, server);
        let plain = || Resilient::bare(store()).timeout(TIMEOUT);
        let around = Resilient::new(Arc::new(store()) as Arc<dyn Store>).timeout(TIMEOUT);
        let nested = Resilient::new(plain()).failures(None);
        let around = around.failures(None).build();
        [plain().build(), around, Arc::new(Arc::new(nested))]
    };
    let ones = door("one", Some("db eu"));
    // Another name of the same server; another server, and one that nobody knows, of the same name.
    let others = [
        ("other", Some("db eu"), 1),
        ("one", Some("db us"), 2),
        ("one", None, 2),
    ];
    for (at, one) in ones.iter().enumerate() {
        for (name, server, time_outs) in others {
            for (then, other) in door(name, server).into_iter().enumerate() {
                let took = passes(&app(&[Arc::clone(one), other])).await;
                assert_eq!(took, time_outs * TIMEOUT, "{at}, {then}: {name}");
            }
        }
    }
    // Healthy ones are asked in any case.
    let well = Arc::new(MemoryStore::new().tokio_clock());
    let before = inner.asked();
    let beside = app(&[Arc::clone(&ones[0]), well.clone(), Arc::clone(&ones[1])]);
    assert_eq!(passes(&beside).await, TIMEOUT);
    assert_eq!(inner.asked() - before, 1);
    assert_eq!(well.len(), 1);
}
