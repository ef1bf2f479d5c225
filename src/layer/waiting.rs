//! Requests that are held until it is their turn, instead of being denied.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, sleep_until};

use super::decide::{Halt, Outcome, stands};
use super::settings::Settings;
use crate::decision::Decision;
use crate::in_flight_counter::{InFlightCounter, Permit};
use crate::jitter;
use crate::lines::Lines;
use crate::store::{Name, StoreExt, Take};

/// How long requests may wait, not at all by default, and those that do.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) up_to: Duration,
    pub(super) most: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// One for each rule and key.
    lines: Lines,
    requests: InFlightCounter,
}

impl Waiting {
    /// How many requests wait at most, unless told otherwise.
    const MOST: usize = 1_024;

    /// Whether somebody waits, so that who comes now has to stand behind.
    pub(super) fn is_anybody(&self) -> bool {
        self.shared.requests.number() > 0
    }

    fn enter(&self) -> Option<Permit> {
        self.shared.requests.try_acquire(self.most)
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            up_to: Duration::ZERO,
            most: Self::MOST,
            shared: Arc::default(),
        }
    }
}

/// What the store said last, and when it was asked.
struct Answered {
    decision: Decision,
    asked: Instant,
}

impl Settings {
    /// Whether a request that was denied like this may be let through later.
    pub(super) fn may_wait(&self, decision: &Decision) -> bool {
        let retry_after = decision.retry_after();
        retry_after.is_some_and(|wait| wait <= self.waiting.up_to)
    }

    /// Waits for the request's turn, and then until the store allows it; it is denied once it is known that this would
    /// take too long.
    pub(super) async fn wait(
        self: Arc<Self>,
        mut take: Take,
        denied: Option<Decision>,
        head: Parts,
    ) -> Outcome {
        let asked = Instant::now();
        let mut is_told = denied
            .as_ref()
            .is_some_and(|denied| denied.failure().is_some());
        let mut last = denied.map(|decision| Answered { decision, asked });
        let waiting = &self.waiting;
        let until = asked + waiting.up_to;
        let place = waiting.enter();
        let name = Name::new(&take, "").to_string();
        let line = waiting.shared.lines.line(&name);
        let turn = match &place {
            Some(_) => line.turn(Some(until)).await,
            None => Ok(None),
        };
        let turn = match turn {
            Ok(Some(turn)) => turn,
            Ok(None) => return self.give_up(take, last, head).await,
            Err(error) => return self.settle(Halt::NoDecision(take, error), head),
        };
        loop {
            if let Some(Answered { decision, asked }) = last {
                let Some(wait) = decision.retry_after() else {
                    return self.denied(take, decision, head);
                };
                let earliest = asked + wait;
                turn.not_before(earliest);
                if earliest > until {
                    return self.denied(take, decision, head);
                }
                sleep_until(until.min(earliest + later(wait))).await;
            }
            let asked = Instant::now();
            let answer = self.store.take_one(&take).await;
            let judged = match self.judge(take, answer) {
                // Once is enough: it is the same request.
                Err(Halt::FellBack(take, decision)) if is_told => stands(take, decision),
                judged => {
                    is_told |= matches!(judged, Err(Halt::FellBack(..)));
                    self.told_why(judged, &head).await
                }
            };
            match judged {
                Ok(mark) => return Outcome::Proceed(head, Some(mark)),
                Err(Halt::Denied(same, decision)) => {
                    take = same;
                    last = Some(Answered { decision, asked });
                }
                Err(halt) => {
                    if let Halt::NoDecision(_, error) = &halt {
                        turn.failed(error);
                    }
                    return self.settle(halt, head);
                }
            }
        }
    }

    /// The store has the last word on who did not wait for it.
    async fn give_up(self: &Arc<Self>, take: Take, last: Option<Answered>, head: Parts) -> Outcome {
        if let Some(last) = last {
            return self.denied(take, last.decision, head);
        }
        let answer = self.store.take_one(&take).await;
        match self.told_why(self.judge(take, answer), &head).await {
            Ok(mark) => Outcome::Proceed(head, Some(mark)),
            Err(Halt::Denied(take, decision)) => self.denied(take, decision, head),
            Err(halt) => self.settle(halt, head),
        }
    }
}

/// Processes that wait for the same do not all come back in the same instant.
fn later(wait: Duration) -> Duration {
    jitter::up_to(Duration::from_millis(5).min(wait / 20))
}
