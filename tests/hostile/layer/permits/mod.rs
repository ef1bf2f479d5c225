//! Attacks on requests at a time: callers that leave, answers that are lost, servers that forget,
//! services that fail. In the end no permit is held, and all of them can be had.

mod aborts;
mod losses;
mod rules;
mod servers;
mod services;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use kit::Redis;
use tidegate::layer::{Admitted, Refused};
use tidegate::rule::Policy;
use tidegate::{Key, Limits, MemoryStore, Quota, RedisStore, Rule, Store};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);
/// A permit that leaks lives longer than any test.
const DAY: Duration = Duration::from_secs(86_400);
/// So long that only a bug exceeds it.
const PATIENT: Duration = Duration::from_secs(40);

const fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// So many at a time, with permits that do not end by themselves. Requests have the key `k`, checks
/// their own.
fn at_a_time(max: u64) -> Rule {
    leased(max, DAY)
}

fn leased(max: u64, lease: Duration) -> Rule {
    let rule = Rule::with_policies("p", [Policy::concurrent(max)]).expect("valid");
    let rule = rule.with_key(|_: &http::request::Parts| Ok(Key::from("k")));
    rule.with_permit_lease(lease).expect("valid")
}

/// The same beside a quota.
fn with_quota(units: u32, max: u64) -> Rule {
    let rule = Rule::new("p", [Quota::per_hour(units)]).expect("valid");
    let rule = rule.with_max_concurrent(max).expect("valid");
    let rule = rule.with_key(|_: &http::request::Parts| Ok(Key::from("k")));
    rule.with_permit_lease(DAY).expect("valid")
}

async fn store_at(url: &str, timeout: Duration) -> RedisStore {
    let store = RedisStore::connect(url).await.expect("a running server");
    store.timeout(timeout)
}

/// In memory, and on a server.
async fn stores(server: &Redis) -> [Arc<dyn Store>; 2] {
    let redis = store_at(&server.url, PATIENT).await;
    [Arc::new(MemoryStore::new()), Arc::new(redis)]
}

fn limits(rule: Rule, store: impl Store) -> Limits {
    Limits::new([rule]).store(store)
}

async fn check(limits: &Limits, key: &str) -> Result<Admitted, Refused> {
    limits.check("p", key).await
}

async fn left(limits: &Limits, key: &str) -> u64 {
    let began = Instant::now();
    loop {
        match limits.peek("p", key).await {
            Ok(decision) => return decision.expect("a rule").remaining(),
            // A link that was broken is not replaced yet.
            Err(error) => assert!(began.elapsed() < PATIENT, "{error}"),
        }
        sleep(millis(20)).await;
    }
}

/// The members of all sets of permits on a server.
fn held(server: &Redis) -> u64 {
    let mut connection = server.connection();
    let names = redis::cmd("KEYS").arg("*~permits").query(&mut connection);
    let names: Vec<String> = names.expect("an answer");
    let count = |name| redis::cmd("ZCARD").arg(name).query::<u64>(&mut connection);
    names
        .into_iter()
        .map(count)
        .map(|it| it.expect("a set"))
        .sum()
}

fn run<T: redis::FromRedisValue>(server: &Redis, command: &str) -> T {
    let mut words = command.split_whitespace();
    let mut question = redis::cmd(words.next().expect("a command"));
    words.for_each(|word| {
        question.arg(word);
    });
    let answer = question.query(&mut server.connection());
    answer.unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// Waits until so many permits are held on a server.
async fn until_held(server: &Redis, number: u64) {
    let began = Instant::now();
    while held(server) != number {
        let waits = began.elapsed() < PATIENT;
        assert!(waits, "{} held, not {number}", held(server));
        sleep(millis(5)).await;
    }
}

/// Waits until all of so many permits can be had, and that it is no more than these.
async fn until_free(limits: &Limits, key: &str, max: u64) {
    let began = Instant::now();
    while left(limits, key).await < max {
        assert!(
            began.elapsed() < PATIENT,
            "{} free",
            left(limits, key).await
        );
        sleep(millis(5)).await;
    }
    let mut all = Vec::new();
    for number in 0..max {
        let admitted = check(limits, key).await;
        all.push(admitted.unwrap_or_else(|refused| panic!("{number}: {refused:?}")));
    }
    check(limits, key).await.expect_err("all are held");
    drop(all);
    while left(limits, key).await < max {
        assert!(began.elapsed() < 2 * PATIENT, "they do not come back");
        sleep(millis(5)).await;
    }
}
