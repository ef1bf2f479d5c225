//! What the processes of a service tell each other, by a store of somebody else: lists that are
//! older than a change, names that nobody wrote, and too many processes.

use tidegate::store::OperatorKind;

use super::*;

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
    fn report(&self, report: &ProcessReport) -> StoreFuture<FleetState> {
        *self.said.lock().expect("no panic") = Arc::clone(&report.text);
        let (version, list) = self.list.lock().expect("no panic").clone();
        let state = FleetState {
            secret: report.random,
            version,
            deciding: 1,
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
    App::keyed(limits, |page| page.allow_changes().show_keys())
}

/// As a list has it.
fn operator_key(kind: OperatorKind, key: &str, time: Duration) -> OperatorKey {
    OperatorKey {
        kind,
        path: "search".into(),
        key: key.into(),
        by: None,
        note: None,
        only: [].into(),
        time,
    }
}

fn listing(keys: Vec<OperatorKey>) -> Arc<Mutex<(u64, Vec<OperatorKey>)>> {
    Arc::new(Mutex::new((1, keys)))
}

/// A list that was read before a key was let through arrives behind it.
#[tokio::test(start_paused = true)]
async fn an_older_list_undoes_no_change() {
    for begun in [100, 450, 850] {
        let app = shared_app(Shared {
            late: millis(900),
            list: listing(Vec::new()),
            ..Shared::default()
        });
        app.use_up("alice").await;
        sleep(millis(begun)).await;
        app.let_through("alice", 600).await;
        for _ in 0..100 {
            assert_eq!(app.search("alice").await, 200, "after {begun} ms");
            sleep(millis(50)).await;
        }
    }
}

/// Of what stands there and is no key, nothing is reset nor let through, least of all everybody.
#[tokio::test(start_paused = true)]
async fn a_row_without_a_key_changes_nothing() {
    let garbage = operator_key(OperatorKind::LetThrough, "\0{}\n", Duration::MAX);
    let list = listing(vec![garbage]);
    let app = shared_app(Shared {
        list,
        ..Shared::default()
    });
    let steps = r#"
        until limited /let_through != []; keep row /let_through/0/row
        refused key {"rule": "search", "row": $row, "seconds": 60}
        refused reset {"rule": "search", "row": $row, "seconds": 60}
        refused let-through {"rule": "search", "row": $row, "seconds": 60}
        limited; /let_through # 1"#;
    app.play(steps).await;
}

/// What is blocked stays so, in whichever order a list says both.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_list_has_twice_is_blocked() {
    let one = |kind| operator_key(kind, "alice", Duration::from_secs(600));
    for kinds in [
        [OperatorKind::LetThrough, OperatorKind::Blocked],
        [OperatorKind::Blocked, OperatorKind::LetThrough],
    ] {
        let list = listing(kinds.map(one).into());
        let app = shared_app(Shared {
            list,
            ..Shared::default()
        });
        app.play("wait 100; ask alice = 429; limited; /let_through = []")
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn more_processes_than_are_shown() {
    for (processes, is_complete) in [(200, true), (201, false)] {
        let app = shared_app(Shared {
            processes,
            ..Shared::default()
        });
        app.play("fleet; wait 2500; fleet; /processes # 200").await;
        let seen = format!("fleet; /complete = {is_complete}; limited; /complete = {is_complete}");
        app.play(&seen).await;
    }
}

/// What was counted before is not of the last second.
#[tokio::test(start_paused = true)]
async fn a_process_that_joins_late() {
    let limits = Limits::new([hourly("search", 2)]);
    for _ in 0..100 {
        let _ = limits.check("search", user("alice")).await;
    }
    let app = App::keyed(limits, |page| page);
    for _ in 0..3 {
        let steps = "wait 700; fleet /processes/0; /allowed_per_s = 0; /denied_per_s = 0";
        app.play(steps).await;
    }
    app.play("now; /rules/0/denied = [0, 0]").await;
}

/// Law 4: whatever time code asks for, the list expires.
#[tokio::test]
async fn the_longest_time_is_a_day() {
    let server = Redis::start();
    let store = RedisStore::connect(&*server.url).await.expect("a server");
    let one = operator_key(OperatorKind::LetThrough, "alice", Duration::MAX);
    let fleet = store.timeout(PATIENT).fleet().expect("a fleet");
    assert!(fleet.set_key(&one).await.expect("an answer"));
    let left: i64 = query(&server, "PTTL {CurrentLimiter:~fleet}:let-through");
    assert!((1..=86_400_000).contains(&left), "{left}");
}
