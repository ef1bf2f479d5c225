//! Rules, takes, apps and commands that tests of all subjects use.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use futures_util::FutureExt;
use futures_util::future::{TryJoinAll, try_join_all};
use tempfile::TempDir;
use tidegate::layer::SubjectKeys;
use tidegate::store::StoreFuture;
use tidegate::{
    Algorithm, Decision, Key, Limits, MemoryStore, Quota, RateLimitLayer, RedisStore, Rule, Rules,
    Store, StoreError, Take,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::Redis;
use crate::http::{self, Answer};
use crate::proxy::{Mode, Proxy};

/// The default of `RedisStore::timeout`.
pub const TIMEOUT: Duration = Duration::from_millis(50);
/// So long that only a bug exceeds it.
pub const PATIENT: Duration = Duration::from_secs(20);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3_600);

/// By this machine's clock, which is that of its servers.
pub fn unix_micros() -> u64 {
    let elapsed = std::time::SystemTime::UNIX_EPOCH.elapsed();
    u64::try_from(elapsed.expect("after 1970").as_micros()).expect("before the year 500,000")
}

/// The algorithm of this name.
pub fn algorithm(name: &str) -> Algorithm {
    let mut all = Algorithm::ALL.into_iter();
    all.find(|known| known.name() == name).expect("one of them")
}

pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(window, max).expect("a valid quota")
}

/// A rule of one quota.
pub fn owned_rule(path: &str, max: u64, window: Duration) -> Rule {
    Rule::new(path, [quota(max, window)]).expect("a valid rule")
}

pub fn per_minute(path: &str, max: u64) -> Rule {
    owned_rule(path, max, Duration::from_secs(60))
}

pub fn per_hour(path: &str, max: u64) -> Rule {
    owned_rule(path, max, HOUR)
}

/// A rule that no test uses up.
pub fn roomy(path: &str) -> Rule {
    per_hour(path, 1_000_000).with_algorithm(Algorithm::Gcra)
}

/// The same as [`owned_rule`], shared by takes.
pub fn rule(path: &str, max: u64, window: Duration) -> Arc<Rule> {
    Arc::new(owned_rule(path, max, window))
}

/// An app whose only route is `/`, behind this layer. It answers `1`.
pub fn app(layer: RateLimitLayer) -> Router {
    Router::new().route("/", any(async || "1").layer(layer))
}

/// The same on a path. It answers `handled`.
pub fn app_at(path: &str, layer: RateLimitLayer) -> Router {
    Router::new().route(path, any(async || "handled").layer(layer))
}

/// An app of several routes, each behind the layer of the rule of that name.
pub fn app_of(limits: &Limits, paths: &[&str]) -> Router {
    paths.iter().fold(Router::new(), |app, path| {
        let handler = any(async || "1").layer(limits.layer(path));
        app.route(&format!("/{path}"), handler)
    })
}

pub fn take(rule: &Arc<Rule>, key: impl Display) -> Take {
    Take::new(Arc::clone(rule), Key::from(key.to_string().as_str()))
}

/// A proxy before the server that adds this much to every round trip.
pub async fn behind(server: &Redis, round_trip: Duration) -> Proxy {
    let proxy = Proxy::start(&server.url).await;
    proxy.all(Mode::Delay {
        calls: round_trip / 2,
        replies: round_trip / 2,
    });
    proxy
}

/// Asks all of them before any answer can come, in this order.
pub fn ask_all(store: &dyn Store, takes: &[Take]) -> TryJoinAll<StoreFuture<Decision>> {
    try_join_all(takes.iter().map(|take| store.take(take)))
}

pub async fn connect(url: &str, timeout: Duration) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a running server");
    let store = store.timeout(timeout);
    let patient = store.clone().timeout(PATIENT);
    let first = take(&rule("first", 1_000_000, HOUR), "");
    patient.take(&first).await.expect("a first decision");
    store
}

/// A store with a time-out that only a hanging server exceeds, not a busy machine.
pub async fn store_on(server: &Redis) -> RedisStore {
    let store = RedisStore::connect(&server.url).await;
    store.expect("a running server").timeout(PATIENT)
}

/// What is charged under this key by now.
pub async fn charged(store: &RedisStore, take: &Take) -> u64 {
    let store = store.clone().timeout(PATIENT);
    let decision = store.peek(take).await.expect("a decision");
    take.quotas()[0].max() - decision.remaining()
}

/// A command of words.
pub fn run(server: &Redis, command: &str) {
    try_run(server, command).unwrap_or_else(|error| panic!("{command}: {error}"));
}

pub fn try_run(server: &Redis, command: &str) -> redis::RedisResult<()> {
    crate::server::words(command).exec(&mut server.connection())
}

/// The server lets nobody in without a password as of now, but this connection.
pub fn lock_out(server: &Redis) -> redis::Connection {
    run(server, "CONFIG SET requirepass s3cret");
    let mut admin = server.connection_with_password("s3cret");
    let kill = crate::server::words("CLIENT KILL TYPE normal SKIPME yes").exec(&mut admin);
    kill.expect("kills");
    admin
}

/// It lets everybody in again.
pub fn let_in(admin: &mut redis::Connection) {
    let mut set = crate::server::words("CONFIG SET requirepass");
    set.arg("").exec(admin).expect("is set");
}

/// What a command of words answers.
///
/// # Panics
///
/// If it is an error.
pub fn query<T: redis::FromRedisValue>(server: &Redis, command: &str) -> T {
    server.run(command)
}

/// The names of the keys that fit a pattern.
pub fn keys(server: &Redis, pattern: &str) -> Vec<String> {
    query(server, &format!("KEYS {pattern}"))
}

/// How often the server has executed this command, also by scripts.
pub fn calls(server: &Redis, command: &str) -> u64 {
    server.calls(&[command])
}

/// Names of limiters and locks that are hard to bear.
pub fn odd_names() -> Vec<String> {
    let names = [
        " ",
        "{",
        "}",
        "{}",
        "}{",
        "{a}",
        "{a}b",
        "a{b}c",
        "{a}{b}",
        "{{a}}",
        "a}b{c",
        "a:b",
        "ä€😀",
        "a\0b",
        "a\r\nb",
        "*",
        "%s",
        "[",
        "a b",
        "a\\",
        "\u{202e}",
        "0",
        "epoch",
    ];
    let long = "long".repeat(5_000);
    names
        .into_iter()
        .chain([&*long])
        .map(str::to_owned)
        .collect()
}

/// The words of a table of cases.
pub fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The answer of a future that has it at once, in no runtime at all.
///
/// # Panics
///
/// If it has none yet.
pub fn at_once<T>(future: impl IntoFuture<Output = T>) -> T {
    let answer = future.into_future().now_or_never();
    answer.expect("the answer is there at once")
}

/// A runtime without a thread, whose time passes only where the test waits.
pub fn paused_runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build();
    runtime.expect("a runtime")
}

/// A file of limits in a folder of its own, which is gone when this is dropped.
#[derive(Debug)]
pub struct LimitsFile {
    pub folder: TempDir,
    pub path: PathBuf,
}

impl LimitsFile {
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("limits.toml");
        let file = Self { folder, path };
        file.write(text);
        file
    }

    pub fn name(&self) -> &str {
        self.path.to_str().expect("a path of text")
    }

    pub fn write(&self, text: impl AsRef<[u8]>) {
        std::fs::write(&self.path, text).expect("is written");
    }

    /// Limits that begin with it.
    pub fn limits(&self) -> Limits {
        Limits::from_file(&self.path).expect("valid")
    }

    /// Writes it, and has it read.
    pub fn reload(&self, limits: &Limits, text: impl AsRef<[u8]>) {
        self.write(text);
        limits.reload(&self.path).expect("valid");
    }
}

/// An allowed take: when it was asked for, and when it was answered.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    pub asked: Instant,
    pub answered: Instant,
}

/// Law 1: whatever was asked for and answered within one window was charged within it.
pub fn check_windows(allowed: &[Allowed], max: u64, window: Duration) {
    for first in allowed {
        let inside = allowed
            .iter()
            .filter(|one| one.asked >= first.asked && one.answered < first.asked + window);
        let inside = inside.count() as u64;
        assert!(inside <= max, "{inside} of at most {max} in one window");
    }
}

pub fn is_allowed(answer: &Result<Decision, StoreError>) -> bool {
    answer.as_ref().is_ok_and(Decision::is_allowed)
}

/// A handle on the server: to Redis, a process of its own.
pub async fn handle(url: &str) -> tidegate::Redis {
    let redis = tidegate::Redis::connect(url)
        .await
        .expect("a running server");
    redis.timeout(PATIENT)
}

/// The same with the default time-out, as most have it.
pub async fn by_default(url: &str) -> tidegate::Redis {
    let redis = tidegate::Redis::connect(url).await;
    redis.expect("a running server")
}

/// A server, a proxy before it that adds this much to every round trip, and a handle on the proxy.
pub async fn far_server(round_trip: Duration) -> (Redis, Proxy, tidegate::Redis) {
    let server = Redis::start();
    let proxy = behind(&server, round_trip).await;
    let redis = handle(&proxy.url).await;
    (server, proxy, redis)
}

/// Runs so many tasks at the same time, and returns what came of each.
pub async fn crowd<F>(number: u64, task: impl Fn(u64) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    crate::in_tasks((0..number).map(task)).await
}

/// Law 4: nothing but these keys stays for ever.
pub fn check_expiries(server: &Redis, kept: &[&str]) {
    let mut connection = server.connection();
    let names: Vec<Vec<u8>> = server.run("KEYS *");
    for name in names {
        let left = redis::cmd("PTTL").arg(&name).query(&mut connection);
        let left: i64 = left.expect("a time");
        let name = String::from_utf8_lossy(&name);
        let is_kept = kept.contains(&&*name);
        assert!(is_kept || left != -1, "law 4: {name} stays for ever");
    }
}

/// Limits of these rules in this store. Requests are counted by their field `x-key`, if their rule
/// says nothing else.
pub fn limits(rules: impl IntoIterator<Item = Rule>, store: impl Store) -> Limits {
    let limits = Limits::new(Rules::from_iter(rules)).store(store);
    limits.key_by(|head| Ok(http::key(head)))
}

/// What each quota has left for this key, or these keys. It charges nothing.
pub async fn left_of_each(limits: &Limits, path: &str, key: impl Into<SubjectKeys>) -> Vec<u64> {
    let decision = limits.peek(path, key).await.expect("an answer");
    let decision = decision.expect("there is a rule");
    let states = decision.quotas().iter();
    states.map(|state| state.remaining()).collect()
}

/// What is left for this key. It charges nothing.
pub async fn left(limits: &Limits, path: &str, key: impl Into<SubjectKeys>) -> u64 {
    let decision = limits.peek(path, key).await.expect("an answer");
    decision.expect("there is a rule").remaining()
}

/// Waits until it is so, while other tasks go on.
///
/// # Panics
///
/// If it is not so after [`PATIENT`], which only a bug exceeds.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENT, "not after {PATIENT:?}: {what}");
        tokio::time::sleep(millis(2)).await;
    }
}

/// The same, and no longer than this, by the clock of tokio.
pub async fn within(bound: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < bound, "not within {bound:?}: {what}");
        tokio::time::sleep(millis(2)).await;
    }
}

/// Limits in one store, and an app in front of them with a route for each rule: what most tests of
/// the layer are about.
#[derive(Debug, Clone)]
pub struct World {
    pub limits: Limits,
    /// A route `/path` for each rule, and behind its layer [`http::handler`].
    pub app: Router,
}

impl World {
    /// Rules in a store, see [`limits`].
    pub fn new(rules: impl IntoIterator<Item = Rule>, store: impl Store) -> Self {
        let rules: Vec<Rule> = rules.into_iter().collect();
        let paths: Vec<_> = rules.iter().map(|rule| rule.path().to_owned()).collect();
        Self::with_layers(limits(rules, store), &paths, |layer| layer)
    }

    /// The same in memory, by the clock of tokio, which a test can pause.
    pub fn paused(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self::new(rules, MemoryStore::new().tokio_clock())
    }

    /// A route for each of these paths, behind a layer that the test may change, as with
    /// [`http::costly`].
    pub fn with_layers(
        limits: Limits,
        paths: &[impl AsRef<str>],
        change: impl Fn(RateLimitLayer) -> RateLimitLayer,
    ) -> Self {
        let app = paths.iter().fold(Router::new(), |app, path| {
            let path = path.as_ref();
            let handler = any(http::handler).layer(change(limits.layer(path)));
            app.route(&format!("/{path}"), handler)
        });
        Self { limits, app }
    }

    /// Sends a request with these fields, as in `x-key: alice, x-cost: 3`, see [`http::ask`].
    pub async fn ask(&self, path: &str, fields: &str) -> Answer {
        http::ask(&self.app, &format!("/{path}"), fields).await
    }

    /// The same in a task of its own, so many milliseconds later.
    pub fn start(&self, at: u64, path: &str, fields: &str) -> JoinHandle<Answer> {
        http::start(&self.app, at, &format!("/{path}"), fields)
    }

    /// The statuses of so many requests, sent one after the other.
    pub async fn statuses(&self, path: &str, fields: &str, times: usize) -> Vec<u16> {
        http::statuses(&self.app, &format!("/{path}"), fields, times).await
    }

    /// What is left for this key. It charges nothing.
    pub async fn left(&self, path: &str, key: impl Into<SubjectKeys>) -> u64 {
        left(&self.limits, path, key).await
    }

    /// What is left once all that was to be given back has been.
    pub async fn left_at_last(&self, path: &str, key: impl Into<SubjectKeys>) -> u64 {
        assert!(self.limits.flush(PATIENT).await, "refunds are answered");
        self.left(path, key).await
    }
}
