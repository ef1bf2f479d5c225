//! A key that is blocked: denied everywhere without a question, charged nothing, and over in time.

use std::sync::Mutex;

use tidegate::callback::Denied;
use tidegate::decision::{Source, Verdict};
use tidegate::metrics::{DecisionOutcome, RuleSnapshot};
use tidegate::store::OperatorKey;
use tidegate::{Decision, Limits};

use super::let_through::{OBEYS, obeys, two};
use super::*;

impl App {
    async fn block(&self, name: &str, seconds: u64) -> Answer {
        let body = json!({"rule": "search", "key": name, "seconds": seconds});
        self.post("block", body).await
    }

    fn counted(&self) -> RuleSnapshot {
        self.limits
            .snapshot()
            .rule("search")
            .expect("a rule")
            .clone()
    }

    /// How many keys are let through, and blocked.
    async fn listed(&self) -> [usize; 2] {
        let seen = self.view("limited").await;
        ["let_through", "blocked"].map(|list| seen[list].as_array().expect("a list").len())
    }
}

async fn check(limits: &Limits, name: &str) -> Option<Decision> {
    let checked = limits.check("search", user(name)).await;
    checked.err()?.decision().cloned()
}

/// In layers and in `check`, also in a process that has no page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_obey_within_two_seconds_and_charge_nothing() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    let joined = Limits::new([hourly("search", 2)]).store(store(&server.url, "shop"));
    joined.join_fleet();
    assert_eq!(there.search("alice").await, 200);
    let ends = here.block("alice", 600).await.expect_ok("blocked");
    assert_eq!(ends, json!({"ends_in_s": 600.0}));
    assert_eq!(here.search("alice").await, 429, "at once where it was done");
    let began = Instant::now();
    // Its limit may deny it before.
    while there.counted().blocked == 0 {
        assert!(began.elapsed() < OBEYS + SLACK);
        there.search("alice").await;
        sleep(Duration::from_millis(20)).await;
    }
    let took = began.elapsed();
    let denial = loop {
        if let Some(denial) = check(&joined, "alice").await
            && denial.source() == Source::Operator
        {
            break denial;
        }
        assert!(began.elapsed() < OBEYS + SLACK);
        sleep(Duration::from_millis(20)).await;
    };
    println!("obeyed after {took:?} and {:?}", began.elapsed());
    let Verdict::Denied { retry_after } = denial.verdict() else {
        panic!("{denial:?}");
    };
    assert!((500..=600).contains(&retry_after.as_secs()), "{denial:?}");
    assert_eq!((denial.remaining(), denial.receipt()), (0, None));

    let used = there.used("alice").await;
    let before = there.counted();
    for _ in 0..50 {
        assert_eq!(there.search("alice").await, 429);
    }
    assert_eq!(there.used("alice").await, used, "nothing is charged");
    let after = there.counted();
    assert_eq!(after.blocked - before.blocked, 50);
    let denied = |it: &RuleSnapshot| it.decisions_by(DecisionOutcome::Denied, Source::Operator);
    assert_eq!(denied(&after) - denied(&before), 50);
    assert_eq!(after.denials, before.denials, "no quota denied it");
    for name in ["alic", "alice2", "Alice", "bob"] {
        assert_eq!(there.search(name).await, 200, "{name}");
    }
    let answer = there
        .post("key", json!({"rule": "search", "key": "alice"}))
        .await;
    let left = answer.expect_ok("look it up");
    let ends = left["blocked_in_s"].as_f64().expect("it is blocked");
    assert!((500.0..=600.0).contains(&ends), "{left}");
    assert_eq!(
        (&left["allowed"], &left["let_through_in_s"]),
        (&json!(false), &json!(null))
    );

    // It ends early, everywhere.
    there.block("alice", 0).await.expect_ok("ended");
    let began = Instant::now();
    while check(&joined, "alice").await.map(|it| it.source()) == Some(Source::Operator) {
        assert!(began.elapsed() < OBEYS + SLACK);
        sleep(Duration::from_millis(20)).await;
    }
    here.wait("limited", OBEYS + SLACK, |it| it["blocked"] == json!([]))
        .await;
}

/// The client sees an ordinary denial until the block's end, and the callback who denied it.
#[tokio::test(start_paused = true)]
async fn it_is_a_denial_that_ends_on_time() {
    let app = App::new(|page| {
        page.allow_changes()
            .show_keys()
            .actor(|_| Some("eve".into()))
    });
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
    app.block("alice", 60).await.expect_ok("blocked");
    sleep(Duration::from_millis(2_500)).await;
    let ask = async |router: &Router| {
        let request = Request::get("/search").header("x-user", "alice");
        send(router, request.body(Body::empty()).expect("a request")).await
    };
    for router in [&app.router, &own] {
        let answer = ask(router).await;
        assert_eq!(answer.status, 429);
        assert_eq!(answer.field("retry-after"), "58", "{answer:?}");
        assert_eq!(answer.field("ratelimit"), "\"search\";r=0;t=58");
    }
    assert_eq!(*sources.lock().expect("no panic"), [Source::Operator]);
    let seen = app.view("limited").await;
    let row = &seen["blocked"][0];
    assert_eq!((&row["key"], &row["by"]), (&json!("alice"), &json!("eve")));
    assert_eq!(seen["rows"], json!([]), "it is in the other list");
    sleep(Duration::from_millis(57_499)).await;
    assert_eq!(ask(&app.router).await.status, 429);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(ask(&app.router).await.status, 200);
    assert_eq!(app.listed().await, [0, 0]);
}

/// What was said of a key last holds, and nobody ends what another one began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_both_ends_the_other() {
    let server = Redis::start();
    let [here, there] = two(&server).await;
    for app in [&App::new(Page::allow_changes), &here] {
        let is = async |status: u16, listed: [usize; 2]| {
            // The process has read the lists again.
            sleep(OBEYS).await;
            assert_eq!(app.search("alice").await, status);
            assert_eq!(app.listed().await, listed);
        };
        app.let_through("alice", 600).await.expect_ok("let through");
        app.block("alice", 60).await.expect_ok("blocked");
        is(429, [0, 1]).await;
        app.let_through("alice", 0).await.expect_ok("it was not");
        is(429, [0, 1]).await;
        app.let_through("alice", 600).await.expect_ok("let through");
        is(200, [1, 0]).await;
        app.block("alice", 0).await.expect_ok("it was not");
        is(200, [1, 0]).await;
    }
    obeys(&there, "alice", 200).await;
    // A process that knows nothing of blocks lets a key through that is blocked.
    there.block("alice", 60).await.expect_ok("blocked");
    let fleet = "{shop:CurrentLimiter:~fleet}";
    let mut admin = server.connection();
    redis::cmd("EVAL")
        .arg(
            "local now = redis.call('TIME')[1] * 1000 \
              redis.call('ZADD', KEYS[1], now + 60000, 'alice 6 search') \
              redis.call('INCR', KEYS[2])",
        )
        .arg(2)
        .arg(format!("{fleet}:let-through"))
        .arg(format!("{fleet}:version"))
        .exec(&mut admin)
        .expect("written");
    sleep(OBEYS + Duration::from_millis(500)).await;
    for app in [&here, &there] {
        assert_eq!(
            (app.search("alice").await, app.listed().await),
            (429, [0, 1])
        );
    }
}

/// Each list has its own room: whoever fills one takes nothing from the other.
async fn lists_of_their_own(app: &App) {
    let (through, block) = (
        async |name: String| app.let_through(&name, 3_600).await.status,
        async |name: String| app.block(&name, 3_600).await.status,
    );
    let count = |statuses: Vec<u16>| statuses.iter().filter(|it| **it == 200).count();
    let mut statuses = Vec::new();
    for at in 0..OperatorKey::MAX + 50 {
        statuses.push(through(format!("guest{at}")).await);
    }
    assert_eq!(count(statuses), OperatorKey::MAX);
    let mut statuses = Vec::new();
    for at in 0..OperatorKey::MAX + 50 {
        statuses.push(block(format!("thief{at}")).await);
    }
    assert_eq!(count(statuses), OperatorKey::MAX, "beside a full list");
    let said = app.block("another", 60).await.expect_refusal("no room");
    assert!(said.contains("1000 keys are blocked"), "{said}");
    sleep(OBEYS).await;
    assert_eq!(app.listed().await, [OperatorKey::MAX; 2]);
    assert_eq!(app.search("another").await, 200);
    assert_eq!(app.search("thief999").await, 429);
    // The other list has no room for it, so it stays what it was.
    app.let_through("thief7", 60)
        .await
        .expect_refusal("no room");
    assert_eq!(app.search("thief7").await, 429);
    app.block("thief7", 60).await.expect_ok("shortened");
    app.block("thief7", 0).await.expect_ok("ended");
    app.block("another", 60).await.expect_ok("there is room");
    assert_eq!(app.search("another").await, 429);
}

#[tokio::test]
async fn a_full_list_leaves_the_other_alone_in_memory() {
    lists_of_their_own(&App::new(Page::allow_changes)).await;
}

#[tokio::test]
async fn a_full_list_leaves_the_other_alone_on_redis() {
    let server = Redis::start();
    let app = App::on(&server, Page::allow_changes);
    app.in_fleet().await;
    lists_of_their_own(&app).await;
}

/// A request that waits for units stops waiting.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_denied() {
    let app = App::new(Page::allow_changes);
    let layer = app.limits.layer("search").wait(Duration::from_secs(4_000));
    let router = Router::new().route("/search", get("found").layer(layer));
    app.use_up("alice").await;
    let began = Instant::now();
    let ask = async {
        let request = Request::get("/search").header("x-user", "alice");
        let answer = send(&router, request.body(Body::empty()).expect("a request")).await;
        (answer.status, began.elapsed())
    };
    let block = async {
        sleep(Duration::from_secs(5)).await;
        app.block("alice", 600).await.expect_ok("blocked");
    };
    let ((status, took), ()) = tokio::join!(ask, block);
    assert_eq!(status, 429);
    assert!(took < Duration::from_secs(5) + OBEYS, "after {took:?}");
    assert_eq!((app.counted().blocked, app.counted().waiting), (1, 0));
}

/// What denies nobody blocks nobody.
#[tokio::test(start_paused = true)]
async fn a_rule_that_does_not_limit_blocks_nobody() {
    let rules = |enabled: bool, shadow: bool| {
        let text = format!(
            "[rules.search]\nmax-count = 2\nwindow = \"1h\"\nenabled = {enabled}\nshadow = {shadow}"
        );
        Limits::from_toml(&text).expect("valid")
    };
    for (enabled, shadow, status) in [(true, false, 429), (false, false, 200), (true, true, 200)] {
        let app = App::of(rules(enabled, shadow), Page::allow_changes);
        app.block("alice", 600).await.expect_ok("blocked");
        assert_eq!(app.search("alice").await, status, "{enabled} {shadow}");
        let is_denied = status == 429;
        assert_eq!(app.counted().blocked, u64::from(is_denied));
        let look = app
            .post("key", json!({"rule": "search", "key": "alice"}))
            .await;
        assert_eq!(look.expect_ok("look it up")["allowed"], !is_denied);
    }
}

/// A denial by an operator is no estimate: nothing that is given back makes room.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_makes_no_room() {
    let app = App::new(Page::allow_changes);
    let admitted = app.limits.check("search", user("alice")).await;
    let charge = admitted.expect("there is room").charge.expect("a charge");
    app.block("alice", 600).await.expect_ok("blocked");
    let ask = async || {
        let request = Request::get("/search").header("x-user", "alice");
        let request = request.body(Body::empty()).expect("a request");
        app.send(request).await.field("retry-after").to_owned()
    };
    assert_eq!(ask().await, "600");
    charge.refund().await.expect("given back");
    assert_eq!(ask().await, "600");
}
