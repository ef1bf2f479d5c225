//! Takes, peeks and resets of one key are executed in the order in which they were asked, whoever
//! is polled when, and in whatever way each of them travels.

use std::pin::pin;

use super::*;

/// Asked first and polled last, it is charged first.
#[tokio::test]
async fn asked_first_and_polled_last() {
    let (_server, _proxy, store) = far(millis(2)).await;
    for others in [1, 2, 70] {
        let mine = take(&rule("ordered", MAX, HOUR), others);
        let first = store.take(&mine);
        let later: Vec<_> = (0..others).map(|_| store.take(&mine)).collect();
        let later = join_all(later).await;
        let first = first.await;
        assert_eq!(spent_by(first), 1, "of {others}");
        for (at, answer) in later.into_iter().enumerate() {
            assert_eq!(spent_by(answer), at as u64 + 2);
        }
    }
}

/// An answer that is there waits for no question that somebody has asked since.
#[tokio::test]
async fn an_answer_beside_a_later_question() {
    let (_server, _proxy, store) = far(millis(4)).await;
    let of = |key: &str| store.take(&take(&rule("later", MAX, HOUR), key));
    let mut first = Box::pin(of("first"));
    // They travel together, and nobody has polled the first one.
    assert_eq!(spent_by(of("second").await), 1);
    let later = of("later");
    let answer = poll_once(&mut first);
    assert!(
        answer.is_ready(),
        "law 13: it drives another one's question"
    );
    assert_eq!(spent_by(later.await), 1);
}

/// A reset behind a lone take forgets it, polled or not; a peek behind it sees it.
#[tokio::test]
async fn a_reset_or_a_peek_behind_it() {
    let (server, _proxy, store) = far(millis(2)).await;
    for round in 0..20_u64 {
        let mine = take(&rule("reset", MAX, HOUR), round);
        let pending = match round % 4 {
            0 => Box::pin(store.take(&mine)),
            1 => polled_once(&store, &mine),
            _ => executed_once(&server, &store, &mine).await,
        };
        let seen = store.peek(&mine).await.expect("a decision");
        let seen_by_then = MAX - seen.remaining();
        assert_eq!(seen_by_then, 1, "round {round}: the peek came later");
        reset(&store, &mine).await;
        assert_eq!(spent_by(pending.await), 1);
        assert_eq!(charged(&store, &mine).await, 0, "round {round}");
    }
}

/// Questions about three keys are asked, polled once, awaited and left unpolled at random, at a
/// latency that changes: each answer is that of asking one after the other.
async fn any_history(seed: u64) {
    let (_server, proxy, store) = far(Duration::ZERO).await;
    let mut random = Random::new(seed);
    let rule = rule("history", MAX, HOUR);
    let mut spent = [0; 3];
    // With what is charged under the key once each of them was executed.
    let mut takes: Vec<(u64, Pending)> = Vec::new();
    let mut resets: Vec<Pin<Box<StoreFuture<bool>>>> = Vec::new();
    let check = |step, spent, answer: Result<Decision, StoreError>| {
        let decision = answer.unwrap_or_else(|error| panic!("step {step}: {error}"));
        let told = MAX - decision.remaining();
        assert_eq!(told, spent, "seed {seed}, step {step}");
    };
    for step in 0..400 {
        match random.below(12) {
            0..=4 => {
                let key = random.below(3) as usize;
                let cost = random.below(4);
                spent[key] += cost;
                let pending = store.take(&take(&rule, key).with_cost(cost));
                takes.push((spent[key], Box::pin(pending)));
            }
            5 => {
                let key = random.below(3) as usize;
                spent[key] = 0;
                let mut pending = Box::pin(store.reset(&take(&rule, key)));
                if random.is(50) {
                    let _ = futures_util::poll!(&mut pending);
                }
                resets.push(pending);
            }
            6 | 7 if !takes.is_empty() => {
                let at = random.below(takes.len() as u64) as usize;
                if let Poll::Ready(answer) = poll_once(&mut takes[at].1) {
                    let (spent, _) = takes.swap_remove(at);
                    check(step, spent, answer);
                }
            }
            8 if !takes.is_empty() => {
                let at = random.below(takes.len() as u64) as usize;
                let (spent, pending) = takes.swap_remove(at);
                check(step, spent, pending.await);
            }
            9 => yield_now().await,
            10 if random.is(30) => sleep(millis(1)).await,
            _ if random.is(10) => proxy.all(Mode::Delay {
                calls: millis(random.below(3)),
                replies: millis(random.below(3)),
            }),
            _ => {}
        }
    }
    for (spent, pending) in takes {
        check(400, spent, pending.await);
    }
    for pending in resets {
        pending.await.expect("an answer");
    }
}

#[tokio::test]
async fn any_history_of_one_thread() {
    join_all((0..12).map(any_history)).await;
}

/// Tasks on several threads ask for one key, each alone most of the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn asked_from_several_threads() {
    let (_server, store) = near().await;
    let mine = take(&rule("ordered", MAX, HOUR), "x");
    charged_in_the_order_of_asking(&store, &mine, (0, 3, 5_000)).await;
}

/// A task that has used up what tokio lets it do at a time asks twice: the first take is sent first,
/// though its first poll could not do much.
#[tokio::test]
async fn asked_by_a_task_without_budget() {
    let (_server, _proxy, store) = far(millis(2)).await;
    for round in 0..10 {
        let mine = take(&rule("ordered", MAX, HOUR), round);
        while futures_util::poll!(pin!(tokio::task::consume_budget())).is_ready() {}
        let first = polled_once(&store, &mine);
        let second = polled_once(&store, &mine);
        let (first, second) = tokio::join!(first, second);
        let told = [first, second].map(spent_by);
        assert_eq!(told, [1, 2], "in the order of asking");
    }
}
