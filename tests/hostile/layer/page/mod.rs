//! The page under attack: other sites, readers who may not change anything, text that an attacker
//! chose, broken requests, broken stores, floods. By the page's contract, from outside.

mod acl;
mod addresses;
mod blocked;
mod bodies;
mod fleet;
mod guard;
mod let_through;
mod limited;
mod pollers;
mod script;
mod secrets;
mod shared;
mod slow;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use http::{HeaderMap, Method, Request, StatusCode, request};
use kit::Redis;
use serde_json::{Value, json};
use tidegate::{Header, Limits, Page, Quota, Resilient, Rule};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

/// Where the page's own browser is.
const HOST: &str = "127.0.0.1:3000";
const ORIGIN: &str = "http://127.0.0.1:3000";
/// So long that only a bug exceeds it.
const PATIENT: Duration = Duration::from_secs(20);
/// What a busy machine may add to a bound of seconds.
const SLACK: Duration = Duration::from_secs(3);
const GET_VIEWS: [&str; 4] = ["now", "hour", "limited", "fleet"];

/// One process: `/search` has two requests an hour for each `x-user`, and the page is at `/limits`.
#[derive(Clone)]
struct App {
    limits: Limits,
    router: Router,
}

fn hourly(path: &str, max: u32) -> Rule {
    Rule::new(path, [Quota::per_hour(max)]).expect("a valid rule")
}

fn user(name: &str) -> tidegate::Key {
    Header::new("x-user").key(name)
}

impl App {
    /// In memory.
    fn new(page: impl FnOnce(Page) -> Page) -> Self {
        Self::of(Limits::new([hourly("search", 2)]), page)
    }

    /// Over this server, as the service `shop`.
    fn on(server: &Redis, page: impl FnOnce(Page) -> Page) -> Self {
        Self::of_service(&server.url, "shop", page)
    }

    fn of_service(url: &str, service: &str, page: impl FnOnce(Page) -> Page) -> Self {
        let limits = Limits::new([hourly("search", 2)]).store(store(url, service));
        Self::of(limits, page)
    }

    fn of(limits: Limits, page: impl FnOnce(Page) -> Page) -> Self {
        let limits = limits.key(Header::new("x-user"));
        let router = Router::new()
            .route("/search", get("found").layer(limits.layer("search")))
            .nest_service("/limits", page(limits.page()).router());
        Self { limits, router }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        send(&self.router, request).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(empty(Method::GET, path)).await
    }

    async fn view(&self, view: &str) -> Value {
        let answer = self.get(&format!("/limits/api/{view}")).await;
        assert_eq!(answer.status, 200, "{view}: {}", answer.text);
        answer.json()
    }

    async fn post(&self, what: &str, body: impl ToString) -> Answer {
        self.send(posted(what, body.to_string())).await
    }

    async fn search(&self, name: &str) -> u16 {
        let request = Request::get("/search").header("x-user", name);
        let request = request.body(Body::empty()).expect("a request");
        self.send(request).await.status
    }

    async fn let_through(&self, name: &str, seconds: u64) -> Answer {
        self.post(
            "let-through",
            json!({"rule": "search", "key": name, "seconds": seconds}),
        )
        .await
    }

    /// Its key is limited now.
    async fn use_up(&self, name: &str) {
        while self.search(name).await != 429 {}
    }

    async fn used(&self, name: &str) -> u64 {
        let left = self.limits.peek("search", user(name)).await;
        2 - left.expect("an answer").expect("a rule").remaining()
    }

    /// Waits until this view satisfies it, at most so long.
    async fn wait(&self, view: &str, most: Duration, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let seen = self.view(view).await;
            if holds(&seen) {
                return seen;
            }
            assert!(began.elapsed() < most, "after {most:?}: {seen:#}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until it has reported to its Redis.
    async fn in_fleet(&self) {
        self.wait("fleet", PATIENT, |fleet| {
            fleet["redis_answers"] == true && fleet["processes"] != json!([])
        })
        .await;
    }
}

fn store(url: &str, service: &str) -> Resilient<tidegate::RedisStore> {
    let store = Resilient::redis(url, service).expect("a valid address");
    store.timeout(Duration::from_secs(2))
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: HeaderMap,
    text: String,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn field(&self, name: &str) -> &str {
        let value = self.head.get(name).map(|value| value.to_str());
        value.transpose().expect("text").unwrap_or_default()
    }

    /// Refused for a reason that is said, in JSON.
    #[track_caller]
    fn expect_refusal(&self, case: &str) -> String {
        let is_client_error = (400..500).contains(&self.status);
        assert!(is_client_error, "{case}: {self:?}");
        let error = self.json()["error"].as_str().map(str::to_owned);
        error.unwrap_or_else(|| panic!("{case}: it says nothing: {self:?}"))
    }

    #[track_caller]
    fn expect_ok(&self, case: &str) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{case}: {self:?}");
        self.json()
    }
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await;
    let (head, body) = response.expect("routers do not fail").into_parts();
    let body = to_bytes(body, 1 << 26).await.expect("a body");
    Answer {
        status: head.status.as_u16(),
        head: head.headers,
        text: String::from_utf8_lossy(&body).into_owned(),
    }
}

fn empty(method: Method, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request
        .header("host", HOST)
        .body(Body::empty())
        .expect("a request")
}

/// As the page's own script sends it.
fn posted(what: &str, body: impl Into<Body>) -> Request<Body> {
    genuine(what).body(body.into()).expect("a request")
}

fn genuine(what: &str) -> request::Builder {
    Request::post(format!("/limits/api/{what}"))
        .header("content-type", "application/json")
        .header("x-tidegate", "1")
        .header("host", HOST)
        .header("origin", ORIGIN)
}
