use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::remainders::Remainders;
use super::{MemoryStore, Store, StoreFuture};
use crate::algorithm::share::Share;
use crate::decision::{Decision, Receipt, Source, Verdict};
use crate::error::StoreError;
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
    pub(super) store: Arc<MemoryStore>,
    failures: LogOnChange,
    is_failing: AtomicBool,
    /// Since when the store inside fails, while it does.
    since: Mutex<Option<Instant>>,
    remainders: Remainders,
}

/// For how long a denial that is decided here sends its client away, at least and at most, and the
/// longest addition to it, so that clients come back apart.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(5);
const MAX_JITTER: Duration = Duration::from_secs(1);

impl LocalFallback {
    /// Decides by a share of each quota for the store of this name.
    pub(super) fn new(name: String, share: Share, store: Arc<MemoryStore>) -> Self {
        Self {
            name,
            share,
            store,
            failures: LogOnChange::default(),
            is_failing: AtomicBool::default(),
            since: Mutex::default(),
            remainders: Remainders::default(),
        }
    }

    /// The answer to the caller, made of the inner store's.
    pub(super) fn answer(
        &self,
        ask: &Ask,
        answer: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        let store = &*self.name;
        if let Ok(decision) = &answer {
            if decision.source() != Source::Cache && self.is_failing.load(Ordering::Relaxed) {
                self.is_failing.store(false, Ordering::Relaxed);
                *lock(&self.since) = None;
            }
            self.remainders.note(ask, decision, self.share, &self.store);
        }
        match &answer {
            Ok(decision) if decision.source() != Source::Cache && self.failures.worked() => {
                trace::event!(info: store, "the store decides again");
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

    fn decide(&self, ask: &Ask, failure: &StoreError) -> Result<Decision, StoreError> {
        let asked = self.asked_here(ask, None);
        let decision = match self.remainders.held_for(ask) {
            None => self.store.decide(&asked)?,
            Some(retry_after) => {
                let (look, held) = (asked.looking(), Verdict::LockedOut { retry_after });
                self.store.decide(&look)?.held_for(retry_after, held, 0)
            }
        };
        let decision = self.for_now(ask, decision);
        let receipt = decision.receipt().map(Receipt::marked_as_fallback);
        Ok(decision.with_failure(failure.clone()).with_receipt(receipt))
    }

    /// What this process has counted says little of when the store inside, which may be back in a
    /// moment, has room: a denial by its quotas is short.
    fn for_now(&self, ask: &Ask, decision: Decision) -> Decision {
        self.is_failing.store(true, Ordering::Relaxed);
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
        let elsewhere = |count: &_, share: &_| self.remainders.used_elsewhere(count, share);
        ask.for_share(self.share, charged, elsewhere)
    }

    /// Forgets or holds a key here, beside the store inside.
    pub(super) fn change_here(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        if matches!(change, Change::Forget) {
            self.remainders.forget(ask);
        }
        self.store.change(&self.asked_here(ask, None), change)
    }

    /// Keeps the hold of this step, if a failure has begun it inside.
    pub(super) fn failed(&self, ask: &Ask, step: u64) -> u64 {
        if let Some(spec) = ask.lockout().filter(|_| step > 0) {
            let time = Duration::from_micros(spec.hold(step));
            self.remainders.hold(ask, Some(time));
        }
        step
    }

    /// Changes what was charged here. `None` if the store inside is to be asked: a hold and a reset
    /// are made in both.
    pub(super) fn change(&self, ask: &Ask, change: &Change) -> Option<StoreFuture<u64>> {
        match change {
            Change::Refund(receipt) => {
                let change = Change::Refund(receipt.as_fallback()?);
                Some(
                    self.store
                        .change(&self.asked_here(ask, Some(receipt)), &change),
                )
            }
            Change::Owe(receipt) => {
                receipt.as_fallback()?;
                Some(
                    self.store
                        .change(&self.asked_here(ask, Some(receipt)), change),
                )
            }
            Change::Renew(holder) => {
                let change = Change::Renew(holder.as_fallback()?);
                Some(self.store.change(ask, &change))
            }
            // Failures that the fallback has admitted stay in this process.
            Change::Failed { receipt, .. }
            | Change::Succeeded(receipt)
            | Change::AskAttempts(receipt) => {
                receipt.as_fallback()?;
                Some(self.store.change(ask, change))
            }
            Change::AskLockout | Change::Hold(_) | Change::Forget => None,
        }
    }
}
