//! What the page shows of permits.

use kit::page::{App, search};

use crate::*;

/// A user may send 60 requests a minute, two at a time.
fn new_app() -> App {
    let rule = Rule::new("search", [Quota::per_minute(60)]).expect("valid");
    let rule = rule.with_max_concurrent(2).expect("valid").with_cost(5);
    App::keyed(Limits::new([rule]), |page| page)
}

/// It holds its permit until it is dropped.
async fn ask(app: &App) -> Response<Body> {
    call(&app.router, search("alice")).await
}

#[tokio::test(start_paused = true)]
async fn a_rule_shows_how_many_may_run_at_a_time() {
    let app = new_app();
    app.play("ask alice; wait 2000").await;
    let of_rule = |name, concurrent, max, window| {
        json!({"name": name, "subject": null, "cost": null, "hidden": false, "max": max,
            "window_s": window, "concurrent": concurrent})
    };
    let permits = of_rule("search-concurrent", true, 2, Value::Null);
    let expected = json!([of_rule("search", false, 60, json!(60.0)), permits]);
    assert_eq!(app.view("now").await["rules"][0]["quotas"], expected);
    // The rule is one of a key, as it would be without permits.
    app.play("now /rules/0; /subjects = []").await;
}

#[tokio::test(start_paused = true)]
async fn a_key_shows_its_requests_in_flight() {
    let app = new_app();
    let mut held = Vec::new();
    for in_flight in 0..=2 {
        let look = app.look("alice").await;
        let permits = &look["quotas"][1];
        assert_eq!(permits["in_flight"], in_flight, "{look}");
        assert_eq!(permits["max"], 2);
        assert_eq!(permits["reset_in_s"], Value::Null);
        assert_eq!(look["quotas"][0]["in_flight"], Value::Null);
        assert!(look["quotas"][0]["reset_in_s"].is_f64());
        // Each request holds one permit, whatever it costs.
        assert_eq!(look["allowed"], in_flight < 2, "{look}");
        held.push(ask(&app).await);
    }
    drop(held);
    assert_eq!(app.look("alice").await["quotas"][1]["in_flight"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_has_a_word_of_its_own() {
    let app = new_app();
    sleep(millis(1_100)).await;
    let held = [ask(&app).await, ask(&app).await];
    let steps = r#"
        ask alice = 429; wait 1000; limited /rows/0; /busy = true; /never = false
        now; /rules/0/total/denied = 1"#;
    app.play(steps).await;
    drop(held);
    // A denial of the quota is one that has an end.
    app.play("ask alice x12; wait 1000; limited /rows/0; /busy = false")
        .await;
}
