//! Who holds a permit, and until when.

use axum::extract::Path;
use axum::routing::get;
use tidegate::layer::{Admitted, Call};
use tokio::sync::Notify;

use crate::*;

fn limits(rule: Rule, store: Arc<dyn Store>) -> Limits {
    Limits::new([rule]).store(store)
}

fn at_a_time(path: &str, max: u64) -> Rule {
    Rule::with_policies(path, [Policy::concurrent(max)]).expect("a valid rule")
}

fn check(limits: &Limits) -> Call {
    limits.check("export", Key::default())
}

async fn until_free(limits: &Limits, permits: u64) {
    let is_so = async || left(limits, "export", Key::default()).await == permits;
    eventually("permits are free", is_so).await;
}

async fn until_waiting(limits: &Limits, number: u64) {
    let is_so = async || counted(limits, "export").waiting >= number;
    eventually("they wait", is_so).await;
}

#[tokio::test]
async fn a_permit_is_held_until_the_body_has_ended() {
    for store in Stores::start().await.all {
        let limits = limits(at_a_time("export", 1), store);
        let end = Arc::new(Notify::new());
        let ends = Arc::clone(&end);
        let handler = get(move || async move { ends.notified().await });
        let app = Router::new().route("/", handler.layer(limits.layer("export")));
        let running = app.clone();
        let first = tokio::spawn(async move { send(&running, "/").await });
        until_free(&limits, 0).await;
        assert_eq!(status(&app, "/").await, DENIED);
        end.notify_one();
        let response = first.await.expect("no panic");
        assert_eq!(response.status(), OK);
        drop(response);
        until_free(&limits, 1).await;
        end.notify_one();
        assert_eq!(status(&app, "/").await, OK);
    }
}

/// A request that waits for a permit gets it when it comes back.
#[tokio::test]
async fn who_waits_is_admitted_in_order() {
    for store in Stores::start().await.all {
        let limits = limits(at_a_time("export", 1), store);
        let layer = limits.layer("export").wait(PATIENT);
        let (order, all_wait) = <(Arc<Mutex<Vec<u32>>>, Arc<Notify>)>::default();
        let (admitted, first_waits) = (Arc::clone(&order), Arc::clone(&all_wait));
        let handler = get(async move |Path(number): Path<u32>| {
            admitted.lock().expect("no panic").push(number);
            match number {
                0 => first_waits.notified().await,
                _ => sleep(millis(2)).await,
            }
        });
        let app = Router::new().route("/{number}", handler.layer(layer));
        let mut sent = Vec::new();
        for number in 0..20 {
            let app = app.clone();
            let path = format!("/{number}");
            sent.push(tokio::spawn(async move { status(&app, &path).await }));
            let is_first = async || !order.lock().expect("no panic").is_empty();
            eventually("the first runs", is_first).await;
            until_waiting(&limits, number).await;
        }
        all_wait.notify_one();
        for task in sent {
            assert_eq!(task.await.expect("no panic"), OK);
        }
        let order = order.lock().expect("no panic").clone();
        assert!(order.is_sorted(), "{order:?}");
    }
}

/// Holders of two permits, of which the one of `export` has a short lease.
async fn hold(store: Arc<dyn Store>) -> (Limits, [Admitted; 2]) {
    let short = at_a_time("export", 1).with_permit_lease(millis(1_500));
    let rules = [short.expect("a valid rule"), at_a_time("other", 1)];
    let limits = Limits::new(rules).store(store);
    let other = limits.check("other", Key::default()).await;
    let holders = [other, check(&limits).await].map(|held| held.expect("nobody runs"));
    (limits, holders)
}

/// A server that has lost a permit admits another one in its place, and the first holder, which goes
/// on, is not told.
#[tokio::test]
async fn a_permit_does_not_tell_that_it_is_lost() {
    let server = Redis::start();
    let (limits, holders) = hold(Arc::new(store_on(&server).await)).await;
    let other = || limits.check("other", Key::default());
    assert!(other().await.is_err());
    kit::run(&server, "FLUSHALL");
    assert!(other().await.is_ok(), "two run");
    assert!(holders.iter().all(|it| it.permit.is_some()));
}

/// A key of permits lives for two leases, of the one that was written last.
#[tokio::test]
async fn a_key_lives_for_two_leases() {
    let server = Redis::start();
    let (_limits, _holders) = hold(Arc::new(store_on(&server).await)).await;
    for name in server.names() {
        let lease = if name.contains("export") {
            1_500
        } else {
            15_000
        };
        let life = server.life(&name);
        assert!((lease + 1..=2 * lease).contains(&life), "{name}: {life} ms");
    }
    assert_eq!(server.names().len(), 2);
}

/// A permit lives as long as its holder, however short its lease.
#[tokio::test(start_paused = true)]
async fn a_permit_is_renewed() {
    let (limits, holders) = hold(paused()).await;
    for _ in 0..100 {
        sleep(millis(250)).await;
        assert!(check(&limits).await.is_err(), "it was renewed");
    }
    drop(holders);
    until_free(&limits, 1).await;
}

/// On a server, too, and it comes back to one that has lost it.
#[tokio::test]
async fn a_permit_is_renewed_on_a_server() {
    let server = Redis::start();
    let (limits, holders) = hold(Arc::new(store_on(&server).await)).await;
    sleep(millis(2_000)).await;
    assert!(check(&limits).await.is_err(), "it was renewed");
    kit::run(&server, "FLUSHALL");
    let is_back = async || check(&limits).await.is_err();
    eventually("it is put back", is_back).await;
    assert!(holders[1].permit.is_some());
}

/// A caller that leaves gives back what it may have been granted, also where a time-out has no end.
#[tokio::test]
async fn a_caller_leaves_under_a_time_out_without_end() {
    let server = Redis::start();
    let store = store_on(&server).await.timeout(std::time::Duration::MAX);
    let limits = limits(at_a_time("export", 1), Arc::new(store));
    for _ in 0..10 {
        let asked = check(&limits).into_future().now_or_never();
        assert!(asked.is_none(), "Redis has to be asked");
    }
    until_free(&limits, 1).await;
    assert!(check(&limits).await.is_ok());
}
