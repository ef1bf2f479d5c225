//! Plans, and quotas from code, attacked: never more than the max of the plan that is asked,
//! however plans take turns on a key; nothing that a client says of its plan costs anybody
//! anything.

mod expiry;
mod fleet;
mod histories;
mod many;
mod names;
mod oracle;
mod order;
mod panics;
mod proportion;
mod tables;
mod waits;
mod wrapped;

use kit::clocked::Stores;
use metrics_exporter_prometheus::PrometheusBuilder;
use tidegate::rule::Plan;

use crate::*;

const DAY: Duration = Duration::from_secs(86_400);
const ALGORITHMS: [Algorithm; 4] = Algorithm::ALL;

/// Each is a max and a window.
type Pairs<'a> = &'a [(u64, Duration)];

fn quota((max, window): (u64, Duration)) -> Quota {
    kit::quota(max, window)
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

/// A rule of one quota an hour by `x-key`, with plans of one quota an hour.
fn hourly(path: &str, max: u64, plans: &[(&str, u64)]) -> Rule {
    let rule = of_own(path, &[(max, HOUR)]).with_key(Header::new("x-key"));
    let add = |rule: Rule, (name, max): &(&str, u64)| with_plans(rule, &[(name, &[(*max, HOUR)])]);
    plans.iter().fold(rule, add)
}

/// The rule itself, and what each of its plans makes of it.
fn all_of(rule: Rule) -> Vec<Arc<Rule>> {
    let rule = Arc::new(rule);
    let of_plan = |name| rule.of_plan(name).expect("it has this plan");
    let plans = rule.plans().map(of_plan).collect::<Vec<_>>();
    [vec![Arc::clone(&rule)], plans].concat()
}

fn take_of(rule: &Arc<Rule>, key: &str, cost: u64) -> Take {
    kit::take(rule, key).with_cost(cost)
}

async fn ask(store: &dyn Store, rule: &Arc<Rule>, cost: u64) -> Decision {
    let take = take_of(rule, "x", cost);
    store.take(&take).await.expect("a decision")
}

fn field<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name)?.to_str().ok()
}

/// A request of this plan, and of the key `x-key`.
async fn send(service: &Wrapped, key: &str, plan: Option<&str>) -> Response<Body> {
    let mut request = kit::http::request("/", &format!("x-key: {key}"));
    if let Some(plan) = plan {
        request.extensions_mut().insert(Plan::new(plan));
    }
    let answer = service.clone().oneshot(request).await;
    answer.expect("the service does not fail")
}

async fn status(service: &Wrapped, key: &str, plan: Option<&str>) -> u16 {
    send(service, key, plan).await.status().as_u16()
}

/// How many of so many requests are admitted; the others are denied.
async fn admitted(service: &Wrapped, key: &str, plan: Option<&str>, times: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..times {
        match status(service, key, plan).await {
            200 => admitted += 1,
            status => assert_eq!(status, 429),
        }
    }
    admitted
}

/// Everything of an answer that a client sees.
async fn see(service: &Wrapped, key: &str, plan: Option<&str>) -> String {
    let (head, body) = send(service, key, plan).await.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let mut fields: Vec<_> = head.headers.iter().collect();
    fields.sort_by_key(|(name, _)| name.as_str());
    format!("{:?} {fields:?} {body:?}", head.status)
}

fn published(limits: &Limits) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || limits.publish_metrics());
    recorder.handle().render()
}
