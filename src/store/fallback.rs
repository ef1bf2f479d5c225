use std::sync::Arc;

use super::remainders::Remainders;
use super::{MemoryStore, Store, StoreFuture};
use crate::algorithm::share::Share;
use crate::decision::{Decision, Receipt, Source};
use crate::error::StoreError;
use crate::log_on_change::LogOnChange;
use crate::question::{Ask, Change};
use crate::trace;

/// Decides in the memory of this process while the store inside fails: see
/// [`Resilient::fallback`](super::Resilient::fallback).
pub(super) struct LocalFallback {
    /// The name of the store inside.
    name: String,
    share: Share,
    pub(super) store: Arc<MemoryStore>,
    failures: LogOnChange,
    remainders: Remainders,
}

impl LocalFallback {
    /// Decides by a share of each quota for the store of this name.
    pub(super) fn new(name: String, share: Share, store: Arc<MemoryStore>) -> Self {
        Self {
            name,
            share,
            store,
            failures: LogOnChange::default(),
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
            self.remainders.note(ask, decision, self.share, &self.store);
        }
        match &answer {
            Ok(decision) if decision.source() != Source::Cache && self.failures.worked() => {
                trace::event!(warn: store, "the store decides again");
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
        let decision = self.store.decide(&self.asked_here(ask, None))?;
        let receipt = decision.receipt().map(Receipt::marked_as_fallback);
        Ok(decision.with_failure(failure.clone()).with_receipt(receipt))
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
