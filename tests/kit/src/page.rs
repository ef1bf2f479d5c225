//! An app with the page, and those who use it: its views, its operations, and what they answer.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::routing::get;
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};
use tidegate::{Header, Limits, Page, Quota, RedisStore, Resilient, Rule};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::http::number;
use crate::{PATIENT, Redis, millis};

/// Where the page's own browser is.
pub const HOST: &str = "127.0.0.1:3000";
pub const ORIGIN: &str = "http://127.0.0.1:3000";
pub const GET_VIEWS: [&str; 4] = ["now", "hour", "limited", "fleet"];

pub fn hourly(path: &str, max: u32) -> Rule {
    Rule::new(path, [Quota::per_hour(max)]).expect("a valid rule")
}

/// The key of a user of [`App`].
pub fn user(name: &str) -> tidegate::Key {
    Header::new("x-user").key(name)
}

/// What a service of this name counts in.
pub fn store(url: &str, service: &str) -> Resilient<RedisStore> {
    let store = Resilient::redis(url, service).expect("a valid address");
    store.timeout(Duration::from_secs(2))
}

/// A process of the service `shop`, without a page.
pub fn shop(server: &Redis) -> Limits {
    Limits::new([hourly("search", 2)]).store(store(&server.url, "shop"))
}

/// What an operator posts about a user.
pub fn about(name: &str, seconds: u64) -> Value {
    json!({"rule": "search", "key": name, "seconds": seconds})
}

/// How many a list of a view has.
pub fn count(list: &Value) -> Option<usize> {
    list.as_array().map(Vec::len)
}

/// One process: `/search` has two requests an hour for each `x-user`, and the page is at `/limits`.
#[derive(Clone)]
pub struct App {
    pub limits: Limits,
    pub router: Router,
}

impl App {
    /// In memory.
    pub fn new(page: impl FnOnce(Page) -> Page) -> Self {
        Self::keyed(Limits::new([hourly("search", 2)]), page)
    }

    /// Over this server, as the service `shop`.
    pub fn on(server: &Redis, page: impl FnOnce(Page) -> Page) -> Self {
        Self::of_service(&server.url, "shop", page)
    }

    pub fn of_service(url: &str, service: &str, page: impl FnOnce(Page) -> Page) -> Self {
        let limits = Limits::new([hourly("search", 2)]).store(store(url, service));
        Self::keyed(limits, page)
    }

    /// Counts each `x-user`.
    pub fn keyed(limits: Limits, page: impl FnOnce(Page) -> Page) -> Self {
        Self::of(limits.key(Header::new("x-user")), page)
    }

    /// Counts as these limits say.
    pub fn of(limits: Limits, page: impl FnOnce(Page) -> Page) -> Self {
        let router = Router::new()
            .route("/search", get("found").layer(limits.layer("search")))
            .nest_service("/limits", page(limits.page()).router());
        Self { limits, router }
    }

    /// With a route for each rule. `x-user` of a request is the key, if the rule names no other,
    /// `x-plan` the plan and `x-cost` the cost.
    pub fn of_rules(limits: Limits, page: impl FnOnce(Page) -> Page) -> Self {
        Self::waiting(limits, Duration::ZERO, page)
    }

    /// The same, in which requests wait so long.
    pub fn waiting(limits: Limits, wait: Duration, page: impl FnOnce(Page) -> Page) -> Self {
        let limits = limits.key(Header::new("x-user"));
        let limits = limits.plan(|head| head.headers.get("x-plan")?.to_str().ok());
        let mut router = Router::new().nest_service("/limits", page(limits.page()).router());
        for rule in limits.rules().load().iter() {
            let (layer, cost) = (limits.layer(rule.path()), rule.cost());
            let layer = layer.cost(move |it| number(&it.headers, "x-cost").unwrap_or(cost));
            let layer = match wait.is_zero() {
                true => layer,
                false => layer.wait(wait),
            };
            router = router.route(&format!("/{}", rule.path()), get("found").layer(layer));
        }
        Self { limits, router }
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        send(&self.router, request).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(empty(Method::GET, path)).await
    }

    /// The answer to a question for a view, as it was sent.
    pub async fn get_view(&self, view: &str) -> Answer {
        self.get(&format!("/limits/api/{view}")).await
    }

    pub async fn view(&self, view: &str) -> Value {
        self.get_view(view).await.expect_ok(view)
    }

    pub async fn post(&self, what: &str, body: impl ToString) -> Answer {
        self.send(posted(what, body.to_string())).await
    }

    /// Posts what has to be done.
    pub async fn done(&self, what: &str, body: impl ToString) -> Value {
        let body = body.to_string();
        let case = format!("{what} {body:.200}");
        self.post(what, body).await.expect_ok(&case)
    }

    /// Posts what has to be refused, and returns the reason.
    pub async fn refused(&self, what: &str, body: impl ToString) -> String {
        let body = body.to_string();
        let case = format!("{what} {body:.200}");
        self.post(what, body).await.expect_refusal(&case)
    }

    pub async fn search(&self, name: &str) -> u16 {
        self.send(search(name)).await.status
    }

    /// The user is let through, or no longer after 0 seconds.
    pub async fn let_through(&self, name: &str, seconds: u64) -> Value {
        self.done("let-through", about(name, seconds)).await
    }

    /// What the page says of the user.
    pub async fn look(&self, name: &str) -> Value {
        self.done("key", about(name, 0)).await
    }

    /// Its key is limited now.
    pub async fn use_up(&self, name: &str) {
        while self.search(name).await != 429 {}
    }

    /// Waits until this view satisfies it, at most so long.
    pub async fn wait(&self, view: &str, most: Duration, holds: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let seen = self.view(view).await;
            if holds(&seen) {
                return seen;
            }
            assert!(began.elapsed() < most, "after {most:?}: {seen:#}");
            sleep(millis(50)).await;
        }
    }

    /// Waits until this view satisfies it.
    pub async fn until(&self, view: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.wait(view, PATIENT, holds).await
    }

    /// Waits until it has reported to its Redis.
    pub async fn in_fleet(&self) {
        self.until("fleet", |fleet| {
            fleet["redis_answers"] == true && fleet["processes"] != json!([])
        })
        .await;
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: HeaderMap,
    pub text: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn field(&self, name: &str) -> &str {
        let value = self.head.get(name).map(|value| value.to_str());
        value.transpose().expect("text").unwrap_or_default()
    }

    /// Refused for a reason that is said, in JSON.
    #[track_caller]
    pub fn expect_refusal(&self, case: &str) -> String {
        let is_client_error = (400..500).contains(&self.status);
        assert!(is_client_error, "{case}: {self:?}");
        let error = self.json()["error"].as_str().map(str::to_owned);
        error.unwrap_or_else(|| panic!("{case}: it says nothing: {self:?}"))
    }

    #[track_caller]
    pub fn expect_ok(&self, case: &str) -> Value {
        assert_eq!(self.status, 200, "{case}: {self:?}");
        self.json()
    }
}

pub async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await;
    let (head, body) = response.expect("routers do not fail").into_parts();
    let body = to_bytes(body, 1 << 26).await.expect("a body");
    Answer {
        status: head.status.as_u16(),
        head: head.headers,
        text: String::from_utf8_lossy(&body).into_owned(),
    }
}

/// A request of this user to `/search`.
pub fn search(name: &str) -> Request<Body> {
    let request = Request::get("/search").header("x-user", name);
    request.body(Body::empty()).expect("a request")
}

pub fn empty(method: Method, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("host", HOST).body(Body::empty());
    request.expect("a request")
}

/// As the page's own script sends it.
pub fn posted(what: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(format!("/limits/api/{what}"))
        .header("content-type", "application/json")
        .header("x-tidegate", "1")
        .header("host", HOST)
        .header("origin", ORIGIN);
    request.body(body.into()).expect("a request")
}
