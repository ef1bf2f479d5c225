//! What the page shows of permits.

use axum::routing::get;

use crate::*;

type Answer = Response<axum::body::Body>;

struct App(Router);

impl App {
    /// A user may send 60 requests a minute to `/export`, two at a time.
    fn new() -> Self {
        let rule = Rule::new("export", [Quota::per_minute(60)]).expect("valid");
        let rule = rule.with_max_concurrent(2).expect("valid").with_cost(5);
        let limits = Limits::new([rule]).key(Header::new("x-user"));
        let router = Router::new()
            .route("/export", get("1").layer(limits.layer("export")))
            .nest_service("/limits", limits.page().router());
        Self(router)
    }

    async fn export(&self) -> Answer {
        call(&self.0, request("/export", "x-user: alice")).await
    }

    async fn view(&self, view: &str) -> Value {
        json_of(call(&self.0, crate::get(&format!("/limits/api/{view}"))).await).await
    }

    async fn look(&self) -> Value {
        let fields = "content-type: application/json, x-tidegate: 1";
        let mut request = post("/limits/api/key", fields);
        *request.body_mut() = json!({"rule": "export", "key": "alice"}).to_string().into();
        json_of(call(&self.0, request).await).await
    }
}

async fn json_of(response: Answer) -> Value {
    assert_eq!(response.status(), 200);
    serde_json::from_str(&text(response).await).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn a_rule_shows_how_many_may_run_at_a_time() {
    let app = App::new();
    drop(app.export().await);
    sleep(2 * SECOND).await;
    let now = app.view("now").await;
    let of_rule = |concurrent, max, window| {
        let name = ["export", "export-concurrent"][usize::from(concurrent)];
        json!({"name": name, "subject": null, "cost": null, "hidden": false, "max": max,
            "window_s": window, "concurrent": concurrent})
    };
    let expected = json!([
        of_rule(false, 60, json!(60.0)),
        of_rule(true, 2, Value::Null)
    ]);
    assert_eq!(now["rules"][0]["quotas"], expected);
    // The rule is one of a key, as it would be without permits.
    assert_eq!(now["rules"][0]["subjects"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_key_shows_its_requests_in_flight() {
    let app = App::new();
    let mut held = Vec::new();
    for in_flight in 0..=2 {
        let look = app.look().await;
        let permits = &look["quotas"][1];
        assert_eq!(permits["in_flight"], in_flight, "{look}");
        assert_eq!(permits["max"], 2);
        assert_eq!(permits["reset_in_s"], Value::Null);
        assert_eq!(look["quotas"][0]["in_flight"], Value::Null);
        assert!(look["quotas"][0]["reset_in_s"].is_f64());
        // Each request holds one permit, whatever it costs.
        assert_eq!(look["allowed"], in_flight < 2, "{look}");
        held.push(app.export().await);
    }
    drop(held);
    assert_eq!(app.look().await["quotas"][1]["in_flight"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_has_a_word_of_its_own() {
    let app = App::new();
    sleep(millis(1_100)).await;
    let held = [app.export().await, app.export().await];
    assert_eq!(app.export().await.status(), DENIED);
    sleep(SECOND).await;
    let row = &app.view("limited").await["rows"][0];
    assert!(row["busy"] == true && row["never"] == false, "{row}");
    assert_eq!(app.view("now").await["rules"][0]["total"]["denied"], 1);
    drop(held);

    // A denial of the quota is one that has an end.
    for _ in 0..12 {
        drop(app.export().await);
    }
    sleep(SECOND).await;
    let row = &app.view("limited").await["rows"][0];
    assert_eq!(row["busy"], false, "{row}");
}
