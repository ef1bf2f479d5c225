//! A gateway to a language model. Answers stream to the client; each organisation has requests and
//! tokens a minute, and so many requests at a time: what it bought, by a table, or what all have.
//! The model gets what was reserved, whatever a client says. What it bills is charged, also of an
//! answer that the client did not read to its end.
//!
//! `cargo run --example llm_gateway`

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use futures_util::future::join_all;
use futures_util::stream::{Stream, StreamExt, iter};
use tidegate::rule::{Plan, Policy, RuleError};
use tidegate::store::Charges;
use tidegate::{Limits, Quota};
use tokio::time::sleep;
use tower::ServiceExt;

pub(crate) const LIMITS: &str = r#"
    [rules.chat]
    key = "header:x-org"
    max-concurrent = 4
    settles = true                # so a request may wait for what others give back
    cost-above-max = "reserve-max" # an estimate above what an organisation bought
    refund-on = ["5xx"]           # what the model did not answer is free, but for its try
    quotas = [
        { name = "requests", max-count = 60, window = "1m", cost = 1 },
        { name = "tokens", max-count = 1_000, window = "1m" },
    ]

    [rules.tries]                 # no outcome gives these back: a prompt can make the model fail
    key = "header:x-org"
    quotas = [{ max-count = 90, window = "1m", hidden = true }] # clients are not told of it
"#;

/// The fewest tokens to reserve: what a prompt costs, also of a client that leaves at once.
const LEAST: u64 = 50;

/// Those of a request that does not say how many it wants.
const USUAL: u64 = 200;

/// What each organisation bought. A task reads it from the database again, now and then.
pub(crate) type Customers = Arc<RwLock<HashMap<String, Plan>>>;

pub(crate) fn bought(requests: u32, tokens: u32, streams: u64) -> Result<Plan, RuleError> {
    let requests = Policy::new("requests", Quota::per_minute(requests)).with_cost(1);
    let tokens = Policy::new("tokens", Quota::per_minute(tokens));
    Plan::of([requests, tokens, Policy::concurrent(streams)])
}

/// `/chat` is limited, and `/limits` shows an organisation what it has left.
pub(crate) fn gateway(
    limits: &Limits,
    model: &Arc<Model>,
    customers: &Customers,
) -> Result<Router, RuleError> {
    let customers = Arc::clone(customers);
    let limits = limits.clone().plan_value("chat", move |head| {
        let org = head.headers.get("x-org")?.to_str().ok()?;
        customers.read().ok()?.get(org).cloned()
    });
    let layer = limits.layer("chat").cost(estimate);
    let waiting = layer.wait(Duration::from_secs(2));
    let limited = post(chat).layer((limits.layer("tries"), waiting)); // the first is outside
    Ok(Router::new()
        .route("/chat", limited)
        .route("/limits", get(limits.usage(["chat"])?.handler()))
        .with_state(Arc::clone(model)))
}

/// The tokens to reserve, which the model gets.
fn estimate(head: &Parts) -> u64 {
    let said = head.headers.get("x-max-tokens");
    let said = said.and_then(|it| it.to_str().ok()?.parse().ok());
    said.unwrap_or(USUAL).max(LEAST)
}

async fn chat(
    State(model): State<Arc<Model>>,
    head: HeaderMap,
    charges: Charges,
    prompt: String,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, StatusCode> {
    let org = head.get("x-org").and_then(|it| it.to_str().ok());
    let tokens = charges.of("chat");
    // The model's `max_tokens`: what was reserved, never more.
    let reserved = tokens.first().map_or(USUAL, |it| it.take().cost());
    let answer = model.ask(org.unwrap_or_default(), &prompt, reserved);
    let answer = answer.ok_or(StatusCode::BAD_GATEWAY)?;
    // It settles when the response is dropped: at its end, or when the client has left.
    let meter = tokens.meter();
    Ok(Sse::new(answer.map(move |(text, tokens)| {
        meter.add(tokens);
        Ok(Event::default().data(text))
    })))
}

/// Stands for a model, which counts up to the number in the prompt, and its bills.
#[derive(Debug, Default)]
pub(crate) struct Model(Mutex<HashMap<String, u64>>);

impl Model {
    fn ask(
        self: Arc<Self>,
        org: &str,
        prompt: &str,
        max_tokens: u64,
    ) -> Option<impl Stream<Item = (String, u64)> + use<>> {
        let (org, end) = (org.to_owned(), prompt.parse::<u64>().ok()?);
        let numbers = iter(1..=end.min(max_tokens / 10)).then(async |number| {
            sleep(Duration::from_millis(20)).await;
            number
        });
        Some(numbers.map(move |number| {
            *self.bills().entry(org.clone()).or_default() += 10;
            (number.to_string(), 10)
        }))
    }

    /// How many tokens each organisation has used.
    pub(crate) fn bills(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a request, and leaves after so many events of the answer.
pub(crate) async fn send(
    app: &Router,
    org: &str,
    prompt: &str,
    max_tokens: u64,
    events: usize,
) -> StatusCode {
    let request = Request::post("/chat").header("x-org", org);
    let request = request.header("x-max-tokens", max_tokens);
    let request = request.body(Body::from(prompt.to_owned()));
    let Ok(response) = app.clone().oneshot(request.expect("valid")).await;
    let status = response.status();
    let answer = response.into_body().into_data_stream();
    answer.take(events).for_each(async |_| ()).await;
    status
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = Limits::from_toml(LIMITS)?;
    let model = Arc::new(Model::default());
    let customers = Customers::default();
    let app = gateway(&limits, &model, &customers)?;
    for (what, times, prompt, max_tokens, events) in [
        ("the model fails", 1, "ten", 200, 10),
        ("five, of which one waits", 5, "10", 200, 10),
        ("leaves after three messages", 1, "10", 200, 3),
        ("reserves 60 tokens, wants 600", 1, "60", 60, 60),
        ("after that", 1, "10", 200, 10),
        ("buys ten times as much", 5, "10", 200, 10),
    ] {
        if what.starts_with("buys") {
            let mut customers = customers.write().map_err(|error| error.to_string())?;
            customers.insert("acme".to_owned(), bought(600, 10_000, 20)?);
        }
        let send = |_| send(&app, "acme", prompt, max_tokens, events);
        let answers = join_all((0..times).map(send)).await;
        let rule = &limits.snapshot().rules[0];
        let charged = rule.units + rule.owed_units - rule.refunded_units;
        let billed = model.bills().get("acme").copied().unwrap_or(0);
        println!("{what}: {answers:?}. In all {billed} tokens billed, {charged} charged");
    }
    Ok(())
}
