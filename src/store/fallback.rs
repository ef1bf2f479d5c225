use std::sync::Arc;
use std::time::Duration;

use super::wrapper::{Answer, Wrapper};
use super::{MemoryStore, Store, StoreFuture, Take};
use crate::decision::{Decision, Receipt, Source};
use crate::error::StoreError;
use crate::log_on_change::LogOnChange;
use crate::rule::{OnError, Share};
use crate::trace;

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
    inner: S,
    local: Arc<FallbackState>,
}

/// The fallback's part of a pending answer.
#[derive(Debug, Clone)]
pub(super) struct FallbackState {
    /// The name of the store inside.
    name: Arc<str>,
    share: Share,
    store: Arc<MemoryStore>,
    failures: Arc<LogOnChange>,
}

impl<S: Store> Fallback<S> {
    /// Answers for `inner` whenever that fails, by this share of each quota.
    #[must_use]
    pub fn new(inner: S, share: Share) -> Self {
        Self {
            local: Arc::new(FallbackState {
                name: inner.name().into(),
                share,
                store: Arc::default(),
                failures: Arc::default(),
            }),
            inner,
        }
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
        Arc::make_mut(&mut self.local).store = Arc::new(local);
        self
    }

    /// Forgets what was charged here.
    pub(super) fn reset_here(&self, take: &Take) {
        self.local.store.forget(take);
    }

    /// Gives back what was charged here; nothing of what the store inside was charged.
    pub(super) fn refund_here(
        &self,
        take: &Take,
        receipt: &Receipt,
    ) -> Option<Result<u64, StoreError>> {
        let receipt = receipt.as_fallback()?;
        Some(Ok(self.local.store.give_back(take, &receipt)))
    }
}

impl FallbackState {
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

    fn decide(&self, take: &Take, failure: &StoreError) -> Result<Decision, StoreError> {
        let shared = take.under(take.rule().of_share(self.share));
        let decision = self.store.decide(&shared)?;
        let receipt = decision.receipt().map(Receipt::of_fallback);
        Ok(decision.with_failure(failure.clone()).with_receipt(receipt))
    }

    /// The answer to the caller, made of the inner store's.
    fn answer(&self, take: &Take, answer: Answer) -> Answer {
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
}

/// Whether the take's rule lets a fallback decide.
fn may_fall_back(take: &Take) -> bool {
    matches!(take.rule().on_error(), None | Some(OnError::Fallback))
}

impl<S> Wrapper for Fallback<S> {
    type Pending = Arc<FallbackState>;

    fn before(&self, _: &Take) -> Result<Self::Pending, Answer> {
        Ok(Arc::clone(&self.local))
    }

    fn after(local: Self::Pending, take: &Take, answer: Answer) -> Answer {
        local.answer(take, answer)
    }
}

impl<S: Store> Store for Fallback<S> {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.ask(take, || self.inner.take(take))
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        let refunded = self.refund_here(take, receipt);
        refunded.map_or_else(|| self.inner.refund(take, receipt), StoreFuture::ready)
    }

    fn reset(&self, take: &Take) -> StoreFuture<()> {
        self.reset_here(take);
        self.inner.reset(take)
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn give_up_after(self, timeout: Duration) -> Self {
        Self {
            inner: self.inner.give_up_after(timeout),
            ..self
        }
    }

    fn has_fallback(&self) -> bool {
        true
    }
}
