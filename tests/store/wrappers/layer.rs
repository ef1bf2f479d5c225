//! What becomes of requests: each rule's policy, and the error callbacks.

use kit::http;
use kit::page::{App, hourly};
use tidegate::ErrorCallbackChain;
use tidegate::callback::{FailureKind, Problem};

use super::*;

/// A store that is gone, with a fallback that has half of everything.
fn half(mode: Mode) -> Arc<dyn Store> {
    let local = MemoryStore::new().tokio_clock();
    let store = Resilient::bare(FlakyStore::new(mode)).fallback(Share::of_processes(2));
    Arc::new(store.fallback_store(local))
}

/// A layer that lets one through.
fn layer(mode: Mode) -> RateLimitLayer {
    RateLimitLayer::new("p", 10 * SECOND, 2).store(half(mode))
}

async fn text(app: &Router) -> String {
    http::ask(app, "/", "").await.body
}

async fn status(app: &Router) -> u16 {
    http::ask(app, "/", "").await.status
}

/// A store that fails at once, and one that has to be waited for.
const GONE: [Mode; 2] = [Mode::FailsAtOnce(Kind::Timeout), Mode::Fails(Kind::Timeout)];

#[tokio::test]
async fn the_fallback_answers_and_shows_no_quota() {
    let forms = [
        Headers::Draft11,
        Headers::Draft7,
        Headers::Legacy,
        Headers::GitHub,
    ];
    for (mode, form) in GONE
        .into_iter()
        .flat_map(|mode| forms.map(|form| (mode, form)))
    {
        let upstream = any(async || [("ratelimit", "a"), ("x-ratelimit-limit", "9")]);
        let app = Router::new().route("/", upstream.layer(layer(mode).headers(form)));
        let answer = http::ask(&app, "/", "").await;
        assert_eq!(answer.status, 200);
        let is_draft = [Headers::Draft11, Headers::Draft7].contains(&form);
        assert_eq!(answer.field("ratelimit").is_none(), is_draft);
        assert_eq!(answer.field("x-ratelimit-limit").is_none(), !is_draft);
        assert_eq!(answer.field("x-ratelimit-remaining"), None);
        assert_eq!(answer.field("ratelimit-policy"), None);
        let decision = answer.decision();
        assert_eq!(decision.source(), Source::Fallback);
        let failure = decision.failure().map(StoreError::kind);
        assert_eq!(failure, Some(Kind::Timeout));
        let answer = http::ask(&app, "/", "").await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.field("ratelimit"), None);
        let told = http::number(&answer.fields, "retry-after").expect("a time");
        assert!((1..=3).contains(&told), "{told}");
        let document: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(document["status"], json!(429));
        let kind = document["type"].as_str().expect("text");
        assert!(kind.ends_with("#temporary-reduced-capacity"), "{kind}");
    }
}

/// The status of gRPC is the rule's, too, and what is left says who has decided.
#[tokio::test]
async fn the_fallback_answers_in_other_forms() {
    let limits = Limits::new([rule(quota(2, 10 * SECOND)).with_key(Everyone)]);
    let limits = limits.store(half(Mode::FailsAtOnce(Kind::Timeout)));
    let app = app(limits.layer("p"));
    assert_eq!(status(&app).await, 200);
    let denied = http::ask(&app, "/", "content-type: application/grpc").await;
    assert_eq!(denied.field("grpc-status"), Some("8"));
    let expected = Some("temporary reduced capacity");
    assert_eq!(denied.field("grpc-message"), expected);
    let usage = limits.usage(["p"]).expect("it is known");
    let usage = Router::new().route("/", axum::routing::get(usage.handler()));
    let usage = http::ask(&usage, "/", "").await.body;
    let is_so = usage.contains("\"path\":\"p\",\"fallback\":true,");
    assert!(is_so, "{usage}");
    let is_so = usage.contains("\"limit\":2,\"remaining\":null,\"reset\":null,");
    assert!(is_so, "{usage}");
    let left = limits.peek("p", Key::default()).await.expect("an answer");
    assert_eq!(left.expect("a rule").source(), Source::Fallback);
}

/// What is left of a share says nothing of the limit: a tenant is not near it, and has not used it.
#[tokio::test]
async fn what_is_used_is_unknown() {
    let limits = [hourly("search", 10)];
    let limits = Limits::new(limits).store(half(Mode::FailsAtOnce(Kind::Timeout)));
    let app = App::keyed(limits, |page| page);
    app.play(
        "ask alice x5 = 200; key alice; /quotas/0/remaining = null; \
         /quotas/0/reset_in_s = null; ask alice = 429",
    )
    .await;
    let counted = app.limits.snapshot();
    assert_eq!(counted.rules[0].near_limit, 0);
}

#[tokio::test]
async fn a_rule_says_what_becomes_of_it() {
    let toml = r#"
        rules.unsaid = { max-count = 2, window = "1m" }
        rules.fallback = { max-count = 2, window = "1m", on-error = "fallback" }
        rules.respond = { max-count = 2, window = "1m", on-error = "respond" }
        rules.proceed = { max-count = 2, window = "1m", on-error = "proceed" }
    "#;
    for mode in GONE {
        let bare = Arc::new(FlakyStore::new(mode));
        for (store, expected) in [
            (half(mode), [200, 429, 200, 429, 503, 503, 200, 200]),
            (bare, [503, 503, 503, 503, 503, 503, 200, 200]),
        ] {
            let limits = Limits::from_toml(toml).expect("valid").store(store);
            let mut answers = Vec::new();
            for path in ["unsaid", "fallback", "respond", "proceed"] {
                let app = app(limits.layer(path));
                answers.extend([status(&app).await, status(&app).await]);
            }
            assert_eq!(answers, expected);
        }
    }
}

#[test]
fn a_rule_knows_whether_it_was_told() {
    let rule = rule(quota(1, SECOND));
    assert_eq!(rule.on_error(), None);
    let told = rule.with_on_error(OnError::Fallback);
    assert_eq!(told.on_error(), Some(OnError::Fallback));
    let wrong = Limits::from_toml("rules.p = { max-count = 1, window = \"1s\", on-error = \"x\" }");
    let wrong = wrong.expect_err("no such choice").to_string();
    let expected = "expected \"respond\", \"proceed\" or \"fallback\"";
    assert!(wrong.ends_with(expected), "{wrong}");
}

/// The callbacks hear of every failure with its kind; if they let it go on, the fallback's word
/// stands.
#[tokio::test]
async fn callbacks_hear_why_a_fallback_answered() {
    for mode in GONE {
        let heard = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&heard);
        let app = app(
            layer(mode).on_error(AlsoWithFallback(move |failed: Failed| {
                assert_eq!(failed.kind(), FailureKind::Store(Kind::Timeout));
                let seen = failed.to_string();
                assert_eq!(seen, "no decision for \"p\": the store is broken");
                let fallback = failed.fallback().expect("it has decided");
                assert_eq!(fallback.source(), Source::Fallback);
                counter.fetch_add(1, Ordering::Relaxed);
                async { Recovery::Propagate }
            })),
        );
        let answer = http::ask(&app, "/", "").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("ratelimit"), None);
        assert_eq!(status(&app).await, 429);
        assert_eq!(heard.load(Ordering::Relaxed), 2);
    }
}

/// A response of one's own for failures, which everybody writes first, does not switch the fallback
/// off. One that wants to answer does: of a chain only that one.
#[tokio::test]
async fn callbacks_answer_only_where_no_fallback_has_decided() {
    let own = || async |_: Failed| (StatusCode::SERVICE_UNAVAILABLE, "a callback");
    let wants = || AlsoWithFallback(async |_: Failed| "the other");
    let proceeds = || AlsoWithFallback(async |_: Failed| Recovery::Proceed);
    let panics = || AlsoWithFallback(async |_: Failed| -> Recovery { panic!("oops") });
    let chain = ErrorCallbackChain::new;
    let of_keys = || chain().on::<KeyError>(own());
    let of_both = || chain().any(own()).any_with_priority(9, wants());
    for mode in GONE {
        let of = || layer(mode);
        for (row, layer, statuses, body) in [
            (1, of().on_error(own()), [200, 429], ""),
            (2, of().on_error(Arc::new(own())), [200, 429], ""),
            (3, of().on_error(chain().any(own())), [200, 429], ""),
            (4, of().on_error(FailOpen), [200, 429], ""),
            (5, of().on_error(Problem), [200, 429], ""),
            (6, of().on_error(of_keys()), [200, 429], ""),
            (7, of().on_error(wants()), [200, 200], "the other"),
            (8, of().on_error(Arc::new(wants())), [200, 200], "the other"),
            (9, of().on_error(of_both()), [200, 200], "the other"),
            (10, of().on_error(proceeds()), [200, 200], "1"),
            (11, of().on_error(panics()), [500, 500], ""),
        ] {
            let app = app(layer);
            for status in statuses {
                let answer = http::ask(&app, "/", "").await;
                assert_eq!(answer.status, status, "{mode:?} {row}");
                if !body.is_empty() {
                    let seen = (&*answer.body, answer.field("ratelimit"));
                    assert_eq!(seen, (body, None), "{mode:?} {row}");
                }
            }
        }
    }
}

/// A request that waits for its turn in a fallback is told of once, and is let through when it is
/// its turn.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_told_of_once() {
    for mode in GONE {
        let heard = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&heard);
        let layer = layer(mode).on_error(AlsoWithFallback(move |_: Failed| {
            counter.fetch_add(1, Ordering::Relaxed);
            async { Recovery::Propagate }
        }));
        let app = app(layer.wait(60 * SECOND));
        let began = tokio::time::Instant::now();
        let statuses = tokio::join!(status(&app), status(&app), status(&app));
        assert_eq!(statuses, (200, 200, 200));
        let seconds = began.elapsed().as_secs();
        assert_eq!((seconds, heard.load(Ordering::Relaxed)), (20, 3));
    }
}

/// One that waits in vain, also where it never gets to be the first.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_vain_is_denied() {
    for mode in GONE {
        let layer = layer(mode).on_error(async |_: Failed| Recovery::Propagate);
        let app = app(layer.wait(9 * SECOND).max_waiting(1));
        assert_eq!(status(&app).await, 200);
        let statuses = tokio::join!(status(&app), status(&app), status(&app));
        assert_eq!(statuses, (429, 429, 429));
    }
}

#[tokio::test]
async fn every_failure_has_a_kind() {
    let kinds = [
        Kind::Timeout,
        Kind::Unavailable,
        Kind::Overloaded,
        Kind::Refused,
        Kind::ReadOnly,
        Kind::WrongType,
        Kind::OutOfMemory,
        Kind::Protocol,
        Kind::Configuration,
    ];
    let say = async |failed: Failed| format!("{:?}", failed.kind());
    for kind in kinds {
        let layer = RateLimitLayer::new("p", SECOND, 1);
        let layer = layer.store(FlakyStore::new(Mode::Fails(kind)));
        let said = text(&app(layer.on_error(say))).await;
        assert_eq!(said, format!("Store({kind:?})"));
    }
    let keyed = RateLimitLayer::new("p", SECOND, 1).key(PeerIp);
    assert_eq!(text(&app(keyed.on_error(say))).await, "Key(Server)");

    let broken = service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>(std::fmt::Error) });
    let inner = RateLimitLayer::new("p", SECOND, 1).on_error(say);
    let inner = inner.layer(broken);
    let response = inner.oneshot(Request::new(Body::empty())).await;
    let body = response.expect("answered").into_body().collect().await;
    assert_eq!(body.expect("a whole body").to_bytes(), "Inner");
}
