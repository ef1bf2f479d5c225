//! Random histories of takes and holds, on all stores.

use std::sync::Arc;

use kit::random::Random;
use tidegate::StoreError;

use kit::clocked::{Stores, take_of};

use super::holds::ALGORITHMS;
use super::*;

/// Law 8: the stores answer alike, whatever happens, and never what a model forbids.
#[tokio::test]
async fn random_histories_are_alike() {
    let stores = Stores::start().await;
    for round in 0..12 {
        let mut random = Random::new(4_600 + round);
        let algorithm = ALGORITHMS[round as usize % 4];
        let rule = Arc::new(
            per_minute(&format!("round{round}"), 5)
                .with_algorithm(algorithm)
                .with_outgoing()
                .expect("one subject"),
        );
        let start = stores.all[0].clock.now();
        let mut until = [start; 3];
        let mut now = start;
        for step in 0..150 {
            now += random.below(4_000_000);
            stores.all.iter().for_each(|it| it.clock.set(now));
            let at = random.below(3) as usize;
            let take = take_of(&rule, &Key::from(["a", "b", "c"][at]), random.below(7));
            let time = Duration::from_micros(random.below(20_000_000));
            let action = random.below(10);
            let mut answers = Vec::new();
            for store in &stores.all {
                let inner = &store.store;
                let answer: Result<String, StoreError> = match action {
                    0 => inner.hold(&take, time).await.map(|it| format!("{it:?}")),
                    1 => inner.reset(&take).await.map(|_| String::new()),
                    2 => inner
                        .peek(&take)
                        .await
                        .map(|it| format!("{:?}", it.remaining())),
                    _ => inner
                        .take(&take)
                        .await
                        .map(|it| format!("{:?}", it.verdict())),
                };
                answers.push(answer.expect("an answer"));
            }
            match action {
                0 => until[at] = until[at].max(now + time.as_micros() as u64),
                1 => until[at] = 0,
                _ => {}
            }
            let first = &answers[0];
            let alike = answers.iter().all(|it| it == first);
            assert!(
                alike,
                "{algorithm:?} {round}/{step} {action} {take:?}: {answers:?}"
            );
            if action > 2 && until[at] > now && take.cost() > 0 {
                assert!(
                    !first.contains("Allowed"),
                    "{algorithm:?} {round}/{step}: {first}"
                );
            }
        }
    }
}
