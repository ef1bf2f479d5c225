//! The calls of a store, under each algorithm.

use tidegate::store::Ask;

use super::*;

/// Nothing drains while a test runs.
const DAY: Duration = Duration::from_secs(86_400);
/// More than a test takes.
const MAX: u64 = 60;
const PREFIX: &str = "CurrentLimiter:";

fn take_of(rule: Rule, key: impl ToString) -> Take {
    Take::new(Arc::new(rule), Key::from(&*key.to_string()))
}

/// One quota: what the usual case of a script decides.
fn usual(algorithm: Algorithm, path: &str) -> Rule {
    let rule = Rule::new(path, [quota(MAX, DAY)]).expect("a valid rule");
    rule.with_algorithm(algorithm)
}

/// Two quotas: what the core of a script decides.
fn general(algorithm: Algorithm, path: &str) -> Rule {
    let quotas = [quota(MAX, DAY), quota(2 * MAX, 2 * DAY)];
    let rule = Rule::new(path, quotas).expect("a valid rule");
    rule.with_algorithm(algorithm)
}

fn rules(algorithm: Algorithm) -> [(&'static str, Rule); 2] {
    let (usual, general) = (usual(algorithm, "one"), general(algorithm, "two"));
    [("one quota", usual), ("two quotas", general)]
}

/// What is used of each quota.
fn used(store: &RedisStore, take: &Take) -> Answer<Vec<i64>> {
    let (store, take) = (store.clone(), take.clone());
    Box::pin(async move {
        let decision = store.peek(&take).await.expect("a decision");
        let left = decision.quotas().iter().map(|state| state.remaining());
        let max = take.counts().iter().flat_map(|count| count.quotas());
        let used = max.zip(left).map(|(quota, left)| quota.max() - left);
        used.map(u64::cast_signed).collect()
    })
}

async fn charge(store: &RedisStore, take: &Take) -> Receipt {
    let decision = store.take(take).await.expect("a decision");
    decision.receipt().expect("it is charged")
}

/// A call, of which it counts what is used under this take.
fn case<F: Future<Output = Told> + Send + 'static>(
    client: &Client,
    name: impl Into<String>,
    adds: impl Into<Vec<i64>>,
    take: &Take,
    ask: impl Fn(Client, usize) -> F + Send + Sync + 'static,
) -> Case {
    let names: Vec<_> = take.counts().iter().map(|it| it.name(PREFIX)).collect();
    let (store, take) = (client.store.clone(), take.clone());
    let keys = move |_| names.clone();
    Case::new(name, adds, keys, ask, move || used(&store, &take))
}

/// A take that is charged by each call.
fn charging(client: &Client, name: String, adds: impl Into<Vec<i64>>, take: Take) -> Case {
    case(client, name, adds, &take.clone(), move |client, _| {
        let taken = client.store.take(&take);
        async move { is("allowed", taken.await?.is_allowed()) }
    })
}

/// A take alone under its rule: of a key that was charged before and of one that was not, by each
/// part of each script.
pub(crate) async fn take(client: &Client) -> Vec<Case> {
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        for (name, rule) in rules(algorithm) {
            let adds = vec![1; rule.quotas().len()];
            for key in ["victim", "new-victim"] {
                let take = take_of(rule.clone(), key);
                if key == "victim" {
                    charge(&client.store, &take).await;
                }
                let name = format!("{algorithm:?}, {name}, {key}");
                cases.push(charging(client, name, adds.clone(), take));
            }
        }
        // Charged under two quotas, and asked under one.
        let take = take_of(usual(algorithm, "changed"), "victim");
        let before = take_of(general(algorithm, "changed"), "victim");
        charge(&client.store, &before).await;
        let name = format!("{algorithm:?}, changed");
        cases.push(charging(client, name, [1], take));
    }
    cases
}

/// A take that is denied, by each part of each script.
pub(crate) async fn denied(client: &Client) -> Vec<Case> {
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        for (name, rule) in rules(algorithm) {
            let adds = vec![0; rule.quotas().len()];
            let take = take_of(rule, "victim");
            charge(&client.store, &take.clone().with_cost(MAX)).await;
            let name = format!("{algorithm:?}, {name}");
            cases.push(case(client, name, adds, &take.clone(), move |client, _| {
                let denied = client.store.take(&take);
                async move { is("denied", denied.await?.retry_after().is_some()) }
            }));
        }
    }
    cases
}

/// A take over several counts, one of which has the fault.
pub(crate) async fn joint(client: &Client) -> Vec<Case> {
    let subject = |name, policy: Policy| Subject::new(name, Everyone).limit(policy);
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        let subjects = [
            subject("user", Policy::from(quota(2 * MAX, DAY)).with_cost(2)),
            subject("address", quota(MAX, DAY).into()),
            subject("everyone", quota(3 * MAX, DAY).into()),
        ];
        let rule =
            Rule::joint(&format!("joint-{}", algorithm.name()), subjects).expect("a valid rule");
        let rule = Arc::new(rule.with_algorithm(algorithm));
        // Which of its counts has the fault.
        for at in 0..3 {
            let key = format!("victim-{at}");
            let keys = ["user", "address", "everyone"].map(|name| (name, Key::from(&*key)));
            let take = Take::of_subjects(Arc::clone(&rule), keys).expect("its subjects");
            charge(&client.store, &take).await;
            let name = format!("{algorithm:?}, {key}");
            let mut case = charging(client, name, [2, 1, 1], take.clone());
            case.keys = Box::new(move |_| vec![take.counts()[at].name(PREFIX)]);
            cases.push(case);
        }
    }
    cases
}

/// It charges nothing, and is answered by what is left.
pub(crate) async fn peek(client: &Client) -> Vec<Case> {
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        let take = take_of(usual(algorithm, "peek"), "victim").with_cost(3);
        charge(&client.store, &take).await;
        let name = format!("{algorithm:?}");
        cases.push(case(client, name, [0], &take.clone(), move |client, _| {
            let peeked = client.store.peek(&take);
            async move { is("3 used", peeked.await?.remaining() == MAX - 3) }
        }));
    }
    cases
}

/// A call with a receipt of its own for each, of one key.
async fn with_receipts<F: Future<Output = Told> + Send + 'static>(
    client: &Client,
    call: &str,
    adds: i64,
    ask: impl Fn(&RedisStore, Take, Receipt) -> F + Copy + Send + Sync + 'static,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        let take = take_of(usual(algorithm, call), "victim");
        // What has begun to drain is not given back.
        charge(&client.store, &take.clone().with_cost(3)).await;
        let mut receipts = Vec::new();
        while receipts.len() < SPARE {
            receipts.push(charge(&client.store, &take).await);
        }
        receipts.reverse();
        let name = format!("{algorithm:?}");
        cases.push(case(
            client,
            name,
            [adds],
            &take.clone(),
            move |client, number| ask(&client.store, take.clone(), receipts[number].clone()),
        ));
    }
    cases
}

/// One unit is given back by each call.
pub(crate) async fn refund(client: &Client) -> Vec<Case> {
    with_receipts(client, "refund", -1, |store, take, receipt| {
        let refunded = store.refund(&take, &receipt);
        async move { is("given back", refunded.await? == 1) }
    })
    .await
}

/// One unit is charged, whatever is left.
pub(crate) async fn owe(client: &Client) -> Vec<Case> {
    with_receipts(client, "owe", 1, |store, take, receipt| {
        let owed = store.owe(&take, &receipt);
        async move { is("charged", owed.await? == 1) }
    })
    .await
}

/// Two were used in place of one. A second settlement changes nothing, whatever came of the first.
pub(crate) async fn settle(client: &Client) -> Vec<Case> {
    with_receipts(client, "settle", 1, |store, take, receipt| {
        let charge = Charge::new(Arc::new(store.clone()), take, receipt);
        async move {
            let settled = charge.settle(2).await;
            let again = charge.settle(30).await;
            assert_eq!(again.ok(), Some(Settled::default()), "asked again");
            is("charged", settled?.charged == 1)
        }
    })
    .await
}

/// A rule of one quota and of requests at a time.
fn at_a_time(call: &str) -> Rule {
    let rule = usual(Algorithm::SlidingWindow, call);
    let rule = rule.with_max_concurrent(MAX).expect("a valid rule");
    rule.with_permit_lease(HOUR).expect("a valid rule")
}

/// A take that gets a permit with its unit.
pub(crate) async fn permit_begin(client: &Client) -> Vec<Case> {
    let take = take_of(at_a_time("begin"), "victim");
    charge(&client.store, &take).await;
    let case = charging(client, "a permit".to_owned(), [1, 1], take);
    vec![case.that_gives_back([false, true])]
}

/// A call with a permit of its own for each, of one key; whether it is held beforehand.
async fn with_permits<F: Future<Output = Told> + Send + 'static>(
    client: &Client,
    call: &str,
    is_held: bool,
    adds: i64,
    ask: impl Fn(&RedisStore, Ask, Receipt) -> F + Send + Sync + 'static,
) -> Vec<Case> {
    let take = take_of(at_a_time(call), "victim");
    let count = take.only(take.counts().len() - 1);
    let mut permits = Vec::new();
    for number in 0..=SPARE {
        let receipt = charge(&client.store, &take).await;
        let holder = receipt.counts().last().expect("a permit").clone();
        // One is held anyway.
        if !is_held && number > 0 {
            let released = client.store.refund(&count, &holder).await;
            assert_eq!(released.expect("an answer"), 1);
        }
        permits.push(holder);
    }
    let name = count.name(PREFIX);
    let ask = move |client: Client, number: usize| {
        ask(&client.store, count.clone(), permits[number + 1].clone())
    };
    let mut case = case(client, "a permit", [0, adds], &take, ask);
    case.keys = Box::new(move |_| vec![name.clone()]);
    vec![case]
}

/// A permit goes back.
pub(crate) async fn permit_end(client: &Client) -> Vec<Case> {
    with_permits(client, "end", true, -1, |store, count, holder| {
        let released = store.refund(&count, &holder);
        async move { is("released", released.await? == 1) }
    })
    .await
}

/// A permit is kept, though the store has lost it.
pub(crate) async fn permit_renew(client: &Client) -> Vec<Case> {
    with_permits(client, "renew", false, 1, |store, count, holder| {
        let renewed = store.renew(&count, &holder);
        async move { Ok(renewed.await?) }
    })
    .await
}

/// Each call forgets a key of its own, of one unit.
pub(crate) async fn reset(client: &Client) -> Vec<Case> {
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        let take = |number| take_of(usual(algorithm, "reset"), format!("victim{number}"));
        let takes: Arc<[Take]> = (0..SPARE).map(take).collect();
        for take in &*takes {
            charge(&client.store, take).await;
        }
        let (named, counted, store) = (takes.clone(), takes.clone(), client.store.clone());
        let ask = move |client: Client, number: usize| {
            let reset = client.store.reset(&takes[number]);
            async move { Ok(reset.await.map(drop)?) }
        };
        let keys = move |number: usize| vec![named[number].name(PREFIX)];
        // How many of these have something charged.
        let count = move || {
            let used = join_all(counted.iter().map(|take| used(&store, take)));
            async move { vec![used.await.iter().map(|of_quotas| of_quotas[0]).sum()] }
        };
        cases.push(Case::new(format!("{algorithm:?}"), [-1], keys, ask, count));
    }
    cases
}

/// Each call holds a key of its own.
pub(crate) async fn hold(client: &Client) -> Vec<Case> {
    let rule = usual(Algorithm::SlidingWindow, "hold").with_outgoing();
    let rule = rule.expect("a valid rule");
    let take = |number| take_of(rule.clone(), format!("victim{number}"));
    let takes: Arc<[Take]> = (0..SPARE).map(take).collect();
    let (named, counted, store) = (takes.clone(), takes.clone(), client.store.clone());
    let ask = move |client: Client, number: usize| {
        let held = client.store.hold(&takes[number], HOUR);
        async move { is("held", held.await? > HOUR / 2) }
    };
    let keys = move |number: usize| vec![format!("{{{}}}~until", named[number].name(PREFIX))];
    let count = move || {
        let held = counted.iter().map(|take| store.hold(take, Duration::ZERO));
        let held = join_all(held);
        async move {
            let held = held.await.into_iter();
            let held = held.map(|held| i64::from(!held.expect("an answer").is_zero()));
            vec![held.sum()]
        }
    };
    vec![Case::new("a key", [1], keys, ask, count)]
}
