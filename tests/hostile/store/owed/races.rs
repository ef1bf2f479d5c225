//! Settlements among takes of their own flight: each gets its own answer, and sums are exact.

use futures_util::future::join;

use super::{rule, take, used};
use crate::prelude::*;

/// Plain and in wrappers, behind a line of a few milliseconds, and in memory.
async fn stores(url: &str) -> Vec<(&'static str, Arc<dyn Store>)> {
    let redis = connect(url, PATIENT).await;
    let wrapped = Resilient::new(redis.clone()).timeout(PATIENT);
    let wrapped = wrapped.in_flight(100_000).processes(1);
    vec![
        ("redis", Arc::new(redis)),
        ("wrapped", wrapped.build()),
        ("memory", Arc::new(MemoryStore::new())),
    ]
}

/// 40 settlements, each of another number of units, and 40 takes, all asked before any is answered:
/// each is told its own number.
#[tokio::test]
async fn each_gets_its_own_answer() {
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    for (name, store) in stores(&proxy.url).await {
        for algorithm in COUNTING {
            for at_most in [u64::MAX, 700] {
                let case = format!("{name} {algorithm:?} {at_most}");
                let path = format!("own{name}{at_most}");
                let rule = rule(algorithm, &path, &[(100, HOUR)], at_most);
                let neighbour = super::rule(algorithm, &format!("{path}n"), &[(1_000, HOUR)], None);
                let mut charges = Vec::new();
                for _ in 0..40 {
                    charges.push(charge(&store, &take(&rule, "x", 1)).await);
                }
                let settlements = charges
                    .iter()
                    .zip(1..)
                    .map(async |(charge, beyond)| (beyond, settle(charge, 1 + beyond).await));
                let takes = (1..=40).map(async |cost| {
                    let of = if cost % 2 == 0 { &rule } else { &neighbour };
                    let answer = store.take(&take(of, "x", cost)).await;
                    (cost, answer.expect("a decision"))
                });
                let (settled, taken) = join(join_all(settlements), join_all(takes)).await;
                for (beyond, settled) in &settled {
                    let sum = settled.charged + settled.forgiven;
                    assert_eq!((sum, settled.given_back), (*beyond, 0), "{case}");
                    let all = at_most == u64::MAX;
                    assert!(!all || settled.charged == *beyond, "{case}: {settled:?}");
                }
                let mut admitted = 0;
                for (cost, decision) in &taken {
                    let units = decision.receipt().map_or(0, |it| it.units());
                    assert_eq!(units, cost * u64::from(decision.is_allowed()), "{case}");
                    let is_right = decision.is_allowed() || cost % 2 == 0;
                    assert!(is_right, "{case}: a neighbour");
                    admitted += units * u64::from(cost % 2 == 0);
                }
                let charged: u64 = settled.iter().map(|it| it.1.charged).sum();
                let counted = used(&store, &rule, "x").await;
                assert_eq!(counted, 40 + charged + admitted, "{case}");
                assert_eq!(used(&store, &neighbour, "x").await, 400, "{case}");
                if at_most == 700 {
                    assert_eq!(40 + charged + admitted, 800, "{case}: all that it may owe");
                }
            }
        }
    }
}

/// 1,000 settlements of one key by 64 tasks, some of which are given back in part, while others
/// take: every unit is accounted for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_of_one_key() {
    let server = Redis::start();
    let proxy = behind(&server, millis(2)).await;
    for (name, store) in stores(&proxy.url).await {
        for algorithm in COUNTING {
            let rule = rule(algorithm, &format!("all{name}"), &[(5_000, HOUR)], 2_000);
            let [counted, forgiven] = [0, 0].map(|zero| Arc::new(AtomicU64::new(zero)));
            let done = Arc::new(AtomicU64::new(0));
            let tasks = (0..64).map(|task| {
                let (store, rule) = (Arc::clone(&store), Arc::clone(&rule));
                let (counted, forgiven) = (Arc::clone(&counted), Arc::clone(&forgiven));
                let done = Arc::clone(&done);
                tokio::spawn(async move {
                    let mut random = Random::new(task);
                    while done.fetch_add(1, Ordering::Relaxed) < 1_000 {
                        let one = take(&rule, "x", 1 + random.below(5));
                        let decision = decide(&store, &one).await;
                        let Some(receipt) = decision.receipt() else {
                            continue;
                        };
                        let charge =
                            tidegate::store::Charge::new(Arc::clone(&store), one.clone(), receipt);
                        let used = random.below(2 * one.cost() + 20);
                        let (mine, again) = join(charge.settle(used), charge.settle(used)).await;
                        let mine = mine.expect("an answer");
                        assert_eq!(again.expect("an answer"), Default::default(), "once");
                        let beyond = used.saturating_sub(one.cost());
                        assert_eq!(mine.charged + mine.forgiven, beyond);
                        assert!(mine.given_back <= one.cost().saturating_sub(used));
                        let kept = one.cost() + mine.charged - mine.given_back;
                        counted.fetch_add(kept, Ordering::Relaxed);
                        forgiven.fetch_add(mine.forgiven, Ordering::Relaxed);
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("no panic");
            }
            let case = format!("{name} {algorithm:?}");
            let counted = counted.load(Ordering::Relaxed);
            assert_eq!(used(&store, &rule, "x").await, counted, "{case}");
            assert!(counted <= 7_000, "{case}: {counted}");
            println!("{case}: {counted}, {forgiven:?} forgiven");
        }
    }
}
