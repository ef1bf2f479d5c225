//! Logs when decisions begin to fail, and when they are made again, instead of each failure.

use std::future::ready;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::response::Response;
use tidegate::callback::BoxFuture;
use tidegate::{Decision, ErrorCallback, Failed, Recovery};

/// The shortest time between two messages about an outage that comes and goes.
const PAUSE: Duration = Duration::from_secs(1);

/// The error callback of all limited routes.
#[derive(Default)]
pub(crate) struct Outage(Mutex<State>);

#[derive(Default)]
struct State {
    since: Option<Instant>,
    /// Requests without a decision since then.
    requests: u64,
    /// Whether its beginning was logged, so that its end has to be logged.
    told: bool,
    last_told: Option<Instant>,
}

/// Every error goes on to the fallback's decision, or to the rule's `on-error`, by default a 503.
impl ErrorCallback for Outage {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery> {
        self.change(|state| state.fails(&failed));
        Box::pin(ready(Recovery::Propagate))
    }

    fn also_with_fallback(&self) -> bool {
        true
    }
}

impl Outage {
    /// A response that carries a decision ends an outage, unless a fallback had to make it.
    pub(crate) fn look_at(&self, response: &Response) {
        let decision = Decision::from_extensions(response.extensions());
        if decision.is_some_and(|decision| decision.failure().is_none()) {
            self.change(State::decides);
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl State {
    fn fails(&mut self, failed: &Failed) {
        self.requests += 1;
        if self.since.is_some() {
            return;
        }
        let now = Instant::now();
        self.since = Some(now);
        self.told = self
            .last_told
            .is_none_or(|last| now.duration_since(last) >= PAUSE);
        if self.told {
            self.last_told = Some(now);
            eprintln!("web_app: {failed}");
        }
    }

    fn decides(&mut self) {
        let Some(since) = self.since.take() else {
            return;
        };
        let requests = std::mem::take(&mut self.requests);
        if self.told {
            let seconds = since.elapsed().as_secs_f64();
            eprintln!(
                "web_app: the store decides again after {seconds:.1} s; \
                 requests without one: {requests}"
            );
        }
    }
}
