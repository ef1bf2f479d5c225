//! Nodes of a cluster that die, hang and come back.

use kit::load::{Load, Report, TIMEOUT, allowed, store, take, until};
use kit::process::Process;

use crate::prelude::*;

const MAX: u64 = 1_000_000;

/// A store, two loads, and when the fault begins.
async fn begin(cluster: &Cluster, victim: usize) -> (RedisStore, (Load, Load), Instant) {
    let store = store(cluster.url()).await;
    let loads = loads(cluster, &store, victim).await;
    (store, loads, Instant::now())
}

/// How long it takes until this load is decided.
async fn until_decided(load: &Load) -> Duration {
    let began = Instant::now();
    load.decided().await;
    began.elapsed()
}

/// Loads on a path of the master that is about to suffer, and on one of another master.
async fn loads(cluster: &Cluster, store: &RedisStore, victim: usize) -> (Load, Load) {
    let other = (victim + 1) % 3;
    let hurt = Load::hasty(store, &take(&cluster.path_at(victim, "path"), MAX), 4);
    let unhurt = Load::patient(store, &take(&cluster.path_at(other, "path"), MAX), 4);
    hurt.decided().await;
    unhurt.decided().await;
    (hurt, unhurt)
}

/// What stands there of the takes of a path.
async fn counted(store: &RedisStore, path: &str) -> u64 {
    let decision = store.take(&take(path, MAX).looking()).await;
    MAX - decision.expect("a decision").remaining()
}

/// Ends both loads and prints their rows. Those who asked the victim were answered in time.
async fn end(loads: (Load, Load), row: &str, counts: &str, fault: Instant) -> (Report, Report) {
    let row = format!("cluster: {row}: its slots");
    let hurt = loads.0.end(&row, counts, fault).await;
    let unhurt = loads.1.stop().await;
    unhurt.row("the same: the other slots", "all", fault);
    (hurt, unhurt)
}

/// Not one call has failed, and none was held up for as long as the fault lasted.
fn unharmed(report: &Report) {
    report.assert_no_failure();
    let slowest = report.slowest();
    assert!(slowest < 3 * SECOND, "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_is_replaced_by_its_replica() {
    let mut cluster = Cluster::start(&Plan::with_replicas());
    let (store, idle) = (store(cluster.url()).await, store(cluster.url()).await);
    let (hurt, unhurt) = loads(&cluster, &store, 0).await;
    let fault = Instant::now();
    cluster.nodes[0].kill();
    hurt.failed().await;
    cluster.nodes[3].becomes("master").await;
    let promoted = fault.elapsed();
    hurt.decided().await;
    let row = format!("kill -9 of a master, replica promoted after {promoted:?}");
    let counts = "charges that had not reached the replica are lost";
    let (hurt, unhurt) = end((hurt, unhurt), &row, counts, fault).await;
    let failures = hurt.failures();
    let is_known = |kind: &String| kind == "Unavailable" || kind == "Timeout";
    assert!(failures.keys().all(is_known), "{failures:?}");
    assert!(hurt.back_after(fault) < promoted + 5 * SECOND);
    unharmed(&unhurt);

    // Who has not asked all the time does not meet the fault at all: it looks by itself.
    sleep(2 * SECOND).await;
    let path = cluster.path_at(0, "path");
    assert_eq!(allowed(&idle, &take(&path, MAX), 1).await, 1);

    // It comes back as a replica, and nothing is lost any more.
    cluster.nodes[0].restart();
    cluster.nodes[0].becomes("slave").await;
    let other = take(&format!("{path}b"), 3);
    assert_eq!(allowed(&store, &other, 5).await, 3);
}

/// One that hangs holds up nobody but its own slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_master_holds_up_only_its_own_slots() {
    let cluster = Cluster::start(&Plan::default());
    let (store, (hurt, unhurt), fault) = begin(&cluster, 1).await;
    cluster.nodes[1].signal("STOP");
    hurt.failed().await;
    sleep(4 * SECOND).await;
    unhurt.decided().await;
    cluster.nodes[1].signal("CONT");
    let back = until_decided(&hurt).await;
    let row = format!("SIGSTOP of a master, back {back:?} after SIGCONT");
    let counts = "what was allowed, and at most one more of each task";
    let (hurt, unhurt) = end((hurt, unhurt), &row, counts, fault).await;
    let (allowed, counted) = (
        hurt.allowed(),
        counted(&store, &cluster.path_at(1, "path")).await,
    );
    // Those that came late count nothing; one of each task may have been done when the node was
    // stopped, unheard.
    let is_right = (allowed..=allowed + 4).contains(&counted);
    assert!(is_right, "{allowed} allowed, {counted} counted");
    let failures = hurt.failures();
    assert!(failures.contains_key("Timeout"), "{failures:?}");
    unharmed(&unhurt);
}

/// And if it has a replica, that one is found, though the old connection does not break.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_master_is_replaced_by_its_replica() {
    let cluster = Cluster::start(&Plan::with_replicas());
    let (_store, (hurt, unhurt), fault) = begin(&cluster, 0).await;
    cluster.nodes[0].signal("STOP");
    cluster.nodes[3].becomes("master").await;
    let promoted = fault.elapsed();
    hurt.decided().await;
    let row = format!("SIGSTOP of a master, replica promoted after {promoted:?}");
    end((hurt, unhurt), &row, "as after a kill", fault).await;
    cluster.nodes[0].signal("CONT");
}

/// All masters gone, so that nobody of those who are known answers, and back at the same places. A
/// service may start meanwhile.
#[tokio::test]
async fn a_cluster_that_is_gone_comes_back() {
    let mut cluster = Cluster::start(&Plan::default());
    let (_store, (hurt, unhurt), fault) = begin(&cluster, 0).await;
    cluster.nodes.iter_mut().for_each(Process::kill);
    hurt.failed().await;
    let early = RedisStore::connect_lazy(cluster.url()).expect("a valid address");
    let early = early.timeout(TIMEOUT);
    sleep(millis(100)).await;
    let error = early.take(&take("p", 3)).await.expect_err("no cluster");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    cluster.nodes.iter_mut().for_each(Process::restart);
    let early = Load::hasty(&early, &take("p", MAX), 1);
    early.decided().await;
    early.stop().await;
    hurt.decided().await;
    unhurt.decided().await;
    let row = "cluster: all nodes killed and back";
    hurt.end(row, "all data is lost", fault).await;
    unhurt.stop().await;
}

/// Tasks and connections end with the last clone.
#[tokio::test]
async fn a_dropped_connection_leaves_no_task() {
    let cluster = Cluster::start(&Plan::default());
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks = metrics.num_alive_tasks();
    let redis = Redis::connect(cluster.url()).await.expect("it runs");
    let store = RedisStore::of(&redis);
    assert_eq!(allowed(&store.timeout(PATIENT), &take("p", 3), 5).await, 3);
    assert!(metrics.num_alive_tasks() > tasks);
    drop(redis);
    until("the tasks end", || metrics.num_alive_tasks() <= tasks).await;
}
