//! A key that is blocked: denied everywhere without a question, charged nothing, and over in time.

use tidegate::callback::Denied;

use super::let_through::{OBEYS, counted, obeys, two};
use super::*;

/// How many keys are let through, and blocked.
async fn listed(app: &App) -> [usize; 2] {
    let seen = app.view("limited").await;
    ["let_through", "blocked"].map(|list| count(&seen[list]).expect("a list"))
}

/// The client sees an ordinary denial until the block's end, and the callback who denied it.
#[tokio::test(start_paused = true)]
async fn it_is_a_denial_that_ends_on_time() {
    let eve = |_: &http::request::Parts| Some("eve".into());
    let app = App::new(|page| page.allow_changes().show_keys().actor(eve));
    let sources = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sources);
    let layer = app
        .limits
        .layer("search")
        .degrade_fn(move |denied: Denied| {
            let source = denied.decision.source();
            seen.lock().expect("no panic").push(source);
            async { StatusCode::TOO_MANY_REQUESTS }
        });
    let own = Router::new().route("/search", get("found").layer(layer));
    app.block("alice", 60).await;
    sleep(millis(2_500)).await;
    let ask = async |router: &Router| send(router, search("alice")).await;
    for router in [&app.router, &own] {
        let answer = ask(router).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.field("retry-after"), "58", "{answer:?}");
        assert_eq!(answer.field("ratelimit"), "\"search\";r=0;t=58");
    }
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
    obeys(&there, "alice", 200).await;
    // A process that knows nothing of blocks lets a key through that is blocked.
    there.block("alice", 60).await;
    let fleet = "{shop:CurrentLimiter:~fleet}";
    let writes = "local now = redis.call('TIME')[1] * 1000 \
        redis.call('ZADD', KEYS[1], now + 60000, 'alice 6 search') \
        redis.call('INCR', KEYS[2])";
    let keys = ["let-through", "version"].map(|key| format!("{fleet}:{key}"));
    let written = cmd("EVAL")
        .arg(writes)
        .arg(2)
        .arg(&keys)
        .exec(&mut server.connection());
    written.expect("written");
    sleep(OBEYS + millis(500)).await;
    for app in [&here, &there] {
        app.play("ask alice = 429; limited; /let_through # 0; /blocked # 1")
            .await;
    }
}

/// Each list has its own room: whoever fills one takes nothing from the other.
async fn lists_of_their_own(app: &App) {
    for (what, name) in [("let-through", "guest"), ("block", "thief")] {
        let mut accepted = 0;
        for at in 0..OperatorKey::MAX + 50 {
            let answer = app.post(what, about(&format!("{name}{at}"), 3_600)).await;
            accepted += usize::from(answer.status == 200);
        }
        assert_eq!(accepted, OperatorKey::MAX, "{what}");
    }
    let said = app.refused("block", about("another", 60)).await;
    assert!(said.contains("1000 keys are blocked"), "{said}");
    sleep(OBEYS).await;
    assert_eq!(listed(app).await, [OperatorKey::MAX; 2]);
    let steps = r#"
        ask another = 200; ask thief999 = 429
        // The other list has no room for it, so it stays what it was.
        refused let-through thief7 60; ask thief7 = 429
        block thief7 60; block thief7 0; block another 60; ask another = 429"#;
    app.play(steps).await;
}

#[tokio::test]
async fn a_full_list_leaves_the_other_alone() {
    lists_of_their_own(&App::new(Page::allow_changes)).await;
    let server = Redis::start();
    let app = App::on(&server, Page::allow_changes);
    app.in_fleet().await;
    lists_of_their_own(&app).await;
}

/// What denies nobody blocks nobody.
#[tokio::test(start_paused = true)]
async fn a_rule_that_does_not_limit_blocks_nobody() {
    let rules = |enabled: bool, shadow: bool| {
        let switches = format!("enabled = {enabled}\nshadow = {shadow}");
        let text = format!("[rules.search]\nmax-count = 2\nwindow = \"1h\"\n{switches}");
        Limits::from_toml(&text).expect("valid")
    };
    for (enabled, shadow, status) in [(true, false, 429), (false, false, 200), (true, true, 200)] {
        let app = App::keyed(rules(enabled, shadow), Page::allow_changes);
        let is_allowed = status == 200;
        let steps = format!("block alice 600; ask alice = {status}; key alice");
        app.play(&format!("{steps}; /allowed = {is_allowed}")).await;
        assert_eq!(counted(&app).blocked, u64::from(!is_allowed));
    }
}

/// A denial by an operator is no estimate: nothing that is given back makes room.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_makes_no_room() {
    let app = App::new(Page::allow_changes);
    let admitted = app.limits.check("search", user("alice")).await;
    let charge = admitted.expect("there is room").charge.expect("a charge");
    app.block("alice", 600).await;
    let ask = async || app.send(search("alice")).await;
    assert_eq!(ask().await.field("retry-after"), "600");
    charge.refund().await.expect("given back");
    assert_eq!(ask().await.field("retry-after"), "600");
}
