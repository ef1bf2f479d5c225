//! A key that an operator lets through is charged nothing, also by what settles.

use super::*;

/// In memory and on a server: what a handler settles is 0 and no error, by a settlement and by a
/// meter, and a reservation from before is settled without an error.
#[tokio::test]
async fn nothing_is_charged() {
    let server = Redis::start();
    for (name, store) in shop_stores(&server) {
        let limits = limits([per_hour("p", 10)], store);
        let handler = async |charges: Charges| {
            charges.of("p").meter().add(500);
            let answer = charges.of("p").settle(30).await.expect("an answer");
            assert_eq!(parts(answer), (0, 0, 0));
        };
        let app = Router::new().route("/", get(handler).layer(limits.layer("p")));
        let page = limits.page().allow_changes().router();
        let before = charge(&limits, "p", "k", 2).await;
        let body = r#"{"rule": "p", "key": "k", "seconds": 600}"#;
        let (status, text) = kit::operate(&page, "/api/let-through", body).await;
        assert_eq!(status, 200, "{name}: {text}");
        let is_let_through = async || {
            let admitted = limits.check("p", "k").await.expect("room");
            admitted.charge.is_none()
        };
        eventually("it is let through", is_let_through).await;
        assert_eq!(kit::http::statuses(&app, "/", "", 30).await, [200; 30]);
        flushed(&limits).await;
        assert_eq!(counted(&limits, "p"), (0, 0, 0), "{name}");
        let (_, _, forgiven) = settle(&before, 5).await;
        assert_eq!(forgiven, 0, "{name}");
    }
}
