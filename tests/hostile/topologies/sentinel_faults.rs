//! Failovers, and how they are followed.

use kit::load::{Load, allowed, store, take, until};
use std::time::Instant;
use tidegate::Store;

use kit::sentinels::{NAME, Sentinels};
use kit::{PATIENT, SECOND, millis};
use tidegate::RedisStore;
use tokio::time::sleep;

const MAX: u64 = 1_000_000;

/// Waits until the sentinels name another master, and tells which of the servers it is.
async fn new_master(redis: &Sentinels, old: u16) -> usize {
    let started = Instant::now();
    loop {
        let port = redis.master();
        if port != old {
            let found = redis.servers.iter().position(|server| server.port == port);
            return found.expect("one of ours");
        }
        assert!(started.elapsed() < 150 * SECOND, "no failover");
        sleep(millis(5)).await;
    }
}

/// What the server has counted of the take.
async fn counted(store: &RedisStore) -> u64 {
    let peek = take("p", MAX).with_cost(0);
    let decision = store.take(&peek).await;
    MAX - decision.expect("a decision").remaining()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_master_is_replaced() {
    let mut redis = Sentinels::start();
    let store = store(redis.url()).await;
    let old = redis.servers[0].port;
    let load = Load::hasty(&store, &take("p", MAX), 8);
    load.decided().await;
    sleep(millis(300)).await;
    let fault = Instant::now();
    redis.servers[0].kill();
    new_master(&redis, old).await;
    let named = fault.elapsed();
    load.decided().await;
    let report = load.stop().await;
    report.assert_in_time();
    let (allowed_then, counted_now) = (report.allowed(), counted(&store).await);
    let lost = allowed_then.saturating_sub(counted_now);
    let counts = format!(
        "{allowed_then} allowed, {counted_now} still counted: {lost} lost with the old master"
    );
    let fault_row = format!(
        "kill -9 of the master; the new one is named after {} ms",
        named.as_millis()
    );
    report.row(&fault_row, &counts, fault);
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
    let store = store(redis.url()).await;
    let old = redis.servers[0].port;
    let load = Load::hasty(&store, &take("p", MAX), 8);
    load.decided().await;
    let fault = Instant::now();
    redis.fail_over();
    new_master(&redis, old).await;
    let named = fault.elapsed();
    // The old master is made a replica some ten seconds later, and takes writes until then.
    until("the new master is asked", || {
        let clients: String = redis.servers[1].run("CLIENT LIST TYPE normal");
        clients.contains("cmd=evalsha")
    })
    .await;
    let followed = fault.elapsed();
    assert!(followed < named + 5 * SECOND, "{followed:?}");
    until("the old master is a replica", || redis.is_settled()).await;
    load.decided().await;
    let report = load.stop().await;
    report.assert_in_time();
    let (allowed_then, counted_now) = (report.allowed(), counted(&store).await);
    let lost = allowed_then.saturating_sub(counted_now);
    let counts = format!("{allowed_then} allowed, {counted_now} still counted: {lost} lost");
    let row = format!(
        "SENTINEL FAILOVER; the new master is named after {} ms, and asked after {} ms",
        named.as_millis(),
        followed.as_millis()
    );
    report.row(&row, &counts, fault);
}

/// A machine that hangs, whose kernel still says that all has arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_master_is_replaced() {
    let redis = Sentinels::start();
    let store = store(redis.url()).await;
    let old = redis.servers[0].port;
    let load = Load::hasty(&store, &take("p", MAX), 8);
    load.decided().await;
    let fault = Instant::now();
    redis.servers[0].signal("STOP");
    new_master(&redis, old).await;
    let named = fault.elapsed();
    load.decided().await;
    let report = load.stop().await;
    report.assert_in_time();
    let row = format!(
        "SIGSTOP of the master; the new one is named after {} ms",
        named.as_millis()
    );
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
    load.decided().await;
    let report = load.stop().await;
    report.assert_in_time();
    println!(
        "{NAME}: back {} ms after a sentinel is",
        back.elapsed().as_millis()
    );
    report.row(
        "all sentinels dead, then the master, then one of each is back",
        "a new count: its data is lost",
        fault,
    );
    assert!(back.elapsed() < PATIENT);
}
