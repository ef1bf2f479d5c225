//! What the layer allocates for a request.

use redis::aio::ConnectionLike;
use redis::{Client, Cmd, Value};

use crate::*;

/// As a router hands on a request: with an extension of its own.
fn routed() -> Request<Body> {
    let mut request = get("/");
    request.extensions_mut().insert(7_u8);
    request
}

/// As a handler answers: with a header field of its own.
async fn text(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    let response = Response::builder().header("content-type", "text/plain");
    Ok(response.body(Body::empty()).expect("a valid response"))
}

async fn ok(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::empty()))
}

/// How often a request allocates.
fn allocations<S>(service: S) -> u64
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    allocations_on(&still_runtime(), service, || get("/"))
}

/// How often such a request allocates in this runtime.
fn allocations_on<S>(runtime: &Runtime, mut service: S, request: fn() -> Request<Body>) -> u64
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    // Spans allocate if some other test listens to them.
    let _silence = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let count = |request| {
        let count = allocation_counter::measure(|| {
            let response = runtime.block_on(async { service.call(request).await });
            assert!(response.is_ok_and(|response| !response.status().is_server_error()));
        });
        count.count_total
    };
    // The first requests are looked at for mistakes in the set-up.
    let counts = (0..200).map(|_| request()).map(count).skip(100);
    median(counts.collect())
}

/// The middle one: buffers grow now and then.
fn median(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    counts[counts.len() / 2]
}

fn at_most(most: u64, counted: u64, what: &str) {
    assert!(
        counted <= most,
        "{what}: {counted} allocations, expected at most {most}"
    );
}

#[test]
fn a_ready_answer_costs_no_allocation_but_what_shows_it() {
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000).store(MemoryStore::new());
    let bare = allocations(service_fn(ok));
    // The extensions of the request and of the response: a map, its table, and a box for decision
    // and charges together; and the charge.
    let silent = allocations(layer.clone().headers(Headers::None).layer(service_fn(ok)));
    assert_eq!(silent - bare, 7);
    // The fields: the two parts of the map of header fields, and the value of `RateLimit`.
    let shown = allocations(layer.layer(service_fn(ok)));
    assert_eq!(shown - silent, 3);
}

#[test]
fn without_extensions_an_answer_costs_no_allocation_but_its_fields() {
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000).store(MemoryStore::new());
    let layer = layer.without_extensions(true, true);
    let bare = allocations(service_fn(ok));
    let silent = allocations(layer.clone().headers(Headers::None).layer(service_fn(ok)));
    at_most(1, silent - bare, "the charge");
    let shown = allocations(layer.clone().layer(service_fn(ok)));
    at_most(3, shown - silent, "the fields");
    let keyed = layer.key_by(|_| Ok(tidegate::Key::from("203.0.113.9")));
    let keyed = allocations(keyed.layer(service_fn(ok)));
    at_most(1, keyed - shown, "the text of the key");
}

#[test]
fn a_first_charge_costs_no_allocation_but_its_name() {
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000).store(MemoryStore::new());
    let known = layer
        .clone()
        .key_by(|_| Ok(tidegate::Key::from("100000000")));
    let next = std::sync::atomic::AtomicU64::new(100_000_000);
    let new = layer.key_by(move |_| {
        let next = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(tidegate::Key::from(next))
    });
    let known = allocations(known.layer(service_fn(ok)));
    let new = allocations(new.layer(service_fn(ok)));
    at_most(1, new - known, "the name");
}

#[test]
fn an_answer_about_three_subjects_costs_little() {
    let subject = |name| Subject::new(name, Everyone).limit(quota(1_000_000, WINDOW));
    let rule = Rule::joint("p", ["a", "b", "c"].map(subject)).expect("a valid rule");
    let layer = RateLimitLayer::from_rule(rule).store(MemoryStore::new());
    let bare = allocations(service_fn(ok));
    let joint = allocations(layer.layer(service_fn(ok)));
    at_most(23, joint - bare, "three subjects");
}

/// It is moved at each step of a request.
#[test]
fn a_take_is_small() {
    let size = size_of::<Take>();
    assert!(size <= 232, "{size} bytes");
}

#[test]
fn a_denial_costs_no_allocation_but_its_response() {
    let layer = RateLimitLayer::new("p", WINDOW, 1).store(MemoryStore::new());
    let bare = allocations(service_fn(ok));
    // The document and its box, the two parts of the map of header fields, and the extension: a map,
    // its table and a box. A `Retry-After` of up to 99 seconds is a static text.
    let silent = allocations(layer.clone().headers(Headers::None).layer(service_fn(ok)));
    assert_eq!(silent - bare, 7);
    // The value of `RateLimit`.
    let shown = allocations(layer.layer(service_fn(ok)));
    assert_eq!(shown - silent, 1);
}

#[test]
fn a_pending_answer_costs_no_allocation_but_the_stores() {
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000);
    let near = allocations(
        layer
            .clone()
            .store(MemoryStore::new())
            .layer(service_fn(ok)),
    );
    let far = far(std::time::Duration::ZERO);
    // The store's future.
    let far = allocations(layer.store(far).layer(service_fn(ok)));
    assert_eq!(far - near, 1);
}

/// They are the boxed future of `Resilient`; the place for the reply, the call and its flight; the
/// charge, and the extensions of the request and of the response with it.
#[test]
fn a_lone_take_on_redis_allocates_little() {
    let server = kit::Redis::start();
    let runtime = still_runtime();
    let store = runtime.block_on(store_on(&server));
    let bare = allocations_on(&runtime, service_fn(text), routed);
    let (client, command) = median_by_hand(&server, &runtime);
    let check = |what: &str, layer: RateLimitLayer, most: u64| {
        let whole = allocations_on(&runtime, layer.layer(service_fn(text)), routed);
        let own = whole - bare - client - command;
        println!("{what}: {whole} = {bare} service + {command} command + {client} client + {own}");
        assert!(own <= most, "{what}: {own}");
    };
    let layer = RateLimitLayer::new("p", WINDOW, 1_000_000);
    let keyed = layer
        .clone()
        .key_by(|_| Ok(tidegate::Key::from("203.0.113.9")));
    let resilient = Resilient::new(store.clone());
    check("bare", layer.clone().store(store.clone()), 6);
    check("resilient", layer.store(resilient.clone()), 7);
    check("bare with a key", keyed.clone().store(store), 7);
    check("resilient with a key", keyed.store(resilient), 9);
}

/// What a script call of the same size allocates without this crate: by the client, and to put the
/// command together.
fn median_by_hand(server: &kit::Redis, runtime: &Runtime) -> (u64, u64) {
    let client = Client::open(&*server.url).expect("a valid address");
    let connection = client.get_multiplexed_async_connection();
    let mut connection = runtime.block_on(connection).expect("a running server");
    let mut load = cmd("SCRIPT");
    load.arg("LOAD").arg("return string.rep('x', 40)");
    let sha = runtime.block_on(load.query_async::<String>(&mut connection));
    let sha = sha.expect("a valid script");
    let mut commands = Vec::new();
    let mut ask = |number: u64| {
        let mut command = Cmd::new();
        commands.push(allocation_counter::measure(|| {
            let (sha, questions) = (&*sha, &[7_u8; 40][..]);
            command.arg("EVALSHA").arg(sha).arg(1);
            command.arg("CurrentLimiter:p").arg(questions).arg(number);
        }));
        let count = allocation_counter::measure(|| {
            let reply = runtime.block_on(connection.req_packed_command(&command));
            assert!(matches!(reply, Ok(Value::BulkString(text)) if text.len() == 40));
        });
        count.count_total
    };
    let client = median((0..100).map(&mut ask).collect());
    let commands = commands.iter().map(|count| count.count_total);
    (client, median(commands.collect()))
}

/// The text of a short key lies in the key, and clones of a long one share its text.
#[test]
fn a_key_costs_no_allocation_if_it_is_short() {
    for (address, cost) in [
        ("203.0.113.9", 0),
        ("2001:db8::7", 0),
        ("2001:db8:1:2:3:4:5:6", 1),
    ] {
        let address: std::net::IpAddr = address.parse().expect("an address");
        let count = allocation_counter::measure(|| {
            let key = tidegate::Key::from(address);
            drop((key.clone(), key));
        });
        assert_eq!(count.count_total, cost, "{address}");
    }
}
