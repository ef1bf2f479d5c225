use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::holds::Holds;
use super::path_stores::PathStores;
use super::{MemoryStore, Store, StoreFuture};
use crate::algorithm::share::Share;
use crate::decision::{Decision, Receipt, Source, Verdict};
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter;
use crate::log_on_change::LogOnChange;
use crate::question::{Ask, Change};
use crate::sync::lock;
use crate::trace;

/// Decides in the memory of this process while the store inside fails: see
/// [`Resilient::fallback`](super::Resilient::fallback).
pub(super) struct LocalFallback {
    /// The name of the store inside.
    name: String,
    share: Share,
    pub(super) stores: Arc<PathStores>,
    failures: LogOnChange,
    /// Since when the store inside fails, while it does.
    since: Mutex<Option<Instant>>,
    /// Keeps which keys failures lock out.
    lockouts: Holds,
    /// Keeps which keys have spent their periods of the calendar.
    budgets: Holds,
}

/// For how long a denial that is decided here sends its client away, at least and at most, and the
/// longest addition to it, so that clients come back apart.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(5);
const MAX_JITTER: Duration = Duration::from_secs(1);

impl LocalFallback {
    /// Decides by a share of each quota for the store of this name.
    pub(super) fn new(name: String, share: Share, stores: Arc<PathStores>) -> Self {
        Self {
            name,
            share,
            stores,
            failures: LogOnChange::default(),
            since: Mutex::default(),
            lockouts: Holds::default(),
            budgets: Holds::default(),
        }
    }

    /// The answer to the caller, made of the inner store's.
    pub(super) fn answer(
        &self,
        ask: &Ask,
        answer: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        let store = &*self.name;
        match &answer {
            Ok(decision) if decision.source() != Source::Cache => {
                if self.failures.is_failing() {
                    *lock(&self.since) = None;
                }
                self.note(ask, decision);
                if self.failures.worked() {
                    trace::event!(info: store, "the store decides again");
                }
            }
            Err(failure) if ask.falls_back() => {
                if self.failures.failed() {
                    let (kind, error) = (failure.kind().name(), failure.to_string());
                    trace::event!(warn: store, kind, error,
                        "the fallback decides, in the memory of this process");
                }
                return self.decide(ask, failure);
            }
            Ok(_) | Err(_) => {}
        }
        answer
    }

    /// Keeps whom the store inside denies for long.
    fn note(&self, ask: &Ask, decision: &Decision) {
        if decision.is_locked_out() || decision.is_allowed() {
            let time = decision.retry_after();
            self.lock_out(ask, time.filter(|_| decision.is_locked_out()));
        }
        for (count, _) in ask.of_calendar() {
            if let Some(state) = ask.state_of(count, decision) {
                let (left, end) = (state.remaining(), state.reset_after());
                let is_spent = left < count.cost().max(1);
                self.budgets.set(count, is_spent.then_some(end), left);
            }
        }
    }

    /// Keeps that the key is locked out for so long, at most its longest hold; or that it is not.
    fn lock_out(&self, ask: &Ask, time: Option<Duration>) {
        if let Some((count, spec)) = ask.lockout_count().zip(ask.lockout()) {
            let longest = spec.holds.iter().copied().map(Duration::from_micros).max();
            self.lockouts.set(count, time.min(longest), 0);
        }
    }

    fn decide(&self, ask: &Ask, failure: &StoreError) -> Result<Decision, StoreError> {
        let asked = self.asked_here(ask, None);
        let lockout = ask.lockout_count();
        let decision = match lockout.and_then(|count| self.lockouts.time(count)) {
            None => self.decide_here(ask, &asked)?,
            Some(retry_after) => {
                let (look, held) = (asked.looking(), Verdict::LockedOut { retry_after });
                self.store_of(ask)
                    .decide(&look)?
                    .held_for(retry_after, held, 0)
            }
        };
        let decision = self.for_now(ask, decision);
        let receipt = decision.receipt().map(Receipt::marked_as_fallback);
        Ok(decision.with_failure(failure.clone()).with_receipt(receipt))
    }

    fn decide_here(&self, ask: &Ask, asked: &Ask) -> Result<Decision, StoreError> {
        let store = self.store_of(ask);
        let mut decision = store.decide(asked);
        if decision
            .as_ref()
            .is_err_and(|it| it.kind() == StoreErrorKind::Full)
        {
            self.stores.drop_forgotten();
            decision = store.decide(asked);
        }
        let decision = decision?;
        if decision.is_allowed() || decision.remaining() == 0 {
            return Ok(decision);
        }
        // A request above the part was decided by a larger quota, which would tell too much.
        let look = self.asked_here(&ask.clone().looking(), None);
        Ok(decision.with_least_left(&store.decide(&look)?))
    }

    /// The store of its path. A share is counted twice: in its window, and in a longer one.
    fn store_of(&self, ask: &Ask) -> Arc<MemoryStore> {
        let times = if self.share.is_whole() { 1 } else { 2 };
        self.stores.of(ask.path(), times)
    }

    /// What this process has counted says little of when the store inside, which may be back in a
    /// moment, has room: a denial by its quotas is short.
    fn for_now(&self, ask: &Ask, decision: Decision) -> Decision {
        let since = *lock(&self.since).get_or_insert_with(Instant::now);
        let is_by_quotas = match decision.verdict() {
            Verdict::Denied { .. } => !decision.is_locked_out() && !decision.is_on_hold(),
            Verdict::Never => ask.may_fit(),
            _ => false,
        };
        if !is_by_quotas {
            return decision;
        }
        let pause = since.elapsed().clamp(MIN_PAUSE, MAX_PAUSE);
        decision.for_now(pause + jitter::up_to(MAX_JITTER))
    }

    /// What the store here is asked of this, or of what was charged by it.
    fn asked_here(&self, ask: &Ask, charged: Option<&Receipt>) -> Ask {
        let is_spent = |count: &_| self.budgets.time(count).is_some();
        ask.for_share(self.share, charged, is_spent)
    }

    /// Forgets or holds a key here, beside the store inside.
    pub(super) fn change_here(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        if matches!(change, Change::Forget) {
            self.lock_out(ask, None);
            for (count, _) in ask.of_calendar() {
                self.budgets.set(count, None, 0);
            }
        }
        self.store_of(ask)
            .change(&self.asked_here(ask, None), change)
    }

    /// Keeps the hold of this step, if a failure has begun it inside.
    pub(super) fn failed(&self, ask: &Ask, step: u64) -> u64 {
        if let Some(spec) = ask.lockout().filter(|_| step > 0) {
            let time = Duration::from_micros(spec.hold(step));
            self.lock_out(ask, Some(time));
        }
        step
    }

    /// Changes what was charged here. `None` if the store inside is to be asked: a hold and a reset
    /// are made in both.
    pub(super) fn change(&self, ask: &Ask, change: &Change) -> Option<StoreFuture<u64>> {
        let (receipt, change) = match change {
            Change::Refund(receipt) => (receipt, Change::Refund(receipt.as_fallback()?)),
            Change::Renew(holder) => (holder, Change::Renew(holder.as_fallback()?)),
            // Failures that the fallback has admitted stay in this process.
            Change::Failed { receipt, .. }
            | Change::Succeeded(receipt)
            | Change::AskAttempts(receipt)
            | Change::Owe(receipt) => (receipt, receipt.as_fallback().map(|_| change.clone())?),
            Change::AskLockout | Change::Hold(_) | Change::Forget => return None,
        };
        let asked = self.asked_here(ask, Some(receipt));
        Some(self.store_of(ask).change(&asked, &change))
    }
}
