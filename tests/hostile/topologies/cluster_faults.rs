//! Nodes of a cluster that die, hang and come back.

use std::time::{Duration, Instant};

use kit::cluster::{Cluster, Plan};
use tidegate::store::StoreErrorKind;
use tidegate::{Redis, RedisStore, Store};

use crate::load::{HICCUP, Load, Report, TIMEOUT};
use crate::{allowed, store, take};

const MAX: u64 = 1_000_000;

/// A path whose count is kept by this master.
fn path_of(cluster: &Cluster, master: usize) -> String {
    let mut paths = (0..).map(|number| format!("path{number}"));
    let is_there = |path: &String| cluster.owner(&format!("CurrentLimiter:{path}")) == master;
    paths.find(is_there).expect("there is one")
}

/// Loads on a path of the master that is about to suffer, and on one of another master.
async fn loads(cluster: &Cluster, store: &RedisStore, victim: usize) -> (Load, Load) {
    let other = (victim + 1) % 3;
    let hurt = Load::hasty(store, &take(&path_of(cluster, victim), MAX), 4);
    let unhurt = Load::patient(store, &take(&path_of(cluster, other), MAX), 4);
    hurt.decided().await;
    unhurt.decided().await;
    (hurt, unhurt)
}

/// What stands there of the takes of a path.
async fn counted(store: &RedisStore, path: &str) -> u64 {
    let store: &dyn Store = store;
    let decision = store.take(&take(path, MAX).with_cost(0)).await;
    MAX - decision.expect("a decision").remaining()
}

/// Not one call has failed, and none was held up for as long as the fault lasted.
fn unharmed(report: &Report) {
    let failures = report.failures();
    assert!(failures.is_empty(), "{failures:?}");
    let slowest = report.slowest();
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_is_replaced_by_its_replica() {
    let mut cluster = Cluster::start(&Plan {
        replicas: 1,
        node_timeout: 2_000,
        ..Plan::default()
    });
    let (store, idle) = (store(cluster.url()).await, store(cluster.url()).await);
    let (hurt, unhurt) = loads(&cluster, &store, 0).await;
    let fault = Instant::now();
    cluster.nodes[0].kill();
    hurt.failed().await;
    crate::until("the replica is a master", || {
        let role: String = cluster.nodes[3].run("INFO replication");
        role.contains("role:master")
    })
    .await;
    let promoted = fault.elapsed();
    hurt.decided().await;
    let (hurt, unhurt) = (hurt.stop().await, unhurt.stop().await);
    let row = format!(
        "cluster: kill -9 of a master, replica promoted after {} ms: its slots",
        promoted.as_millis()
    );
    hurt.row(
        &row,
        "charges that had not reached the replica are lost",
        fault,
    );
    unhurt.row("the same: the other slots", "all", fault);
    assert!(
        hurt.failures()
            .keys()
            .all(|kind| kind == "Unavailable" || kind == "Timeout"),
        "{:?}",
        hurt.failures()
    );
    assert!(hurt.slowest() < TIMEOUT + HICCUP, "{:?}", hurt.slowest());
    assert!(hurt.back_after(fault) < promoted + Duration::from_secs(5));
    unharmed(&unhurt);

    // Who has not asked all the time does not meet the fault at all: it looks by itself.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        allowed(&idle, &take(&path_of(&cluster, 0), MAX), 1).await,
        1
    );

    // It comes back as a replica, and nothing is lost any more.
    cluster.nodes[0].restart();
    crate::until("it is a replica", || {
        let role: String = cluster.nodes[0].run("INFO replication");
        role.contains("role:slave")
    })
    .await;
    assert_eq!(
        allowed(&store, &take(&format!("{}b", path_of(&cluster, 0)), 3), 5).await,
        3
    );
}

/// Its slots fail, typed and at once; all the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_without_a_replica_is_waited_for() {
    let mut cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    let (hurt, unhurt) = loads(&cluster, &store, 1).await;
    let fault = Instant::now();
    cluster.nodes[1].kill();
    hurt.failed().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    unhurt.decided().await;
    cluster.nodes[1].restart();
    let back = Instant::now();
    hurt.decided().await;
    let back = back.elapsed();
    let (hurt, unhurt) = (hurt.stop().await, unhurt.stop().await);
    let row = format!(
        "cluster: a dead master without a replica, back {} ms after it is: its slots",
        back.as_millis()
    );
    hurt.row(&row, "its data is lost", fault);
    unhurt.row("the same: the other slots", "all", fault);
    assert!(hurt.failures().contains_key("Unavailable"));
    assert!(hurt.slowest() < TIMEOUT + HICCUP, "{:?}", hurt.slowest());
    unharmed(&unhurt);
}

/// One that hangs holds up nobody but its own slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_master_holds_up_only_its_own_slots() {
    let cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    let (hurt, unhurt) = loads(&cluster, &store, 1).await;
    let fault = Instant::now();
    cluster.nodes[1].signal("STOP");
    hurt.failed().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    unhurt.decided().await;
    cluster.nodes[1].signal("CONT");
    let back = Instant::now();
    hurt.decided().await;
    let back = back.elapsed();
    let (hurt, unhurt) = (hurt.stop().await, unhurt.stop().await);
    let row = format!(
        "cluster: SIGSTOP of a master, back {} ms after SIGCONT: its slots",
        back.as_millis()
    );
    let counted = counted(&store, &path_of(&cluster, 1)).await;
    let counts = format!("{} allowed, {counted} counted", hurt.allowed());
    hurt.row(&row, &counts, fault);
    unhurt.row("the same: the other slots", "all", fault);
    // Those that came late count nothing; one of each task may have been done when the node was
    // stopped, unheard.
    assert!(
        (hurt.allowed()..=hurt.allowed() + 4).contains(&counted),
        "{counts}"
    );
    assert!(
        hurt.failures().contains_key("Timeout"),
        "{:?}",
        hurt.failures()
    );
    assert!(hurt.slowest() < TIMEOUT + HICCUP, "{:?}", hurt.slowest());
    unharmed(&unhurt);
}

/// What the callers of two masters get in a second while the third one is hurt, as a share of what
/// they got before. It is the best of several, since other work on the machine takes its part of
/// any.
async fn share_of_the_others(
    cluster: &mut Cluster,
    fault: &str,
    hurt_it: impl Fn(&mut Cluster),
    heal_it: impl Fn(&mut Cluster),
) {
    const SPAN: Duration = Duration::from_secs(1);
    let store = store(cluster.url()).await;
    let hurt = Load::hasty(&store, &take(&path_of(cluster, 1), MAX), 32);
    let others = [0, 2].map(|at| Load::hasty(&store, &take(&path_of(cluster, at), MAX), 32));
    let decisions = || others.iter().map(Load::decisions).sum::<usize>();
    let count = async || {
        let before = decisions();
        tokio::time::sleep(SPAN).await;
        decisions() - before
    };
    let mut best = 0.0_f64;
    for _ in 0..4 {
        hurt.decided().await;
        let before = count().await;
        hurt_it(cluster);
        hurt.failed().await;
        let meanwhile = count().await;
        heal_it(cluster);
        best = best.max(meanwhile as f64 / before as f64);
        println!("cluster: {fault}: others have {before} decisions before, {meanwhile} meanwhile");
        if best >= 0.95 {
            break;
        }
    }
    hurt.stop().await;
    for load in others {
        let report = load.stop().await;
        println!(
            "cluster: {fault}: {:?} of the others fail",
            report.failures()
        );
    }
    assert!(best >= 0.8, "{best}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_costs_the_others_no_decision() {
    let mut cluster = Cluster::start(&Plan::default());
    let kill = |cluster: &mut Cluster| cluster.nodes[1].kill();
    let restart = |cluster: &mut Cluster| cluster.nodes[1].restart();
    share_of_the_others(&mut cluster, "kill -9", kill, restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mute_master_costs_the_others_no_decision() {
    let mut cluster = Cluster::start(&Plan::default());
    let stop = |cluster: &mut Cluster| cluster.nodes[1].signal("STOP");
    let go_on = |cluster: &mut Cluster| cluster.nodes[1].signal("CONT");
    share_of_the_others(&mut cluster, "SIGSTOP", stop, go_on).await;
}

/// And if it has a replica, that one is found, though the old connection does not break.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_master_is_replaced_by_its_replica() {
    let cluster = Cluster::start(&Plan {
        replicas: 1,
        node_timeout: 2_000,
        ..Plan::default()
    });
    let store = store(cluster.url()).await;
    let (hurt, unhurt) = loads(&cluster, &store, 0).await;
    let fault = Instant::now();
    cluster.nodes[0].signal("STOP");
    crate::until("the replica is a master", || {
        let role: String = cluster.nodes[3].run("INFO replication");
        role.contains("role:master")
    })
    .await;
    let promoted = fault.elapsed();
    hurt.decided().await;
    let (hurt, unhurt) = (hurt.stop().await, unhurt.stop().await);
    let row = format!(
        "cluster: SIGSTOP of a master, replica promoted after {} ms: its slots",
        promoted.as_millis()
    );
    hurt.row(&row, "as after a kill", fault);
    unhurt.row("the same: the other slots", "all", fault);
    assert!(hurt.slowest() < TIMEOUT + HICCUP, "{:?}", hurt.slowest());
    cluster.nodes[0].signal("CONT");
}

/// A cluster that wants all slots to be served, or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_told() {
    let mut cluster = Cluster::start(&Plan {
        full_coverage: true,
        node_timeout: 2_000,
        ..Plan::default()
    });
    let store = store(cluster.url()).await;
    let (hurt, unhurt) = loads(&cluster, &store, 1).await;
    let fault = Instant::now();
    cluster.nodes[1].kill();
    unhurt.failed().await;
    let down = fault.elapsed();
    cluster.nodes[1].restart();
    crate::until("the cluster is well", || {
        let mut nodes = cluster.nodes.iter();
        nodes.all(|node| {
            node.run::<String>("CLUSTER INFO")
                .contains("cluster_state:ok")
        })
    })
    .await;
    let back = Instant::now();
    hurt.decided().await;
    unhurt.decided().await;
    let back = back.elapsed();
    let (hurt, unhurt) = (hurt.stop().await, unhurt.stop().await);
    let row = format!(
        "CLUSTERDOWN after {} ms, back {} ms after the cluster is: slots of the dead master",
        down.as_millis(),
        back.as_millis()
    );
    hurt.row(&row, "its data is lost", fault);
    unhurt.row(
        "the same: the other slots",
        "nothing while it is down",
        fault,
    );
    assert!(unhurt.failures().contains_key("Unavailable"));
    assert!(
        unhurt.slowest() < TIMEOUT + HICCUP,
        "{:?}",
        unhurt.slowest()
    );
}

/// All masters gone, so that nobody of those who are known answers, and back at the same places.
#[tokio::test]
async fn a_cluster_that_is_gone_comes_back() {
    let mut cluster = Cluster::start(&Plan::default());
    let store = store(cluster.url()).await;
    let (hurt, unhurt) = loads(&cluster, &store, 0).await;
    let fault = Instant::now();
    for node in &mut cluster.nodes {
        node.kill();
    }
    hurt.failed().await;
    for node in &mut cluster.nodes {
        node.restart();
    }
    hurt.decided().await;
    unhurt.decided().await;
    let report = hurt.stop().await;
    unhurt.stop().await;
    report.row(
        "cluster: all nodes killed and back",
        "all data is lost",
        fault,
    );
    assert!(
        report.slowest() < TIMEOUT + HICCUP,
        "{:?}",
        report.slowest()
    );
}

/// Tasks and connections end with the last clone.
#[tokio::test]
async fn a_dropped_connection_leaves_no_task() {
    let cluster = Cluster::start(&Plan::default());
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks = metrics.num_alive_tasks();
    let redis = Redis::connect(cluster.url())
        .await
        .expect("a running cluster");
    let store = RedisStore::of(&redis);
    assert_eq!(
        allowed(&store.timeout(crate::PATIENCE), &take("p", 3), 5).await,
        3
    );
    assert!(metrics.num_alive_tasks() > tasks);
    drop(redis);
    crate::until("the tasks end", || metrics.num_alive_tasks() <= tasks).await;
}

/// A service may start before its cluster does.
#[tokio::test]
async fn a_lazy_store_waits_for_its_cluster() {
    let mut cluster = Cluster::start(&Plan::default());
    for node in &mut cluster.nodes {
        node.kill();
    }
    let store = RedisStore::connect_lazy(cluster.url()).expect("a valid address");
    let store = store.timeout(TIMEOUT);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let dynamic: &dyn tidegate::Store = &store;
    let error = tidegate::Store::take(dynamic, &take("p", 3)).await;
    assert_eq!(
        error.expect_err("no cluster").kind(),
        StoreErrorKind::Unavailable
    );
    for node in &mut cluster.nodes {
        node.restart();
    }
    let load = Load::hasty(&store, &take("p", MAX), 1);
    load.decided().await;
    load.stop().await;
}
