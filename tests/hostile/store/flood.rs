//! Law 13 under floods: twenty thousand keys, and ten thousand callers of one key.

use kit::stalls::nothing_is_lost;

use crate::latency::lost;
use crate::prelude::*;

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
