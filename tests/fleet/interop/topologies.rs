//! Locks of both languages on a cluster, at each of its masters, and behind sentinels.

use std::time::Duration;

use super::fairness::Contest;
use super::fleet::Language::{Java, Rust};
use super::fleet::Process;
use super::wake::{assert_woken, call, wake_ups};
use kit::Redis;
use kit::cluster::{Cluster, Plan};
use kit::sentinels::Sentinels;

const MASTERS: usize = 3;

/// A cluster, and of each master the name of a lock that it has.
fn cluster() -> (Cluster, Vec<String>) {
    let cluster = Cluster::start(&Plan::default());
    let locks = (0..MASTERS).map(|master| cluster.key_at(master, "lock"));
    let locks = locks.collect();
    (cluster, locks)
}

/// A release of one language wakes a waiter of the other one as soon as on one server.
#[test]
#[ignore = "tests/interop.sh builds the Java half"]
fn a_waiter_is_woken_everywhere() {
    println!();
    let (server, sentinels) = (Redis::start(), Sentinels::start());
    let (cluster, locks) = cluster();
    let at_masters = locks.iter().map(|lock| (cluster.url(), &**lock));
    let places: Vec<_> = at_masters.chain([(sentinels.url(), "sentinels")]).collect();
    for (holds, waits) in [(Java, Rust), (Rust, Java)] {
        let alone = wake_ups(&server.url, "alone", holds, waits);
        for (url, lock) in &places {
            assert_woken(wake_ups(url, lock, holds, waits), alone);
        }
    }
}

/// Each language has 35 % of the holds at least, and nobody waits for more than a second, or on a
/// busy machine for much longer than on one server. One fair contest of three is enough.
#[test]
#[ignore = "tests/interop.sh builds the Java half"]
fn each_language_has_its_share_at_each_master() {
    println!();
    let run = |url: &str, lock: &str| {
        let contest = Contest::run(url, lock, &[Rust, Java], 1_000);
        contest.print(1_000);
        contest
    };
    let server = Redis::start();
    let (cluster, locks) = cluster();
    for lock in &locks {
        let fair = |_| {
            let alone = run(&server.url, "alone").java.longest;
            let bound = Duration::from_secs(1).max(3 * alone);
            let it = run(&cluster.url(), lock);
            let is_fair = |had| it.share(had) >= 70 && had.longest <= bound;
            is_fair(it.java) && is_fair(it.rust)
        };
        assert!((0..3).any(fair), "{lock}");
    }
}

/// The lock that recent releases of Redisson call non-reentrant is the same lock.
#[test]
#[ignore = "tests/interop.sh builds the Java half"]
fn a_non_reentrant_lock_is_the_same() {
    let server = Redis::start();
    let mut java = Process::start(Java, "serve", &server.url, "");
    let mut rust = Process::start(Rust, "serve", &server.url, "");
    if call(&mut java, "lockOnce l").contains("no such call") {
        return println!("no such call");
    }
    assert!(call(&mut rust, "tryLock l").ends_with("\tno"));
    assert!(
        call(&mut java, "lockOnce l").ends_with("\tnot held"),
        "again"
    );
    rust.tell("1 lock l");
    call(&mut java, "unlock l");
    let line = rust.line(|line| line.starts_with("1\t"));
    assert!(line.ends_with("\tok"), "{line}");
}
