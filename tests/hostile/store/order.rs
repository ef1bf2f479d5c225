//! The answers equal those of asking one after another in order of arrival (and law 8): a memory
//! store with the same clock is asked one after another, and has to say the same.

use futures_util::future::BoxFuture;
use tidegate::store::Change;

use crate::prelude::*;

const START: u64 = 1_700_000_000_000_000;

/// Rules of which some share a path, and so their counts.
fn rules() -> Vec<Arc<Rule>> {
    let mut rules = Vec::new();
    for algorithm in Algorithm::ALL {
        for (path, max) in [("a", 20), ("a", 30), ("b", 7), ("c", 3)] {
            let quotas = [(max, 10_000), (3 * max, 60_000)];
            let quotas = quotas.map(|(max, window)| kit::quota(max, millis(window)));
            let quotas = &quotas[..if path == "c" { 1 } else { 2 }];
            let rule = Rule::new(path, quotas.iter().copied()).expect("valid");
            rules.push(Arc::new(rule.with_algorithm(algorithm)));
        }
    }
    rules
}

fn any_take(rules: &[Arc<Rule>], numbers: &mut Random) -> Take {
    let rule = &rules[numbers.below(rules.len() as u64) as usize];
    let cost = match numbers.below(12) {
        0 => 0,
        1 => 2 + numbers.below(6),
        2 => 1_000,
        3 => u64::MAX,
        _ => 1,
    };
    take(rule, numbers.below(3)).with_cost(cost)
}

fn same(at: usize, take: &Take, answer: &Decision, expected: &Decision) {
    let of = |one: &Decision| {
        let states: Vec<_> = one.quotas().to_vec();
        (one.is_allowed(), one.retry_after(), states)
    };
    assert_eq!(of(answer), of(expected), "question {at}: {take:?}");
}

/// One question to a store; of a refund or a reset, what is said to the server and to memory.
enum Asked {
    Take(Take),
    Change(Take, [Change; 2]),
}

/// The answer to one question.
#[derive(Debug)]
enum Said {
    Decision(Decision),
    Units(u64),
}

/// Any question. Refunds are of charges that were answered before.
fn any_question(
    rules: &[Arc<Rule>],
    charges: &[(Take, [Receipt; 2])],
    numbers: &mut Random,
) -> Asked {
    match numbers.below(60) {
        0 => Asked::Change(any_take(rules, numbers), [Change::Forget, Change::Forget]),
        1..10 if !charges.is_empty() => {
            let (take, receipts) = &charges[numbers.below(charges.len() as u64) as usize];
            Asked::Change(take.clone(), receipts.clone().map(Change::Refund))
        }
        _ => Asked::Take(any_take(rules, numbers)),
    }
}

/// Asks the server (0) or the memory store (1).
fn ask(store: &dyn Store, asked: &Asked, which: usize) -> BoxFuture<'static, Said> {
    match asked {
        Asked::Take(take) => {
            let answer = store.take(take);
            Box::pin(async { Said::Decision(answer.await.expect("a decision")) })
        }
        Asked::Change(take, changes) => {
            let answer = store.change(take, &changes[which]);
            Box::pin(async { Said::Units(answer.await.expect("a number")) })
        }
    }
}

/// What one store is told, in what it is told at once, at what time.
async fn check(store: &RedisStore, seed: u64, pause: bool) {
    let clock = clock_at(START);
    let memory = MemoryStore::new().clock(clock.clone());
    let store = store.clone().clock(clock.clone());
    let (rules, mut numbers) = (rules(), Random::new(seed));
    let (mut answered, mut refunded, mut charges) = (0, 0, Vec::new());
    for _wave in 0..12 {
        clock.set(clock.now() + numbers.below(4_000_000));
        let (mut questions, mut answers) = (Vec::new(), Vec::new());
        for _group in 0..numbers.below(6) + 1 {
            for _ in 0..numbers.below(120) + 1 {
                let asked = any_question(&rules, &charges, &mut numbers);
                let mut answer = ask(&store, &asked, 0);
                // The first poll asks, if making the future has not.
                if let Some(early) = answer.as_mut().now_or_never() {
                    panic!("an answer at once: {early:?}");
                }
                answers.push(tokio::spawn(answer));
                questions.push(asked);
            }
            if pause {
                sleep(Duration::from_micros(numbers.below(4_000))).await;
            }
        }
        // What is charged in the very microsecond of a reset may be refundable or not: a store may
        // have dropped a count in which nothing counts before.
        let is_reset = |take: &Take| {
            questions.iter().any(|asked| {
                matches!(asked, Asked::Change(reset, [Change::Forget, _])
                    if reset.rule().id() == take.rule().id() && reset.key() == take.key())
            })
        };
        for (asked, answer) in questions.iter().zip(join_all(answers).await) {
            let expected = ask(&memory, asked, 1).await;
            match (asked, answer.expect("no panic"), expected) {
                (Asked::Take(take), Said::Decision(said), Said::Decision(expected)) => {
                    same(answered, take, &said, &expected);
                    let receipts = said.receipt().zip(expected.receipt());
                    let receipts = receipts.filter(|_| !is_reset(take));
                    charges.extend(receipts.map(|(a, b)| (take.clone(), [a, b])));
                }
                (Asked::Change(_, [Change::Forget, _]), ..) => {}
                (Asked::Change(take, _), Said::Units(said), Said::Units(expected)) => {
                    assert_eq!(said, expected, "question {answered}: {take:?}");
                    refunded += said;
                }
                (_, said, expected) => panic!("{said:?}, and not {expected:?}"),
            }
            answered += 1;
        }
    }
    assert!(refunded > 0, "of {answered} questions");
}

/// Several flights are on their way at once, also while the time that a message takes varies.
#[tokio::test]
async fn flights_beside_each_other() {
    let (server, proxy, store) = far(millis(5)).await;
    for seed in 1..5 {
        run(&server, "FLUSHDB");
        check(&store, seed * 104_729, true).await;
    }
    let _varies = background([async move {
        for at in 0_u64.. {
            let (calls, replies) = (millis(at * 7 % 5), millis(at * 3 % 4));
            proxy.all(Mode::Delay { calls, replies });
            sleep(millis(3)).await;
        }
    }]);
    for seed in 1..4 {
        run(&server, "FLUSHDB");
        check(&store, seed * 1_299_709, true).await;
    }
}

/// Questions that are asked again lose their turn, never their unit: no two get the same place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_flushed_all_the_time() {
    let (server, store) = near().await;
    let server = Arc::new(server);
    let is_over = Arc::<AtomicBool>::default();
    let (flushed, ends) = (Arc::clone(&server), Arc::clone(&is_over));
    let flushes = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            run(&flushed, "SCRIPT FLUSH");
        }
    });
    for round in 0..10 {
        for algorithm in Algorithm::ALL {
            let rule = by(algorithm, &format!("flushed{round}"), 150, HOUR);
            let takes: Vec<_> = (0..400).map(|at| take(&rule, at % 2)).collect();
            let answers = answers_of(&store, &takes).await;
            for key in 0..2 {
                let answers = answers.iter().skip(key).step_by(2);
                let answers = answers.map(|answer| answer.as_ref().expect("a decision"));
                let allowed = answers.filter(|answer| answer.is_allowed());
                let mut places: Vec<_> = allowed.map(|answer| answer.remaining()).collect();
                places.sort_unstable();
                let expected: Vec<u64> = (0..150).collect();
                assert_eq!(places, expected, "{algorithm:?}: law 1, each once");
            }
        }
    }
    is_over.store(true, Ordering::Relaxed);
    flushes.join().expect("no panic");
}
