//! Four processes and a user whose password is guessed.

use kit::workers::lines_of;
use tidegate::layer::LockedOut;
use tidegate::rule::Lockout;
use tidegate::store::Change;

use crate::*;

/// Guesses of all processes, side by side.
const GUESSES: usize = 1_000;
/// How many may reach the handler in a minute.
const MAX: u64 = 20;

fn login(max: u64) -> Rule {
    let lockout = Lockout::after(5).hold([HOUR, 24 * HOUR]);
    let rule = kit::per_minute("login", max).with_key(Header::new("x-user"));
    let rule = rule.with_lockout(lockout.on(["401"]).reset_on(["303"]));
    rule.expect("it makes sense")
}

/// Plays one process: requests side by side, of which each is answered with this status.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_logs_in() {
    let Some(words) = instructions() else { return };
    let [max, requests, status] = numbers(&words);
    let limits = Limits::new([login(max)]).store(store(&words[0]).await);
    let (handled, status) = (Arc::new(AtomicU64::new(0)), status as u16);
    let count = Arc::clone(&handled);
    let handler = get(async move || {
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(kit::millis(3)).await;
        StatusCode::from_u16(status).expect("a status")
    });
    let app = Router::new().route("/", handler.layer(limits.layer("login")));
    let ask = || kit::http::ask(&app, "/", "x-user: alice");
    let answers = join_all((0..requests).map(|_| ask())).await;
    assert!(limits.flush(5 * SECOND).await);
    let denied = answers.iter().filter(|it| it.status == 429).count();
    println!(
        "\nhandled {}\ndenied {denied}",
        handled.load(Ordering::Relaxed)
    );
}

/// What came of logins of all processes: how many reached the handler, how many did not, and how
/// many times in a row the user was locked out.
async fn logins(max: u64, status: u16) -> (u64, u64, u64) {
    let server = Redis::start();
    let share = GUESSES / PROCESSES;
    let workers = start_workers("lockouts::worker_logs_in", PROCESSES, |_| {
        format!("{} {max} {share} {status}", server.url)
    });
    let outputs = outputs(workers);
    let take = Take::new(Arc::new(login(max)), Key::default().with("x"));
    let take = Take::new(Arc::clone(take.rule()), Header::new("x-user").key("alice"));
    let store = kit::store_on(&server).await;
    let step = store.change(&take, &Change::AskLockout).await;
    let sum = |what| sum(&outputs, what);
    (sum("handled "), sum("denied "), step.expect("an answer"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_guesses_are_one_episode_and_good_logins_none() {
    let _machine = MACHINE.lock().await;
    let all = GUESSES as u64;
    for (max, status, at_least, locked_out) in [
        (MAX, 401, 5, 1),
        (all, 303, all, 0),
        (all, 500, all, 0),
        (all, 200, all, 0),
    ] {
        let (handled, denied, step) = logins(max, status).await;
        assert_eq!(handled + denied, all, "{status}");
        assert!((at_least..=max).contains(&handled), "{status}: {handled}");
        assert_eq!(step, locked_out, "{status}");
    }
}

/// How many keys are locked out, each once.
const HOLDS: u64 = 100;

/// Plays one process: guesses of each key side by side, of which some are dropped. It prints of
/// which holds it was told.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_is_told() {
    let Some(words) = instructions() else { return };
    let store = Resilient::redis(&*words[0], "shop").expect("a valid address");
    let store = store.connect().await.expect("it is up");
    let limits = Limits::new([login(1_000)]).store(store);
    let limits = limits.on_lockout(async |it: LockedOut| {
        println!("\ntold {} {}", it.key.as_str(), it.step);
    });
    let fails = async |charges: Charges| {
        charges.failed();
        tokio::time::sleep(kit::millis(20)).await;
        StatusCode::UNAUTHORIZED
    };
    let app = Router::new().route("/", get(fails).layer(limits.layer("login")));
    let is_denied = async |key: u64, at: u64| {
        let fields = format!("x-user: {key}");
        let answer = kit::http::ask(&app, "/", &fields);
        // Each third caller leaves.
        let patience = if at.is_multiple_of(3) {
            kit::millis(10)
        } else {
            HOUR
        };
        let answer = tokio::time::timeout(patience, answer).await;
        answer.is_ok_and(|it| it.status == 429)
    };
    for key in 0..HOLDS {
        // While Redis stands still nobody is admitted.
        while !join_all((0..4).map(|at| is_denied(key, at)))
            .await
            .contains(&true)
        {
            tokio::time::sleep(kit::millis(20)).await;
        }
    }
    assert!(limits.flush(10 * SECOND).await);
    // Behind the last answer a task tells.
    tokio::time::sleep(kit::millis(100)).await;
}

/// Three processes, clients that leave, and a Redis that stands still twice: of each hold one
/// process tells, once.
#[tokio::test(flavor = "multi_thread")]
async fn each_hold_is_told_once_by_one_process() {
    let _machine = MACHINE.lock().await;
    let mut server = Redis::start();
    let workers = start_workers("lockouts::worker_is_told", 3, |_| server.url.clone());
    let outputs = tokio::task::spawn_blocking(|| outputs(workers));
    for failed in [30, 60] {
        let is_there = async || kit::keys(&server, "*~until").len() >= failed;
        eventually("keys that have failed", is_there).await;
        server.go_away(false);
        tokio::time::sleep(SECOND).await;
        server.come_back(false);
    }
    let outputs = outputs.await.expect("no panic");
    let mut told: Vec<_> = lines_of(&outputs, "told").collect();
    told.sort();
    let expected = (0..HOLDS).map(|key| vec![key, 1]);
    assert_eq!(told, expected.collect::<Vec<_>>());
    let tellers = outputs.iter().filter(|it| it.contains("told "));
    assert!(tellers.count() > 1, "{outputs:?}");
}
