//! Plans, and quotas from code, attacked: never more than the max of the plan that is asked,
//! however plans take turns on a key; nothing that a client says of its plan costs anybody
//! anything.

mod answers;
mod config;
mod expiry;
mod extremes;
mod fleet;
mod histories;
mod leases;
mod many;
mod names;
mod oracle;
mod order;
mod panics;
mod reloads;
mod shadows;
mod tables;
mod wrapped;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use tidegate::rule::{Plan, Quotas};
use tidegate::{Algorithm, Quota, RateLimitLayer, Rule};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

/// Each is a max and a window.
type Pairs<'a> = &'a [(u64, Duration)];

fn quota((max, window): (u64, Duration)) -> Quota {
    Quota::new(window, max).expect("a valid quota")
}

fn quotas(pairs: Pairs<'_>) -> Quotas {
    Quotas::new(pairs.iter().copied().map(quota)).expect("valid quotas")
}

/// A rule of these quotas.
fn of_own(path: &str, own: Pairs<'_>) -> Rule {
    Rule::new(path, own.iter().copied().map(quota)).expect("a valid rule")
}

fn with_plans(rule: Rule, plans: &[(&str, Pairs<'_>)]) -> Rule {
    let add = |rule: Rule, (name, pairs): &(&str, Pairs<'_>)| {
        rule.with_plan(name, quotas(pairs)).expect("a valid plan")
    };
    plans.iter().fold(rule, add)
}

/// The rule itself, and what each of its plans makes of it.
fn all_of(rule: Rule) -> Vec<Arc<Rule>> {
    let rule = Arc::new(rule);
    let of_plan = |name| rule.of_plan(name).expect("it has this plan");
    let plans = rule.plans().map(of_plan).collect::<Vec<_>>();
    [vec![Arc::clone(&rule)], plans].concat()
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::Gcra,
    Algorithm::FixedWindow,
];

/// A layer around a service that has nothing to do.
type Wrapped = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

fn wrap(layer: RateLimitLayer) -> Wrapped {
    let empty = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()));
    BoxCloneSyncService::new(layer.layer(service_fn(empty)))
}

/// A request of this plan, and of the key `x-key`.
fn request(key: &str, plan: Option<&str>) -> Request<Body> {
    let request = Request::get("/").header("x-key", key);
    let mut request = request.body(Body::empty()).expect("a valid request");
    if let Some(plan) = plan {
        request.extensions_mut().insert(Plan::new(plan));
    }
    request
}

async fn send(service: &Wrapped, key: &str, plan: Option<&str>) -> Response<Body> {
    let answer = service.clone().oneshot(request(key, plan)).await;
    answer.expect("the service does not fail")
}

async fn status(service: &Wrapped, key: &str, plan: Option<&str>) -> u16 {
    send(service, key, plan).await.status().as_u16()
}

/// Everything of a response that a client sees.
async fn seen(response: Response<Body>) -> String {
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let mut fields: Vec<_> = head.headers.iter().collect();
    fields.sort_by_key(|(name, _)| name.as_str());
    format!("{:?} {fields:?} {body:?}", head.status)
}
