//! What a refund costs while most takes are given back: 2,000 takes a second of one key, each by a
//! handler of 10 s, and 90 % of them given back at its end. For each algorithm: the server's time
//! for each refund and each take, the memory of the key with and without refunds, and the time of a
//! refund in a memory store. The bench starts a server of its own.

mod support;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use kit::Redis;
use kit::random::Random;
use redis::{Connection, InfoDict, cmd};
use support::Table;
use tidegate::decision::Receipt;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Key, MemoryStore, Quota, RedisStore, Rule, Store, Take};

/// Takes of 100 ms: they come in pairs, a millisecond apart.
const AT_ONCE: usize = 200;
const HANDLER: usize = 20_000;
const TAKES: usize = 60_000;

/// When a take is given back.
#[derive(Clone, Copy)]
enum Handlers {
    /// Never.
    Keep,
    /// All after 10 s.
    Constant,
    /// After 10 s on average, in any order.
    Random,
}

/// Microseconds of a call of either kind, and bytes of the keys in the end.
struct Measured {
    take: f64,
    refund: f64,
    given_back: f64,
    bytes: u64,
}

/// The server's time in script calls since the last question.
fn script_micros(connection: &mut Connection) -> f64 {
    let info: InfoDict = cmd("INFO")
        .arg("commandstats")
        .query(connection)
        .expect("informs");
    let stats: Option<String> = info.get("cmdstat_evalsha");
    let usec = stats.as_deref().and_then(|stats| {
        let usec = stats
            .split(',')
            .find_map(|pair| pair.strip_prefix("usec="))?;
        usec.parse().ok()
    });
    cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(connection)
        .expect("resets");
    usec.unwrap_or(0.0)
}

async fn run(
    store: &dyn Store,
    clock: &ManualClock,
    algorithm: Algorithm,
    handlers: Handlers,
    mut micros: impl FnMut() -> f64,
) -> Measured {
    let minute = Duration::from_secs(60);
    let quota = match algorithm {
        // It drains more slowly than takes come.
        Algorithm::Gcra => Quota::new(minute, 30_000).and_then(|quota| quota.with_burst(200_000)),
        _ => Quota::new(minute, 1_000_000),
    };
    let rule = Rule::new("p", [quota.expect("valid")]).expect("valid");
    let take = Take::new(
        Arc::new(rule.with_algorithm(algorithm)),
        Key::from("192.168.10.21"),
    );
    let mut random = Random::new(1);
    let mut running = VecDeque::<Receipt>::new();
    let (mut takes, mut refunds) = ((0.0, 0), (0.0, 0));
    let mut given_back = 0;
    for step in 0..TAKES / AT_ONCE {
        micros();
        for _ in 0..AT_ONCE / 2 {
            clock.set(clock.now() + 1_000);
            for decision in try_join_all([store.take(&take), store.take(&take)])
                .await
                .expect("decides")
            {
                running.push_back(decision.receipt().expect("it is allowed"));
            }
        }
        let spent = micros();
        if step * AT_ONCE >= HANDLER {
            takes = (takes.0 + spent, takes.1 + AT_ONCE);
        }
        if step * AT_ONCE < HANDLER || matches!(handlers, Handlers::Keep) {
            continue;
        }
        let mut due = Vec::new();
        for _ in 0..AT_ONCE {
            if matches!(handlers, Handlers::Random) {
                let other = random.below(running.len() as u64) as usize;
                running.swap(0, other);
            }
            let receipt = running.pop_front().expect("as many as came");
            due.extend(random.is(90).then_some(receipt));
        }
        micros();
        let answers = try_join_all(due.iter().map(|receipt| store.refund(&take, receipt))).await;
        given_back += answers.expect("answers").into_iter().sum::<u64>();
        refunds = (refunds.0 + micros(), refunds.1 + due.len());
    }
    Measured {
        take: takes.0 / takes.1 as f64,
        refund: refunds.0 / refunds.1 as f64,
        given_back: given_back as f64 / refunds.1 as f64,
        bytes: 0,
    }
}

fn clock() -> ManualClock {
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_000);
    clock
}

async fn on_redis(server: &Redis, algorithm: Algorithm, handlers: Handlers) -> Measured {
    let mut connection = server.connection();
    cmd("FLUSHALL").exec(&mut connection).expect("flushes");
    let clock = clock();
    let store = RedisStore::connect(server.url.as_str())
        .await
        .expect("connects");
    let store = store.timeout(Duration::from_secs(60)).clock(clock.clone());
    let mut statistics = server.connection();
    let micros = || script_micros(&mut statistics);
    let mut measured = run(&store, &clock, algorithm, handlers, micros).await;
    let keys: Vec<String> = redis::Commands::keys(&mut connection, "*").expect("keys");
    for key in keys {
        let mut usage = cmd("MEMORY");
        let usage = usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        measured.bytes += usage.query::<u64>(&mut connection).expect("the key exists");
    }
    measured
}

async fn in_memory(algorithm: Algorithm, handlers: Handlers) -> Measured {
    let clock = clock();
    let store = MemoryStore::new().clock(clock.clone());
    let mut began = Instant::now();
    let micros = || {
        let spent = began.elapsed().as_secs_f64() * 1e6;
        began = Instant::now();
        spent
    };
    run(&store, &clock, algorithm, handlers, micros).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Redis::start();
    let mut table = Table::new(&[
        "2,000 takes a second of one key, 90 % given back",
        "refund, µs of the server",
        "of a refund, given back",
        "take, µs",
        "take without refunds, µs",
        "bytes",
        "bytes without refunds",
        "refund in memory, µs",
    ]);
    for algorithm in Algorithm::ALL {
        let kept = on_redis(&server, algorithm, Handlers::Keep).await;
        for (name, handlers) in [
            ("10 s", Handlers::Constant),
            ("about 10 s", Handlers::Random),
        ] {
            let redis = on_redis(&server, algorithm, handlers).await;
            let memory = in_memory(algorithm, handlers).await;
            table.row(&[
                format!("{}, handlers of {name}", algorithm.name()),
                format!("{:.1}", redis.refund),
                format!("{:.3}", redis.given_back),
                format!("{:.1}", redis.take),
                format!("{:.1}", kept.take),
                redis.bytes.to_string(),
                kept.bytes.to_string(),
                format!("{:.2}", memory.refund),
            ]);
        }
    }
    table.print();
}
