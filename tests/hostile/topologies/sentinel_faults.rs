//! Failovers, and how they are followed.

use kit::load::{Load, Report, allowed, store, take, until};

use crate::prelude::*;

const MAX: u64 = 1_000_000;

/// What the server has counted of the take.
async fn counted(store: &RedisStore) -> u64 {
    let peek = take("p", MAX).looking();
    let decision = store.take(&peek).await;
    MAX - decision.expect("a decision").remaining()
}

/// A store, the port of the master, and callers whose takes are decided.
async fn loaded(redis: &Sentinels) -> (RedisStore, u16, Load) {
    let store = store(redis.url()).await;
    let load = Load::hasty(&store, &take("p", MAX), 8);
    load.decided().await;
    (store, redis.servers[0].port, load)
}

/// What callers heard, once they are decided again.
async fn decided_in_time(load: Load) -> Report {
    load.decided().await;
    let report = load.stop().await;
    report.assert_in_time();
    report
}

/// How many were allowed and are counted still.
async fn counts(report: &Report, store: &RedisStore) -> String {
    let (allowed, counted) = (report.allowed(), counted(store).await);
    let lost = allowed.saturating_sub(counted);
    format!("{allowed} allowed, {counted} still counted: {lost} lost with the old master")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_is_replaced() {
    let mut redis = Sentinels::start();
    let (store, old, load) = loaded(&redis).await;
    sleep(millis(300)).await;
    let fault = Instant::now();
    redis.servers[0].kill();
    until("a failover", || redis.master() != old).await;
    let named = fault.elapsed();
    let report = decided_in_time(load).await;
    let row = format!("kill -9 of the master; the new one is named after {named:?}");
    report.row(&row, &counts(&report, &store).await, fault);
    assert!(!report.failures().is_empty());
    assert!(report.back_after(fault) < named + 3 * SECOND);

    // The old master comes back, is made a replica, and nobody asks it.
    let load = Load::hasty(&store, &take("p", MAX), 8);
    let fault = Instant::now();
    redis.servers[0].restart();
    until("the old master is a replica", || redis.is_settled()).await;
    load.decided().await;
    let fault_row = "the old master comes back as a replica";
    load.end(fault_row, "nothing lost", fault).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_on_command_is_followed_under_load() {
    let redis = Sentinels::start();
    let (store, old, load) = loaded(&redis).await;
    let fault = Instant::now();
    redis.fail_over();
    until("a failover", || redis.master() != old).await;
    let named = fault.elapsed();
    // The old master is made a replica some ten seconds later, and takes writes until then.
    let clients = || redis.servers[1].run::<String>("CLIENT LIST TYPE normal");
    until("the new master is asked", || {
        clients().contains("cmd=evalsha")
    })
    .await;
    let followed = fault.elapsed();
    assert!(followed < named + 5 * SECOND, "{followed:?}");
    until("the old master is a replica", || redis.is_settled()).await;
    let report = decided_in_time(load).await;
    let row = format!("SENTINEL FAILOVER; a new master after {named:?}, asked after {followed:?}");
    report.row(&row, &counts(&report, &store).await, fault);
}

/// A machine that hangs, whose kernel still says that all has arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_master_is_replaced() {
    let redis = Sentinels::start();
    let (_store, old, load) = loaded(&redis).await;
    let fault = Instant::now();
    redis.servers[0].signal("STOP");
    until("a failover", || redis.master() != old).await;
    let named = fault.elapsed();
    let report = decided_in_time(load).await;
    let row = format!("SIGSTOP of the master; the new one is named after {named:?}");
    report.row(&row, "as after a kill", fault);
    let failures = report.failures();
    assert!(failures.contains_key("Timeout"), "{failures:?}");
    redis.servers[0].signal("CONT");
}

/// No sentinel at all: what is connected goes on, and the loss of the master is told.
#[tokio::test]
async fn dead_sentinels_are_missed_only_at_a_failover() {
    let mut redis = Sentinels::start();
    let store = store(redis.url()).await;
    for sentinel in &mut redis.sentinels {
        sentinel.kill();
    }
    assert_eq!(allowed(&store, &take("p", 3), 5).await, 3);
    let load = Load::hasty(&store, &take("q", MAX), 2);
    load.decided().await;
    let fault = Instant::now();
    redis.servers[0].kill();
    load.failed().await;
    sleep(millis(500)).await;
    redis.servers[0].restart();
    redis.sentinels[1].restart();
    let back = Instant::now();
    let report = decided_in_time(load).await;
    println!("{NAME}: back {:?} after a sentinel is", back.elapsed());
    let row = "all sentinels dead, then the master, then one of each is back";
    report.row(row, "a new count: its data is lost", fault);
    assert!(back.elapsed() < PATIENT);
}
