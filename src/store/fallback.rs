use std::sync::Arc;
use std::time::Duration;

use super::around::{Answer, Around};
use super::{MemoryStore, Store, StoreFuture, Take};
use crate::decision::{Decision, Decisions, Receipt};
use crate::error::StoreError;
use crate::key::Key;
use crate::rule::{OnError, Rule, Share};
use crate::trace;
use crate::trouble::Trouble;

/// Answers from the memory of this process, by a share of each quota, whenever the store inside fails.
///
/// Every take asks the store inside first, so that it decides again as soon as it can; put a
/// [`CircuitBreaker`](crate::store::CircuitBreaker) between, and that costs no time while it cannot. A decision that was made
/// here has the source [`Fallback`](crate::decision::Source::Fallback) and the [failure](Decision::failure) that it was made for.
/// Takes whose rule says [`OnError::Respond`] or [`OnError::Proceed`] get the error instead.
///
/// # What it may admit
///
/// Here a quota of `max` units has `floor(max * share)`, and so has its burst under GCRA. Where that is less than the rule's
/// [cost](crate::Rule::cost) of a request, it is that cost, in a window that is longer by as much as that is more:
/// `window * cost / (max * share)`, rounded up to milliseconds. Where that would be more than
/// [ten years](crate::Quota::MAX_WINDOW), where `max` is 0, and where one request costs more than all of `max`,
/// nothing is admitted. A take that costs more than a quota has here, because its cost is not the rule's, is *never*
/// allowed here.
///
/// The counts here go on while the store inside comes and goes. So however often it does, with `n` processes no window holds
/// more than what the store inside admitted in it, at most `max`, and what they admitted here, at most
/// `n * floor(max * share)`, or `n` requests where that is less than one each. With [`Share::of_processes`] that is
/// `max` in a window in which only the fallbacks decided, and up to twice `max` in one in which both did. Where the
/// [algorithm](crate::Algorithm) itself admits more than `max`, that is shared alike.
///
/// A take is charged in one place. Only if the outcome inside is unknown, after a time-out or a connection that broke, it
/// may have been charged there as well: the quota is then kept more strictly than it had to be, never more loosely. A
/// batch is answered as a whole, inside or here. A [refund](Store::refund) goes to the store that gave its receipt.
/// A [reset](Store::reset) forgets the key here in any case, and its answer is that of the store inside.
///
/// The memory is bounded: a [`MemoryStore`], whose error when it is [full](crate::store::StoreErrorKind::Full) is returned as it
/// is.
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
    local: Arc<Local>,
}

/// What a pending answer needs of the fallback.
#[derive(Debug, Clone)]
pub(super) struct Local {
    /// Of the store inside.
    name: Arc<str>,
    share: Share,
    store: Arc<MemoryStore>,
    trouble: Arc<Trouble>,
}

impl<S: Store> Fallback<S> {
    /// Answers for `inner` whenever that fails, by this share of each quota.
    #[must_use]
    pub fn new(inner: S, share: Share) -> Self {
        Self {
            local: Arc::new(Local {
                name: inner.name().into(),
                share,
                store: Arc::default(),
                trouble: Arc::default(),
            }),
            inner,
        }
    }

    /// How many keys it counts at most. Default: [`MemoryStore::DEFAULT_MAX_KEYS`].
    #[must_use]
    pub fn max_keys(self, max_keys: usize) -> Self {
        self.local(MemoryStore::with_max_keys(max_keys))
    }

    /// The store that answers here, for example one that reads the time elsewhere. Default: [`MemoryStore::new`].
    #[must_use]
    pub fn local(mut self, local: MemoryStore) -> Self {
        Arc::make_mut(&mut self.local).store = Arc::new(local);
        self
    }

    /// Forgets what was charged here.
    pub(super) fn forget(&self, rule: &Arc<Rule>, key: &Key) {
        self.local.store.forget(rule, key);
    }

    /// Gives back what was charged here; nothing of what the store inside was charged.
    pub(super) fn give_back(
        &self,
        take: &Take,
        receipt: &Receipt,
    ) -> Option<Result<u64, StoreError>> {
        let receipt = receipt.marked()?;
        Some(Ok(self.local.store.give_back(take, &receipt)))
    }
}

impl Local {
    fn works(&self) {
        if self.trouble.ends() {
            let store = &*self.name;
            trace::event!(warn: store, "the store decides again");
        }
    }

    fn fails(&self, error: &StoreError) {
        if self.trouble.begins() {
            let (store, error) = (&*self.name, error.to_string());
            trace::event!(warn: store, error, "the fallback decides, in the memory of this process");
        }
    }

    fn decide(&self, take: &Take, failure: &StoreError) -> Result<Decision, StoreError> {
        let shared = take.under(take.rule().of_share(self.share));
        let decision = self.store.decide(&shared)?;
        let receipt = decision.receipt().map(Receipt::mark);
        Ok(decision.because_of(failure.clone()).with_receipt(receipt))
    }

    fn decide_all(&self, takes: &[Take], failure: &StoreError) -> Result<Decisions, StoreError> {
        match takes {
            [take] => self.decide(take, failure).map(Into::into),
            takes => takes
                .iter()
                .map(|take| self.decide(take, failure))
                .collect(),
        }
    }

    /// The answer that is given, after the store inside has given this one.
    fn settle(
        &self,
        takes: &[Take],
        answer: Result<Decisions, StoreError>,
    ) -> Result<Decisions, StoreError> {
        match answer {
            Ok(decisions) => {
                self.works();
                Ok(decisions)
            }
            Err(failure) if takes.iter().all(is_ours) => {
                self.fails(&failure);
                self.decide_all(takes, &failure)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Whether the take's rule leaves it to a fallback.
fn is_ours(take: &Take) -> bool {
    matches!(take.rule().error_policy(), None | Some(OnError::Fallback))
}

impl<S> Around for Fallback<S> {
    type Asking = Arc<Local>;

    fn begin(&self, _: &[Take]) -> Result<Self::Asking, Answer> {
        Ok(Arc::clone(&self.local))
    }

    fn end(local: Self::Asking, takes: &[Take], answer: Answer) -> Answer {
        local.settle(takes, answer)
    }
}

impl<S: Store> Store for Fallback<S> {
    fn take(&self, takes: &[Take]) -> StoreFuture<Decisions> {
        self.ask(takes, || self.inner.take(takes))
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        let given_back = self.give_back(take, receipt);
        given_back.map_or_else(|| self.inner.refund(take, receipt), StoreFuture::ready)
    }

    fn reset(&self, rule: &Arc<Rule>, key: &Key) -> StoreFuture<()> {
        self.forget(rule, key);
        self.inner.reset(rule, key)
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
