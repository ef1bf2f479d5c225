//! Settlements among takes of their own flight: each gets its own answer.

use futures_util::future::join;

use super::*;

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

/// 40 settlements and 40 takes, all asked before any is answered: each is told its own number.
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
                let one = take(&rule, "x", 1);
                let charges = join_all((0..40).map(|_| charge(&store, &one))).await;
                let settle = async |(at, charge): (usize, &Charge)| {
                    // One that was never begun is none.
                    drop(charge.settle(9_000));
                    (at as u64 + 1, settle(charge, at as u64 + 2).await)
                };
                let settlements = charges.iter().enumerate().map(settle);
                let takes = (1..=40).map(async |cost| {
                    let of = if cost % 2 == 0 { &rule } else { &neighbour };
                    (cost, decide(&store, &take(of, "x", cost)).await)
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
                    assert!(decision.is_allowed() || cost % 2 == 0, "{case}");
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
