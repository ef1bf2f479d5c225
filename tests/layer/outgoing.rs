//! Calls to a partner: what its answers hold, who obeys, and what a file may say.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use kit::Redis;
use tidegate::layer::CallError;
use tidegate::limits::Outgoing;
use tidegate::metrics::DecisionOutcome;
use tidegate::warning::WarningKind;
use tidegate::{Key, Limits, Rules};
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::store_on;
use kit::per_minute;

fn limits(max: u64) -> Limits {
    let rule = per_minute("partner", max).with_outgoing();
    Limits::new([rule.expect("one subject")])
}

fn fields(text: &str) -> HeaderMap {
    let fields = text.lines().filter_map(|line| line.split_once(": "));
    let fields = fields.map(|(name, value)| {
        let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a name");
        (name, value.parse().expect("a value"))
    });
    fields.collect()
}

/// One call that is answered so, with what it leads to.
async fn hear(partner: &Outgoing, key: &str, status: u16, text: &str) {
    let turn = partner.ready(key).await.expect("a turn");
    let status = StatusCode::from_u16(status).expect("a status");
    turn.heard(status, &fields(text));
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// For how long the key gets no turn.
async fn held(limits: &Limits, key: &str) -> Option<Duration> {
    let refused = limits.outgoing("partner").ready(key).await.err()?;
    assert!(
        refused.decision().is_some_and(|it| it.is_on_hold()),
        "{refused}"
    );
    refused.retry_after()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_its_key() {
    let limits = limits(100);
    let partner = limits.outgoing("partner");
    hear(&partner, "us", 200, "").await;
    hear(&partner, "us", 503, "retry-after: 9").await;
    assert_eq!(held(&limits, "us").await, None);
    hear(&partner, "us", 429, "retry-after: 9").await;
    assert_eq!(held(&limits, "us").await, Some(Duration::from_secs(9)));
    assert_eq!(held(&limits, "them").await, None, "another key");

    // It waits for the end, if that is near enough.
    let begun = Instant::now();
    let patient = partner.clone().wait(Duration::from_secs(8));
    assert!(patient.ready("us").await.is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO, "it is not near enough");
    drop(
        patient
            .clone()
            .wait(Duration::from_secs(10))
            .ready("us")
            .await
            .expect("a turn"),
    );
    assert!(begun.elapsed() >= Duration::from_secs(9));
    assert_eq!(held(&limits, "us").await, None);

    let also = partner.clone().also_unavailable();
    hear(&also, "us", 503, "").await;
    assert_eq!(held(&limits, "us").await, Some(Duration::from_secs(1)));
    let snapshot = limits.snapshot();
    let counted = snapshot.rule("partner").expect("it is used");
    assert_eq!(counted.decisions(DecisionOutcome::OnHold), 3);
    assert_eq!(counted.decisions(DecisionOutcome::Denied), 0);
}

/// A later answer lengthens a hold, and never shortens it. A reset ends it.
#[tokio::test(start_paused = true)]
async fn how_long_it_lasts() {
    let limits = limits(100);
    let hold = async |seconds| {
        let time = Duration::from_secs(seconds);
        limits.hold("partner", "us", time).await.expect("an answer")
    };
    assert_eq!(hold(60).await, Duration::from_secs(60));
    advance(Duration::from_secs(30)).await;
    assert_eq!(hold(10).await, Duration::from_secs(30));
    assert_eq!(hold(40).await, Duration::from_secs(40));
    assert_eq!(
        hold(u64::MAX).await,
        Duration::from_secs(3_600),
        "it is cut"
    );
    assert!(limits.reset("partner", "us").await.expect("an answer"));
    assert_eq!(held(&limits, "us").await, None);
    assert_eq!(hold(0).await, Duration::ZERO);
    assert_eq!(held(&limits, "us").await, None);

    let shorter = limits
        .rules()
        .load()
        .get("partner")
        .expect("a rule")
        .as_ref()
        .clone();
    let shorter = shorter.with_hold_at_most(Duration::from_secs(5));
    limits.rules().replace(Rules::from([shorter]));
    assert_eq!(hold(60).await, Duration::from_secs(5));
}

/// Another process decides by it at its next decision.
#[tokio::test]
async fn other_processes_obey() {
    let server = Redis::start();
    let processes = [store_on(&server).await, store_on(&server).await];
    let [one, other] = processes.map(|store| limits(100).store(store));
    drop(other.outgoing("partner").ready("us").await.expect("a turn"));
    one.hold("partner", "us", Duration::from_secs(60))
        .await
        .expect("an answer");
    let refused = other
        .outgoing("partner")
        .ready("us")
        .await
        .expect_err("it is held");
    assert!(refused.retry_after() > Some(Duration::from_secs(30)));
    assert!(refused.decision().is_some_and(|it| it.is_on_hold()));
    drop(
        other
            .outgoing("partner")
            .ready("them")
            .await
            .expect("another key"),
    );
    assert!(other.reset("partner", "us").await.expect("an answer"));
    drop(one.outgoing("partner").ready("us").await.expect("a turn"));
}

/// Around a client: each call is sent once or not at all, and its errors stay its own.
#[tokio::test(start_paused = true)]
async fn a_layer_around_a_client() {
    let limits = limits(3);
    let sent = Arc::new(AtomicUsize::new(0));
    let client = service_fn({
        let sent = Arc::clone(&sent);
        move |request: Request<&'static str>| {
            sent.fetch_add(1, Ordering::Relaxed);
            async move {
                match *request.body() {
                    "breaks" => Err("broken"),
                    "never" => pending().await,
                    _ => {
                        let answer = Response::builder().status(429).header("retry-after", "2");
                        Ok(answer.body("too many").expect("valid"))
                    }
                }
            }
        }
    });
    let tenant = |head: &http::request::Parts| {
        let tenant = head.headers.get("x-tenant").map(|it| it.as_bytes());
        Key::default().with(tenant.unwrap_or_default())
    };
    let mut client = limits.outgoing("partner").key_by(tenant).layer(client);
    let request = |tenant: &str, body| {
        let request = Request::builder().header("x-tenant", tenant);
        request.body(body).expect("valid")
    };
    let broken = client
        .ready()
        .await
        .expect("always")
        .call(request("a", "breaks"))
        .await;
    assert!(
        matches!(broken, Err(CallError::Inner("broken"))),
        "{broken:?}"
    );
    // A call that is dropped holds nothing, and stays counted.
    let never = client.call(request("a", "never"));
    assert!(timeout(Duration::from_secs(1), never).await.is_err());
    let answer = client.call(request("a", "")).await.expect("the partner's");
    assert_eq!(
        (answer.status(), *answer.body()),
        (StatusCode::TOO_MANY_REQUESTS, "too many")
    );
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    let held = client.call(request("a", "")).await;
    assert!(matches!(&held, Err(CallError::Denied(_))), "{held:?}");
    assert_eq!(sent.load(Ordering::Relaxed), 3);
    client.call(request("b", "")).await.expect("another tenant");
}

/// 10,000 keys are held, and the others are not.
#[tokio::test(start_paused = true)]
async fn a_partner_that_holds_everything() {
    let limits = limits(5);
    let partner = limits.outgoing("partner");
    for key in 0..10_000_u64 {
        let turn = partner.ready(key).await.expect("a turn");
        let fields = fields("retry-after: 1000000000000");
        turn.heard(StatusCode::TOO_MANY_REQUESTS, &fields);
    }
    sleep(Duration::from_millis(1)).await;
    let longest = held(&limits, "9999").await.expect("it is held");
    assert_eq!(longest.as_secs_f64().round(), 3_600.0);
    assert_eq!(held(&limits, "another").await, None);
    advance(Duration::from_secs(3_600)).await;
    assert_eq!(held(&limits, "9999").await, None);
}

/// A client of tower's: what a layer needs of it is that it can be cloned.
#[tokio::test(start_paused = true)]
async fn a_boxed_client() {
    let client = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let client = tower::util::BoxCloneService::new(client);
    let client = limits(1).outgoing("partner").layer(client);
    let ask = || client.clone().oneshot(Request::new(()));
    ask().await.expect("a turn");
    let denied = ask().await.expect_err("used up");
    assert!(
        denied
            .to_string()
            .starts_with("the limit of partner is used up"),
        "{denied}"
    );
}

#[tokio::test(start_paused = true)]
async fn mistakes_say_so() {
    let limits = Limits::new([per_minute("partner", 5)]);
    let error = limits.hold("partner", "us", Duration::from_secs(1)).await;
    assert_eq!(
        error.expect_err("it is not outgoing").to_string(),
        "\"partner\" has no rule with outgoing = true, which a hold needs"
    );
    assert!(
        limits
            .hold("nobody's", "us", Duration::from_secs(1))
            .await
            .is_err()
    );
    let partner = limits.outgoing("partner");
    let kinds = || {
        limits
            .warnings()
            .into_iter()
            .map(|it| it.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(), [WarningKind::NotOutgoing]);
    hear(&partner, "us", 429, "retry-after: 9").await;
    assert!(partner.ready("us").await.is_ok(), "it holds nothing");

    for (text, expected) in [
        ("lease = \"50ms\"", "no leases beside outgoing"),
        (
            "max-concurrent = 4",
            "outgoing calls have one key and no max-concurrent",
        ),
        (
            "plans.pro = { max-concurrent = 4 }",
            "outgoing calls have one key",
        ),
        ("burst = 3\npace = \"even\"", "a pace beside a burst"),
        (
            "algorithm = \"sliding-log\"\npace = \"even\"",
            "only algorithm = \"gcra\" has a pace",
        ),
        ("pace = \"odd\"", "expected \"even\""),
        ("hold-at-most = \"x\"", "expected a duration"),
    ] {
        let file =
            format!("[rules.partner]\nmax-count = 9\nwindow = \"1s\"\noutgoing = true\n{text}");
        let error = Rules::from_toml(&file).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let file = "[rules.partner]\nmax-count = 9\nwindow = \"1s\"\nhold-at-most = \"5m\"";
    let error = Rules::from_toml(file)
        .expect_err("not outgoing")
        .to_string();
    assert!(
        error.contains("expected outgoing = true beside it"),
        "{error}"
    );
}

/// An even pace lets one call through at a time.
#[tokio::test(start_paused = true)]
async fn an_even_pace() {
    let limits = Limits::from_toml(
        "[rules.partner]\nmax-count = 10\nwindow = \"1s\"\noutgoing = true\npace = \"even\"\n\
         hold-at-most = \"5m\"",
    );
    let limits = limits.expect("valid");
    let rule = limits
        .rules()
        .load()
        .get("partner")
        .cloned()
        .expect("a rule");
    assert!(rule.is_outgoing() && rule.hold_at_most() == Duration::from_secs(300));
    let partner = limits.outgoing("partner").wait(Duration::from_secs(5));
    let begun = Instant::now();
    for number in 0..21 {
        drop(partner.ready("us").await.expect("a turn"));
        let earliest = Duration::from_millis(100) * number;
        let took = begun.elapsed();
        assert!(
            took >= earliest && took < earliest + Duration::from_millis(100),
            "{took:?}"
        );
    }
}
