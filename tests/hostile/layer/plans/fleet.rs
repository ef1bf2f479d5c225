//! Law 1 on the server's clock: one key under plans with names and from code in turn, from many tasks of two stores
//! behind latency, of two processes, and in a cluster. Judged by the receipts' instants.

use super::oracle::Oracle;
use super::*;

/// An allowed take: when the server charged it, which of the rules was asked, for what.
type Granted = (u64, u64, usize, u64, Decision);

fn rules(algorithm: Algorithm) -> Vec<Arc<Rule>> {
    let rule = of_own("turns", &[(15, millis(500))]).with_algorithm(algorithm);
    let max: (&str, Pairs<'_>) = ("max", &[(60, millis(300)), (100, millis(1_100))]);
    let mut rules = all_of(with_plans(rule, &[max, ("pro", &[(30, millis(700))])]));
    // No process knows of the plans that another one makes. Their windows are always in use; a
    // bucket of their own begins again once it has drained, as after a stall.
    let values = [quotas(&[(25, millis(700))]), quotas(&[(70, millis(1_100))])];
    for value in values.into_iter().filter(|_| algorithm != Algorithm::Gcra) {
        rules.push(rules[0].under(&Plan::from(value)).expect("it fits"));
    }
    rules
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

const WORKER: &str = "plans::fleet::worker";

/// The processes know the plans, each in its own order, and one names them otherwise.
#[test]
fn three_plans_in_turn_from_two_processes() {
    let server = Redis::start();
    let workers = (0..2).map(|at| start_worker(WORKER, &format!("{} {at}", server.url)));
    let mut granted: Vec<Vec<[u64; 6]>> = vec![Vec::new(); 4];
    for output in outputs(workers.collect()) {
        let lines = output
            .lines()
            .filter_map(|line| line.strip_prefix("granted "));
        for line in lines {
            let numbers = line
                .split(' ')
                .map(|number| number.parse().expect("a number"));
            let numbers: Vec<u64> = numbers.collect();
            granted[numbers[0] as usize].push(numbers.try_into().expect("six"));
        }
    }
    for (algorithm, mut granted) in ALGORITHMS.into_iter().zip(granted) {
        granted.sort_by_key(|one| (one[1], one[2]));
        let rules = rules(algorithm);
        let mut oracle = Oracle::new(algorithm);
        for [_, stamp, _, which, units, reset] in &granted {
            let quotas = rules[*which as usize].quotas();
            oracle.charge(*stamp, *units, quotas);
            // The window that ends last is enough.
            let quota = quotas.last().expect("one");
            let over = oracle.over(*stamp, quota, Duration::from_micros(*reset));
            assert_eq!(over, None, "law 1, {algorithm:?}");
        }
        assert!(granted.len() > 40, "{algorithm:?}: {}", granted.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a worker process"]
async fn worker() {
    let Some(words) = instructions() else { return };
    let store = connect(&words[0], PATIENT).await;
    let end = Instant::now() + 2 * SECOND;
    let all = ALGORITHMS.map(|algorithm| {
        let mut rules = rules(algorithm);
        if words[1] == "1" {
            let rule = of_own("turns", &[(15, millis(500))]).with_algorithm(algorithm);
            let b: (&str, Pairs<'_>) = ("b", &[(60, millis(300)), (100, millis(1_100))]);
            rules = all_of(with_plans(rule, &[("a", &[(30, millis(700))]), b]));
            rules.swap(1, 2);
        }
        let tasks = (0..16).map(|seed| {
            let what = (store.clone(), rules.clone(), "x".to_owned());
            tokio::spawn(ask_at_random(what, end, seed))
        });
        tasks.collect::<Vec<_>>()
    });
    for (at, tasks) in all.into_iter().enumerate() {
        for (stamp, serial, which, units, decision) in done(tasks).await.into_iter().flatten() {
            let reset = decision.quotas().last().expect("one").reset_after();
            let reset = reset.as_micros();
            println!("granted {at} {stamp} {serial} {which} {units} {reset}");
        }
    }
}
