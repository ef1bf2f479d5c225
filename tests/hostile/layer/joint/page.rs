//! An operator lets one subject's key through, or resets it: the other subjects are as before.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use kit::Redis;
use serde_json::{Value, json};
use tidegate::{Limits, MemoryStore, Resilient, Store};

use super::{DENIED, OK, ask, header, left, send};
use kit::PATIENT;

const FILE: &str = r#"
[rules.api]
quotas = [
    { max-count = 2, window = "1h", key = "header:x-user", subject = "user" },
    { max-count = 6, window = "1h", key = "header:x-address", subject = "address" },
    { max-count = 50, window = "1h", key = "everyone" },
]
"#;

async fn post(app: &Router, what: &str, body: Value) -> (u16, Value) {
    let request = Request::post(format!("/limits/api/{what}"))
        .header("host", "127.0.0.1:3000")
        .header("origin", "http://127.0.0.1:3000")
        .header("content-type", "application/json")
        .header("x-tidegate", "1")
        .body(Body::from(body.to_string()))
        .expect("a request");
    let seen = send(app, request).await;
    let value = serde_json::from_str(&seen.body).unwrap_or(Value::String(seen.body));
    (seen.status.as_u16(), value)
}

async fn obeys(app: &Router, fields: &str, status: http::StatusCode) {
    let began = std::time::Instant::now();
    while ask(app, fields).await != status {
        assert!(began.elapsed() < PATIENT, "not {status} for {fields}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_subject_is_let_through_and_reset() {
    let server = Redis::start();
    let redis = Resilient::redis(&*server.url, "shop").expect("an address");
    let redis = redis.timeout(PATIENT).build();
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for store in [memory, redis] {
        let limits = Limits::from_toml(FILE).expect("valid").store(store);
        let page = limits.page().allow_changes().show_keys();
        let app = super::app(limits.layer("api")).nest_service("/limits", page.router());
        let keys = || {
            [
                ("user", header("x-user", "a")),
                ("address", header("x-address", "1")),
                ("everyone", tidegate::Key::default()),
            ]
        };
        let request = "x-user: a, x-address: 1";
        for at in 0..3 {
            assert_eq!(ask(&app, request).await, if at < 2 { OK } else { DENIED });
        }
        let user = json!({"rule": "api", "subject": "user", "key": "a"});
        let (status, looked) = post(&app, "key", user.clone()).await;
        assert_eq!(status, 200, "{looked}");
        assert_eq!(looked["allowed"], json!(false), "{looked}");
        // Without a subject, or with one that is not there, it says so.
        for body in [
            json!({"rule": "api", "key": "a"}),
            json!({"rule": "api", "subject": "nobody", "key": "a"}),
            json!({"rule": "api", "subject": 1, "key": "a"}),
        ] {
            for what in ["key", "reset", "let-through"] {
                let mut body = body.clone();
                if what == "let-through" {
                    body["seconds"] = json!(60);
                }
                let (status, answer) = post(&app, what, body.clone()).await;
                assert!(
                    (400..500).contains(&status),
                    "{what}, {body}: {status}, {answer}"
                );
                assert!(answer["error"].is_string(), "{what}, {body}: {answer}");
            }
        }
        assert_eq!(left(&limits, keys()).await, [0, 4, 48]);

        let mut through = user.clone();
        through["seconds"] = json!(600);
        let (status, answer) = post(&app, "let-through", through.clone()).await;
        assert_eq!(status, 200, "{answer}");
        obeys(&app, request, OK).await;
        assert_eq!(
            left(&limits, keys()).await,
            [0, 3, 47],
            "the others are charged"
        );
        for _ in 0..3 {
            assert_eq!(ask(&app, request).await, OK);
        }
        // The address denies it.
        assert_eq!(ask(&app, request).await, DENIED);
        assert_eq!(left(&limits, keys()).await, [0, 0, 44]);
        assert_eq!(ask(&app, "x-user: b, x-address: 1").await, DENIED);
        through["seconds"] = json!(0);
        assert_eq!(post(&app, "let-through", through).await.0, 200);
        obeys(&app, "x-user: a, x-address: 2", DENIED).await;

        let address = json!({"rule": "api", "subject": "address", "key": "1"});
        let (status, answer) = post(&app, "reset", address).await;
        assert_eq!((status, &answer["found"]), (200, &json!(true)), "{answer}");
        let now = left(&limits, keys()).await;
        assert_eq!(now[..2], [0, 6], "{now:?}");
        assert_eq!(post(&app, "reset", user).await.0, 200);
        assert_eq!(left(&limits, keys()).await[..2], [2, 6]);
        assert_eq!(left(&limits, keys()).await[2], now[2]);
        let all = json!({"rule": "api", "subject": "everyone", "key": ""});
        let (status, answer) = post(&app, "reset", all).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(left(&limits, keys()).await, [2, 6, 50]);
    }
}
