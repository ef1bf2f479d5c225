//! What the processes of a service tell each other, by a store of somebody else: lists that are
//! older than a change, names that nobody wrote, and too many processes.

use super::*;

/// A list that was read before a key was let through arrives behind it.
#[tokio::test(start_paused = true)]
async fn an_older_list_undoes_no_change() {
    for begun in [100, 450, 850] {
        let app = Shared::new(|told| told.late[0] = Some(millis(900))).app();
        let steps = format!("use-up alice; wait {begun}; let-through alice 600");
        app.play(&format!("{steps}; ask alice x100/50 = 200")).await;
    }
}

/// Of what stands there and is no key, nothing is reset nor let through, least of all everybody.
#[tokio::test(start_paused = true)]
async fn a_row_without_a_key_changes_nothing() {
    let garbage = operator_key(OperatorKind::LetThrough, "\0{}\n", Duration::MAX);
    let shared = Shared::with_list(vec![garbage]);
    let steps = r#"
        until limited /let_through != []; keep row /let_through/0/row
        refused key {"rule": "search", "row": $row, "seconds": 60}
        refused reset {"rule": "search", "row": $row, "seconds": 60}
        refused let-through {"rule": "search", "row": $row, "seconds": 60}
        limited; /let_through # 1"#;
    shared.app().play(steps).await;
}

/// What is blocked stays so, in whichever order a list says both.
#[tokio::test(start_paused = true)]
async fn a_key_that_a_list_has_twice_is_blocked() {
    let one = |kind| operator_key(kind, "alice", Duration::from_secs(600));
    for kinds in [
        [OperatorKind::LetThrough, OperatorKind::Blocked],
        [OperatorKind::Blocked, OperatorKind::LetThrough],
    ] {
        let app = Shared::with_list(kinds.map(one).to_vec()).app();
        app.play("wait 100; ask alice = 429; limited; /let_through = []")
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn more_processes_than_are_shown() {
    for (processes, is_complete) in [(200, true), (201, false)] {
        let app = Shared::new(|told| told.processes = processes).app();
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
    assert!(fleet.set_key(&one).await.expect("an answer").is_some());
    let left: i64 = query(&server, "PTTL {CurrentLimiter:~fleet}:let-through");
    assert!((1..=86_400_000).contains(&left), "{left}");
}
