//! Laws 6 and 13 under floods: twenty thousand keys, ten thousand callers of one key, and
//! more questions than may wait.

use kit::stalls::nothing_is_lost;

use crate::latency::lost;
use crate::prelude::*;

/// The queue's bound, as the design has it.
const MAX_WAITING: usize = 16_384;

/// 20,000 keys, 64 at a time, and 10,000 callers of one key, beside a bystander.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bystander_beside_a_flood() {
    const KEYS: u64 = 20_000;
    const CALLERS: u64 = 10_000;
    const MAX: u64 = 700;
    let (_server, proxy, store) = far_within(Duration::ZERO, TIMEOUT).await;
    let patient = store.clone().timeout(PATIENT);
    nothing_is_lost(&proxy, millis(15), TIMEOUT, async || {
        let keys = tokio::spawn({
            let patient = patient.clone();
            async move {
                // Each key has a max of its own, and every tenth is asked for twice.
                let rules: Vec<_> = (0..10).map(|at| rule("keys", 100 + at, HOUR)).collect();
                let takes = (0..KEYS).flat_map(|key| {
                    let one = take(&rules[key as usize % 10], key);
                    let twice = (key % 10 == 3).then(|| one.clone());
                    std::iter::once(one).chain(twice)
                });
                let (takes, mut answers): (Vec<_>, _) = (takes.collect(), Vec::new());
                for some in takes.chunks(64) {
                    let asked = Instant::now();
                    match ask_all(&patient, some).await {
                        Ok(some) => answers.extend(some),
                        Err(error) => return Some(Lost::since(asked, error)),
                    }
                }
                let mut before: Option<&Take> = None;
                for (take, answer) in takes.iter().zip(answers.iter()) {
                    let is_second = before.is_some_and(|before| before.key() == take.key());
                    let max = take.quotas()[0].max();
                    assert!(answer.is_allowed());
                    let expected = max - 1 - u64::from(is_second);
                    assert_eq!(answer.remaining(), expected, "{take:?}");
                    before = Some(take);
                }
                None
            }
        });
        let hot = tokio::spawn({
            let patient = patient.clone();
            async move {
                let (hot, asked) = (take(&rule("hot", MAX, HOUR), ""), Instant::now());
                let answers = join_all((0..CALLERS).map(|_| patient.take(&hot))).await;
                let allowed = answers.iter().filter(|answer| is_allowed(answer)).count() as u64;
                let error = answers.into_iter().find_map(Result::err);
                assert!(allowed == MAX || error.is_some() && allowed < MAX, "law 1");
                error.map(|error| Lost::since(asked, error))
            }
        });
        let mut lost = lost(&store, 300).await;
        lost.extend(keys.await.expect("no panic"));
        lost.extend(hot.await.expect("no panic"));
        lost
    })
    .await;
}

/// A server that hangs: what is more than may wait is told so at once, all others within their
/// time, and when the server is back everything is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_questions_than_may_wait() {
    const ASKED: usize = 20_000;
    let server = Redis::start();
    // Longer than it takes a busy machine to ask all of them: no place is free before the last.
    let limit = millis(8_000);
    let store = connect(&server.url, limit).await;
    let flood = rule("flood", 1_000_000, HOUR);
    let takes: Vec<_> = (0..ASKED).map(|at| take(&flood, at % 100)).collect();
    server.signal("STOP");
    let began = Instant::now();
    let answers = takes.iter().map(|take| async {
        let asked = Instant::now();
        (store.take(take).await, asked.elapsed())
    });
    let answers = join_all(answers).await;
    let took = began.elapsed();
    let is_overloaded = |answer| kind(answer) == Some(StoreErrorKind::Overloaded);
    let overloaded = answers.iter().filter(|it| is_overloaded(&it.0)).count();
    let timed_out = Some(StoreErrorKind::Timeout);
    let is_other = |answer| !is_overloaded(answer) && kind(answer) != timed_out;
    let other: Vec<_> = answers.iter().filter(|it| is_other(&it.0)).collect();
    assert!(other.is_empty(), "{}: {:?}", other.len(), other[0]);
    assert!(overloaded >= 1_000, "{overloaded} were too few");
    assert!(overloaded <= ASKED - MAX_WAITING, "{overloaded}");
    // One task asks and hears all of them, so it comes late to the time-outs, and waits once more.
    // Both take a busy machine seconds.
    assert!(took < 4 * limit, "{took:?}");
    for (answer, took) in &answers {
        let is_in_time = !is_overloaded(answer) || *took < millis(300);
        assert!(is_in_time, "overloaded after {took:?}");
    }
    server.signal("CONT");
    let patient = store.clone().timeout(PATIENT);
    let is_back = async || patient.take(&takes[0]).await.is_ok();
    within(millis(1_000), "the server is back", is_back).await;
    let mut sum = 0;
    for take in &takes[..100] {
        sum += charged(&store, take).await;
    }
    assert_eq!(sum, 1, "what timed out was refused by the server");
    let again = join_all(takes[..MAX_WAITING].iter().map(|take| patient.take(take))).await;
    assert!(again.iter().all(is_allowed), "all places are free again");
}
