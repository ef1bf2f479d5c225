use std::sync::Arc;

use super::wrapper::{Wrapped, Wrapper};
use super::{MemoryStore, Store, Take};
use crate::decision::{Decision, Receipt, Source};
use crate::error::StoreError;
use crate::log_on_change::LogOnChange;
use crate::rule::{OnError, Share};
use crate::trace;
use crate::warning::Warning;

/// Answers from the memory of this process, by a share of each quota, whenever the store inside
/// fails.
///
/// Every take asks the store inside first, so that it decides again as soon as it can. Put a
/// [`CircuitBreaker`](crate::store::CircuitBreaker) between the two, so that asking costs no time
/// while the store inside fails. A decision of the fallback has the source
/// [`Fallback`](crate::decision::Source::Fallback) and the [failure](Decision::failure) that caused
/// it. Takes whose rule says [`OnError::Respond`] or [`OnError::Proceed`] get the error instead.
///
/// # What it may admit
///
/// The fallback limits a quota of `max` units to `floor(max * share)`, and so its burst under GCRA.
/// If that is less than the [cost](crate::Rule::cost) of one request, it admits that cost in a
/// window that is longer by the same factor: `window * cost / (max * share)`, rounded up to
/// milliseconds. It admits nothing if that window is longer than [ten
/// years](crate::Quota::MAX_WINDOW), if `max` is 0, and if one request costs more than `max`. A
/// take that costs more than the share, because its cost is not the rule's, is *never* allowed
/// here.
///
/// The fallback keeps its counts while the store inside comes and goes. So however often that
/// happens, a window of `n` processes holds at most `max` of what the store inside admitted in it,
/// and at most `n * floor(max * share)` of what the fallbacks admitted, or `n` requests where a
/// share is less than one request. With [`Share::of_processes`] that is `max` in a window in which
/// only the fallbacks decided, and up to twice `max` in a window in which both did. Where the
/// [algorithm](crate::Algorithm) itself admits more than `max`, its share is larger alike.
///
/// A take is charged in one place. Only if the outcome inside is unknown, after a time-out or a
/// broken connection, may it have been charged there as well: the quota is then kept more strictly,
/// never more loosely. A [refund](Store::refund)
/// goes to the store that gave its receipt. A [reset](Store::reset) forgets the key here in any
/// case, and its answer is that of the store inside.
///
/// The memory is bounded: the fallback counts in a [`MemoryStore`], and passes on its error when it
/// is [full](crate::store::StoreErrorKind::Full).
///
/// ```
/// use tidegate::MemoryStore;
/// use tidegate::rule::Share;
/// use tidegate::store::Fallback;
///
/// let store = Fallback::new(MemoryStore::new(), Share::of_processes(4)).max_keys(10_000);
/// # let _ = store;
/// ```
#[derive(Debug, Clone)]
pub struct Fallback<S> {
    wrapped: Wrapped<S>,
    share: Share,
}

/// Decides while the store inside fails.
#[derive(Debug)]
pub(super) struct LocalFallback {
    /// The name of the store inside.
    name: String,
    share: Share,
    store: MemoryStore,
    failures: LogOnChange,
}

impl<S: Store> Fallback<S> {
    /// Answers for `inner` whenever that fails, by this share of each quota.
    #[must_use]
    pub fn new(inner: S, share: Share) -> Self {
        let wrapped = Wrapped::bare(inner);
        Self { wrapped, share }.local(MemoryStore::new())
    }

    /// How many keys it counts at most. Default: [`MemoryStore::DEFAULT_MAX_KEYS`].
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        self.local(MemoryStore::with_max_keys(max_keys))
    }

    /// The store that answers here, for example one that reads the time elsewhere. Default:
    /// [`MemoryStore::new`].
    #[must_use]
    pub fn local(mut self, local: MemoryStore) -> Self {
        let name = self.wrapped.inner.name();
        let fallback = LocalFallback::new(name, self.share, local);
        self.wrapped.fallback = Some(Arc::new(fallback));
        self
    }
}

impl<S: Store> Wrapper for Fallback<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        &self.wrapped
    }
}

impl LocalFallback {
    /// Decides by a share of each quota for the store of this name.
    pub(super) fn new(name: String, share: Share, store: MemoryStore) -> Self {
        Self {
            name,
            share,
            store,
            failures: LogOnChange::default(),
        }
    }

    /// The answer to the caller, made of the inner store's.
    pub(super) fn answer(
        &self,
        take: &Take,
        answer: Result<Decision, StoreError>,
    ) -> Result<Decision, StoreError> {
        match &answer {
            Ok(decision) if decision.source() != Source::Cache => self.log_recovery(),
            Err(failure) if may_fall_back(take) => {
                self.log_failure(failure);
                return self.decide(take, failure);
            }
            Ok(_) | Err(_) => {}
        }
        answer
    }

    fn decide(&self, take: &Take, failure: &StoreError) -> Result<Decision, StoreError> {
        let shared = take.under(take.rule().of_share(self.share));
        let decision = self.store.decide(&shared)?;
        let receipt = decision.receipt().map(Receipt::of_fallback);
        Ok(decision.with_failure(failure.clone()).with_receipt(receipt))
    }

    /// Gives back what was charged here; nothing of what the store inside was charged.
    pub(super) fn refund(&self, take: &Take, receipt: &Receipt) -> Option<u64> {
        let receipt = receipt.as_fallback()?;
        Some(self.store.give_back(take, &receipt))
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        self.store.warnings()
    }

    /// Forgets what was charged here, and returns whether anything of it still counted.
    pub(super) fn reset(&self, take: &Take) -> bool {
        self.store.forget(take)
    }

    fn log_recovery(&self) {
        if self.failures.worked() {
            let store = &*self.name;
            trace::event!(warn: store, "the store decides again");
        }
    }

    fn log_failure(&self, error: &StoreError) {
        if self.failures.failed() {
            let (store, error) = (&*self.name, error.to_string());
            trace::event!(warn: store, error, "the fallback decides, in the memory of this process");
        }
    }
}

/// Whether the take's rule lets a fallback decide.
fn may_fall_back(take: &Take) -> bool {
    matches!(take.rule().on_error(), None | Some(OnError::Fallback))
}
