//! What a server answers instead of a decision, and what it does to connections, beside lone takes.

use super::*;

/// The scripts are forgotten before, while, and after a take whose caller leaves or keeps it, and
/// one key is refused for good: each that can be is charged, once, and those behind it are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_forgotten() {
    let (server, _proxy, store, mut bystander) = beside_far(millis(3)).await;
    let of = |path| take(&rule(path, MAX, HOUR), "x");
    let (gone, kept) = (of("gone"), of("kept"));
    run(&server, "SET CurrentLimiter:broken:x nonsense");
    for round in 0..120_u64 {
        if round % 3 == 0 {
            run(&server, "SCRIPT FLUSH");
        }
        let flushes = async {
            sleep(millis(round % 4)).await;
            if round % 3 == 1 {
                run(&server, "SCRIPT FLUSH");
            }
        };
        let pending = match round % 4 {
            1 => Some((polled_once(&store, &kept), None)),
            3 => Some((
                polled_once(&store, &of("broken")),
                Some(StoreErrorKind::WrongType),
            )),
            _ => {
                let patience = Duration::from_micros(round * 97 % 7_000);
                leave_after(Box::pin(store.take(&gone)), patience).await;
                None
            }
        };
        tokio::join!(bystander.ask(&store), flushes);
        bystander.ask(&store).await;
        if let Some((pending, error)) = pending {
            assert_eq!(kind(&pending.await), error);
        }
    }
    assert!(charged(&store, &gone).await <= 60, "none twice");
    assert_eq!(charged(&store, &kept).await, 30, "each once");
}

/// The server becomes a replica that takes no writes, and another master stands behind its name.
/// Only callers use it that leave before any reply: the connection is replaced all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_under_callers_that_leave() {
    for keeps in [false, true] {
        let (server, other) = (Redis::start(), Redis::start());
        let proxy = behind(&server, millis(20)).await;
        let store = connect(&proxy.url, PATIENT).await;
        let hasty = take(&rule("hasty", MAX, HOUR), "x");
        let mut kept = Vec::new();
        proxy.lead_to(&other.url);
        server.follow(&other.url);
        let (accepted, began) = (proxy.accepted(), Instant::now());
        while proxy.accepted() == accepted && began.elapsed() < PATIENT / 8 {
            let pending = polled_once(&store, &hasty);
            sleep(millis(8)).await;
            if keeps {
                kept.push(pending);
            }
        }
        let replaced = (proxy.accepted() > accepted).then(|| began.elapsed());
        let mut bystander = Bystander::new("bystander");
        let began = Instant::now();
        let errors = bystander.ask_until_answered(&store, PATIENT / 4).await;
        let waited = began.elapsed();
        println!("kept: {keeps}: replaced after {replaced:?}, then {errors} errors in {waited:?}");
        assert!(replaced.is_some(), "READONLY is noticed, whoever has left");
    }
}

/// The server pauses writes, or everything: lone takes end in time, and are not charged later.
#[tokio::test]
async fn clients_are_paused() {
    let (server, _proxy, store, mut bystander) = beside(TIMEOUT).await;
    let patient = store.clone().timeout(PATIENT);
    let mine = take(&rule("paused", MAX, HOUR), "x");
    for (round, which) in ["WRITE", "ALL", "WRITE", "ALL"].into_iter().enumerate() {
        bystander.ask_until_answered(&patient, PATIENT / 4).await;
        run(&server, &format!("CLIENT PAUSE 800 {which}"));
        if round < 2 {
            let began = server.stopwatch();
            assert_unanswered(&store.take(&mine).await, which);
            let waited = began.waited();
            assert!(waited < 3 * TIMEOUT, "law 6: {waited:?}");
        } else {
            drop(timeout(millis(8), store.take(&mine)).await);
        }
        sleep(millis(850)).await;
        bystander.ask_until_answered(&patient, PATIENT / 4).await;
        assert_eq!(charged(&patient, &mine).await, 0, "{which}");
    }
}
