//! A key that an operator lets through is charged nothing, also by what settles.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use tidegate::store::Charges;
use tidegate::{Header, Limits, Page, Resilient};
use tower::ServiceExt;

use super::{counted, flushed, per_hour, settled};
use kit::PATIENT;
use kit::Redis;

/// In memory and on a server: what a handler settles is 0 and no error, by a settlement and by a
/// meter, and a reservation from before is settled without an error.
#[tokio::test]
async fn nothing_is_charged() {
    let server = Redis::start();
    let redis = Resilient::redis(&*server.url, "shop").expect("a valid address");
    for (name, limits) in [
        ("memory", Limits::new([per_hour("p", 10)])),
        (
            "redis",
            Limits::new([per_hour("p", 10)]).store(redis.timeout(PATIENT)),
        ),
    ] {
        let limits = limits.key(Header::new("x-user"));
        let rule = per_hour("p", 10).with_key(Header::new("x-user"));
        limits.rules().replace(tidegate::Rules::from_iter([rule]));
        let handler = async |charges: Charges| {
            let meter = charges.of("p").meter();
            meter.add(500);
            drop(meter);
            let answer = charges.of("p").settle(30).await.expect("an answer");
            assert_eq!(answer, settled(0, 0, 0));
            StatusCode::OK
        };
        let router = Router::new()
            .route("/", get(handler).layer(limits.layer("p")))
            .nest_service("/limits", Page::allow_changes(limits.page()).router());
        let key = || Header::new("x-user").key("alice");
        let before = limits.check("p", key()).cost(2).await.expect("room");
        let posted = Request::post("/limits/api/let-through")
            .header("content-type", "application/json")
            .header("x-tidegate", "1")
            .header("host", "127.0.0.1:3000")
            .header("origin", "http://127.0.0.1:3000")
            .body(Body::from(
                r#"{"rule": "p", "key": "alice", "seconds": 600}"#,
            ));
        let answer = router.clone().oneshot(posted.expect("valid")).await;
        assert_eq!(
            answer.expect("axum does not fail").status(),
            StatusCode::OK,
            "{name}"
        );
        let began = std::time::Instant::now();
        while limits
            .check("p", key())
            .await
            .expect("room")
            .charge
            .is_some()
        {
            assert!(began.elapsed() < PATIENT, "{name}: it is not let through");
            tokio::time::sleep(kit::millis(20)).await;
        }
        for _ in 0..30 {
            let request = Request::get("/")
                .header("x-user", "alice")
                .body(Body::empty());
            let answer = router.clone().oneshot(request.expect("valid")).await;
            assert_eq!(answer.expect("axum does not fail").status(), StatusCode::OK);
        }
        flushed(&limits).await;
        assert_eq!(counted(&limits, "p"), (0, 0, 0), "{name}");
        let of_before = before.charge.expect("charged").settle(5).await;
        println!("{name}: {of_before:?}");
        assert_eq!(of_before.expect("an answer").forgiven, 0, "{name}");
    }
}
