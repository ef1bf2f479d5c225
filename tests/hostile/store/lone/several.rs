//! Several takes that their callers send are in progress at a time, up to eight, and beyond that
//! questions gather for flights, until they are few again.

use kit::proxy::{FlightFault, Part};

use super::*;

/// So many takes may be in progress that their callers have sent.
const OWN: usize = 8;

/// So many takes of keys of their own, whose callers have polled them once.
fn several(store: &RedisStore, path: &str, number: usize) -> Vec<Pending> {
    let rule = rule(path, MAX, HOUR);
    let takes = (0..number).map(|key| take(&rule, key));
    takes.map(|take| polled_once(store, &take)).collect()
}

/// Tasks ask for one key, in numbers that swing around eight, so that takes leave by their callers
/// and in flights, and the one way follows the other: each is charged in the order of asking.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn order_while_the_number_swings() {
    let (_server, proxy, store) = far(Duration::ZERO).await;
    let mine = take(&rule("ordered", MAX, HOUR), "x");
    let mut before = 0;
    for (round, tasks) in [3, 12, 7, 9, 1, 24, 8, 2].into_iter().enumerate() {
        let calls = Duration::from_micros(300 * (round as u64 % 3));
        let replies = calls;
        proxy.all(Mode::Delay { calls, replies });
        charged_in_the_order_of_asking(&store, &mine, (before, tasks, 300)).await;
        before += 300 * tasks;
    }
}

/// A take that was made and not polled is not overtaken by one of its key that is polled at once,
/// and takes that are asked together share a call, beside any number of others.
#[tokio::test]
async fn made_and_not_polled() {
    let (server, _proxy, store) = far(millis(20)).await;
    for beside in 0..=OWN {
        let others = several(&store, &format!("others-{beside}"), beside);
        let mine = take(&rule("mine", MAX, HOUR), beside);
        let before = server.script_calls();
        let together: Vec<_> = (0..3).map(|_| store.take(&mine)).collect();
        let mut told = Vec::new();
        for pending in together.into_iter().rev() {
            told.push(spent_by(pending.await));
        }
        assert_eq!(told, [3, 2, 1], "beside {beside}");
        for answer in join_all(others).await {
            spent_by(answer);
        }
        let calls = server.script_calls() - before;
        assert!(calls <= beside as u64 + 1, "beside {beside}: {calls} calls");
    }
}

/// Callers leave, or keep what they never poll again: what is kept is decided once, what is left once
/// at most, and bystanders get their own answers.
#[tokio::test]
async fn callers_that_leave_or_never_poll() {
    let (_server, proxy, store, mut bystander) = beside_far(millis(10)).await;
    let steady = Steady::watch(&proxy).await;
    for round in 0..10 {
        let path = format!("left-{round}");
        let mut pending = several(&store, &path, OWN - 1);
        let kept = pending.split_off(round % OWN);
        drop(pending);
        bystander.ask(&store).await;
        bystander.ask(&store).await;
        for key in 0..OWN - 1 {
            let charged = charged(&store, &take(&rule(&path, MAX, HOUR), key)).await;
            let is_left = key < round % OWN;
            assert!(
                charged == 1 || charged == 0 && is_left,
                "{charged} of {key}"
            );
        }
        drop(kept);
    }
    steady.check();
}

/// The reply of one of several is lost, and the connection stays: nobody hears another one's answer.
#[tokio::test]
async fn one_of_their_replies_is_lost() {
    let (server, proxy, store) = breaking(millis(5), millis(300)).await;
    for round in 0..5 {
        let path = format!("broken-{round}");
        proxy.break_flight(FlightFault::Lose(Part::All), &path, 0);
        // Each has a cost of its own, so that another one's answer is known.
        let takes = (0..OWN).map(|at| {
            let other = format!("{round}-{at}");
            let path = if at == round { &path } else { &other };
            take(&rule(path, MAX, HOUR), "x").with_cost(3 * at as u64 + 1)
        });
        let takes: Vec<_> = takes.collect();
        let pending: Vec<_> = takes.iter().map(|take| polled_once(&store, take)).collect();
        for (take, answer) in takes.iter().zip(join_all(pending).await) {
            if let Ok(decision) = answer {
                assert_eq!(MAX - decision.remaining(), take.cost());
            }
        }
        let began = server.stopwatch();
        let mut bystander = Bystander::new(&format!("after-{round}"));
        bystander.ask_until_answered(&store, PATIENT / 4).await;
        let waited = began.waited();
        assert!(waited < millis(1_500), "{waited:?}");
    }
}

/// Each has its own deadline: those that are over when the server goes on were never charged.
#[tokio::test]
async fn deadlines_of_their_own() {
    let (_server, proxy, store) = far(Duration::ZERO).await;
    proxy.all(Mode::Hold);
    let began = Instant::now();
    let timeouts =
        (0..OWN as u64).map(|at| millis(if at % 2 == 0 { 100 + 20 * at } else { 20_000 }));
    let asked: Vec<_> = timeouts
        .enumerate()
        .map(|(at, timeout)| {
            let take = take(&rule("deadlines", MAX, HOUR), at);
            let store = store.clone().timeout(timeout);
            tokio::spawn(async move { store.take(&take).await })
        })
        .collect();
    sleep(millis(600)).await;
    proxy.all(Mode::Pass);
    for (at, asked) in asked.into_iter().enumerate() {
        let answer = asked.await.expect("no panic");
        let charged = charged(&store, &take(&rule("deadlines", MAX, HOUR), at)).await;
        match at % 2 {
            0 => assert_eq!((kind(&answer), charged), (Some(StoreErrorKind::Timeout), 0)),
            _ => assert_eq!((spent_by(answer), charged), (1, 1)),
        }
    }
    assert!(began.elapsed() < PATIENT, "law 6");
}
