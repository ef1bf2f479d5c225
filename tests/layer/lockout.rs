//! Keys that are locked out after failures: what is a failure, what a denial says, and what else
//! may be switched on beside it.

use axum::routing::{get as on_get, post as on_post};
use tidegate::key::{self, BasicUser};
use tidegate::layer::LockedOut;
use tidegate::rule::{Lockout, Subject};
use tidegate::store::Attempts;

use crate::*;

const FILE: &str = r#"
    [rules.login]
    key = "header:x-user"
    max-count = 100
    window = "1m"
    lockout = { after = 5, within = "15m", hold = ["15m", "1h", "1d"], on = ["401"] }
"#;
const QUARTER: Duration = Duration::from_secs(900);
const NONE: [&str; 0] = [];

fn login() -> Rule {
    per_minute("login", 100).with_key(Header::new("x-user"))
}

fn lockout() -> Lockout {
    Lockout::after(3).hold([QUARTER, HOUR]).on(["401"])
}

fn locked(lockout: Lockout) -> Rule {
    login().with_lockout(lockout).expect("it makes sense")
}

fn world(rule: Rule) -> World {
    World::paused([rule])
}

fn world_of(limits: Limits) -> World {
    World::with_layers(limits, &["login"], |layer| layer)
}

/// The statuses of requests of a user that the handler answers with these.
async fn sent(world: &World, user: &str, statuses: &[u16]) -> Vec<u16> {
    let mut seen = Vec::new();
    for status in statuses {
        let fields = format!("x-user: {user}, x-status: {status}");
        seen.push(world.ask("login", &fields).await.status);
    }
    seen
}

/// The same while time is paused: what is admitted in the instant of a success does not count.
async fn answers(world: &World, user: &str, statuses: &[u16]) -> Vec<u16> {
    let mut seen = Vec::new();
    for status in statuses {
        advance(Duration::from_micros(1)).await;
        seen.extend(sent(world, user, &[*status]).await);
    }
    seen
}

async fn is_locked_out(world: &World, user: &str) -> bool {
    let checked = world.limits.check("login", user).await;
    let decision = checked.err().and_then(|it| it.decision().cloned());
    decision.is_some_and(|it| it.is_locked_out())
}

/// Why alice is not admitted now.
async fn refused(limits: &Limits) -> Refused {
    let refused = limits.check("login", "alice").await.expect_err("no room");
    let decision = refused.decision().expect("it was denied");
    assert!(decision.is_locked_out(), "{decision:?}");
    refused
}

/// What locks a key out.
#[test]
fn guesses() {
    kit::call_steps::play_calls("tests/layer/guesses.txt");
}

#[tokio::test(start_paused = true)]
async fn wrong_passwords_lock_a_user_out_longer_each_time() {
    let limits = of_toml(FILE).store(paused());
    let world = world_of(limits);
    for hold in [900, 3_600, 86_400, 86_400] {
        assert_eq!(answers(&world, "alice", &[401; 5]).await, [401; 5]);
        let denied = world.ask("login", "x-user: alice").await;
        assert_eq!(denied.status, 429);
        assert_eq!(denied.field("retry-after"), Some(&*hold.to_string()));
        let limit = format!("\"login\";r=0;t={hold}");
        assert_eq!(denied.field("ratelimit"), Some(&*limit));
        let shown = ["content-type", "cache-control"].map(|name| denied.field(name));
        assert_eq!(shown, ["application/problem+json", "no-store"].map(Some));
        let text = refused(&world.limits).await.to_string();
        let expected = "this key of login is locked out after failures, again in";
        assert!(text.starts_with(expected), "{text}");
        let document: Value = serde_json::from_str(&denied.body).expect("JSON");
        let kind = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
        let told = [&document["type"], &document["status"]];
        assert_eq!(told, [&json!(kind), &json!(429)]);
        let verdict = denied.decision().verdict();
        let retry_after = Duration::from_secs(hold);
        assert_eq!(verdict, Verdict::LockedOut { retry_after });
        // Nobody else is.
        assert_eq!(answers(&world, "bob", &[200]).await, [200]);
        advance(retry_after - SECOND).await;
        assert_eq!(answers(&world, "alice", &[200]).await, [429]);
        advance(SECOND).await;
    }
    // The right password, which does not say that it is right: steps end a day later.
    assert_eq!(answers(&world, "alice", &[200]).await, [200]);
    advance(Duration::from_secs(86_401)).await;
    answers(&world, "alice", &[401; 5]).await;
    let denied = world.ask("login", "x-user: alice").await;
    assert_eq!(denied.field("retry-after"), Some("900"));
    let counted = counted(&world.limits, "login");
    assert_eq!(counted.decisions(DecisionOutcome::LockedOut), 13);
    assert_eq!(counted.decisions(DecisionOutcome::Denied), 0);
}

/// A service behind HTTP Basic: who asks without the field gets the challenge, which is no failure,
/// and whose password is guessed is locked out under each address.
#[tokio::test(start_paused = true)]
async fn http_basic() {
    let limits = of_toml(
        r#"
        [rules.git]
        key = "basic-user"
        max-count = 100
        window = "1m"
        lockout = { after = 5, hold = ["15m"], on = ["401"] }
        "#,
    );
    let limits = limits.store(paused());
    let limits = limits.exempt(|head| !head.headers.contains_key("authorization"));
    let git = async |request: Request<Body>| match request.headers().get("authorization") {
        Some(field) if field == "Basic YWRhOnJpZ2h0" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    };
    let app = Router::new().route("/", on_get(git).layer(limits.layer("git")));
    let send = async |fields: &str| kit::http::ask(&app, "/", fields).await.status;
    for guess in ["YWRhOmE=", "YWRhOmI=", "YWRhOmM=", "YWRhOmQ=", "YWRhOmU="] {
        assert_eq!(send("accept: */*").await, 401);
        assert_eq!(send(&format!("authorization: Basic {guess}")).await, 401);
    }
    assert_eq!(send("authorization: Basic YWRhOnJpZ2h0").await, 429);
    assert_eq!(send("authorization: Basic Ym9iOng=").await, 401);
    assert_eq!(send("accept: */*").await, 401);
    assert_eq!(send("authorization: Bearer x").await, 400);
    advance(QUARTER).await;
    assert_eq!(send("authorization: Basic YWRhOnJpZ2h0").await, 200);
}

/// Right requests are never bounded by it, however many run side by side and however long.
#[tokio::test(start_paused = true)]
async fn fifty_right_requests_side_by_side() {
    for hold in [10, 11_000] {
        let rule = per_minute("git", 50).with_key(tidegate::key::BasicUser);
        let lockout = Lockout::after(5).hold([QUARTER]).on(["401"]);
        let world = world(rule.with_lockout(lockout).expect("it makes sense"));
        let fields = format!("authorization: Basic YWRhOnJpZ2h0, x-hold: {hold}");
        let answers = join_all((0..50).map(|_| world.ask("git", &fields))).await;
        assert!(answers.iter().all(|it| it.status == 200), "{answers:?}");
        assert!(world.limits.warnings().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_locked_account_looks_like_a_wrong_password() {
    let limits = limits([locked(lockout().on(NONE))], paused());
    let checks = limits.clone();
    let sign_in = async move |password: String| {
        let admitted = checks.check("login", "alice").await;
        match admitted {
            Ok(_) if password == "right" => return Ok(StatusCode::NO_CONTENT),
            Ok(admitted) => admitted.charge.iter().for_each(|it| it.failed()),
            Err(refused) if refused.decision().is_some_and(Decision::is_locked_out) => {}
            Err(refused) => return Err(refused),
        }
        Ok(StatusCode::UNAUTHORIZED)
    };
    let app = Router::new().route("/", on_post(sign_in));
    let send = async |password: &'static str| {
        let request = Request::post("/").body(Body::from(password));
        let answer = call(&app, request.expect("valid")).await;
        let (status, headers) = (answer.status(), answer.headers().clone());
        (status, headers, text(answer).await)
    };
    assert_eq!(send("right").await.0, StatusCode::NO_CONTENT);
    let wrong = send("wrong").await;
    assert_eq!(wrong.0, StatusCode::UNAUTHORIZED);
    for _ in 0..2 {
        send("wrong").await;
    }
    assert!(limits.check("login", "alice").await.is_err());
    assert_eq!(send("right").await, wrong);
    assert_eq!(send("wrong").await, wrong);
}

/// A success is asked only where there are failures.
#[tokio::test]
async fn a_success_ends_failures() {
    let stores = Stores::start().await;
    for store in &stores.all {
        let rule = locked(lockout().reset_on(["303"]));
        let world = World::new([rule], Arc::clone(store));
        for _ in 0..5 {
            sent(&world, "alice", &[401, 401, 303]).await;
        }
        assert!(!is_locked_out(&world, "alice").await);
        kit::run(&stores.server, "CONFIG RESETSTAT");
        let before = stores.server.script_calls();
        sent(&world, "bob", &[303; 10]).await;
        assert!(world.limits.flush(PATIENT).await);
        let asked = stores.server.script_calls() - before;
        assert!(asked == 10 || asked == 0, "{asked}");
    }
}

/// A failure that the process could not tell for a while is not that of a slow request.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_late_makes_no_request_slow() {
    // It answers no change in its first 30 seconds.
    let began = Instant::now();
    let stalls = kit::stub::Stub::around(paused()).change_fn(move |inner, ask, change| {
        if began.elapsed() > 30 * SECOND {
            return inner.change(ask, change);
        }
        let away = StoreError::new(StoreErrorKind::Unavailable, "it is away");
        StoreFuture::ready(Err(away))
    });
    let world = World::new([locked(lockout().hold([QUARTER, HOUR]))], stalls);
    let fields = "x-user: alice, x-status: 401, x-hold: 100";
    join_all((0..50).map(|_| world.ask("login", fields))).await;
    sleep(MINUTE).await;
    assert!(world.limits.flush(PATIENT).await);
    let left = refused(&world.limits).await.retry_after();
    assert!(left <= Some(QUARTER), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_nothing_until_then() {
    let rule = locked(lockout()).with_max_concurrent(3);
    let world = world(rule.expect("it makes sense"));
    answers(&world, "alice", &[401; 3]).await;
    let peeked = world.limits.peek("login", "alice").await;
    let peeked = peeked.expect("an answer").expect("there is a rule");
    assert_eq!((peeked.remaining(), peeked.reset_after()), (0, QUARTER));
    let usage = world.limits.usage(["login"]).expect("it has a key");
    let app = Router::new().route("/", on_get(usage.clone().handler()));
    let shown = kit::http::ask(&app, "/", "x-user: alice").await;
    let policy = "{\"name\":\"login\",\"limit\":100,\"remaining\":0,\"reset\":900,\"window\":60}";
    assert!(shown.body.contains(policy), "{}", shown.body);
    let permits = "\"limit\":3,\"remaining\":0}";
    assert!(shown.body.contains(permits), "{}", shown.body);
    let request = http::Request::get("/").header("x-user", "alice").body(());
    let (head, ()) = request.expect("a request").into_parts();
    let usage = usage.read(head).await.expect("an answer");
    let retry_after = QUARTER;
    let held = Verdict::LockedOut { retry_after };
    assert_eq!(usage.rules[0].decision.verdict(), held);
    let shown = kit::http::ask(&app, "/", "x-user: bob").await;
    assert!(shown.body.contains("\"remaining\":3"), "{}", shown.body);
    assert_eq!(world.left("login", "bob").await, 3);
}

/// One line when a hold begins. Its key is what the page calls it: its text, masked where it looks
/// like a token, or the hash by which its row goes.
#[tokio::test(start_paused = true)]
async fn the_line_names_the_key_as_the_page_does() {
    let token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    for (shows, user, expected) in [
        (true, "alice", "key=\"alice\""),
        (true, token, "key=\"ghp_…\""),
        (false, "alice", "key=\""),
    ] {
        let log = kit::log::Log::start();
        let world = world(locked(lockout()));
        let page = world.limits.page();
        let page = if shows { page.show_keys() } else { page };
        let app = Router::new().nest_service("/limits", page.router());
        answers(&world, user, &[401; 9]).await;
        let mut lines = log.lines();
        lines.retain(|it| it.contains("a key is locked out"));
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        let parts = words("WARN path=\"login\" step=1 until=\" Z\" shadow=false").into_iter();
        for part in parts.chain([expected]) {
            assert!(line.contains(part), "{line}");
        }
        assert_eq!(line.contains("alice"), shows && user == "alice", "{line}");
        if !shows {
            let view = kit::http::ask(&app, "/limits/api/limited", "").await.body;
            let row = line.split("key=\"").nth(1);
            let row = row.and_then(|it| it.split('"').next()).expect("a key");
            assert!(view.contains(row), "{row}: {view}");
        }
    }
}

/// It counts and denies nobody, and its line says so.
#[tokio::test(start_paused = true)]
async fn in_shadow() {
    let log = kit::log::Log::start();
    let world = world(locked(lockout().reset_on(["303"])).into_shadow());
    let mut warnings = log.lines().into_iter();
    assert!(warnings.all(|it| it.contains("tidegate::warning")));
    answers(&world, "alice", &[401, 401, 303]).await;
    assert_eq!(answers(&world, "alice", &[401, 401]).await, [401; 2]);
    assert!(log.lines().is_empty());
    let statuses = [401, 200, 401];
    assert_eq!(answers(&world, "alice", &statuses).await, statuses);
    let lines = log.lines();
    let [line] = &lines[..] else {
        panic!("{lines:?}")
    };
    for part in ["a key is locked out", "shadow=true", "step=1"] {
        assert!(line.contains(part), "{line}");
    }
    let counted = counted(&world.limits, "login");
    assert_eq!(counted.decisions(DecisionOutcome::ShadowDenied), 2);
}

/// A storm of stuffed credentials: each key is counted, and ten have a line of their own.
#[tokio::test(start_paused = true)]
async fn the_lines_of_a_storm_are_bounded() {
    let log = kit::log::Log::start();
    let world = world(locked(lockout()));
    for account in 0..300 {
        answers(&world, &account.to_string(), &[401; 4]).await;
    }
    tokio::time::sleep(10 * SECOND).await;
    let lines = log.lines();
    let number = |text: &str| lines.iter().filter(|it| it.contains(text)).count();
    assert_eq!(number("a key is locked out"), 10, "{lines:?}");
    let more = "more keys are locked out path=\"login\" keys=290";
    let counted = counted(&world.limits, "login");
    assert_eq!(counted.lockouts, 300);
    let denied = counted.decisions(DecisionOutcome::LockedOut) - 1;
    let denied = format!("requests were denied path=\"login\" denied={denied}");
    assert_eq!([more, &denied].map(number), [1, 1]);
}

type Told = Arc<Mutex<Vec<LockedOut>>>;

/// Limits that note who is locked out.
fn telling(rule: Rule, store: impl Store, told: &Told) -> Limits {
    let told = Arc::clone(told);
    Limits::new([rule]).store(store).on_lockout(move |it| {
        let told = Arc::clone(&told);
        async move { told.lock().expect("no panic").push(it) }
    })
}

/// What was told by now, which is so much.
async fn told_in_all(told: &Told, number: usize) -> Vec<LockedOut> {
    let number_told = || told.lock().expect("no panic").len();
    eventually("a call", async || number_told() >= number).await;
    // Nothing more comes.
    sleep(kit::millis(20)).await;
    let told = told.lock().expect("no panic").clone();
    assert_eq!(told.len(), number, "{told:?}");
    told
}

/// However many fail side by side, and are dropped, code is told of the hold once, with the key.
#[tokio::test]
async fn each_hold_is_told_once() {
    for store in &Stores::start().await.all {
        let told = Told::default();
        let limits = telling(locked(lockout()), Arc::clone(store), &told);
        let world = world_of(limits);
        for holds in 1..=2 {
            let guess = || world.ask("login", "x-user: alice, x-hold: 20, x-status: 401");
            join_all((0..20).map(|_| guess())).await;
            assert_eq!(sent(&world, "bob", &[401; 2]).await, [401; 2]);
            let last = told_in_all(&told, holds).await.pop().expect("one");
            assert_eq!((&*last.path, last.key.as_str()), ("login", "alice"));
            assert_eq!((last.step, last.is_shadow), (1, false));
            let left = last.until.duration_since(std::time::SystemTime::now());
            let left = left.expect("it is to come");
            assert!(left > QUARTER - MINUTE && left <= QUARTER, "{left:?}");
            for user in ["alice", "bob"] {
                world.limits.reset("login", user).await.expect("an answer");
            }
        }
    }
}

/// What code needs for a mail: the value that the client sent; of several subjects that of the one
/// that is held, without its name; and whether the rule is in shadow.
#[tokio::test(start_paused = true)]
async fn the_key_says_whose_account_it_is() {
    let name = || Header::new("x-user");
    let peer = || Header::new("x-peer");
    let of_key = |key: Arc<dyn KeyExtractor>| locked(lockout()).with_key(key);
    let subject = |path| Subject::new(path, name()).limit(Quota::per_hour(9));
    let joint = Rule::joint("login", [subject("net"), subject("user")]).expect("valid");
    let joint = joint.with_lockout(lockout().subject("user"));
    let joint = joint.expect("it makes sense").into_shadow();
    let (ada, long) = ("Ada: 100% <a|b>", &*"x".repeat(65));
    let both = of_key(Arc::new((name(), key::Method)));
    for (rule, user, expected) in [
        (of_key(Arc::new(name())), ada, &[Some(ada)][..]),
        (of_key(Arc::new(name().or(peer()))), ada, &[Some(ada)]),
        (of_key(Arc::new(peer().or(name()))), ada, &[Some(ada)]),
        (both, ada, &[Some(ada), Some("GET")]),
        (of_key(Arc::new(name())), long, &[None]),
        (joint, "alice", &[Some("alice")]),
    ] {
        let (told, is_shadow) = (Told::default(), rule.is_shadow());
        let world = world_of(telling(rule, paused(), &told));
        answers(&world, user, &[401; 6]).await;
        let told = told_in_all(&told, 1).await.remove(0);
        let parts: Vec<_> = told.key.parts().collect();
        let parts: Vec<_> = parts.iter().map(Option::as_deref).collect();
        assert_eq!((&parts[..], told.is_shadow), (expected, is_shadow));
        assert_eq!(told.step, 1, "{told:?}");
        assert!(!is_shadow || told.key.as_str() == user, "{told:?}");
    }
}

/// Code that panics is told of the next hold, and one that hangs keeps nobody waiting.
#[tokio::test(start_paused = true)]
async fn code_that_panics_or_hangs() {
    let calls = Arc::new(AtomicUsize::new(0));
    let called = Arc::clone(&calls);
    let log = kit::log::Log::start();
    let limits = limits([locked(lockout())], paused()).on_lockout(move |_| {
        let number = called.fetch_add(1, Ordering::Relaxed);
        assert!(number > 0, "of a user");
        std::future::pending()
    });
    let world = world_of(limits);
    for user in 0..1_030 {
        answers(&world, &user.to_string(), &[401; 3]).await;
    }
    eventually("calls", async || calls.load(Ordering::Relaxed) >= 1_025).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1_025, "and others are lost");
    let lines = log.lines();
    let number = |part: &str| lines.iter().filter(|it| it.contains(part)).count();
    assert_eq!(number("a panic was caught"), 1, "{lines:?}");
    // Of the first, the second and the fourth.
    assert_eq!(number("could not be told"), 3, "{lines:?}");
}

/// A failure that is said in each way counts once, and code hears what is left, also behind the
/// hold.
#[tokio::test]
async fn what_is_left_behind_a_failure() {
    for store in &Stores::start().await.all {
        let limits = limits_of(&locked(lockout()), store);
        let fails = async |charges: Charges| {
            let login = charges.of("login");
            let first = login.first().expect("it was charged").tell_failure().await;
            login.failed();
            let again = login[0].clone().tell_failure().await.expect("an answer");
            assert_eq!(first.as_ref().ok(), Some(&again));
            (StatusCode::UNAUTHORIZED, format!("{again:?}"))
        };
        let app = Router::new().route("/", on_get(fails).layer(limits.layer("login")));
        let charge = async |user: &str| {
            let admitted = limits.check("login", user).await.expect("there is room");
            admitted.charge.expect("it was charged")
        };
        let late = charge("alice").await;
        for left in [2, 1] {
            let answer = ask(&app, "/", "x-user: alice").await;
            assert_eq!(answer.body, format!("Some(Left({left}))"));
        }
        let last = charge("alice").await;
        for charge in [last, late] {
            let attempts = charge.tell_failure().await.expect("an answer");
            let Some(Attempts::LockedOut { until }) = attempts else {
                panic!("{attempts:?}");
            };
            let left = until.duration_since(std::time::SystemTime::now());
            assert!(left.is_ok_and(|it| it > QUARTER - MINUTE && it <= QUARTER));
        }
        // It is said when it is polled first, and a success ends it.
        let left = async |charge: &tidegate::store::Charge| {
            let attempts = charge.tell_failure().await.expect("an answer");
            attempts.expect("it is counted")
        };
        drop(charge("bob").await.tell_failure());
        assert_eq!(left(&charge("bob").await).await, Attempts::Left(2));
        drop(poll_immediate(charge("bob").await.tell_failure()).await);
        assert!(limits.flush(PATIENT).await);
        let (right, wrong) = (charge("bob").await, charge("bob").await);
        right.succeeded();
        assert_eq!(left(&right).await, Attempts::Left(3));
        assert_eq!(left(&wrong).await, Attempts::Left(2));
    }
}

/// Without a lock-out or a key there is nothing to count; a fallback counts for itself, and holds
/// the key; a store that counts no failures says so.
#[tokio::test(start_paused = true)]
async fn what_is_left_elsewhere() {
    let left = async |limits: &Limits, key: &'static [&str]| {
        let key = key.iter().fold(Key::default(), |key, part| key.with(*part));
        let admitted = limits.check("login", key).await;
        let charge = admitted.expect("there is room").charge;
        let told = charge.expect("it was charged").tell_failure().await;
        told.map_err(|it| it.kind())
    };
    let of = |rule: Rule| limits([rule], paused());
    assert_eq!(left(&of(login()), &["alice"]).await, Ok(None));
    let no_key = per_minute("login", 9).with_lockout(lockout());
    assert_eq!(left(&of(no_key.expect("valid")), &[]).await, Ok(None));
    let rule = || locked(lockout());
    let lacking = limits([rule()], kit::stub::Stub::that_cannot_owe());
    let error = left(&lacking, &["alice"]).await;
    assert_eq!(error, Err(StoreErrorKind::Configuration));
    let away = kit::stub::Stub::answering(paused(), |_| {
        let error = StoreError::new(StoreErrorKind::Unavailable, "away");
        Some(StoreFuture::ready(Err(error)))
    });
    let shared = Share::of_processes(2);
    let limits = limits([rule()], Resilient::bare(away).fallback(shared));
    let statuses = sent(&world_of(limits.clone()), "bob", &[401; 5]).await;
    assert_eq!(statuses, [401, 401, 401, 429, 429]);
    for expected in [2, 1] {
        let expected = Ok(Some(Attempts::Left(expected)));
        assert_eq!(left(&limits, &["alice"]).await, expected);
    }
    let held = left(&limits, &["alice"]).await;
    let is_held = matches!(held, Ok(Some(Attempts::LockedOut { .. })));
    assert!(is_held, "{held:?}");
}

/// A quota that denies for longer is what the answer names.
#[tokio::test(start_paused = true)]
async fn beside_a_quota_that_denies_for_longer() {
    let rule = per_hour("login", 3).with_lockout(lockout());
    let limits = limits([rule.expect("valid")], paused());
    for _ in 0..3 {
        let admitted = limits.check("login", "alice").await.expect("room");
        admitted.charge.expect("it was charged").failed();
    }
    let refused = refused(&limits).await;
    let decision = refused.decision().expect("it was denied");
    let denied_by = decision.denied_by(refused.rule().policies());
    assert_eq!(denied_by.count(), 1);
    let text = text(refused.into_response()).await;
    assert!(text.contains("#quota-exceeded"), "{text}");
}

/// A gRPC request by the status in its head; its denial is a status 8.
#[tokio::test(start_paused = true)]
async fn grpc() {
    let limits = limits([locked(lockout().on(["grpc-16"]))], paused());
    let unauthenticated = any(async || [("grpc-status", "16")]);
    let app = Router::new().route("/", unauthenticated.layer(limits.layer("login")));
    let fields = "content-type: application/grpc, x-user: alice";
    for _ in 0..3 {
        let answer = ask(&app, "/", fields).await;
        assert_eq!(answer.field("grpc-status"), Some("16"));
    }
    let denied = ask(&app, "/", fields).await;
    let shown = (denied.status, denied.field("grpc-status"));
    assert_eq!(shown, (200, Some("8")));
    assert_eq!(denied.field("retry-after"), Some("900"));
    assert!(denied.field("grpc-status-details-bin").is_some());
    let message = denied.field("grpc-message").expect("a message");
    assert!(message.contains("abnormal request pattern"), "{message}");
}

/// A key of code that is everyone holds nobody, which a warning says, and so it is without a key:
/// one failing client would lock everybody out.
#[tokio::test(start_paused = true)]
async fn everyone_by_code() {
    type Change = fn(RateLimitLayer) -> RateLimitLayer;
    let cases: [(Change, bool); 5] = [
        (|layer| layer, true),
        (|layer| layer.key(Everyone), true),
        (|layer| layer.key(Header::new("x-user").or(Everyone)), true),
        (|layer| layer.key(tidegate::key::MatchedPath), true),
        (|layer| layer.key(Header::new("x-user")), false),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        let log = Log::start();
        let rule = per_minute("login", 100).with_lockout(lockout());
        let limits = Limits::new([rule.expect("it makes sense")]).store(paused());
        let world = World::with_layers(limits, &["login"], change);
        if at == 0 {
            assert_eq!(world.statuses("login", "x-status: 401", 9).await, [401; 9]);
            assert_eq!(log.count("failures of requests without a key"), 1);
        }
        world.ask("login", "x-user: alice").await;
        let mut warnings = world.limits.warnings();
        warnings.retain(|it| it.to_string().contains("its key is everyone"));
        assert_eq!(!warnings.is_empty(), expected, "{at}");
    }
}

/// The file's mistakes are those of `mistakes/lockout.toml`.
#[test]
fn what_makes_no_sense() {
    use Algorithm::{FixedWindow, Gcra, SlidingLog, SlidingWindow};

    let (ok, span) = (lockout, || lockout().within(HOUR));
    let hourly = |max, cost, algorithm: Algorithm| {
        let rule = Rule::new("login", [Quota::per_hour(max)]).expect("valid");
        rule.with_cost(cost).with_algorithm(algorithm)
    };
    let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_minute(9));
    let all = Subject::new("all", Everyone).limit(Quota::per_minute(9));
    let joint = || Rule::joint("login", [all.clone(), user.clone()]).expect("valid");
    let of_nobody = Arc::new(BasicUser.or(Joined::new([])));
    let few = Quotas::new([Quota::per_day(1)]).expect("valid");
    let with_plan = login().with_plan("few", few.clone()).expect("valid");
    let unlimited = Quotas::with_policies([Policy::from(Quota::per_minute(9)).with_subject("all")]);
    let unlimited = unlimited.expect("valid").unlimited(["user"]);
    let lifted = joint().with_plan("lifted", unlimited).expect("valid");
    let after = "a lock-out after 1 to 100 failures was expected";
    let times = "within and hold of a lock-out, expected 1 s to ten years";
    let fewer = "2 per 1h admits fewer than 3 requests within that time";
    let everyone = "one failing client would lock everyone out, expected a key";
    for (rule, lockout, expected) in [
        (login(), ok(), ""),
        (login(), ok().on(NONE), ""),
        (login(), ok().on(["denied"]), "what is denied is no failure"),
        (login(), ok().on(["wrong"]), "\"wrong\" is no outcome.."),
        (login(), Lockout::after(0).hold([HOUR]).on(NONE), after),
        (login(), Lockout::after(101).hold([HOUR]).on(NONE), after),
        (login(), ok().hold([millis(999)]), times),
        (login(), ok().within(Duration::MAX), times),
        (hourly(2, 1, Gcra), ok(), fewer),
        (hourly(2, 1, SlidingLog), span(), fewer),
        (hourly(2, 1, SlidingWindow), span(), fewer),
        // A span of an hour may have the ends of two fixed windows.
        (hourly(2, 1, FixedWindow), span(), ""),
        (hourly(5, 2, SlidingLog), span(), "5 per 1h admits fewer.."),
        (hourly(6, 2, SlidingLog), span(), ""),
        (joint(), ok().subject("net"), "there is no subject \"net\""),
        (per_minute("login", 9).with_key(Everyone), ok(), everyone),
        (per_minute("login", 9).with_key(of_nobody), ok(), everyone),
        (with_plan, ok(), "1 per 1d admits fewer.."),
        (lifted, ok().subject("user"), "no window counts.."),
    ] {
        let error = rule.with_lockout(lockout).err();
        let error = error.map_or(String::new(), |it| it.to_string());
        let is_right = match expected.strip_suffix("..") {
            Some(beginning) => error.starts_with(beginning),
            None => error == expected,
        };
        assert!(is_right, "{error}, not {expected}");
    }
    // In the other order.
    assert!(locked(ok()).with_plan("few", few).is_err());
    assert!(locked(ok()).with_outgoing().is_err());
}

/// A rule of one key need not name its subject, where a quota has a cost of its own.
#[tokio::test]
async fn the_only_subject_is_taken() {
    let text = |key| {
        format!(
            "[rules.login]\nkey = {key}\nquotas = [{{ max-count = 100, window = '1m' }}, \
             {{ max-count = 400, window = '1h', cost = 1 }}]\n\
             lockout = {{ after = 3, hold = ['15m'], on = ['401'] }}"
        )
    };
    let per_request = Policy::from(Quota::per_hour(400)).with_cost(1);
    let quotas = [Quota::per_minute(100).into(), per_request];
    let of_code = Rule::with_policies("login", quotas).expect("valid");
    let of_code = of_code.with_lockout(lockout()).expect("it makes sense");
    for store in &Stores::start().await.all {
        for limits in [
            of_toml(&text("'header:x-user'")),
            Limits::new([of_code.clone()]).key(Header::new("x-user")),
        ] {
            let limits = limits.store(Arc::clone(store));
            let world = world_of(limits);
            for status in [401, 401, 401, 429] {
                assert_eq!(sent(&world, "alice", &[401]).await, [status]);
            }
            assert_eq!(sent(&world, "bob", &[200]).await, [200]);
            let key = Header::new("x-user").key("alice");
            assert!(world.limits.reset("login", key).await.expect("an answer"));
        }
    }
    // What is wrong with its key is told, too.
    let told = kit::kinds(&of_toml(&text("'bearer'")));
    assert_eq!(told, "LockoutOfGuesses LockoutOfBursts");
}

/// How many guesses the rule of the recipe for HTTP Basic lets pass in a day, by how many seconds one
/// takes: without permits those that were admitted before a hold end behind it.
#[tokio::test(start_paused = true)]
async fn guesses_that_end_late() {
    for (seconds, permits, expected) in [
        (0, None, 120),
        (3_600, None, 24_400),
        (600, Some(4), 144),
        (3_600, Some(4), 96),
    ] {
        let lockout = Lockout::after(5).hold([HOUR]).on(["401"]);
        let rule = per_minute("git", 50).with_key(Header::new("x-user"));
        let rule = rule.with_lockout(lockout).expect("it makes sense");
        let world = world(match permits {
            None => rule,
            Some(number) => rule.with_max_concurrent(number).expect("valid"),
        });
        let fields = format!("x-user: ada, x-status: 401, x-hold: {}", seconds * 1_000);
        let (end, mut passed) = (Instant::now() + 24 * HOUR, 0);
        while Instant::now() < end {
            let guess = world.start(0, "git", &fields);
            sleep(millis(1)).await;
            let answer = guess.now_or_never().map(|it| it.expect("no panic"));
            match answer.filter(|it| it.status == 429) {
                None => passed += 1,
                Some(it) => {
                    let wait = it.field("retry-after").expect("a time").parse();
                    sleep(Duration::from_secs(wait.expect("seconds"))).await;
                }
            }
        }
        assert_eq!(passed, expected, "{seconds} s, {permits:?}");
    }
}

#[test]
fn scenes() {
    kit::timeline::play("tests/layer/lockout.txt");
}
