//! What quotas cost that depend on who asks: requests through a layer over Redis, 64 at a time and
//! without sockets of clients, where all have one plan, each key has one of three plans, one key has
//! three plans in turn, and one key has 10,000 different quotas in turn. The throughput of each is
//! compared with that of one plan in the same round. The bench starts a server of its own.

mod support;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use futures_util::future::join_all;
use http::{Request, Response};
use redis::cmd;
use support::{Table, median};
use test_support::Redis;
use tidegate::rule::{Plan, Quotas};
use tidegate::{Algorithm, Key, Quota, RateLimitLayer, RedisStore, Rule};
use tower::{Layer, Service, ServiceExt, service_fn};

const AT_ONCE: usize = 64;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(1_500);
const KEYS: u64 = 10_000;

/// Who asks, with the number of the request.
#[derive(Clone, Copy)]
enum Requests {
    OnePlan,
    PlanOfKey,
    PlansInTurn,
    OneQuotasOfKey,
    ManyQuotas,
}

impl Requests {
    fn key(self, number: u64) -> u64 {
        match self {
            Self::PlansInTurn | Self::ManyQuotas => 0,
            Self::OnePlan | Self::PlanOfKey => number.wrapping_mul(2_654_435_761) % KEYS,
            Self::OneQuotasOfKey => 0,
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
    let quota = Quota::new(Duration::from_secs(60), 1_000_000_000).expect("valid");
    let rule = Rule::new("api", [quota]).expect("valid");
    let plans = [("free", 1_000), ("pro", 10_000), ("enterprise", 100_000)];
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

async fn throughput(layer: &RateLimitLayer, requests: Requests) -> f64 {
    let service =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let service = layer.layer(service);
    let number = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let clients = (0..AT_ONCE).map(|_| {
        let (mut service, number) = (service.clone(), Arc::clone(&number));
        async move {
            while began.elapsed() < ROUND {
                let number = number.fetch_add(1, Ordering::Relaxed);
                let mut request = Request::new(Body::empty());
                let extensions = request.extensions_mut();
                extensions.insert(Key::from(requests.key(number)));
                extensions.insert(Plan::new(requests.plan(number)));
                extensions.insert(number);
                let service = service.ready().await.expect("ready");
                let response = service.call(request).await.expect("cannot fail");
                assert!(response.status().is_success(), "{}", response.status());
            }
        }
    });
    join_all(clients).await;
    number.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Redis::start();
    let store = RedisStore::connect(server.url.as_str()).await;
    let store = store.expect("connects").timeout(Duration::from_secs(5));
    let kinds = [
        Requests::OnePlan,
        Requests::PlanOfKey,
        Requests::OneQuotasOfKey,
        Requests::PlansInTurn,
        Requests::ManyQuotas,
    ];
    let mut table = Table::new(&[
        "requests a second, 64 at a time",
        "10,000 keys, one plan",
        "a plan for each key, to that",
        "one key, one plan",
        "three plans in turn, to that",
        "10,000 quotas in turn, to that",
    ]);
    for algorithm in Algorithm::ALL {
        let plain = RateLimitLayer::from_rule(rule(algorithm)).store(store.clone());
        let given: Vec<_> = (0..10_000)
            .map(|at| Arc::new(quotas(1_000_000_000 + at)))
            .collect();
        let many = RateLimitLayer::from_rule(rule(algorithm)).store(store.clone());
        let many = many.quotas(move |head| {
            let number = *head.extensions.get::<u64>()?;
            given.get(number as usize % given.len()).cloned()
        });
        let mut rounds = vec![Vec::new(); kinds.len()];
        for _ in 0..ROUNDS {
            for (kind, measured) in kinds.iter().zip(&mut rounds) {
                cmd("FLUSHALL")
                    .exec(&mut server.connection())
                    .expect("flushes");
                let layer = match kind {
                    Requests::ManyQuotas => &many,
                    _ => &plain,
                };
                measured.push(throughput(layer, *kind).await);
            }
        }
        let ratio = |of: usize, to: usize| {
            let ratios = rounds[of].iter().zip(&rounds[to]).map(|(of, to)| of / to);
            format!("{:.2}", median(ratios))
        };
        table.row(&[
            algorithm.name().to_owned(),
            format!("{:.0}", median(rounds[0].clone())),
            ratio(1, 0),
            format!("{:.0}", median(rounds[2].clone())),
            ratio(3, 2),
            ratio(4, 2),
        ]);
    }
    table.print();
}
