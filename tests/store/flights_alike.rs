//! Flights of random takes and refunds of many keys, against the pure algorithms. Rules and costs
//! are mixed, the clock moves, and some keys hold something else.

use proptest::prelude::{any, *};
use redis::Connection;

use crate::prelude::*;

/// What a key holds before a history begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// No script writes it: each take of the key fails, and it stays.
    AnotherType,
    /// Bytes of the right type that are no state: as good as nothing.
    Garbage,
}

/// Takes of the same key, rule and cost, one behind the other.
#[derive(Debug, Clone)]
struct Row {
    key: usize,
    rule: usize,
    cost: u64,
    takes: usize,
    /// Refunds that are asked behind them, of receipts of earlier flights: which of them, and how
    /// many units.
    refunds: Vec<(usize, u64)>,
}

#[derive(Debug, Clone)]
struct History {
    rules: Vec<(Vec<Quota>, u16)>,
    keys: Vec<Before>,
    /// How far the clock goes, and what is asked then.
    flights: Vec<(i64, Vec<Row>)>,
}

/// The answer to a take or to a refund.
#[derive(Debug)]
enum Answer {
    Decision(Decision),
    GivenBack(u64),
}

/// More than a call holds.
const KEYS: usize = 80;
const RULES: usize = 3;

fn quota() -> impl Strategy<Value = Quota> {
    let max = prop_oneof![6 => 0..9_u64, 3 => 9..200_u64, 1 => Just(Quota::MAX_UNITS)];
    let millis = prop::sample::select(vec![1, 3, 1_000, 60_000]);
    let burst = prop_oneof![3 => Just(None), 1 => (0..20_u64).prop_map(Some)];
    (max, millis, burst).prop_map(|(max, millis, burst)| {
        let quota = Quota::new(Duration::from_millis(millis), max).expect("valid");
        burst.map_or(quota, |burst| quota.with_burst(burst).unwrap_or(quota))
    })
}

fn row() -> impl Strategy<Value = Row> {
    let cost = prop_oneof![6 => Just(1), 3 => 0..6_u64, 1 => 20..90_u64, 1 => Just(u64::MAX)];
    let takes = prop_oneof![6 => Just(1_usize), 3 => 1..5_usize, 1 => 5..70_usize];
    // Many keys, and one that is asked about again and again.
    let key = prop_oneof![4 => 0..KEYS, 1 => Just(0)];
    let units = prop_oneof![4 => Just(u64::MAX), 1 => 1..4_u64];
    let refunds = prop_oneof![
        3 => Just(0..1_usize),
        2 => Just(1..4_usize),
        1 => Just(4..90_usize),
    ];
    let refunds = refunds.prop_flat_map(move |number| {
        prop::collection::vec((0..1_000_usize, units.clone()), number)
    });
    (key, 0..RULES, cost, takes, refunds).prop_map(|(key, rule, cost, takes, refunds)| Row {
        key,
        rule,
        cost,
        takes,
        refunds,
    })
}

fn history() -> impl Strategy<Value = History> {
    let sub_windows = prop::sample::select(vec![1, 4, 64]);
    let quotas = prop::collection::vec(quota(), 1..4).prop_map(|mut quotas| {
        quotas.sort_by_key(Quota::window);
        quotas.dedup_by_key(|quota| quota.window());
        quotas
    });
    let rule = (quotas, sub_windows);
    let before = prop_oneof![
        8 => Just(Before::Nothing),
        1 => Just(Before::AnotherType),
        1 => Just(Before::Garbage),
    ];
    let pass = prop_oneof![
        3 => Just(1_i64),
        3 => 0..2_000_i64,
        3 => 0..2_000_000_i64,
        1 => -2_000_000..0_i64,
    ];
    // One rule at times. Of several rules of a key, it stands in a call more than once.
    let rows = prop::collection::vec(row(), 1..120);
    let rows = (rows, any::<bool>()).prop_map(|(mut rows, has_one_rule)| {
        if has_one_rule {
            rows.iter_mut().for_each(|row| row.rule = 0);
        }
        rows
    });
    (
        prop::collection::vec(rule, RULES),
        prop::collection::vec(before, KEYS),
        prop::collection::vec((pass, rows), 1..5),
    )
        .prop_map(|(rules, keys, flights)| History {
            rules,
            keys,
            flights,
        })
}

/// All of the same path, so that they take turns on the same keys.
fn rules(history: &History, algorithm: Algorithm) -> Vec<Arc<Rule>> {
    let rule = |(quotas, sub_windows): &(Vec<Quota>, u16)| {
        let rule = Rule::new("p", quotas.iter().copied());
        let counting = AlgorithmConfig::from(algorithm).sub_windows(*sub_windows);
        Arc::new(rule.expect("valid").with_algorithm(counting))
    };
    history.rules.iter().map(rule).collect()
}

fn prepare(connection: &mut Connection, algorithm: Algorithm, name: &str, before: Before) {
    let garbage: &[u8] = match algorithm {
        Algorithm::SlidingLog => &[247; 57],
        Algorithm::SlidingWindow => &[248; 90],
        Algorithm::Gcra => &[249; 64],
        _ => &[250; 57],
    };
    let stored = match (before, algorithm) {
        (Before::Nothing, _) => return,
        (Before::AnotherType, _) => cmd("RPUSH").arg(name).arg("mine").exec(connection),
        (Before::Garbage, Algorithm::SlidingLog) => {
            cmd("ZADD").arg(name).arg(7).arg(garbage).exec(connection)
        }
        (Before::Garbage, _) => cmd("SET").arg(name).arg(garbage).exec(connection),
    };
    stored.expect("is stored");
}

/// Plays it on the server and on the pure algorithm, and compares each answer.
async fn play(
    store: &RedisStore,
    connection: &mut Connection,
    algorithm: Algorithm,
    history: &History,
) -> Result<(), TestCaseError> {
    let began = Instant::now();
    cmd("FLUSHALL").exec(connection).expect("is emptied");
    let rules = rules(history, algorithm);
    let name = |key: usize| format!("CurrentLimiter:{}:k{key}", rules[0].id());
    for (key, before) in history.keys.iter().enumerate() {
        prepare(connection, algorithm, &name(key), *before);
    }
    let clock = clock_at(1_800_000_000_000_000);
    let store = store.clone().clock(clock.clone());
    let mut counts: HashMap<usize, Count> = HashMap::new();
    let mut receipts: Vec<(usize, Receipt)> = Vec::new();
    for (pass, rows) in &history.flights {
        let now = clock.now().saturating_add_signed(*pass);
        clock.set(now);
        let (mut answers, mut asked) = (Vec::new(), Vec::new());
        let take = |key: usize, rule: usize| {
            let key = Key::from(format!("k{key}").as_str());
            Take::new(Arc::clone(&rules[rule]), key)
        };
        for row in rows {
            let one = take(row.key, row.rule).with_cost(row.cost);
            for _ in 0..row.takes {
                let answer = store.take(&one);
                answers.push(async { answer.await.map(Answer::Decision) }.boxed());
                asked.push((row.key, row.rule, row.cost, None));
            }
            for (which, units) in &row.refunds {
                if receipts.is_empty() {
                    continue;
                }
                let (key, receipt) = receipts.swap_remove(which % receipts.len());
                let answer = store.refund(&take(key, row.rule).with_cost(*units), &receipt);
                answers.push(async { answer.await.map(Answer::GivenBack) }.boxed());
                asked.push((key, row.rule, *units, Some(receipt)));
            }
        }
        let answers = join_all(answers).await;
        if began.elapsed() > MAX_REAL_TIME {
            return Ok(());
        }
        for ((key, rule, cost, refunded), answer) in asked.into_iter().zip(answers) {
            let is_foreign = history.keys[key] == Before::AnotherType;
            prop_assert_eq!(answer.is_err(), is_foreign, "{:?}", answer);
            let (rule, count) = (&rules[rule], counts.entry(key).or_default());
            let decision = match answer {
                Ok(Answer::GivenBack(units)) => {
                    let receipt = refunded.expect("it was one");
                    prop_assert_eq!(units, count.refund(now, rule.quotas(), &receipt, cost));
                    continue;
                }
                Ok(Answer::Decision(decision)) => decision,
                Err(error) => {
                    prop_assert_eq!(error.kind(), StoreErrorKind::WrongType);
                    continue;
                }
            };
            let expected = count.take(rule.algorithm(), now, rule.quotas(), cost);
            prop_assert_eq!(decision.verdict(), expected.verdict());
            prop_assert_eq!(decision.quotas(), expected.quotas());
            prop_assert_eq!(decision.receipt(), expected.receipt());
            receipts.extend(decision.receipt().map(|receipt| (key, receipt)));
        }
    }
    for (key, before) in history.keys.iter().enumerate() {
        let (name, foreign) = (name(key), *before == Before::AnotherType);
        let lives: i64 = cmd("PTTL").arg(&name).query(connection).expect("a number");
        // Garbage has no expiry before a charge replaces it.
        prop_assert!(lives != -1 || *before != Before::Nothing, "{} stays", name);
        prop_assert!(lives == -1 || !foreign, "{} is not ours", name);
    }
    Ok(())
}

/// Redis forgets keys by the real time, two seconds after their windows at the earliest. What took
/// longer than this proves nothing.
const MAX_REAL_TIME: Duration = Duration::from_secs(1);

kit::for_each_algorithm!(flights_decide_alike);

fn flights_decide_alike(algorithm: Algorithm) {
    let server = Redis::start();
    let runtime = still_runtime();
    let store = runtime.block_on(store_on(&server));
    let config = ProptestConfig {
        max_shrink_iters: 2_000,
        ..kit::random::config(100)
    };
    let outcome = proptest::test_runner::TestRunner::new(config).run(&history(), |history| {
        let mut connection = server.connection();
        runtime.block_on(play(&store, &mut connection, algorithm, &history))
    });
    outcome.expect("the same answers");
}
