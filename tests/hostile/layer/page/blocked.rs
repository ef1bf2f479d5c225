//! A key that is blocked: denied everywhere without a question, charged nothing, and over in time.

use tidegate::callback::Denied;

use super::let_through::{OBEYS, two};
use super::*;

/// The client sees an ordinary denial until the block's end, and the callback who denied it.
#[tokio::test(start_paused = true)]
async fn it_is_a_denial_that_ends_on_time() {
    let eve = |_: &Parts| Some("eve".into());
    let app = App::new(|page| page.allow_changes().show_keys().actor(eve));
    let sources = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sources);
    let layer = app.limits.layer("search");
    let layer = layer.degrade_fn(move |denied: Denied| {
        seen.lock()
            .expect("no panic")
            .push(denied.decision.source());
        async { StatusCode::TOO_MANY_REQUESTS }
    });
    let limits = app.limits.clone();
    let router = Router::new().route("/search", get("found").layer(layer));
    let own = App { limits, router };
    let steps = r#"
        app: block alice 60; wait 2500
        app: ask alice = 429; /retry-after = "58"; /ratelimit = "\"search\";r=0;t=58"
        own: ask alice = 429; /retry-after = "58"; /ratelimit = "\"search\";r=0;t=58""#;
    play(&[("app", &app), ("own", &own)], steps).await;
    assert_eq!(*sources.lock().expect("no panic"), [Source::Operator]);
    let steps = r#"
        // It is in the other list.
        limited; /blocked/0/key = "alice"; /blocked/0/by = "eve"; /rows = []
        wait 57499; ask alice = 429; wait 1; ask alice = 200
        limited; /let_through # 0; /blocked # 0"#;
    app.play(steps).await;
}

/// What was said of a key last holds, and nobody ends what another one began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_both_ends_the_other() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    for app in [&App::new(Page::allow_changes), &here] {
        // In two seconds the process has read the lists again.
        let steps = r#"
            let-through alice 600
            block alice 60; wait 2000; ask alice = 429; limited; /let_through # 0; /blocked # 1
            let-through alice 0; wait 2000; ask alice = 429; limited; /let_through # 0; /blocked # 1
            let-through alice 600; wait 2000; ask alice = 200; limited; /let_through # 1; /blocked # 0
            block alice 0; wait 2000; ask alice = 200; limited; /let_through # 1; /blocked # 0"#;
        app.play(steps).await;
    }
    there.play("soon alice = 200").await;
    // A process that knows nothing of blocks lets a key through that is blocked.
    there.play("block alice 60").await;
    let until = kit::unix_micros() / 1_000 + 60_000;
    let fleet = "{shop:CurrentLimiter:~fleet}";
    let mut add = cmd("ZADD");
    let add = add.arg(format!("{fleet}:let-through"));
    let added = add.arg(until).arg("alice 6 search");
    added.exec(&mut server.connection()).expect("written");
    kit::run(&server, &format!("INCR {fleet}:version"));
    sleep(OBEYS + millis(500)).await;
    for app in [&here, &there] {
        app.play("ask alice = 429; limited; /let_through # 0; /blocked # 1")
            .await;
    }
}

/// Each list has its own room: whoever fills one, also in two processes at once, takes nothing from
/// the other. What is ended makes room, and a refusal means that nothing was written.
async fn lists_of_their_own(apps: &[App]) {
    for (what, name) in [("let-through", "guest"), ("block", "thief")] {
        let mut accepted = 0;
        for from in (0..1_500).step_by(150) {
            let asked = (from..from + 150).map(async |at| {
                let body = about(&format!("{name}{at}"), 3_600);
                apps[at % apps.len()].post(what, body).await
            });
            for answer in join_all(asked).await {
                match answer.status {
                    200 => accepted += 1,
                    _ => drop(answer.expect_refusal("one more")),
                }
            }
        }
        assert_eq!(accepted, OperatorKey::MAX, "{what}");
    }
    for app in apps {
        app.play("until limited /let_through # 1000; until limited /blocked # 1000")
            .await;
    }
    let app = &apps[0];
    let steps = r#"
        wait 2000; refused block another 60; . has 1000 keys are blocked
        ask another = 200; ask thief899 = 429
        // The other list has no room for it, so it stays what it was.
        refused let-through thief7 60; ask thief7 = 429
        block thief7 60; block thief7 0; block another 60; ask another = 429"#;
    app.play(steps).await;
    for at in 0..500 {
        let steps = format!(
            "let-through guest{at} 7200; let-through guest{at} 0; let-through next{at} 3600
            refused let-through guest{at} 3600"
        );
        app.play(&steps).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_list_leaves_the_other_alone() {
    lists_of_their_own(&[App::new(Page::allow_changes)]).await;
    let server = Redis::start();
    lists_of_their_own(&two(&server).await).await;
}

/// A denial by an operator is no estimate: nothing that is given back makes room.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_makes_no_room() {
    let app = App::new(Page::allow_changes);
    let admitted = app.limits.check("search", user("alice")).await;
    let charge = admitted.expect("there is room").charge.expect("a charge");
    app.play("block alice 600; ask alice = 429; /retry-after = \"600\"")
        .await;
    charge.refund().await.expect("given back");
    app.play("ask alice = 429; /retry-after = \"600\"").await;
}
