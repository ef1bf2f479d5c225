//! What a layer tells `tracing` about its decisions.
//!
//! | level | what | how often |
//! |---|---|---|
//! | warn | decisions begin to fail, and are made again | once for each change |
//! | info | a summary: requests denied and allowed since the one before | for each rule, at a denial, at most every 10 s |
//! | debug | a denial: its quotas without room, cost, retry-after, store | for each denial |
//! | debug | the span `tidegate.take` around the call of the store | for each question |
//!
//! Keys are in none of them, unless [`trace_hashed_keys`] asks for their hashes. Nothing is
//! formatted that no subscriber wants, and without the feature `tracing` nothing is left of this.
//!
//! [`trace_hashed_keys`]: super::RateLimitLayer

use super::responder::Responder;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::metrics::DecisionOutcome;
#[cfg(feature = "tracing")]
use crate::rule::Policy;
use crate::store::Take;
use crate::trace::TakeSpan;

impl TakeSpan {
    /// The end of the span.
    #[inline]
    pub(super) fn record_answer(&self, answer: &Result<Decision, StoreError>) {
        match answer {
            Ok(decision) => {
                self.record("outcome", || {
                    DecisionOutcome::of(decision).name().to_owned()
                });
                self.record("source", || decision.source().name().to_owned());
            }
            Err(error) => self.record("error", || error.to_string()),
        }
    }
}

impl Responder {
    /// A debug event for each denial, and a summary of the rule's denials at most every 10 s.
    #[inline]
    pub(super) fn log_denial(&self, take: &Take, decision: &Decision) {
        #[cfg(feature = "tracing")]
        {
            let path = take.rule().path();
            if tracing::enabled!(tracing::Level::DEBUG) {
                self.log_one_denial(take, decision);
            }
            if let Some(summary) = self.counters.denial_summary() {
                let (denied, allowed) = (summary.denied, summary.allowed);
                let seconds = summary.since.as_secs_f64();
                tracing::info!(path, denied, allowed, seconds, "requests were denied");
            }
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (take, decision);
    }

    #[cfg(feature = "tracing")]
    fn log_one_denial(&self, take: &Take, decision: &Decision) {
        let quotas = decision.denied_by(take.rule().policies());
        let quotas: Vec<_> = quotas.map(Policy::name).collect();
        let key = self.traces_keys.then(|| {
            let hashed = crate::key::Key::default().with_secret(take.key().as_str());
            tracing::field::display(hashed)
        });
        tracing::debug!(
            path = take.rule().path(),
            quotas = quotas.join(","),
            cost = take.cost(),
            retry_after_seconds = decision.retry_after().map(|time| time.as_secs_f64()),
            source = decision.source().name(),
            key,
            "denied"
        );
    }
}
