//! What quotas cost that depend on who asks: an application over Redis with 64 connections of
//! `wrk`, where all requests have one plan, each key has one of three plans, one key has three
//! plans in turn, and one key has 10,000 different quotas in turn. The throughput of each is
//! compared with that of one plan in the same round, of 9 rounds or as many as ROUNDS says. The
//! bench starts a server of its own.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::map_request;
use axum::routing::get;
use kit::Redis;
use redis::{InfoDict, cmd};
use support::{Table, median};
use tidegate::rule::{Plan, Quotas};
use tidegate::{Algorithm, Key, Quota, RateLimitLayer, RedisStore, Rule};
use tokio::net::TcpListener;
use tokio::process::Command;

const KEYS: u64 = 10_000;

/// Who asks, with the number of the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requests {
    OnePlan,
    PlanOfKey,
    PlansInTurn,
    OneKey,
    ManyQuotas,
}

const KINDS: [Requests; 5] = [
    Requests::OnePlan,
    Requests::PlanOfKey,
    Requests::OneKey,
    Requests::PlansInTurn,
    Requests::ManyQuotas,
];

impl Requests {
    const fn path(self) -> &'static str {
        match self {
            Self::OnePlan => "/one-plan",
            Self::PlanOfKey => "/plan-of-key",
            Self::PlansInTurn => "/plans-in-turn",
            Self::OneKey => "/one-key",
            Self::ManyQuotas => "/many-quotas",
        }
    }

    fn key(self, number: u64) -> u64 {
        match self {
            Self::OneKey | Self::PlansInTurn | Self::ManyQuotas => 0,
            Self::OnePlan | Self::PlanOfKey => number.wrapping_mul(2_654_435_761) % KEYS,
        }
    }

    fn plan(self, number: u64) -> &'static str {
        const PLANS: [&str; 3] = ["free", "pro", "enterprise"];
        match self {
            Self::PlanOfKey => PLANS[(self.key(number) % 3) as usize],
            Self::PlansInTurn => PLANS[(number % 3) as usize],
            _ => PLANS[1],
        }
    }
}

fn quotas(max: u64) -> Quotas {
    let quota = Quota::new(Duration::from_secs(60), max).expect("valid");
    Quotas::new([quota]).expect("valid")
}

fn rule(algorithm: Algorithm) -> Rule {
    let quota = Quota::new(Duration::from_secs(60), 1_000_000).expect("valid");
    let rule = Rule::new("api", [quota]).expect("valid");
    let plans = [("free", 1), ("pro", 2), ("enterprise", 3)];
    let with_plan = |rule: Rule, (name, max): (&str, u64)| {
        rule.with_plan(name, quotas(max * 1_000_000))
            .expect("valid")
    };
    let rule = plans
        .into_iter()
        .fold(rule.with_algorithm(algorithm), with_plan);
    rule.with_key(|head: &http::request::Parts| {
        Ok(head.extensions.get::<Key>().cloned().unwrap_or_default())
    })
}

/// Requests a second that `wrk` gets answered, and microseconds of the server for each.
struct Measured {
    throughput: f64,
    micros: f64,
}

/// The application: each kind of requests has a route of its own.
async fn serve(store: &RedisStore, algorithm: Algorithm) -> u16 {
    let given: Vec<_> = (0..10_000)
        .map(|at| tidegate::rule::Plan::from(quotas(1_000_000 + at)))
        .collect();
    let mut app = Router::new();
    for kind in KINDS {
        let layer = RateLimitLayer::from_rule(rule(algorithm)).store(store.clone());
        let given = given.clone();
        let layer = match kind {
            Requests::ManyQuotas => layer.plan_value(move |head| {
                let number = *head.extensions.get::<u64>()?;
                given.get(number as usize % given.len()).cloned()
            }),
            _ => layer,
        };
        let number = Arc::new(AtomicU64::new(0));
        let numbered = map_request(move |mut request: Request| {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let extensions = request.extensions_mut();
            extensions.insert(Key::from(kind.key(number)));
            extensions.insert(Plan::new(kind.plan(number)));
            extensions.insert(number);
            async { request }
        });
        let route = get(async || "1").layer(layer).layer(numbered);
        app = app.route(kind.path(), route);
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async { axum::serve(listener, app).await });
    port
}

async fn measure(server: &Redis, port: u16, kind: Requests) -> Measured {
    let mut connection = server.connection();
    cmd("FLUSHALL").exec(&mut connection).expect("flushes");
    cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(&mut connection)
        .expect("resets");
    let url = format!("http://127.0.0.1:{port}{}", kind.path());
    let wrk = Command::new("wrk")
        .args(["-t1", "-c64", "-d2s", &url])
        .output()
        .await;
    let text = wrk.expect("wrk is installed").stdout;
    let text = String::from_utf8(text).expect("text");
    // A bucket that is new for a key in heavy use begins full.
    let may_deny = kind == Requests::ManyQuotas;
    assert!(may_deny || !text.contains("Non-2xx"), "{text}");
    let number = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        let number = line.and_then(|line| line.trim().parse().ok());
        number.unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let throughput = number("Requests/sec:");
    let info: InfoDict = cmd("INFO")
        .arg("commandstats")
        .query(&mut connection)
        .expect("informs");
    let stats: String = info.get("cmdstat_evalsha").expect("scripts were called");
    let mut pairs = stats.split(',');
    let micros = pairs.find_map(|pair| pair.strip_prefix("usec=")?.parse::<f64>().ok());
    Measured {
        throughput,
        micros: micros.expect("a time") / (throughput * 2.0),
    }
}

#[tokio::main]
async fn main() {
    let server = Redis::start();
    let store = RedisStore::connect(server.url.as_str()).await;
    let store = store.expect("connects").timeout(Duration::from_secs(5));
    let mut table = Table::new(&[
        "64 connections, requests a second; µs of Redis for each",
        "10,000 keys, one plan",
        "a plan for each key, to that",
        "one key, one plan",
        "three plans in turn, to that",
        "10,000 quotas in turn, to that",
    ]);
    for algorithm in Algorithm::ALL {
        let port = serve(&store, algorithm).await;
        let mut measured: Vec<Vec<Measured>> = KINDS.iter().map(|_| Vec::new()).collect();
        for _ in 0..support::number_of_rounds(9) {
            for (kind, measured) in KINDS.into_iter().zip(&mut measured) {
                measured.push(measure(&server, port, kind).await);
            }
        }
        let micros = |of: usize| median(measured[of].iter().map(|it| it.micros));
        let alone = |of: usize| {
            let throughput = median(measured[of].iter().map(|it| it.throughput));
            format!("{throughput:.0}; {:.1}", micros(of))
        };
        let ratio = |of: usize, to: usize| {
            let both = measured[of].iter().zip(&measured[to]);
            let ratio = median(both.map(|(of, to)| of.throughput / to.throughput));
            format!("{ratio:.2}; {:.1}", micros(of))
        };
        table.row(&[
            algorithm.name().to_owned(),
            alone(0),
            ratio(1, 0),
            alone(2),
            ratio(3, 2),
            ratio(4, 2),
        ]);
    }
    table.print();
}
