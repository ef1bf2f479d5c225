//! What a request costs on each route: `benches/instructions.sh` runs this program in callgrind,
//! which counts the instructions of each call of [`counted`]. The program prints a line for each of
//! these calls: the route, its allocations and their bytes, all of so many requests as the argument
//! says. The server has one thread; the client has another one, which is not counted.
//!
//! `instructions ask ROUTE FOUND CONNECTIONS REQUESTS URL` asks one route, in front of a Redis in
//! which `benches/server_instructions.py` counts: it says `ready` after as many requests that are not
//! counted, waits for a line, and says how many it has asked.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::routing::{MethodRouter, get};
use axum::{Router, ServiceExt as _};
use http::{Response, StatusCode};
use tidegate::key::Everyone;
use tidegate::layer::Headers;
use tidegate::rule::Subject;
use tidegate::{
    Algorithm, Header, Key, MemoryStore, PeerIp, Quota, RateLimitLayer, RedisStore, Resilient,
    Rule, Store, Take,
};
use tidegate_peers::client::Client;
use tidegate_peers::contenders::{KEY_FIELD, handler};
use tidegate_peers::reference::{Evalsha, patient_connection};
use tidegate_peers::{Result, servers::RedisServer};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;
use tower::layer::util::Identity;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_rate_limiter::{FixedWindow, IpKeyExtractor, RedisStore as RedisCounts};

/// 600,000 requests in 600 seconds: one unit of a bucket comes back in a millisecond.
const MAX: u32 = 600_000;
const WINDOW: Duration = Duration::from_secs(600);
/// Of rules in front of a Redis that is counted: no unit comes back meanwhile.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
const ASKED_KEYS: u32 = 250;
const INTERVAL: Duration = Duration::from_millis(1);
/// Longer than the default, as callgrind makes a program fifty times as slow.
const TIMEOUT: Duration = Duration::from_secs(10);
const WARM_UP: u32 = 1_000;
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nx-key: one\r\n\r\n";
/// The address of the first request.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 100, 100, 100);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [ask, route, found, connections, requests, redis] = &arguments[..]
        && ask == "ask"
    {
        let route = Route::of_redis(route, found)?;
        return route.ask(redis, connections.parse()?, requests.parse()?);
    }
    let [requests] = &arguments[..] else {
        return Err("expected a number".into());
    };
    let requests = requests.parse()?;
    let redis = RedisServer::start(&[])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    for route in Route::all() {
        route.measure(&runtime, &redis.url(), requests)?;
    }
    Ok(())
}

/// Callgrind counts between the entry of this function and its end.
#[inline(never)]
fn counted(run: &mut dyn FnMut()) {
    run();
    std::hint::black_box(());
}

/// What one charge finds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Found {
    KnownKey,
    /// Each request has an address of its own.
    NewKey,
    FullQuota,
}

/// What a layer of this crate tells clients, handlers and other layers.
#[derive(Debug, Clone, Copy)]
enum Shown {
    Both,
    Fields,
    Nothing,
}

#[derive(Debug, Clone, Copy)]
enum Route {
    Plain,
    LayerOfNothing,
    Governor { fields: bool },
    Memory(Algorithm, Found, Shown),
    Joint,
    BareCall,
    Redis(Algorithm, Found),
    Resilient(Option<Duration>),
    TowerRateLimitRedis(Found),
    TowerRateLimiter(Found),
}

impl Route {
    fn all() -> Vec<Self> {
        let mut all = vec![Self::Plain, Self::LayerOfNothing];
        all.extend([false, true].map(|fields| Self::Governor { fields }));
        for algorithm in [Algorithm::Gcra, Algorithm::SlidingLog] {
            for found in [Found::KnownKey, Found::NewKey, Found::FullQuota] {
                let shown = match found {
                    // The answer to a denied request has its extension in any case.
                    Found::FullQuota => &[Shown::Both, Shown::Nothing][..],
                    _ => &[Shown::Both, Shown::Fields, Shown::Nothing],
                };
                let shown = shown.iter();
                all.extend(shown.map(|shown| Self::Memory(algorithm, found, *shown)));
            }
        }
        all.extend([Self::Joint, Self::BareCall]);
        all.extend(
            [Algorithm::Gcra, Algorithm::SlidingLog].map(|it| Self::Redis(it, Found::KnownKey)),
        );
        all.extend([None, Some(TIMEOUT)].map(Self::Resilient));
        all.push(Self::TowerRateLimitRedis(Found::KnownKey));
        all.push(Self::TowerRateLimiter(Found::KnownKey));
        all
    }

    fn of_redis(name: &str, found: &str) -> Result<Self> {
        let found = match found {
            "known" => Found::KnownKey,
            "first" => Found::NewKey,
            _ => Found::FullQuota,
        };
        let algorithm = Algorithm::ALL.iter().find(|it| it.name() == name);
        Ok(match (algorithm, name) {
            (Some(algorithm), _) => Self::Redis(*algorithm, found),
            (None, "tower-rate-limit-redis") => Self::TowerRateLimitRedis(found),
            (None, "tower-rate-limiter") => Self::TowerRateLimiter(found),
            _ => return Err(format!("no route {name}").into()),
        })
    }

    /// What one charge finds.
    fn found(self) -> Found {
        match self {
            Self::Memory(_, found, _) | Self::Redis(_, found) => found,
            Self::TowerRateLimitRedis(found) | Self::TowerRateLimiter(found) => found,
            _ => Found::KnownKey,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Plain => "no layer".into(),
            Self::LayerOfNothing => "a layer that does nothing".into(),
            Self::Governor { fields: false } => "tower_governor 0.8".into(),
            Self::Governor { fields: true } => "tower_governor 0.8, its fields".into(),
            Self::Memory(algorithm, found, shown) => {
                let found = match found {
                    Found::KnownKey => "known key",
                    Found::NewKey => "first charge",
                    Found::FullQuota => "denied",
                };
                let shown = match shown {
                    Shown::Both => "",
                    Shown::Fields => ", no extensions",
                    Shown::Nothing => ", no extensions, no fields",
                };
                format!("memory, {}, {found}{shown}", algorithm.name())
            }
            Self::Joint => "memory, a joint rule of three".into(),
            Self::BareCall => "a bare `EVALSHA` by redis-rs".into(),
            Self::Redis(algorithm, _) => format!("Redis, {}", algorithm.name()),
            Self::Resilient(None) => "Redis, gcra, `Resilient`".into(),
            Self::Resilient(Some(_)) => "Redis, gcra, `Resilient` with a time-out".into(),
            Self::TowerRateLimitRedis(_) => "tower-rate-limit-redis 1.0".into(),
            Self::TowerRateLimiter(_) => "tower-rate-limiter 0.2, fixed window".into(),
        }
    }

    fn measure(self, runtime: &Runtime, redis: &str, requests: u32) -> Result<()> {
        let (server, mut client) = runtime.block_on(async {
            let (server, port) = self.serve(redis, WINDOW, 1).await?;
            Result::Ok((server, Some(Client::connect(port)?)))
        })?;
        // How many of so many requests were answered as expected.
        let mut ask = |requests| {
            let mut taken = client.take().ok_or("the client is lost")?;
            let expected = self.status();
            let (answered, kept) = runtime.block_on(runtime.spawn_blocking(move || {
                let statuses = (0..requests).map(|_| taken.ask(REQUEST));
                let answered = statuses.filter(|it| matches!(it, Ok(it) if *it == expected));
                (answered.count() as u32, taken)
            }))?;
            client = Some(kept);
            Result::Ok(answered)
        };
        ask(WARM_UP)?;
        let (before, mut answered) = (ALLOCATED.get(), Ok(0));
        counted(&mut || answered = ask(requests));
        let after = ALLOCATED.get();
        let answered = answered?;
        if answered != requests {
            return Err(format!("{}: {answered} of {requests} as expected", self.name()).into());
        }
        println!(
            "{}|{}|{}",
            self.name(),
            after.0 - before.0,
            after.1 - before.1
        );
        server.abort();
        Ok(())
    }

    /// The server and its port. Requests come from `known` addresses in turn.
    async fn serve(
        self,
        redis: &str,
        window: Duration,
        known: u32,
    ) -> Result<(JoinHandle<std::io::Result<()>>, u16)> {
        let addresses = match self.found() {
            Found::NewKey => u32::MAX,
            _ => known,
        };
        let next = Arc::new(AtomicU32::new(0));
        let with_address = move |mut request: Request| {
            let number = next.fetch_add(1, Ordering::Relaxed) % addresses;
            let address = Ipv4Addr::from(u32::from(PEER) + number);
            let address = ConnectInfo(SocketAddr::from((address, 40_000)));
            request.extensions_mut().insert(address);
            request
        };
        let router = Router::new().route("/", self.build(redis, window).await?);
        let service = router.map_request(with_address).into_make_service();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let server = tokio::spawn(axum::serve(listener, service).into_future());
        Ok((server, port))
    }

    /// Asks so many requests over so many connections, twice.
    fn ask(self, redis: &str, connections: u32, requests: u32) -> Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let (_server, port) = runtime.block_on(self.serve(redis, WEEK, ASKED_KEYS))?;
        let clients = (0..connections).map(|_| Client::connect(port));
        let mut clients = clients.collect::<Result<Vec<_>>>()?;
        let mut ask_all = || {
            std::thread::scope(|scope| {
                let asking = clients.iter_mut().map(|client| {
                    scope.spawn(move || {
                        let statuses = (0..requests / connections).map(|_| client.ask(REQUEST));
                        let answered =
                            statuses.filter(|it| matches!(it, Ok(it) if *it == self.status()));
                        answered.count()
                    })
                });
                let asking: Vec<_> = asking.collect();
                let answered = asking.into_iter().map(|it| it.join().unwrap_or_default());
                answered.sum::<usize>()
            })
        };
        // A denied route admits the first request of each address.
        ask_all();
        println!("ready");
        std::io::stdin().read_line(&mut String::new())?;
        println!("{}", ask_all());
        Ok(())
    }

    fn status(self) -> u16 {
        match self.found() {
            Found::FullQuota => 429,
            _ => 200,
        }
    }

    async fn build(self, redis: &str, window: Duration) -> Result<MethodRouter> {
        let route = get(handler);
        let quota = Quota::new(window, MAX.into())?;
        Ok(match self {
            Self::Plain => route,
            Self::LayerOfNothing => route.layer(Identity::new()),
            Self::Governor { fields } => {
                let mut config = GovernorConfigBuilder::default();
                config.period(INTERVAL).burst_size(MAX);
                let invalid = "neither the burst nor the period is zero";
                match fields {
                    false => {
                        let config = config.finish().ok_or(invalid)?;
                        route.layer(GovernorLayer::<_, _, Body>::new(config))
                    }
                    true => {
                        let config = config.use_headers().finish().ok_or(invalid)?;
                        route.layer(GovernorLayer::<_, _, Body>::new(config))
                    }
                }
            }
            Self::Memory(algorithm, found, shown) => {
                let quota = match found {
                    Found::FullQuota => Quota::new(WINDOW, 1)?,
                    _ => quota,
                };
                let rule = Rule::new("api", [quota])?.with_algorithm(algorithm);
                let store = Arc::new(MemoryStore::new());
                if found == Found::KnownKey {
                    // A bucket that drains faster than requests come would be a new one each time.
                    let take = Take::new(Arc::new(rule.clone()), Key::from(IpAddr::from(PEER)));
                    store.take(&take.with_cost((MAX - 10_000).into())).await?;
                }
                let layer = RateLimitLayer::from_rule(rule).key(PeerIp).store(store);
                route.layer(match shown {
                    Shown::Both => layer,
                    Shown::Fields => layer.without_extensions(true, true),
                    Shown::Nothing => {
                        let layer = layer.without_extensions(true, true);
                        layer.headers(Headers::None)
                    }
                })
            }
            Self::Joint => {
                let subjects = [
                    Subject::new("address", PeerIp).limit(quota),
                    Subject::new("user", Header::new(KEY_FIELD)).limit(quota),
                    Subject::new("everyone", Everyone).limit(quota),
                ];
                let rule = Rule::joint("api", subjects)?;
                route.layer(RateLimitLayer::from_rule(rule).store(MemoryStore::new()))
            }
            Self::BareCall => route.layer(Evalsha::connect(redis).await?),
            Self::Redis(algorithm, found) => {
                let quota = Quota::new(window, max_of(found).into())?;
                let rule = Rule::new(algorithm.name(), [quota])?.with_algorithm(algorithm);
                let store = RedisStore::connect(redis).await?.timeout(TIMEOUT);
                route.layer(RateLimitLayer::from_rule(rule).key(PeerIp).store(store))
            }
            Self::Resilient(timeout) => {
                let rule = Rule::new("resilient", [quota])?.with_algorithm(Algorithm::Gcra);
                let store = RedisStore::connect(redis).await?.timeout(TIMEOUT);
                let store = Resilient::new(store).timeout(timeout);
                route.layer(RateLimitLayer::from_rule(rule).key(PeerIp).store(store))
            }
            Self::TowerRateLimitRedis(found) => {
                let client = redis032::Client::open(redis)?;
                let connection = client.get_multiplexed_async_connection().await?;
                let layer = tower_rate_limit_redis::RateLimitLayer::builder();
                let layer = layer
                    .conn(connection)
                    .key_resolver(Peer)
                    .capacity(match found {
                        Found::FullQuota => 1,
                        _ => u16::MAX,
                    });
                let interval = window / max_of(found);
                route.layer(layer.emission_interval(interval).build())
            }
            Self::TowerRateLimiter(found) => {
                let store = RedisCounts::new(patient_connection(redis).await?);
                let policy = FixedWindow::new(store, max_of(found).into(), window)?;
                let layer = tower_rate_limiter::RateLimitLayer::builder(IpKeyExtractor::new());
                route.layer(layer.policy_name("api").with_policy(policy).build()?)
            }
        })
    }
}

fn max_of(found: Found) -> u32 {
    match found {
        Found::FullQuota => 1,
        _ => MAX,
    }
}

#[derive(Clone)]
struct Peer;

impl tower_rate_limit_redis::KeyResolver for Peer {
    type Key = String;
    type ErrorBody = Body;

    fn key<T>(&self, request: &Request<T>) -> std::result::Result<String, Response<Body>> {
        match request.extensions().get::<ConnectInfo<SocketAddr>>() {
            Some(peer) => Ok(format!("peer:{}", peer.0.ip())),
            None => {
                let mut response = Response::default();
                *response.status_mut() = StatusCode::BAD_REQUEST;
                Err(response)
            }
        }
    }
}

thread_local! {
    /// How often this thread has allocated, and how many bytes.
    static ALLOCATED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn note(bytes: usize) {
    let (number, all) = ALLOCATED.get();
    ALLOCATED.set((number + 1, all + bytes as u64));
}

// SAFETY: it is the system's allocator, which does all but the counting.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}
