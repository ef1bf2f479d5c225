//! Law 1 on the server's clock: one key under three plans in turn, from many tasks of two stores
//! behind latency, of two processes, and in a cluster. Judged by the receipts' instants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::cluster::{Cluster, Plan};
use kit::random::Random;
use kit::workers::{instructions, outputs, start_worker};
use tidegate::{Algorithm, Decision, Key, RedisStore, Rule, Store, Take};
use tokio::time::sleep;

use super::oracle::Oracle;
use super::{ALGORITHMS, all_of, of_own, with_plans};
use kit::{PATIENT, behind, connect, millis};

/// An allowed take: when the server charged it, which of the rules was asked, for what.
type Granted = (u64, u64, usize, u64, Decision);

fn rules(path: &str, algorithm: Algorithm) -> Vec<Arc<Rule>> {
    let rule = of_own(path, &[(15, millis(500))]).with_algorithm(algorithm);
    all_of(with_plans(
        rule,
        &[
            ("max", &[(60, millis(300)), (100, millis(1_100))]),
            ("pro", &[(30, millis(700))]),
        ],
    ))
}

fn take_of(rule: &Arc<Rule>, key: &str, cost: u64) -> Take {
    Take::new(Arc::clone(rule), Key::from(key)).with_cost(cost)
}

/// Asks about this key under all rules at random.
async fn ask_at_random(
    (store, rules, key): (RedisStore, Vec<Arc<Rule>>, String),
    end: Instant,
    seed: u64,
) -> Vec<Granted> {
    let mut random = Random::new(seed);
    let mut granted = Vec::new();
    while Instant::now() < end {
        let which = random.below(rules.len() as u64) as usize;
        let cost = 1 + random.below(2);
        let take = take_of(&rules[which], &key, cost);
        let decision = store.take(&take).await.expect("a decision");
        if let Some(receipt) = decision.receipt() {
            granted.push((receipt.stamp(), receipt.serial(), which, cost, decision));
        }
        sleep(millis(random.below(30))).await;
    }
    granted
}

fn check(algorithm: Algorithm, rules: &[Arc<Rule>], mut granted: Vec<Granted>) {
    granted.sort_by_key(|(stamp, serial, ..)| (*stamp, *serial));
    let mut oracle = Oracle::new(algorithm);
    let mut of_rule = vec![0; rules.len()];
    for (stamp, _, which, cost, decision) in &granted {
        oracle.charge(*stamp, *cost, u64::MAX);
        oracle.check_allowed(*stamp, rules[*which].quotas(), decision);
        of_rule[*which] += 1;
    }
    println!("{algorithm:?}: {of_rule:?}");
    assert!(granted.len() > 40, "{algorithm:?}: {of_rule:?}");
}

async fn attack(stores: &[RedisStore], keys: &[&str], time: Duration) {
    let end = Instant::now() + time;
    let mut all = Vec::new();
    for algorithm in ALGORITHMS {
        let tasks = (0..64).map(|at| {
            // Rules of its own for each store, as in processes of their own.
            let store = stores[at % stores.len()].clone();
            let what = (
                store,
                rules("turns", algorithm),
                keys[at % keys.len()].to_owned(),
            );
            tokio::spawn(ask_at_random(what, end, at as u64))
        });
        all.push((algorithm, tasks.collect::<Vec<_>>()));
    }
    for (algorithm, tasks) in all {
        let mut of_key = vec![Vec::new(); keys.len()];
        for (at, granted) in join_all(tasks).await.into_iter().enumerate() {
            of_key[at % keys.len()].extend(granted.expect("no panic"));
        }
        for granted in of_key {
            check(algorithm, &rules("turns", algorithm), granted);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_plans_in_turn_from_two_stores() {
    let server = Redis::start();
    let (near, far) = (
        behind(&server, millis(1)).await,
        behind(&server, millis(15)).await,
    );
    let stores = [
        connect(&near.url, PATIENT).await,
        connect(&far.url, PATIENT).await,
    ];
    attack(&stores, &["x"], millis(2_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_plans_in_turn_in_a_cluster() {
    let cluster = Cluster::start(&Plan::default());
    let mut stores = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(&*cluster.url()).await.expect("runs");
        stores.push(store.timeout(PATIENT));
    }
    attack(&stores, &["a", "b", "c", "d"], millis(2_000)).await;
}

const WORKER: &str = "attacks::plans::fleet::worker";

/// The processes know the plans, each in its own order, and one names them otherwise.
#[test]
fn three_plans_in_turn_from_two_processes() {
    let server = Redis::start();
    let workers = (0..2).map(|at| start_worker(WORKER, &format!("{} {at}", server.url)));
    let mut granted: Vec<Vec<[u64; 6]>> = vec![Vec::new(); 4];
    for output in outputs(workers.collect()) {
        for line in output
            .lines()
            .filter_map(|line| line.strip_prefix("granted "))
        {
            let numbers = line
                .split(' ')
                .map(|number| number.parse().expect("a number"));
            let numbers: Vec<u64> = numbers.collect();
            granted[numbers[0] as usize].push(numbers.try_into().expect("six"));
        }
    }
    for (algorithm, mut granted) in ALGORITHMS.into_iter().zip(granted) {
        granted.sort_by_key(|one| (one[1], one[2]));
        let rules = rules("turns", algorithm);
        let mut oracle = Oracle::new(algorithm);
        for [_, stamp, _, which, units, reset] in &granted {
            oracle.charge(*stamp, *units, u64::MAX);
            // The window that ends last is enough.
            let quota = rules[*which as usize].quotas().last().expect("one");
            let reset = Duration::from_micros(*reset);
            let over = oracle.over(*stamp, quota, reset);
            assert_eq!(over, None, "law 1, {algorithm:?}");
        }
        println!("{algorithm:?}: {}", granted.len());
        assert!(granted.len() > 40, "{algorithm:?}: {}", granted.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a worker process"]
async fn worker() {
    let Some(words) = instructions() else { return };
    let store = connect(&words[0], PATIENT).await;
    let is_second = words[1] == "1";
    let end = Instant::now() + millis(2_000);
    let mut written = Vec::new();
    for (at, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let mut rules = rules("turns", algorithm);
        if is_second {
            let rule = of_own("turns", &[(15, millis(500))]).with_algorithm(algorithm);
            let plans: [(&str, super::Pairs<'_>); 2] = [
                ("a", &[(30, millis(700))]),
                ("b", &[(60, millis(300)), (100, millis(1_100))]),
            ];
            rules = all_of(with_plans(rule, &plans));
            rules.swap(1, 2);
        }
        let tasks = (0..16).map(|seed| {
            let what = (store.clone(), rules.clone(), "x".to_owned());
            tokio::spawn(ask_at_random(what, end, seed))
        });
        let tasks: Vec<_> = tasks.collect();
        written.push(tokio::spawn(async move {
            for granted in join_all(tasks).await {
                for (stamp, serial, which, units, decision) in granted.expect("no panic") {
                    let reset = decision.quotas().last().expect("one").reset_after();
                    let reset = reset.as_micros();
                    println!("granted {at} {stamp} {serial} {which} {units} {reset}");
                }
            }
        }));
    }
    for one in written {
        one.await.expect("no panic");
    }
}
