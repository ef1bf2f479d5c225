//! What the processes of a service tell each other, by a store of somebody else: lists that are
//! older than a change, names that nobody wrote, and too many processes.

use std::sync::Mutex;

use tidegate::store::{
    Fleet, FleetState, OperatorKey, OperatorKind, PeerReport, Report, StoreFuture,
};
use tidegate::{RedisStore, Store};

use super::*;
use kit::stub::Stub;

/// Answers a report with the list as it was when it was asked.
#[derive(Debug, Default, Clone)]
struct Shared {
    list: Arc<Mutex<(u64, Vec<OperatorKey>)>>,
    /// How late it answers a report.
    late: Duration,
    /// How many processes it knows, which all say what the last one has said.
    processes: usize,
    said: Arc<Mutex<Arc<str>>>,
}

impl Fleet for Shared {
    fn report(&self, report: &Report) -> StoreFuture<FleetState> {
        *self.said.lock().expect("no panic") = Arc::clone(&report.text);
        let (version, list) = self.list.lock().expect("no panic").clone();
        let state = FleetState {
            secret: report.random,
            version,
            keys: (version != report.known_version).then_some(list),
        };
        let late = self.late;
        StoreFuture::boxed(async move {
            sleep(late).await;
            Ok(state)
        })
    }

    fn reports(&self) -> StoreFuture<Vec<PeerReport>> {
        let said = Arc::clone(&self.said.lock().expect("no panic"));
        let all = (0..self.processes).map(|at| PeerReport {
            process: format!("{at:016x}").into(),
            text: Arc::clone(&said),
            ago: Duration::ZERO,
        });
        StoreFuture::ready(Ok(all.collect()))
    }

    fn set_key(&self, one: &OperatorKey) -> StoreFuture<bool> {
        let (version, list) = &mut *self.list.lock().expect("no panic");
        *version += 1;
        list.push(one.clone());
        StoreFuture::ready(Ok(true))
    }
}

fn shared_app(shared: Shared) -> App {
    let store = Stub::in_memory().named("shared").with_fleet(shared);
    let limits = Limits::new([hourly("search", 2)]).store(store);
    App::of(limits, |page| page.allow_changes().show_keys())
}

/// A list that was read before a key was let through arrives behind it.
#[tokio::test(start_paused = true)]
async fn an_older_list_undoes_no_change() {
    for begun in [100, 450, 850] {
        let app = shared_app(Shared {
            late: Duration::from_millis(900),
            list: Arc::new(Mutex::new((1, Vec::new()))),
            ..Shared::default()
        });
        app.use_up("alice").await;
        sleep(Duration::from_millis(begun)).await;
        app.let_through("alice", 600).await.expect_ok("let through");
        for _ in 0..100 {
            assert_eq!(app.search("alice").await, 200, "after {begun} ms");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Of what stands there and is no key, nothing is reset nor let through, least of all everybody.
#[tokio::test(start_paused = true)]
async fn a_row_without_a_key_changes_nothing() {
    let garbage = OperatorKey {
        kind: OperatorKind::LetThrough,
        path: "search".into(),
        key: "\0{}\n".into(),
        by: None,
        time: Duration::MAX,
    };
    let app = shared_app(Shared {
        list: Arc::new(Mutex::new((1, vec![garbage]))),
        ..Shared::default()
    });
    let full = |it: &Value| it["let_through"] != json!([]);
    let seen = app.wait("limited", PATIENT, full).await;
    let row = &seen["let_through"][0]["row"];
    for what in ["key", "reset", "let-through"] {
        let body = json!({"rule": "search", "row": row, "seconds": 60});
        app.post(what, body).await.expect_refusal(what);
    }
    let after = app.view("limited").await;
    assert_eq!(after["let_through"].as_array().map(Vec::len), Some(1));
}

/// What is blocked stays so, in whichever order a list says both.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_list_has_twice_is_blocked() {
    let one = |kind| OperatorKey {
        kind,
        path: "search".into(),
        key: "alice".into(),
        by: None,
        time: Duration::from_secs(600),
    };
    for kinds in [
        OperatorKind::ALL,
        [OperatorKind::Blocked, OperatorKind::LetThrough],
    ] {
        let app = shared_app(Shared {
            list: Arc::new(Mutex::new((1, kinds.map(one).into()))),
            ..Shared::default()
        });
        sleep(Duration::from_millis(100)).await;
        assert_eq!(app.search("alice").await, 429, "{kinds:?}");
        assert_eq!(app.view("limited").await["let_through"], json!([]));
    }
}

#[tokio::test(start_paused = true)]
async fn more_processes_than_are_shown() {
    for (processes, is_complete) in [(200, true), (201, false)] {
        let app = shared_app(Shared {
            processes,
            ..Shared::default()
        });
        app.view("fleet").await;
        sleep(Duration::from_millis(2_500)).await;
        let fleet = app.view("fleet").await;
        assert_eq!(fleet["complete"], is_complete, "{processes}");
        assert_eq!(fleet["processes"].as_array().map(Vec::len), Some(200));
        assert_eq!(app.view("limited").await["complete"], is_complete);
    }
}

/// What was counted before is not of the last second.
#[tokio::test(start_paused = true)]
async fn a_process_that_joins_late() {
    let limits = Limits::new([hourly("search", 2)]);
    for _ in 0..100 {
        let _ = limits.check("search", user("alice")).await;
    }
    let app = App::of(limits, |page| page);
    for _ in 0..3 {
        sleep(Duration::from_millis(700)).await;
        let fleet = app.view("fleet").await;
        let this = &fleet["processes"][0];
        assert_eq!(
            (&this["allowed_per_s"], &this["denied_per_s"]),
            (&json!(0), &json!(0))
        );
    }
    assert_eq!(app.view("now").await["rules"][0]["denied"], json!([0, 0]));
}

/// Law 4: whatever time code asks for, the list expires.
#[tokio::test]
async fn the_longest_time_is_a_day() {
    let server = Redis::start();
    let store = RedisStore::connect(&*server.url).await.expect("a server");
    let one = OperatorKey {
        kind: OperatorKind::LetThrough,
        path: "search".into(),
        key: "alice".into(),
        by: None,
        time: Duration::MAX,
    };
    let fleet = store.timeout(PATIENT).fleet().expect("a fleet");
    assert!(fleet.set_key(&one).await.expect("an answer"));
    let left: i64 = redis::cmd("PTTL")
        .arg("{CurrentLimiter:~fleet}:let-through")
        .query(&mut server.connection())
        .expect("a time");
    assert!((1..=86_400_000).contains(&left), "{left}");
}
