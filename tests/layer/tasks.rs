//! Twenty-four tasks that users have. Each is done with the code of its snippet in the guides, in a
//! server on a socket, and counted on a real Redis. Two of them have no test here:
//!
//! - a gRPC server: `peers` and `unary` in tests/grpc, with tonic's own client. There is also the
//!   channel of tonic that paces its own calls;
//! - a ban after repeated denials: the crate cannot do it, because a denial changes nothing in a
//!   store, so a store does not know how many there were.

mod client;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use client::serve;
use http::{HeaderName, StatusCode};
use ipnet::IpNet;
use test_support::Redis;
use tidegate::key::{Bearer, Forwarding, Method};
use tidegate::layer::Refused;
use tidegate::metrics::DecisionOutcome;
use tidegate::rule::{Plan, Quotas};
use tidegate::store::Charges;
use tidegate::{
    ClientIp, Header, KeyExtractor, Limits, MatchedPath, PeerIp, Quota, RateLimitLayer, Rule,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};

use crate::store_on;

const MINUTE: Duration = Duration::from_secs(60);
/// Nothing takes so long, even on a busy machine.
const BOUND: Duration = Duration::from_secs(20);

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// How many requests of a rule were allowed and denied.
fn counted(limits: &Limits, rule: &str) -> (u64, u64) {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(rule).expect("a rule with a layer");
    let of = |outcome| rule.decisions(outcome);
    (of(DecisionOutcome::Allowed), of(DecisionOutcome::Denied))
}

fn per_minute(path: &str, max: u32) -> Rule {
    Rule::new(path, [Quota::per_minute(max)]).expect("valid")
}

/// `/` with a layer around it.
fn limited(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(async || "1").post(async || "1").layer(layer))
}

#[tokio::test]
async fn each_client_address() {
    let redis = Redis::start();
    let login = RateLimitLayer::new("login", Duration::from_secs(60), 5)
        .key(PeerIp)
        .store(store_on(&redis).await);
    let app = Router::new().route("/login", post(async || "welcome").layer(login.clone()));
    let client = serve(app).await;

    assert_eq!(client.statuses("POST /login", &[]).await, [200; 5]);
    let denied = client.send("POST /login", &[], "").await;
    denied.assert_denied("login");
    assert_eq!(
        client.from("127.0.0.2").status("POST /login", &[]).await,
        200
    );
    let counted = login.snapshot().expect("it has a rule");
    assert_eq!(counted.decisions(DecisionOutcome::Allowed), 6);
    assert_eq!(counted.decisions(DecisionOutcome::Denied), 1);
}

#[derive(Clone)]
struct User;

/// Stands for authentication: the fields name the user and the plan.
async fn authenticate(mut request: Request, next: Next) -> Response {
    if request
        .headers()
        .get("x-plan")
        .is_some_and(|plan| plan == "pro")
    {
        request.extensions_mut().insert(Plan::new("pro"));
    }
    if request.headers().contains_key("x-user") {
        request.extensions_mut().insert(User);
    }
    next.run(request).await
}

#[tokio::test]
async fn another_limit_for_each_plan() -> Outcome {
    let redis = Redis::start();
    let limits = Limits::from_toml(
        "
        [rules.api]
        max-count = 2
        window = '1m'
        plans.pro = { max-count = 600, window = '1m' }
        ",
    )?
    .key(Header::new("x-user"))
    .store(store_on(&redis).await);
    let client = serve(limited(limits.layer("api")).layer(from_fn(authenticate))).await;

    assert_eq!(
        client.statuses("GET /", &[("x-user", "acme")]).await,
        [200, 200, 429]
    );
    // An upgrade keeps what was used.
    let pro = [("x-user", "acme"), ("x-plan", "pro")];
    let admitted = client.send("GET /", &pro, "").await;
    let left = admitted.field("ratelimit");
    assert!(left.contains(";r=597;"), "{left}");
    assert_eq!(counted(&limits, "api"), (3, 1));
    let snapshot = limits.snapshot();
    let plan = &snapshot.rule("api").expect("a rule").plans[0];
    assert_eq!((&*plan.name, plan.allowed, plan.denied), ("pro", 1, 0));
    Ok(())
}

#[tokio::test]
async fn limits_of_tenants_from_a_table() -> Outcome {
    let redis = Redis::start();
    let limits = Limits::new([per_minute("api", 1)]).store(store_on(&redis).await);
    let table: Arc<RwLock<HashMap<String, Arc<Quotas>>>> = Arc::default();
    let known = Arc::clone(&table);
    let layer = limits
        .layer("api")
        .key(Header::new("x-tenant"))
        .quotas(move |head| {
            let tenant = head.headers.get("x-tenant")?.to_str().ok()?;
            known.read().ok()?.get(tenant).cloned()
        });
    let client = serve(limited(layer)).await;

    let acme = [("x-tenant", "acme")];
    assert_eq!(client.statuses("GET /", &acme).await, [200, 429]);
    let quotas = Arc::new(Quotas::new([Quota::per_minute(3)])?);
    table
        .write()
        .expect("no panic")
        .insert("acme".to_owned(), quotas);
    assert_eq!(client.statuses("GET /", &acme).await, [200, 200, 429]);
    // The rule's own quota is for those whom the table does not know.
    assert_eq!(
        client.statuses("GET /", &[("x-tenant", "other")]).await,
        [200, 429]
    );
    assert_eq!(counted(&limits, "api"), (4, 3));
    Ok(())
}

#[tokio::test]
async fn only_failed_logins() -> Outcome {
    async fn password_is_right(password: &str) -> bool {
        password == "swordfish"
    }
    async fn login(password: String) -> StatusCode {
        match password_is_right(&password).await {
            true => StatusCode::OK,
            false => StatusCode::UNAUTHORIZED,
        }
    }
    async fn login_by_hand(charges: Charges, password: String) -> StatusCode {
        if !password_is_right(&password).await {
            return StatusCode::UNAUTHORIZED;
        }
        charges.of("by-hand").refund().await.ok();
        StatusCode::OK
    }
    let redis = Redis::start();
    let limits = Limits::from_toml(
        r#"
        [rules.login]
        max-count = 5
        window = "1m"
        key = "peer-ip"
        refund-on = ["2xx", "3xx"]

        [rules.by-hand]
        max-count = 5
        window = "1m"
        key = "peer-ip"
        "#,
    )?
    .store(store_on(&redis).await);
    let app = Router::new()
        .route("/login", post(login).layer(limits.layer("login")))
        .route(
            "/by-hand",
            post(login_by_hand).layer(limits.layer("by-hand")),
        );
    let client = serve(app).await;

    for rule in ["login", "by-hand"] {
        let line = format!("POST /{rule}");
        for _ in 0..7 {
            assert_eq!(client.send(&line, &[], "swordfish").await.status, 200);
            assert!(limits.flush(BOUND).await);
        }
        assert_eq!(client.statuses(&line, &[]).await, [401; 5]);
        client
            .send(&line, &[], "swordfish")
            .await
            .assert_denied(rule);
        assert_eq!(counted(&limits, rule), (12, 1));
        assert_eq!(limits.snapshot().rule(rule).expect("a rule").refunds, 7);
    }
    Ok(())
}

/// An application with `/healthz`, behind a limit for everybody together.
async fn with_health_checks(limits: &Limits) -> client::Client {
    let app = Router::new()
        .route("/", get(async || "1"))
        .route("/healthz", get(async || "ok"))
        .layer(limits.layer("api"));
    serve(app).await
}

#[tokio::test]
async fn skip_health_checks() -> Outcome {
    let file = "
        exempt = { paths = ['/healthz'], methods = ['OPTIONS'] }
        [rules.api]
        max-count = 1
        window = '1m'
        ";
    let in_code = Limits::new([per_minute("api", 1)])
        .exempt(|head| head.uri.path() == "/healthz")
        .exempt(|head| head.method == http::Method::OPTIONS);
    for limits in [Limits::from_toml(file)?, in_code] {
        let redis = Redis::start();
        let limits = limits.store(store_on(&redis).await);
        let client = with_health_checks(&limits).await;
        assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
        let healthy = client.send("GET /healthz", &[], "").await;
        assert_eq!((healthy.status, healthy.field("ratelimit")), (200, ""));
        // No route answers this method: the 405 is the router's, and no limit denied it.
        assert_eq!(client.statuses("OPTIONS /", &[]).await, [405, 405]);
        assert_eq!(counted(&limits, "api"), (1, 1));
    }
    Ok(())
}

#[tokio::test]
async fn allow_the_network_of_the_office() -> Outcome {
    let file = "
        exempt = { networks = ['192.0.2.0/24'] }
        client-ip = { trusted = ['127.0.0.0/8'] }
        [rules.api]
        max-count = 1
        window = '1m'
        ";
    let office: IpNet = "192.0.2.0/24".parse()?;
    let client = ClientIp::behind(["127.0.0.0/8".parse()?]);
    let in_code = Limits::new([per_minute("api", 1)])
        .exempt(move |head| client.address(head).is_ok_and(|ip| office.contains(&ip)));
    for limits in [Limits::from_toml(file)?, in_code] {
        let redis = Redis::start();
        let limits = limits.store(store_on(&redis).await);
        let client = serve(limited(limits.layer("api"))).await;
        let office = [("x-forwarded-for", "192.0.2.7")];
        assert_eq!(client.statuses("GET /", &office).await, [200; 3]);
        // Whoever only says so is not of the office.
        let liar = [("x-forwarded-for", "192.0.2.7, 203.0.113.9")];
        assert_eq!(client.statuses("GET /", &liar).await, [200, 429]);
        assert_eq!(counted(&limits, "api"), (1, 1));
    }
    Ok(())
}

#[tokio::test]
async fn the_api_key_else_the_address() -> Outcome {
    let file = "
        [rules.api]
        key = 'bearer | header:x-api-key | peer-ip'
        max-count = 1
        window = '1m'
        ";
    let in_code =
        Limits::new([per_minute("api", 1)]).key(Bearer.or(Header::new("x-api-key")).or(PeerIp));
    for limits in [Limits::from_toml(file)?, in_code] {
        let redis = Redis::start();
        let limits = limits.store(store_on(&redis).await);
        let client = serve(limited(limits.layer("api"))).await;
        for caller in [
            &[("authorization", "Bearer a")][..],
            &[("authorization", "Bearer b")],
            &[("x-api-key", "a")],
            &[],
        ] {
            assert_eq!(
                client.statuses("GET /", caller).await,
                [200, 429],
                "{caller:?}"
            );
        }
        assert_eq!(client.from("127.0.0.2").status("GET /", &[]).await, 200);
        assert_eq!(counted(&limits, "api"), (5, 4));
    }
    Ok(())
}

#[tokio::test]
async fn a_route_and_a_method() {
    let redis = Redis::start();
    let limits =
        Limits::new([per_minute("write", 1), per_minute("api", 3)]).store(store_on(&redis).await);
    let notes = get(async || "notes").merge(post(async || "noted").layer(limits.layer("write")));
    let app = Router::new()
        .route("/notes", notes)
        .route("/others", get(async || "others"))
        .route_layer(limits.layer("api").key((MatchedPath, Method, PeerIp)));
    let client = serve(app).await;

    assert_eq!(client.status("POST /notes", &[]).await, 200);
    client
        .send("POST /notes", &[], "")
        .await
        .assert_denied("write");
    assert_eq!(client.statuses("GET /notes", &[]).await, [200, 200, 200]);
    client
        .send("GET /notes", &[], "")
        .await
        .assert_denied("api");
    assert_eq!(client.status("GET /others", &[]).await, 200);
    assert_eq!(
        client.from("127.0.0.2").status("GET /notes", &[]).await,
        200
    );
    assert_eq!(counted(&limits, "write"), (1, 1));
    assert_eq!(counted(&limits, "api"), (7, 1));
}

#[tokio::test]
async fn a_json_error_of_your_own() -> Outcome {
    let redis = Redis::start();
    let limits = Limits::new([per_minute("api", 1)])
        .store(store_on(&redis).await)
        .degrade_fn(async |denied| {
            let wait = denied.decision.retry_after().unwrap_or_default();
            let seconds = wait.as_secs_f64().ceil();
            let error = format!(r#"{{"error":"too many requests","again_in":{seconds}}}"#);
            (
                StatusCode::TOO_MANY_REQUESTS,
                [("content-type", "application/json")],
                error,
            )
        });
    let client = serve(limited(limits.layer("api"))).await;

    assert_eq!(client.status("GET /", &[]).await, 200);
    let denied = client.send("GET /", &[], "").await;
    denied.assert_denied("api");
    assert_eq!(denied.field("content-type"), "application/json");
    let error: serde_json::Value = serde_json::from_str(&denied.text)?;
    assert_eq!(error["error"], "too many requests");
    assert_eq!(error["again_in"].to_string(), denied.field("retry-after"));
    assert_eq!(counted(&limits, "api"), (1, 1));
    Ok(())
}

#[tokio::test]
async fn everybody_together_and_each_client() {
    let redis = Redis::start();
    let each = per_minute("each", 2).with_key(PeerIp);
    let all = per_minute("all", 3);
    let limits = Limits::new([each, all]).store(store_on(&redis).await);
    let app = Router::new()
        .route("/", get(async || "1"))
        .layer(limits.layer("all"))
        .layer(limits.layer("each"));
    let client = serve(app).await;

    assert_eq!(client.statuses("GET /", &[]).await, [200, 200]);
    // Denied for itself, it uses up nothing of the others.
    client.send("GET /", &[], "").await.assert_denied("each");
    let other = client.from("127.0.0.2");
    assert_eq!(other.status("GET /", &[]).await, 200);
    let denied = other.send("GET /", &[], "").await;
    assert_eq!(denied.status, 429);
    assert!(
        denied.text.contains("\"violated-policies\":[\"all\"]"),
        "{}",
        denied.text
    );
    assert_eq!(counted(&limits, "each"), (4, 1));
    assert_eq!(counted(&limits, "all"), (3, 1));
}

#[tokio::test]
async fn behind_nginx_a_load_balancer_or_cloudflare() -> Outcome {
    let rule = "[rules.login]\nkey = 'client-ip'\nmax-count = 1\nwindow = '1m'\n";
    let file = |client_ip: &str| Limits::from_toml(&format!("client-ip = {client_ip}\n{rule}"));
    let code = |client: ClientIp| Limits::new([per_minute("login", 1)]).key(client);
    let networks = || Ok::<_, Box<dyn std::error::Error>>(["127.0.0.0/8".parse()?]);
    let field = |name| Forwarding::Header(HeaderName::from_static(name));
    let cloudflare = ClientIp::behind(networks()?).field(field("cf-connecting-ip"));
    let fly = ClientIp::behind_hops(1).field(field("fly-client-ip"));
    for (proxy, name, limits) in [
        (
            "nginx",
            "x-forwarded-for",
            code(ClientIp::behind(networks()?)),
        ),
        (
            "nginx",
            "x-forwarded-for",
            file("{ trusted = ['127.0.0.0/8'] }")?,
        ),
        ("ALB", "x-forwarded-for", code(ClientIp::behind_hops(1))),
        ("ALB", "x-forwarded-for", file("{ hops = 1 }")?),
        ("Cloudflare", "cf-connecting-ip", code(cloudflare)),
        ("Fly.io", "fly-client-ip", code(fly)),
    ] {
        let redis = Redis::start();
        let limits = limits.store(store_on(&redis).await);
        let client = serve(limited(limits.layer("login"))).await;
        for (address, status) in [
            ("203.0.113.9", 200),
            ("203.0.113.9", 429),
            ("203.0.113.1", 200),
        ] {
            // What the client made up itself stands in front of what the proxy has seen.
            let lie = format!("198.51.100.{status}, {address}");
            let value = if name == "x-forwarded-for" {
                &*lie
            } else {
                address
            };
            let fields = [("x-real-ip", "198.51.100.1"), (name, value)];
            assert_eq!(client.status("GET /", &fields).await, status, "{proxy}");
        }
        assert_eq!(counted(&limits, "login"), (2, 1));
    }
    Ok(())
}

#[cfg(feature = "limiter")]
#[tokio::test]
async fn a_job_that_may_call_a_partner() -> Outcome {
    use tidegate::limiter::{RateLimiter, RateType};

    let redis = Redis::start();
    let api = serve(Router::new().route("/", get(async || "1"))).await;
    let began = Instant::now();
    let (mut at, window) = (Vec::new(), Duration::from_millis(500));
    let mut processes = Vec::new();
    for _ in 0..2 {
        let redis = tidegate::Redis::connect(&*redis.url).await?;
        let partner = RateLimiter::new(&redis, "partner").rate(RateType::Overall, 5, window)?;
        processes.push((redis, partner));
    }
    for call in 0..8 {
        let (_, partner) = &processes[call % 2];
        partner.acquire(1).await?;
        at.push(began.elapsed());
        assert_eq!(api.status("GET /", &[]).await, 200);
    }
    // The sixth call has to wait until the first has left the window, whoever makes it.
    assert!(at[5] >= window, "{at:?}");
    assert_eq!(
        processes[0]
            .1
            .stored_rate()
            .await?
            .map(|rate| rate.permits()),
        Some(5)
    );
    Ok(())
}

#[tokio::test]
async fn a_client_that_paces_its_own_calls() -> Outcome {
    let redis = Redis::start();
    let store = Arc::new(store_on(&redis).await);
    let calls = Arc::new(AtomicUsize::new(0));
    let called = Arc::clone(&calls);
    let count = async move || called.fetch_add(1, Ordering::Relaxed).to_string();
    let api = serve(Router::new().route("/", get(count))).await;
    let client = service_fn(move |_: Request| async move {
        let answer = api.send("GET /", &[], "").await;
        Ok::<_, Infallible>(answer.text.into_response())
    });
    let second = Duration::from_secs(1);
    let paced = RateLimitLayer::new("partner", second, 2)
        .wait(Duration::from_secs(5))
        .store(Arc::clone(&store))
        .layer(client);
    let began = Instant::now();
    for _ in 0..3 {
        let answer = paced.clone().oneshot(crate::get("/")).await?;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert!(began.elapsed() >= second);

    // A wait that would be in vain does not begin. It answers by itself: nobody is called.
    let paced = RateLimitLayer::new("another", MINUTE, 1)
        .wait(Duration::from_secs(5))
        .store(store)
        .layer(client);
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let answer = paced.clone().oneshot(crate::get("/")).await?;
        assert_eq!(answer.status(), status);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    Ok(())
}

/// A socket whose messages are lines: what carries them makes no difference to the check.
#[tokio::test]
async fn messages_of_a_socket() -> Outcome {
    async fn chat(limits: Limits, socket: TcpStream, user: &str) -> std::io::Result<()> {
        let mut socket = BufReader::new(socket);
        let mut message = String::new();
        while socket.read_line(&mut message).await? > 0 {
            let answer = match limits.check("chat", user).await {
                Ok(_) => std::mem::take(&mut message),
                Err(refused) => format!("{refused}\n"),
            };
            message.clear();
            socket.get_mut().write_all(answer.as_bytes()).await?;
        }
        Ok(())
    }
    let redis = Redis::start();
    let limits = Limits::new([per_minute("chat", 1)]).store(store_on(&redis).await);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut client = BufReader::new(TcpStream::connect(listener.local_addr()?).await?);
    let (socket, _) = listener.accept().await?;
    let of_chat = limits.clone();
    tokio::spawn(async move { chat(of_chat, socket, "alice").await });

    let mut answers = String::new();
    for message in ["hello\n", "hello?\n"] {
        client.get_mut().write_all(message.as_bytes()).await?;
        client.read_line(&mut answers).await?;
    }
    let expected = "hello\nthe limit of chat is used up, again in ";
    assert!(answers.starts_with(expected), "{answers}");
    assert!(limits.check("chat", "bob").await.is_ok());
    assert_eq!(counted(&limits, "chat"), (2, 1));
    Ok(())
}

#[tokio::test]
async fn tokens_that_are_known_afterwards() -> Outcome {
    async fn ask(charges: Charges, question: String) -> String {
        let used = question.parse().unwrap_or(0);
        charges.of("tokens").settle(used).await.ok();
        format!("{used} tokens")
    }
    let redis = Redis::start();
    let limits = Limits::new([per_minute("tokens", 10_000).with_key(Header::new("x-user"))])
        .store(store_on(&redis).await);
    let layer = limits.layer("tokens").cost(|_| 4_000);
    let client = serve(Router::new().route("/", post(ask).layer(layer))).await;

    let alice = [("x-user", "alice")];
    for used in ["1500", "4000", "500"] {
        let answer = client.send("POST /", &alice, used).await;
        assert_eq!(answer.text, format!("{used} tokens"));
    }
    let key = Header::new("x-user").key("alice");
    let left = limits.peek("tokens", key).await?;
    assert_eq!(left.map(|decision| decision.remaining()), Some(4_000));
    // As many as that may be reserved, and not one more.
    assert_eq!(client.send("POST /", &alice, "1").await.status, 200);
    assert_eq!(client.send("POST /", &alice, "1").await.status, 429);

    let admitted = limits.check("tokens", "bob").cost(4_000).await?;
    let given_back = admitted
        .charge
        .expect("it was charged")
        .settle(1_500)
        .await?;
    assert_eq!(given_back, 2_500);
    let snapshot = limits.snapshot();
    let counted = snapshot.rule("tokens").expect("a rule");
    assert_eq!(counted.units - counted.refunded_units, 6_001 + 1_500);
    Ok(())
}

#[tokio::test]
async fn change_limits_while_running() -> Outcome {
    let redis = Redis::start();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("limits.toml");
    std::fs::write(&file, "[rules.api]\nmax-count = 1\nwindow = '1m'\n")?;
    let limits = Limits::from_file(&file)?.store(store_on(&redis).await);
    limits.watch(&file)?;
    let client = serve(limited(limits.layer("api"))).await;

    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
    std::fs::write(&file, "[rules.api]\nmax-count = 3\nwindow = '1m'\n")?;
    let began = Instant::now();
    while client.status("GET /", &[]).await == 429 {
        assert!(began.elapsed() < BOUND, "{:?}", limits.status());
        sleep(Duration::from_millis(50)).await;
    }
    std::fs::write(&file, "[rules.api]\nmax-count = -1\nwindow = '1m'\n")?;
    // What the watcher does by itself, a little later.
    assert!(limits.reload(&file).is_err());
    let error = limits.status().error.expect("a mistake").to_string();
    assert!(error.contains("limits.toml:2"), "{error}");
    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
    Ok(())
}

/// A process with the page shows whom it denied, and another one obeys.
#[cfg(feature = "page")]
#[tokio::test]
async fn see_who_is_limited_and_let_this_customer_through() {
    use serde_json::{Value, json};

    let redis = Redis::start();
    let store = store_on(&redis).await;
    let process = || {
        let limits = Limits::new([per_minute("search", 1)]).key(Header::new("x-user"));
        limits.store(store.clone())
    };
    let without_page = process();
    without_page.join_fleet();
    let without_page = serve(limited(without_page.layer("search"))).await;

    let limits = process();
    let page = limits
        .page()
        .allow_changes()
        .show_keys()
        .hosts(["admin.example.com"]);
    let app = limited(limits.layer("search")).nest_service("/limits", page.router());
    let client = serve(app).await;
    let fields = [
        ("host", "admin.example.com"),
        ("origin", "http://admin.example.com"),
        ("content-type", "application/json"),
        ("x-tidegate", "1"),
    ];
    let (alice, began) = ([("x-user", "alice")], Instant::now());
    let row = loop {
        client.status("GET /", &alice).await;
        let view = client.send("GET /limits/api/limited", &fields, "").await;
        let view: Value = serde_json::from_str(&view.text).expect("JSON");
        if let Some(row) = view["rows"].get(0) {
            break row.clone();
        }
        assert!(began.elapsed() < BOUND, "{view}");
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(row["key"], "alice");
    assert_eq!(without_page.status("GET /", &alice).await, 429);

    let body = json!({"rule": "search", "row": row["row"], "seconds": 60}).to_string();
    let let_through = "POST /limits/api/let-through";
    let answer = client.send(let_through, &fields, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(client.status("GET /", &alice).await, 200);
    while without_page.status("GET /", &alice).await == 429 {
        assert!(began.elapsed() < BOUND, "not let through");
        sleep(Duration::from_millis(50)).await;
    }
}

/// By another process than the one that counted, as a tool for the support does it.
#[tokio::test]
async fn unblock_a_customer() -> Outcome {
    let redis = Redis::start();
    let store = store_on(&redis).await;
    let process = || Limits::new([per_minute("login", 1).with_key(PeerIp)]).store(store.clone());
    let client = serve(limited(process().layer("login"))).await;
    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);

    let limits = process();
    let customer: IpAddr = "127.0.0.1".parse()?;
    let left = limits
        .peek("login", customer)
        .await?
        .map(|decision| decision.remaining());
    assert_eq!(left, Some(0));
    assert!(limits.reset("login", customer).await?, "there was a count");
    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
    Ok(())
}

#[tokio::test]
async fn dry_run() -> Outcome {
    let redis = Redis::start();
    let limits = Limits::from_toml(
        r#"
        [rules.export]
        max-count = 1
        window = "1m"
        shadow = true               # the whole rule

        [rules.api]
        max-count = 3
        window = "1m"
        [rules.api.shadow]          # a candidate beside the rule
        max-count = 1
        window = "1m"
        "#,
    )?
    .store(store_on(&redis).await);
    let export = serve(limited(limits.layer("export"))).await;
    assert_eq!(export.statuses("GET /", &[]).await, [200; 4]);
    let api = serve(limited(limits.layer("api"))).await;
    assert_eq!(api.statuses("GET /", &[]).await, [200, 200, 200, 429]);

    let snapshot = limits.snapshot();
    let export = snapshot.rule("export").expect("a rule");
    assert_eq!(export.decisions(DecisionOutcome::ShadowDenied), 3);
    let api = snapshot.rule("api").expect("a rule");
    assert_eq!(api.decisions(DecisionOutcome::Denied), 1);
    assert_eq!(api.shadow_denials[0].1, 3);
    Ok(())
}

/// Without Redis: its clock cannot be paused.
#[cfg(debug_assertions)]
#[tokio::test(start_paused = true)]
async fn tests_with_a_paused_clock() {
    let limited = RateLimitLayer::new("export", Duration::from_secs(60), 1);
    let app = Router::new().route("/export", get(async || "report").layer(limited));
    let client = serve(app).await;

    assert_eq!(client.status("GET /export", &[]).await, 200);
    let denied = client.send("GET /export", &[], "").await;
    denied.assert_denied("export");
    assert_eq!(denied.field("retry-after"), "60");
    tokio::time::advance(MINUTE).await;
    assert_eq!(client.status("GET /export", &[]).await, 200);
}

#[tokio::test]
async fn a_login_by_the_user_name_in_the_body() {
    async fn login(State(limits): State<Limits>, user: String) -> Result<String, Refused> {
        limits.check("login", &*user).await?;
        Ok(format!("welcome, {user}"))
    }
    let redis = Redis::start();
    let limits = Limits::new([per_minute("login", 1)]).store(store_on(&redis).await);
    let app = Router::new()
        .route("/login", post(login))
        .with_state(limits.clone());
    let client = serve(app).await;

    for user in ["alice", "bob"] {
        let welcome = client.send("POST /login", &[], user).await;
        assert_eq!(
            (welcome.status, welcome.text),
            (200, format!("welcome, {user}"))
        );
        client
            .send("POST /login", &[], user)
            .await
            .assert_denied("login");
    }
    assert_eq!(counted(&limits, "login"), (2, 2));
}

#[tokio::test]
async fn only_anonymous_users() {
    let redis = Redis::start();
    let layer = RateLimitLayer::new("search", Duration::from_secs(60), 20)
        .key(PeerIp)
        .exempt(|head| head.extensions.get::<User>().is_some())
        .store(store_on(&redis).await);
    let client = serve(limited(layer.clone()).layer(from_fn(authenticate))).await;

    assert_eq!(
        client.statuses("GET /", &[("x-user", "anna")]).await,
        [200; 25]
    );
    assert_eq!(client.statuses("GET /", &[]).await, [200; 20]);
    client.send("GET /", &[], "").await.assert_denied("search");
    assert_eq!(client.status("GET /", &[("x-user", "anna")]).await, 200);
    let counted = layer.snapshot().expect("it has a rule");
    assert_eq!(counted.decisions(DecisionOutcome::Allowed), 20);
    assert_eq!(counted.decisions(DecisionOutcome::Denied), 1);
}
