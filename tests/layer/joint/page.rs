//! The page of a joint rule beside requests that wait, and in a fleet. What else it does is told by
//! `tests/layer/page.txt`.

use kit::page::App;
use kit::page_steps::play;

use super::{address, rule, user};
use crate::*;

/// An app of the rule `api` with the page.
fn app(limits: Limits) -> App {
    let layer = limits.layer("api").wait(100 * SECOND);
    let page = limits.page().allow_changes().show_keys().router();
    let router = Router::new()
        .route("/api", any(async || "1").layer(layer))
        .nest_service("/limits", page);
    App { limits, router }
}

/// A request that waits obeys, too: it does not wait for a subject that is let through meanwhile.
#[tokio::test(start_paused = true)]
async fn what_waits_is_decided_by_the_others_from_then_on() {
    let subjects = [user(quota(1, 20 * SECOND)), address(quota(1, 40 * SECOND))];
    let joint = Rule::joint("api", subjects).expect("a rule");
    let plain = owned_rule("api", 1, 40 * SECOND).with_key(Header::new("x-user"));
    const BOTH: &str = "let-through api>user/alice 60; let-through api>address/here 60";
    for (rule, change, status, after) in [
        (&joint, "let-through api>user/alice 60", 200, 40.0..=41.0),
        (&joint, "let-through api>address/here 60", 200, 20.0..=21.0),
        (&joint, BOTH, 200, 5.0..=7.0),
        (
            &plain,
            "let-through api/alice 60; ask api/alice@ = 200",
            200,
            5.0..=7.0,
        ),
        (&plain, "block api/alice 60", 429, 5.0..=7.0),
    ] {
        let app = app(Limits::new([rule.clone()]));
        app.play("ask api/alice@here = 200").await;
        let began = Instant::now();
        let waits = async {
            app.play(&format!("ask api/alice@here = {status}")).await;
            began.elapsed().as_secs_f64()
        };
        let change = format!("wait 5000; {change}");
        let (waited, ()) = tokio::join!(waits, app.play(&change));
        assert!(after.contains(&waited), "{change}: {waited}");
        let blocked = u8::from(status == 429);
        app.play(&format!("counted api; /blocked = {blocked}; /waiting = 0"))
            .await;
    }
}

/// Another process shows the rows, and obeys. A process that knows no subjects, as one of an
/// earlier version or with an earlier file, lets nobody through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fleet_obeys_by_subject() {
    let redis = Redis::start();
    let plain = per_hour("api", 1).with_key(Header::new("x-user"));
    let [one, other, plain] = [rule(), rule(), plain].map(|rule| {
        let store = kit::page::store(&redis.url, "shop").timeout(PATIENT);
        app(Limits::new([rule]).store(store))
    });
    let apps = [("one", &one), ("other", &other), ("plain", &plain)];
    let steps = r#"
        one: ask api/alice@here x3
        plain: ask api/alice@here x3; plain: ask api/user>alice@here x3
        other: until limited /rows/subject=user != null; keep row /rows/subject=user/row
        /rows/subject=user/key = "alice"; /rows/subject=user/denials = 1
        // The other process reads the key from the report of the first one.
        other: key {"rule": "api", "row": $row}; /subject = "user"; /key = "alice"
        other: let-through {"rule": "api", "row": $row, "seconds": 600}
        one: soon api/alice@there = 200; plain: until limited /let_through/0/subject = "user"
        plain: ask api/alice@here; plain: ask api/alice@here = 429
        plain: ask api/user>alice@here; plain: ask api/user>alice@here = 429
        plain: ask api/user@here; plain: ask api/user@here = 429"#;
    play(&apps, steps).await;
    let list = "ZRANGE {shop:CurrentLimiter:~fleet}:let-through 0 -1";
    assert_eq!(query::<Vec<String>>(&redis, list), ["user>alice 3 api"]);
    let row = &other.view("limited").await["let_through"][0]["row"];
    let steps = r#"
        other: let-through {"rule": "api", "row": ROW, "seconds": 0}
        one: until limited /let_through = []; one: ask api/alice@elsewhere = 429
        other: reset {"rule": "api", "row": ROW} = {"found": true}
        // The first process may have kept the denial for a moment.
        one: soon api/alice@elsewhere = 200"#;
    play(&apps, &steps.replace("ROW", &row.to_string())).await;
}
