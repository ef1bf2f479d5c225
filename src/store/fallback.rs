use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use super::{MemoryStore, Refunding, Store, Take, Taking};
use crate::decision::{Decision, Decisions, Token};
use crate::error::StoreError;
use crate::rule::{OnError, Share};
use crate::trace;
use crate::trouble::Trouble;

/// Answers from the memory of this process, by a share of each quota, whenever the store inside fails.
///
/// Every take asks the store inside first, so that it decides again as soon as it can; put a
/// [`CircuitBreaker`](crate::CircuitBreaker) between, and that costs no time while it cannot. A decision that was made
/// here has the source [`Fallback`](crate::Source::Fallback) and the [failure](Decision::failure) that it was made for.
/// Takes whose rule says [`OnError::Respond`] or [`OnError::Proceed`] get the error instead.
///
/// # What it may admit
///
/// Here a quota of `max` units has `floor(max * share)`, and so has its burst under GCRA. Where that is less than the rule's
/// [cost](crate::Rule::cost) of a request, it is that cost, in a window that is longer by as much as that is more:
/// `window * cost / (max * share)`, rounded up to milliseconds. Where that would be more than
/// [ten years](crate::Quota::LONGEST_WINDOW), where `max` is 0, and where one request costs more than all of `max`,
/// nothing is admitted. A request that costs more than what is left of a quota then is *never* allowed here.
///
/// The counts here go on while the store inside comes and goes. So however often it does, with `n` processes no window holds
/// more than what the store inside admitted in it, at most `max`, and what they admitted here, at most
/// `n * floor(max * share)`, or `n` requests where that is less than one each. With [`Share::of_processes`] that is
/// `max` in a window in which only the fallbacks decided, and up to twice `max` in one in which both did. Where the
/// [algorithm](crate::Algorithm) itself admits more than `max`, that is shared alike.
///
/// A take is charged in one place. Only if the outcome inside is unknown, after a time-out or a connection that broke, it
/// may have been charged there as well: the quota is then kept more strictly than it had to be, never more loosely. A
/// batch is answered as a whole, inside or here. A [refund](Store::refund) goes to the store that gave its token.
///
/// The memory is bounded: a [`MemoryStore`], whose error when it is [full](crate::StoreErrorKind::Full) is returned as it
/// is.
///
/// ```
/// use tidegate::{Fallback, MemoryStore, Share};
///
/// let store = Fallback::new(MemoryStore::new(), Share::of_processes(4)).max_keys(10_000);
/// # let _ = store;
/// ```
#[derive(Debug, Clone)]
pub struct Fallback<S> {
    inner: S,
    share: Share,
    local: Arc<MemoryStore>,
    trouble: Arc<Trouble>,
}

impl<S: Store> Fallback<S> {
    /// Answers for `inner` whenever that fails, by this share of each quota.
    #[must_use]
    pub fn new(inner: S, share: Share) -> Self {
        Self {
            inner,
            share,
            local: Arc::default(),
            trouble: Arc::default(),
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
        self.local = Arc::new(local);
        self
    }

    /// The same question by this process's share.
    fn scaled(&self, take: &Take) -> Take {
        take.under(take.rule().of_share(self.share))
    }

    fn works(&self) {
        if self.trouble.ends() {
            let store = self.inner.name();
            trace::event!(warn: store, "the store decides again");
        }
    }

    fn fails(&self, error: &StoreError) {
        if self.trouble.begins() {
            let (store, error) = (self.inner.name(), error.to_string());
            trace::event!(warn: store, error, "the fallback decides, in the memory of this process");
        }
    }

    fn decide(&self, take: &Take, failure: &StoreError) -> Result<Decision, StoreError> {
        let scaled = self.scaled(take);
        let decided = self.local.try_take(&scaled);
        let decision = decided.expect("memory answers at once")?;
        let token = decision.token().map(Token::mark);
        Ok(decision.because_of(failure.clone()).with_token(token))
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

    /// What is said in the end, after the store inside has said this.
    fn settle<T>(
        &self,
        takes: &[Take],
        answer: Result<T, StoreError>,
        decide: impl FnOnce(&StoreError) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &answer {
            Err(failure) if takes.iter().all(is_ours) => {
                self.fails(failure);
                return decide(failure);
            }
            Err(_) => {}
            Ok(_) => self.works(),
        }
        answer
    }
}

/// Whether the take's rule leaves it to a fallback.
fn is_ours(take: &Take) -> bool {
    matches!(take.rule().error_policy(), None | Some(OnError::Fallback))
}

impl<S: Store> Store for Fallback<S> {
    fn take<'a>(&'a self, takes: &'a [Take]) -> Taking<'a> {
        let settle = move |answer| {
            let decide = |failure: &_| self.decide_all(takes, failure);
            self.settle(takes, answer, decide)
        };
        match self.inner.take(takes).now() {
            Ok(answer) => Taking::ready(settle(answer)),
            Err(later) => Taking::later(async move { settle(later.await) }),
        }
    }

    fn try_take(&self, take: &Take) -> Option<Result<Decision, StoreError>> {
        let answer = self.inner.try_take(take)?;
        let decide = |failure: &_| self.decide(take, failure);
        Some(self.settle(from_ref(take), answer, decide))
    }

    fn refund<'a>(&'a self, take: &'a Take, token: &'a Token) -> Refunding<'a> {
        let Some(token) = token.marked() else {
            return self.inner.refund(take, token);
        };
        let scaled = self.scaled(take);
        Refunding::ready(Ok(self.local.give_back(&scaled, &token)))
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
