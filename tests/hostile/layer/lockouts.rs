//! Attacks on a lock-out: faults of the store, clients that leave, and somebody who wants to lock
//! others out, or to get out.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use kit::page::App;
use tidegate::rule::Lockout;

use super::*;

fn login(after: u32) -> Rule {
    locked(Lockout::after(after).within(HOUR).hold([HOUR]))
}

/// Logins by the hour, of which a 401 is a failure.
fn locked(lockout: Lockout) -> Rule {
    let rule = kit::per_hour("login", 1_000).with_key(Header::new("x-user"));
    let rule = rule.with_lockout(lockout.on(["401"]));
    rule.expect("it makes sense")
}

/// Statuses of requests of a user that the handler answers with a 401.
async fn guesses(world: &World, user: &str, number: usize) -> Vec<u16> {
    let fields = format!("x-user: {user}, x-status: 401");
    world.statuses("login", &fields, number).await
}

fn lost<T: Send + 'static>(kind: StoreErrorKind) -> StoreFuture<T> {
    StoreFuture::ready(Err(StoreError::new(kind, "away")))
}

async fn is_locked_out(limits: &Limits, user: &str) -> bool {
    let user = Header::new("x-user").key(user);
    let peeked = limits.peek("login", user).await.expect("an answer");
    peeked.expect("there is a rule").remaining() == 0
}

/// A failure counts once, however often it is told, and its line is written when the answer is
/// there.
#[tokio::test(start_paused = true)]
async fn lost_answers() {
    let log = kit::log::Log::start();
    // It does what it is asked, and loses the first answers to each change.
    let changes = AtomicUsize::new(0);
    let store = Stub::around(MemoryStore::new().tokio_clock());
    let store = store.change_fn(move |inner, ask, change| {
        let answer = inner.change(ask, change);
        let is_third = changes.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        if is_third {
            answer
        } else {
            lost(StoreErrorKind::Timeout)
        }
    });
    let world = World::new([login(3)], store);
    for expected in [false, false, true] {
        guesses(&world, "alice", 1).await;
        assert!(world.limits.flush(MINUTE).await);
        assert_eq!(is_locked_out(&world.limits, "alice").await, expected);
    }
    assert_eq!(log.count("a key is locked out"), 1);
}

/// A store that was told may have forgotten it after so long, and would count the failure twice.
#[tokio::test(start_paused = true)]
async fn nothing_is_told_behind_its_time() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&told);
    let rule = locked(Lockout::after(3).within(2 * SECOND).hold([HOUR]));
    let world = World::new(
        [rule],
        Stub::in_memory().change_fn(move |_, _, _| {
            let now = tokio::time::Instant::now();
            notes.lock().expect("no panic").push(now);
            lost(StoreErrorKind::Unavailable)
        }),
    );
    let began = tokio::time::Instant::now();
    guesses(&world, "alice", 1).await;
    assert!(world.limits.flush(MINUTE).await);
    let told = told.lock().expect("no panic");
    assert!(told.len() > 3, "{}", told.len());
    assert!(told.iter().all(|at| *at - began < 2 * SECOND), "{told:?}");
}

/// Redis stands still, or is killed and comes back with what it had: what failed meanwhile counts
/// once it answers, and one warning says so.
#[tokio::test(flavor = "multi_thread")]
async fn redis_is_away() {
    let mut server = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    for is_killed in [false, true] {
        let store = Resilient::redis(&*server.url, "shop").expect("a valid address");
        let store = store.timeout(millis(400)).connect().await;
        let world = World::new([login(3)], store.expect("a server"));
        let user = format!("{is_killed}");
        let fields = format!("x-user: {user}, x-status: 401, x-hold: 800");
        let fails = join_all((0..3).map(|_| world.ask("login", &fields)));
        let (answers, ()) = tokio::join!(fails, async {
            sleep(millis(500)).await;
            server.go_away(is_killed);
        });
        assert!(answers.iter().all(|it| it.status == 401), "{answers:?}");
        sleep(millis(900)).await;
        server.come_back(is_killed);
        let is_locked = async || {
            let user = Header::new("x-user").key(&*user);
            let peeked = world.limits.peek("login", user).await;
            peeked.is_ok_and(|it| it.is_some_and(|it| it.remaining() == 0))
        };
        kit::within(PATIENT, "the failures count", is_locked).await;
    }
}

/// Redis dies while keys are locked out, once and again: a process keeps those that it was told of,
/// in each layer, in the plan of each request, and before and behind an operator who lets one
/// through. What another process has ended meanwhile is over with the first answer.
#[tokio::test(flavor = "multi_thread")]
async fn redis_dies_with_its_holds() {
    let mut server = Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let process = async || {
        let store = Resilient::redis(&*server.url, "shop").expect("a valid address");
        let store = store.timeout(PATIENT).processes(1).failures(3).connect();
        let limits = Limits::new([login(3)]).store(store.await.expect("a server"));
        let handler = || any(kit::http::handler).layer(limits.layer("login"));
        let app = Router::new().route("/0", handler()).route("/1", handler());
        (limits, app)
    };
    let (limits, app) = process().await;
    let (other, other_app) = process().await;
    let guess = async |app: &Router, layer: usize, user: &str| {
        let fields = format!("x-user: {user}, x-status: 401");
        let answer = kit::http::ask(app, &format!("/{layer}"), &fields).await;
        answer.status
    };
    let key = |user: &str| Header::new("x-user").key(user);
    for user in ["alice", "bob", "carol"] {
        for _ in 0..3 {
            assert_eq!(guess(&other_app, 0, user).await, 401);
        }
        assert!(other.flush(PATIENT).await);
        let answers = [guess(&app, 0, user).await, guess(&app, 1, user).await];
        assert_eq!(answers, [429; 2], "{user}");
    }
    assert!(other.reset("login", key("bob")).await.expect("an answer"));
    let is_admitted = async || guess(&app, 0, "bob").await == 401;
    kit::within(PATIENT, "bob may guess", is_admitted).await;
    for _ in 0..2 {
        server.kill();
        for at in 0..20 {
            assert_eq!(guess(&app, at % 2, "alice").await, 429, "{at}");
        }
        let peeked = limits.peek("login", key("alice")).await;
        let peeked = peeked.expect("an answer").expect("there is a rule");
        assert!(matches!(peeked.verdict(), Verdict::LockedOut { .. }));
        assert_eq!(peeked.source(), Source::Fallback);
        let page = limits.page().router();
        let body = json!({"rule": "login", "key": "alice"}).to_string();
        let (status, shown) = kit::operate(&page, "/api/key", &body).await;
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        let seconds = shown["locked_out_s"].as_f64().expect("it is locked out");
        assert!(seconds <= 3_600., "{shown}");
        assert_eq!((status, &shown["locked_out_times"]), (200, &Value::Null));
        assert_eq!(guess(&app, 0, "bob").await, 401);
        server.restart();
        let answers = async || {
            let answer = kit::http::ask(&app, "/0", "x-user: dave").await;
            answer.decision().source() == Source::Redis
        };
        kit::within(PATIENT, "Redis decides", answers).await;
    }
    let done = limits.let_through("login", key("carol"), MINUTE, "ops");
    done.await.expect("an answer");
    server.kill();
    assert_eq!(guess(&app, 0, "carol").await, 401);
    // Redis cannot be told that this ends: nobody else is let through.
    assert_eq!(guess(&app, 1, "alice").await, 429);
    let reset = limits.reset("login", key("alice")).await;
    reset.expect_err("it is away");
    assert_eq!(guess(&app, 1, "alice").await, 401);
}

/// A store that knows no failures: takes go on, and one warning says so.
#[tokio::test(start_paused = true)]
async fn a_store_that_counts_no_failures() {
    let log = kit::log::Log::start();
    let world = World::new([login(3)], Stub::that_cannot_owe());
    assert_eq!(guesses(&world, "alice", 9).await, [401; 9]);
    assert!(world.limits.flush(MINUTE).await);
    assert_eq!(log.count("does not count failures"), 1);
}

/// A request that is dropped at any of its awaits counts a failure once, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_await() {
    let (_server, _proxy, store) = kit::far(millis(2)).await;
    let world = World::new([login(2)], store);
    let mut seen = BTreeSet::new();
    for polls in 0..12 {
        let user = polls.to_string();
        let fields = format!("x-user: {user}, x-status: 401, x-hold: 2");
        let mut request = Box::pin(world.ask("login", &fields));
        for _ in 0..polls {
            if poll_immediate(&mut request).await.is_some() {
                request = Box::pin(world.ask("login", "x-user: another"));
                break;
            }
            sleep(millis(1)).await;
        }
        drop(request);
        assert!(world.limits.flush(PATIENT).await);
        let counts_twice = is_locked_out(&world.limits, &user).await;
        assert!(!counts_twice, "{polls}");
        guesses(&world, &user, 1).await;
        assert!(world.limits.flush(PATIENT).await);
        seen.insert(is_locked_out(&world.limits, &user).await);
        guesses(&world, &user, 1).await;
        assert!(world.limits.flush(PATIENT).await);
        assert!(is_locked_out(&world.limits, &user).await, "{polls}");
    }
    // Some were dropped before their answer, some behind it.
    assert_eq!(seen.len(), 2);
}

/// Another process ends a hold: the denials that this one keeps are over within a second.
#[tokio::test]
async fn another_process_ends_it() {
    let server = Redis::start();
    let process = async || {
        let store = Resilient::redis(&*server.url, "shop").expect("a valid address");
        let store = store.denial_cache(MINUTE).timeout(PATIENT);
        World::new([login(3)], store.connect().await.expect("a server"))
    };
    let [one, other] = [process().await, process().await];
    guesses(&one, "alice", 3).await;
    assert!(one.limits.flush(PATIENT).await);
    for _ in 0..3 {
        let denied = other.ask("login", "x-user: alice").await;
        assert!(denied.decision().is_locked_out(), "{denied:?}");
    }
    let denied = other.ask("login", "x-user: alice").await;
    assert_eq!(denied.decision().source(), Source::Cache);
    let user = Header::new("x-user").key("alice");
    assert!(one.limits.reset("login", user).await.expect("an answer"));
    let began = Instant::now();
    let is_admitted = async || other.ask("login", "x-user: alice").await.status == 200;
    kit::within(PATIENT, "it is admitted", is_admitted).await;
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
}

/// The page says until when and how often, also for the subject of a joint rule; a reset there ends
/// it.
#[tokio::test(start_paused = true)]
async fn the_page() {
    let subject = |name: &str| {
        let key = Header::new(format!("x-{name}"));
        Subject::new(name, key).limit(Quota::per_hour(1_000))
    };
    let lockout = || Lockout::after(3).within(HOUR).hold([HOUR, 2 * HOUR]);
    let joint = Rule::joint("login", [subject("net"), subject("user")]).expect("valid");
    let joint = joint.with_lockout(lockout().on(["401"]).subject("user"));
    let joint = joint.expect("it makes sense");
    let single = locked(lockout());
    for (rule, key) in [(single, "login/alice"), (joint, "login>user/alice")] {
        let World { limits, app } = World::paused([rule]);
        let page = limits.page().allow_changes().show_keys().router();
        let router = app.nest_service("/limits", page);
        let steps = "
            key KEY; /locked_out_s = null; /allowed = true
            ask GUESS x4 = 401 401 401 429
            key KEY; /locked_out_s in 3599.000001..3600; /locked_out_times = 1; /allowed = false
            wait 7200000; key KEY; /locked_out_s = null; /allowed = true
            ask GUESS x4 = 401 401 401 429
            key KEY; /locked_out_s in 7198.000001..7200; /locked_out_times = 2; /allowed = false
            wait 7200000; ask GUESS x4
            key KEY; /locked_out_times = 3
            reset KEY; /found = true; key KEY; /locked_out_s = null
            ask GUESS = 401";
        let steps = steps.replace("KEY", key);
        let steps = steps.replace("GUESS", "login/alice, x-net: n, x-status: 401");
        App { limits, router }.play(&steps).await;
    }
}

/// A failure that the store is told again and again keeps no charge open: the fields of a denial
/// promise no units that may come back.
#[tokio::test(start_paused = true)]
async fn a_failure_under_way_keeps_no_charge_open() {
    let lockout = Lockout::after(1).hold([HOUR]).on(["401"]);
    let rule = kit::per_hour("login", 1).with_settling(true);
    let world = World::new(
        [rule.with_lockout(lockout).expect("it makes sense")],
        Stub::in_memory().change_fn(|_, _, _| StoreFuture::boxed(std::future::pending())),
    );
    assert_eq!(guesses(&world, "alice", 1).await, [401]);
    let denied = world.ask("login", "x-user: alice").await;
    let told = (denied.status, denied.field("retry-after"));
    assert_eq!(told, (429, Some("3600")));
}

/// The status of a login over a connection of its own, whose body ends so much later.
async fn slow_login(to: SocketAddr, ends_after: Duration) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let head = "POST / HTTP/1.1\r\nhost: a\r\nx-user: alice\r\ncontent-length: 1\r\n\r\n";
    let mut connection = TcpStream::connect(to).await.expect("connects");
    connection.write_all(head.as_bytes()).await.expect("writes");
    let mut status = [0; 12];
    // Who is denied is told before the end of the body.
    tokio::select! {
        read = connection.read_exact(&mut status) => assert!(read.is_ok(), "{read:?}"),
        () = sleep(ends_after) => {
            connection.write_all(b"x").await.expect("writes");
            connection.read_exact(&mut status).await.expect("an answer");
        }
    }
    let status = std::str::from_utf8(&status[9..]).expect("text");
    status.parse().expect("a status")
}

/// A client chooses when its request ends. Twenty logins a second over two processes, whose bodies
/// end later than failures count: those in progress are handled, and then nobody.
#[tokio::test(flavor = "multi_thread")]
async fn who_ends_slowly_is_locked_out() {
    let server = Redis::start();
    let (handled, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let most = Arc::new(AtomicUsize::new(0));
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let rule = locked(Lockout::after(5).within(SECOND).hold([HOUR]));
        let limits = Limits::new([rule]).store(kit::store_on(&server).await);
        let (handled, open, most) = (handled.clone(), open.clone(), most.clone());
        let login = async move |request: Request<Body>| {
            most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let body = axum::body::to_bytes(request.into_body(), 10).await;
            open.fetch_sub(1, Ordering::Relaxed);
            handled.fetch_add(body.expect("a body").len(), Ordering::Relaxed);
            StatusCode::UNAUTHORIZED
        };
        let app = Router::new().route("/", any(login).layer(limits.layer("login")));
        addresses.push(kit::http::serve(app).await);
    }
    let logins = (0..80).map(|at| {
        let to = addresses[at % 2];
        tokio::spawn(async move {
            sleep(millis(50 * at as u64)).await;
            slow_login(to, millis(1_200)).await
        })
    });
    let statuses = join_all(logins).await.into_iter();
    let statuses: Vec<_> = statuses.map(|it| it.expect("no panic")).collect();
    let [handled, most] = [handled, most].map(|it| it.load(Ordering::Relaxed));
    assert!(handled <= 5 + most, "{handled}, {most} at a time");
    assert_eq!(statuses.iter().filter(|it| **it == 401).count(), handled);
    assert!(statuses[60..].iter().all(|it| *it == 429), "{statuses:?}");
}

/// So many streams of one connection over HTTP/2, whose bodies lack their last byte, and then have
/// it. Returns the statuses.
async fn kept_back(to: SocketAddr, streams: usize, back_for: Duration) -> Vec<u16> {
    let io = hyper_util::rt::TokioIo::new(TcpStream::connect(to).await.expect("connects"));
    let executor = hyper_util::rt::TokioExecutor::new();
    let handshake = hyper::client::conn::http2::handshake(executor, io).await;
    let (client, connection) = handshake.expect("speaks HTTP/2");
    tokio::spawn(connection);
    let sent = (0..streams).map(|_| {
        let mut client = client.clone();
        let chunks = futures_util::stream::iter([(Duration::ZERO, "gues"), (back_for, "s")]);
        let chunks = futures_util::StreamExt::then(chunks, async |(pause, chunk)| {
            sleep(pause).await;
            Ok::<_, Infallible>(chunk)
        });
        let request = Request::post(format!("http://{to}/")).header("x-user", "alice");
        let request = request.body(Body::from_stream(Box::pin(chunks)));
        async move {
            let answer = client.send_request(request.expect("valid")).await;
            answer.expect("an answer").status().as_u16()
        }
    });
    join_all(sent).await
}

/// Limits that lock out after five failures, as a process of its own has them, and its server.
async fn process(store: impl Store, told: &Arc<AtomicUsize>) -> (Limits, SocketAddr) {
    let rule = locked(Lockout::after(5).hold([HOUR, 2 * HOUR, 24 * HOUR]));
    let told = Arc::clone(told);
    let limits = Limits::new([rule]).store(store).on_lockout(move |_| {
        told.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    });
    let login = async |body: String| match &*body {
        "right" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    };
    let app = Router::new().route("/", any(login).layer(limits.layer("login")));
    (limits, kit::http::serve(app).await)
}

/// Requests whose ends are kept back for longer than ten seconds bring one hold after the other,
/// for each five of them, in memory and over three processes: who sends them is held for the
/// longest time. Those that end within seconds bring the first hold alone.
#[tokio::test(flavor = "multi_thread")]
async fn the_ends_of_streams_that_are_kept_back() {
    let server = Redis::start();
    let mut played = Vec::new();
    for (back_for, streams, steps, hold) in [
        (millis(10_500), 160, 32, 24 * HOUR),
        (millis(1_000), 160, 1, HOUR),
        (millis(10_500), 9, 1, HOUR),
    ] {
        for in_redis in [true, false] {
            let server = &server;
            played.push(async move {
                let told = Arc::default();
                let prefix = format!("{back_for:?}{streams}:");
                let mut processes = Vec::new();
                for _ in 0..if in_redis { 3 } else { 1 } {
                    processes.push(match in_redis {
                        true => process(kit::store_on(server).await.prefix(&*prefix), &told).await,
                        false => process(MemoryStore::new(), &told).await,
                    });
                }
                let share = streams / processes.len();
                let rest = streams % processes.len();
                let sent = processes.iter().enumerate().map(|(at, (_, address))| {
                    let more = usize::from(at < rest);
                    kept_back(*address, share + more, back_for)
                });
                let statuses = join_all(sent).await.concat();
                assert_eq!(statuses, vec![401; streams]);
                let case = format!("{streams} kept back for {back_for:?}, Redis: {in_redis}");
                for (limits, _) in &processes {
                    assert!(limits.flush(PATIENT).await);
                    let alice = Header::new("x-user").key("alice");
                    let refused = limits.check("login", alice).await;
                    let left = refused.expect_err("it is held").retry_after();
                    let left = left.expect("it ends");
                    assert!(left <= hold && left > hold - MINUTE, "{case}: {left:?}");
                }
                kit::load::until("all are told", || told.load(Ordering::Relaxed) >= steps).await;
                assert_eq!(told.load(Ordering::Relaxed), steps, "{case}");
            });
        }
    }
    join_all(played).await;
}

/// How many hours each of these users is held, who guesses so often, side by side, in requests that
/// end when `lost` runs, and how many holds were counted.
async fn held_by(store: impl Store, guesses: usize, lost: impl Future) -> (Vec<u64>, u64) {
    let rule = locked(Lockout::after(2).hold([1, 2, 3, 4, 5].map(|hours| hours * HOUR)));
    let world = World::new([rule], store);
    let ask = async |user: usize| {
        let fields = format!("x-user: {user}, x-status: 401, x-hold: 10300");
        assert_eq!(world.ask("login", &fields).await.status, 401);
    };
    let asked = join_all((0..20 * guesses).map(|at| ask(at % 20)));
    tokio::join!(asked, lost);
    assert!(world.limits.flush(2 * MINUTE).await);
    let mut hours = Vec::new();
    for user in 0..20 {
        let key = Header::new("x-user").key(user.to_string());
        let refused = world.limits.check("login", key).await;
        let left = refused.expect_err("it is held").retry_after();
        hours.push(left.expect("it ends").as_secs().div_ceil(3_600));
    }
    let counted = world.limits.snapshot();
    (hours, counted.rule("login").expect("it is there").lockouts)
}

/// Redis hears of failures of requests that were kept back, and its replies are lost for 1.5 s: each
/// two of them are one hold, and it is counted once, whether a report that is sent again is on its
/// way for longer or shorter than the first one.
#[tokio::test(flavor = "multi_thread")]
async fn failures_that_are_told_again_begin_no_hold() {
    let server = Redis::start();
    let ways = [[0, 0], [0, 300], [300, 0]].map(|ways| ways.map(millis));
    let are_right = std::cell::Cell::new(true);
    let cases = ways.map(|ways| [(2, ways), (8, ways)]).concat();
    let played = cases.into_iter().map(async |(guesses, [first, again])| {
        let far = Proxy::start(&server.url).await;
        let lossy = Proxy::start(&far.url).await;
        let redis = kit::connect(&lossy.url, millis(400)).await;
        far.delay(first, Duration::ZERO);
        let lost = async {
            sleep(millis(10_200)).await;
            lossy.all(Mode::LoseReplies(usize::MAX));
            sleep(millis(400)).await;
            far.delay(again, Duration::ZERO);
            sleep(millis(1_200)).await;
            lossy.all(Mode::Pass);
        };
        let redis = redis.prefix(format!("{guesses}{first:?}{again:?}:"));
        let in_redis = held_by(redis, guesses, lost);

        // The same in memory: the first answers to each report are lost.
        let memory = Arc::new(MemoryStore::new());
        let inner = Arc::clone(&memory);
        let began = tokio::time::Instant::now();
        let store = Stub::around(memory).change_fn(move |_, ask, change| {
            let (inner, ask, change) = (inner.clone(), ask.clone(), change.clone());
            StoreFuture::boxed(async move {
                let way = if began.elapsed() < millis(10_600) {
                    first
                } else {
                    again
                };
                sleep(way).await;
                let answer = inner.change(&ask, &change).await;
                match began.elapsed() < millis(11_800) {
                    true => Err(StoreError::new(StoreErrorKind::Timeout, "lost")),
                    false => answer,
                }
            })
        });
        let in_memory = held_by(store, guesses, std::future::ready(()));
        let (in_redis, in_memory) = tokio::join!(in_redis, in_memory);
        for (place, (hours, counted)) in [("Redis", in_redis), ("memory", in_memory)] {
            let steps = guesses as u64 / 2;
            let wrong = hours.iter().filter(|it| **it != steps).count();
            println!("{place}, {guesses}, {first:?}, {again:?}: {wrong} wrong, {counted} counted");
            let is_right = wrong == 0 && counted == 20 * steps;
            are_right.set(are_right.get() && is_right);
        }
    });
    join_all(played).await;
    assert!(are_right.get());
}
