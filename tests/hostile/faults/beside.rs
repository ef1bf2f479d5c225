//! Takes of others in the same flight.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use kit::faults::Fault;
use kit::oracle::charged;
use tidegate::store::StoreErrorKind as Kind;

use crate::calls::Client;
use crate::*;

/// What neighbours get, law 13.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Beside {
    /// They notice nothing.
    Unharmed,
    /// Who would be charged gets one of these errors, and nothing is charged. Who is denied or only
    /// looks is answered.
    NotCharged(&'static [Kind]),
    /// The fault is theirs, too: each may get one of these errors, in time.
    Fails(&'static [Kind]),
}

/// The path of their rules, and all that their keys begin with.
pub(crate) const PATH: &str = "beside";
const MAX: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Expected {
    Allowed,
    Denied,
    Never,
    Looks,
}

pub(crate) struct Neighbours {
    takes: Vec<(Take, Expected)>,
    allowed: AtomicI64,
    failed: AtomicI64,
}

fn is(expected: Expected, answer: &Result<Decision, StoreError>) -> bool {
    let Ok(decision) = answer else { return false };
    match expected {
        Expected::Allowed => decision.is_allowed() && decision.receipt().is_some(),
        Expected::Denied => decision.retry_after().is_some() && decision.remaining() == 0,
        Expected::Never => decision.verdict() == Verdict::Never,
        Expected::Looks => decision.is_allowed() && charged(decision).is_none(),
    }
}

impl Neighbours {
    pub(crate) async fn ready(client: &Client) -> Self {
        let mut takes = Vec::new();
        for algorithm in Algorithm::ALL {
            let day = Duration::from_secs(86_400);
            let rule = Rule::new(PATH, [quota(MAX, day)]).expect("a valid rule");
            let rule = Arc::new(rule.with_algorithm(algorithm));
            let take = |key| Take::new(Arc::clone(&rule), Key::from(key));
            let full = take("beside-full").with_cost(MAX);
            client.store.take(&full).await.expect("a decision");
            takes.extend([
                (take("beside-roomy"), Expected::Allowed),
                (take("beside-full"), Expected::Denied),
                (take("beside-new"), Expected::Allowed),
                (take("beside-full").with_cost(MAX + 1), Expected::Never),
                // Behind a take of its own key that fails, it might fail, too.
                (take("beside-looked-at").looking(), Expected::Looks),
            ]);
        }
        Self {
            takes,
            allowed: AtomicI64::new(0),
            failed: AtomicI64::new(0),
        }
    }

    /// They all ask now, and get what they have to get.
    pub(crate) async fn ask(&self, client: &Client, fault: Fault, beside: Beside) {
        let answers = self.takes.iter().map(|(take, _)| client.store.take(take));
        let answers = join_all(answers).await;
        for ((take, expected), answer) in self.takes.iter().zip(&answers) {
            if let Ok(decision) = answer {
                self.allowed
                    .fetch_add(i64::from(charged(decision).is_some()), Relaxed);
            }
            let fails =
                |kinds: &[Kind]| answer.as_ref().is_err_and(|it| kinds.contains(&it.kind()));
            let is_right = is(*expected, answer)
                || match beside {
                    Beside::Unharmed => false,
                    Beside::NotCharged(kinds) => *expected == Expected::Allowed && fails(kinds),
                    Beside::Fails(kinds) => {
                        self.failed
                            .fetch_add(i64::from(*expected == Expected::Allowed), Relaxed);
                        fails(kinds)
                    }
                };
            let name = format!("{} {}", take.rule().id(), take.key().as_str());
            assert!(
                is_right,
                "law 13: {fault:?}, {name}, {expected:?}: {answer:?}"
            );
        }
    }

    /// Whether there is an answer.
    pub(crate) async fn look(&self, client: &Client) -> bool {
        client.store.peek(&self.takes[0].0).await.is_ok()
    }

    /// What was allowed is counted, and nothing else.
    pub(crate) async fn check_count(&self, client: &Client, beside: Beside) {
        let mut counted = 0;
        for (take, expected) in &self.takes {
            if *expected == Expected::Allowed {
                let left = client
                    .store
                    .peek(take)
                    .await
                    .expect("a decision")
                    .remaining();
                counted += (MAX - left).cast_signed();
            }
        }
        let (allowed, failed) = (self.allowed.load(Relaxed), self.failed.load(Relaxed));
        let possible = allowed..=allowed + failed;
        assert!(
            possible.contains(&counted),
            "{beside:?}: {counted} of {possible:?}"
        );
    }
}
