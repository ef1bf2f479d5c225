//! Each answer of the crate is one that `docs/problem.schema.json` describes, and so are the examples
//! there; the OpenAPI document has them.

#[path = "openapi.rs"]
#[allow(dead_code, reason = "of a program")]
mod openapi;

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use axum::response::IntoResponse;
use axum::{Router, routing::get};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate::rule::{Lockout, Policy};
use tidegate::{Header, Limits, MemoryStore, PeerIp, Quota, RateLimitLayer, Rule};
use tower::ServiceExt;
use utoipa::OpenApi;

const SCHEMA: &str = include_str!("../../docs/problem.schema.json");

/// The limits of a rule, which has to be valid.
fn limits(rule: Result<Rule, tidegate::rule::RuleError>) -> Limits {
    Limits::new([rule.expect("a rule")])
}

/// What a check is refused with, behind so many that are admitted, which keep their permits.
async fn refused(limits: &Limits, cost: u64, before: usize) -> Response<Body> {
    let mut kept = Vec::new();
    for _ in 0..before {
        kept.push(limits.check("p", "alice").await.expect("room"));
    }
    let refused = limits.check("p", "alice").cost(cost).await;
    refused.expect_err("no room").into_response()
}

/// What a layer answers to a request that has nothing but its path.
async fn answered(layer: RateLimitLayer) -> Response<Body> {
    let app: Router = Router::new().route("/", get("1").route_layer(layer));
    let request = Request::get("/").body(Body::empty()).expect("a request");
    app.oneshot(request).await.expect("an answer")
}

async fn document(response: Response<Body>) -> (u16, Value) {
    let status = response.status().as_u16();
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let field = response.headers().get("retry-after");
    let seconds = field.map(|it| it.to_str().expect("text").parse::<u64>().expect("seconds"));
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let document: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(document["retry-after"].as_u64(), seconds, "{document}");
    assert_eq!(document.get("retry-after").is_some(), seconds.is_some());
    (status, document)
}

/// The name of what describes a document: one part of the schema, and no other.
fn described(schema: &Value, document: &Value) -> String {
    let parts = schema["$defs"].as_object().expect("definitions").keys();
    let is_it = |name: &&String| {
        let part = json!({"$defs": schema["$defs"], "$ref": format!("#/$defs/{name}")});
        let part = jsonschema::validator_for(&part).expect("a schema");
        part.is_valid(document)
    };
    let found: Vec<_> = parts
        .filter(|it| !["Names", "RetryAfter"].contains(&&***it))
        .filter(is_it)
        .collect();
    let [name] = &found[..] else {
        panic!("{document} is {found:?}")
    };
    let whole = jsonschema::validator_for(schema).expect("a schema");
    assert!(whole.is_valid(document), "{document}");
    (*name).clone()
}

#[tokio::test]
async fn each_answer_is_described() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    let minute = || [Policy::from(Quota::per_minute(1))];
    let hidden = || minute().map(Policy::hidden);
    let lockout = || {
        Lockout::after(1)
            .hold([Duration::from_secs(900)])
            .on([""; 0])
    };
    let locked = limits(Rule::with_policies("p", [Quota::per_minute(9).into()]));
    let locked = Limits::new([(**locked.rules().load().get("p").expect("a rule"))
        .clone()
        .with_lockout(lockout())
        .expect("valid")]);
    let first = locked.check("p", "alice").await.expect("room");
    first.charge.expect("it was charged").failed();
    let blocked = limits(Rule::with_policies("p", minute()));
    let by_operator = blocked.block("p", "alice", Duration::from_secs(60), "ops");
    by_operator.await.expect("it can be blocked");
    let away = limits(Rule::with_policies("p", minute())).store(MemoryStore::with_max_keys(0));
    let partner = Rule::with_policies("p", minute()).and_then(Rule::with_outgoing);
    let partner = limits(partner);
    drop(partner.outgoing("p").ready("alice").await.expect("a turn"));
    let behind = partner.outgoing("p").ready("alice").await;
    let layer = || RateLimitLayer::new("p", Duration::from_secs(60), 0);
    let panics = layer().degrade_fn(async |_| -> Response<Body> { panic!("a mistake") });
    let answers = [
        (
            "QuotaExceeded",
            refused(&limits(Rule::with_policies("p", minute())), 1, 1).await,
        ),
        (
            "QuotaExceeded",
            refused(&limits(Rule::with_policies("p", hidden())), 1, 1).await,
        ),
        ("QuotaExceeded", refused(&blocked, 1, 0).await),
        ("QuotaExceeded", answered(layer()).await),
        (
            "Never",
            refused(&limits(Rule::with_policies("p", minute())), 2, 0).await,
        ),
        (
            "Busy",
            refused(
                &limits(Rule::with_policies("p", [Policy::concurrent(2)])),
                1,
                2,
            )
            .await,
        ),
        ("LockedOut", refused(&locked, 1, 0).await),
        ("ReducedCapacity", refused(&away, 1, 0).await),
        (
            "ReducedCapacity",
            behind.expect_err("no turn").into_response(),
        ),
        (
            "Mistake",
            answered(layer().key(Header::new("x-user"))).await,
        ),
        ("Mistake", answered(layer().key(PeerIp)).await),
        ("Mistake", answered(panics).await),
    ];
    for (expected, response) in answers {
        let (status, document) = document(response).await;
        assert_eq!(described(&schema, &document), expected, "{document}");
        assert_eq!(document["status"], status);
    }
    for (name, part) in schema["$defs"].as_object().expect("definitions") {
        for example in part["examples"].as_array().into_iter().flatten() {
            assert_eq!(described(&schema, example), *name);
        }
        assert!(
            ["Names", "RetryAfter"].contains(&&**name) || part["examples"][0].is_object(),
            "{name}"
        );
    }
}

#[test]
fn the_openapi_document_has_them() {
    let document = serde_json::to_value(openapi::Document::openapi()).expect("JSON");
    let responses = &document["paths"]["/search"]["get"]["responses"];
    for status in ["400", "429", "503"] {
        let content = &responses[status]["content"]["application/problem+json"];
        assert_eq!(
            content["schema"]["$ref"], "#/components/schemas/Problem",
            "{responses}"
        );
    }
    assert!(responses["429"]["headers"]["retry-after"].is_object());
    let known = &document["components"]["schemas"]["Problem"]["properties"];
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    for part in schema["$defs"].as_object().expect("definitions").values() {
        for name in part["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|it| it.0)
        {
            assert!(known[name].is_object(), "{name} is missing in {known}");
        }
    }
}
