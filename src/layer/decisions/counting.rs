//! Counts, notes and logs what becomes of takes.

#[cfg(feature = "tracing")]
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::decide::Decided;
use super::decider::Decider;
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::error::StoreError;
use crate::metrics::DecisionOutcome;
use crate::rule::{OnError, Policy, Rule};
use crate::take::Take;
use crate::warning::{Warning, WarningKind};

// What a layer tells `tracing` about its decisions.
//
// | level | what | how often |
// |---|---|---|
// | warn | decisions begin to fail, and are made again | once for each change |
// | info | a summary: the path, requests denied and allowed, since when: the one before, or the start | for each rule, at a denial, at most every 10 s |
// | debug | a denial: its quotas without room, cost, retry-after, store, outcome | for each denial |
// | debug | the span `tidegate.take` around the call of the store | for each question |
//
// Keys are in none of them, unless [`trace_hashed_keys`] asks for their hashes. Nothing is
// formatted that no subscriber wants, and without the feature `tracing` nothing is left of this.
//
// [`trace_hashed_keys`]: crate::RateLimitLayer

/// What the span of a take says of its answer.
#[cold]
pub(super) fn told_of(answer: &Result<Decision, StoreError>) -> Vec<(&'static str, String)> {
    match answer {
        Ok(decision) => {
            let outcome = DecisionOutcome::from_decision(decision).name().to_owned();
            let source = decision.source().name().to_owned();
            vec![("outcome", outcome), ("source", source)]
        }
        Err(error) => vec![("error", error.to_string())],
    }
}

impl Decider {
    /// Counts what becomes of a request or a check, and logs a denial: once, however often it has
    /// asked, and not where an error callback answers in place of the decision.
    pub(crate) fn count(&self, decided: &Decided) {
        match decided {
            Decided::Allowed(charge, ..) => self.count_decision(charge.take(), charge.decision()),
            Decided::Denied(take, decision) => {
                self.count_decision(take, decision);
                // Blocked keys have a list of their own.
                if decision.source() != Source::Operator {
                    self.note_denied(take, decision);
                }
                #[cfg(feature = "tracing")]
                self.log_denial(take, decision);
                if decision.verdict() == Verdict::Never {
                    self.warn_of_cost(take, decision);
                }
                if take.lane.is_some() && decision.verdict() != Verdict::Never {
                    self.warn_of_turns(take);
                }
            }
            Decided::Proceed(rule, _) => {
                self.path.counters.numbers.proceeded.add(1);
                self.warn_of_open_lockout(rule, "Recovery::Proceed");
            }
            Decided::Pass(..) | Decided::Failed(..) => {}
        }
    }

    /// Something lets a request through without a decision: under a lock-out that is a mistake.
    pub(crate) fn warn_of_open_lockout(&self, rule: &Rule, what: &'static str) {
        if rule.counts_failures() && rule.on_error() != Some(OnError::Proceed) {
            self.log.open_lockout.get_or_init(|| {
                let warning = Warning::named(WarningKind::LockoutFailsOpen, what);
                self.warnings.add(warning.about(rule.path()));
            });
        }
    }

    pub(crate) fn count_decision(&self, take: &Take, decision: &Decision) {
        self.note_chosen(take);
        if let Some(listeners) = &self.listeners {
            let watch = listeners.watch(take, self.store(), &self.path);
            watch.iter().for_each(|it| it.look(decision));
        }
        self.path
            .counters
            .decided(take.rule(), decision, take.cost());
    }

    /// Notes by which quotas a request was decided: of its key, or of each of its subjects.
    #[inline]
    fn note_chosen(&self, take: &Take) {
        let notes = &self.path.notes;
        match take.keys() {
            _ if !notes.are_on() => {}
            None => notes.chose(take.rule(), take.key()),
            Some(_) => {
                let keys = take.keys_of_subjects(|_| Some(()));
                keys.for_each(|(key, ())| notes.chose(take.rule(), &key));
            }
        }
    }

    /// Notes whose request was denied: that of its key, or of the subjects that denied it.
    fn note_denied(&self, take: &Take, decision: &Decision) {
        let notes = &self.path.notes;
        match take.keys() {
            _ if !notes.are_on() => {}
            None => notes.denied(take.rule(), take.key(), decision.verdict()),
            Some(_) => {
                let locked = take
                    .lockout_count()
                    .filter(|_| decision.is_denied_by_lockout());
                let locked = locked.map(|count| count.places(take.rule().counts()));
                let reset = |places: &[usize]| {
                    if locked == Some(places) {
                        return decision.retry_after();
                    }
                    let states = places.iter().filter_map(|at| decision.quotas().get(*at));
                    let denying = states.filter(|state| state.is_exceeded());
                    denying.map(QuotaState::reset_after).max()
                };
                for (key, reset) in take.keys_of_subjects(reset) {
                    // Another subject may deny the request for longer. Of permits nobody knows.
                    let verdict = match decision.retry_after() {
                        None => Verdict::Never,
                        Some(retry_after) if reset.is_zero() => Verdict::Busy { retry_after },
                        Some(wait) => Verdict::Denied {
                            retry_after: wait.min(reset),
                        },
                    };
                    notes.denied(take.rule(), &key, verdict);
                }
            }
        }
    }

    /// Without a layer, which `verify` knows, the first denial shows that nobody has waited so far.
    fn warn_of_turns(&self, take: &Take) {
        let turns = &self.path.turns;
        let is_known = [&turns.has_layer, &turns.may_wait].map(|it| it.load(Ordering::Relaxed));
        if is_known == [false; 2] {
            let warning = Warning::named(WarningKind::NoTurns, "wait");
            self.warnings.add(warning.about(take.rule().path()));
        }
    }

    /// No wait helps a request that costs more than a quota: a mistake, unless the quota is 0.
    #[cold]
    fn warn_of_cost(&self, take: &Take, decision: &Decision) {
        let algorithm = take.rule().algorithm().algorithm();
        let is_below = |policy: &&Policy| {
            let (quota, cost) = (policy.quota(), policy.cost().unwrap_or(take.cost()));
            !policy.is_concurrent() && quota.max() > 0 && algorithm.limit(&quota) < cost
        };
        let mut denied_by = decision.denied_by(take.rule().policies());
        if let Some(policy) = denied_by.find(is_below) {
            let warning = Warning::with_name(WarningKind::CostAboveQuota, policy.name());
            self.warnings.add(warning.about(take.rule().path()));
        }
    }

    /// A debug event for each denial, and a summary of the rule's denials at most every 10 s.
    #[cfg(feature = "tracing")]
    #[inline]
    fn log_denial(&self, take: &Take, decision: &Decision) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log_one_denial(take, decision);
        }
        self.path.counters.denials_log.happened(|| {
            let path = Arc::clone(&self.path);
            let name = Arc::clone(take.rule().shared_path());
            move || path.counters.log_denials(&name)
        });
    }

    #[cfg(feature = "tracing")]
    fn log_one_denial(&self, take: &Take, decision: &Decision) {
        let quotas = decision.denied_by(take.rule().policies());
        let quotas: Vec<_> = quotas.map(Policy::name).collect();
        let key = self.traces_keys.then(|| take.key().hashed());
        let key = key.map(tracing::field::display);
        tracing::debug!(
            path = take.rule().path(),
            quotas = quotas.join(","),
            cost = take.cost(),
            // Rounded to milliseconds, which a log shows without the noise of a double.
            retry_after_seconds = decision
                .retry_after()
                .map(|time| time.as_millis() as f64 / 1_000.0),
            source = decision.source().name(),
            outcome = DecisionOutcome::from_decision(decision).name(),
            key,
            "denied"
        );
    }
}
