use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::breaker::Breaker;
use super::denial_cache::Denials;
use super::fallback::LocalFallback;
use super::fleet::{LetThrough, News, Report, Reported};
use super::{Store, StoreFuture, Take};
use crate::deadline::Deadline;
use crate::decision::{Decision, Receipt};
use crate::error::{StoreError, StoreErrorKind};
use crate::in_flight_counter::{InFlightCounter, Permit};
use crate::warning::Warning;

/// A store and what is put around it, from outside in. The wrappers are this with one option, and
/// [`Resilient`](crate::Resilient) makes it with several: a question needs one future.
#[derive(Debug)]
pub(super) struct Wrapped<S> {
    pub(super) fallback: Option<Arc<LocalFallback>>,
    pub(super) denials: Option<Arc<Denials>>,
    pub(super) breaker: Option<Arc<Breaker<S>>>,
    pub(super) in_flight: Option<QuestionLimit>,
    pub(super) timeout: Option<Duration>,
    pub(super) inner: Arc<S>,
}

/// A store that is made of [`Wrapped`].
pub(super) trait Wrapper: Debug + Send + Sync + 'static {
    type Inner: Store;

    fn wrapped(&self) -> &Wrapped<Self::Inner>;
}

impl<S: Store> Wrapper for Wrapped<S> {
    type Inner = S;

    fn wrapped(&self) -> &Self {
        self
    }
}

impl<W: Wrapper> Store for W {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        let wrapped = self.wrapped();
        let looked = wrapped.denials.as_ref().map(|denials| denials.look(take));
        let pending = match looked.transpose() {
            Ok(pending) => pending.flatten(),
            Err(denial) => return StoreFuture::ready(Ok(denial)),
        };
        let fallback = wrapped.fallback.clone();
        let ask = |inner: &W::Inner, take: &Take| inner.take(take);
        wrapped.call(take, Asked::Take, ask, move |take, answer| {
            if let Some(pending) = pending {
                pending.answered(take, &answer);
            }
            match fallback {
                Some(fallback) => fallback.answer(take, answer),
                None => answer,
            }
        })
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        let fallback = self.wrapped().fallback.as_ref();
        if let Some(given_back) = fallback.and_then(|it| it.refund(take, receipt)) {
            return StoreFuture::ready(Ok(given_back));
        }
        let refund = |inner: &W::Inner, take: &Take| inner.refund(take, receipt);
        self.wrapped().change(take, refund, |given_back| given_back)
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        let fallback = self.wrapped().fallback.as_ref();
        let has_counted_here = fallback.is_some_and(|it| it.reset(take));
        let reset = |inner: &W::Inner, take: &Take| inner.reset(take);
        let found = move |has_counted| has_counted || has_counted_here;
        self.wrapped().change(take, reset, found)
    }

    fn name(&self) -> String {
        self.wrapped().inner.name()
    }

    fn has_fallback(&self) -> bool {
        let wrapped = self.wrapped();
        wrapped.fallback.is_some() || wrapped.inner.has_fallback()
    }

    fn has_leases(&self) -> bool {
        self.wrapped().inner.has_leases()
    }

    fn answers_within(&self) -> Option<Duration> {
        let wrapped = self.wrapped();
        let both = wrapped
            .timeout
            .into_iter()
            .chain(wrapped.inner.answers_within());
        both.min()
    }

    fn warnings(&self) -> Vec<Warning> {
        let wrapped = self.wrapped();
        let mut warnings = wrapped.inner.warnings();
        if let Some(fallback) = &wrapped.fallback {
            warnings.extend(fallback.warnings());
        }
        warnings
    }

    fn is_breaker_open(&self) -> Option<bool> {
        let wrapped = self.wrapped();
        let own = wrapped.breaker.as_ref().map(|breaker| breaker.is_open());
        own.or_else(|| wrapped.inner.is_breaker_open())
    }

    fn report(&self, report: &Report) -> StoreFuture<Option<News>> {
        self.wrapped().inner.report(report)
    }

    fn reports(&self) -> StoreFuture<Vec<Reported>> {
        self.wrapped().inner.reports()
    }

    fn let_through(&self, key: &LetThrough) -> StoreFuture<Option<bool>> {
        self.wrapped().inner.let_through(key)
    }
}

/// What the store inside is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Take,
    /// A refund or a reset.
    Change,
}

impl<S: Store> Wrapped<S> {
    /// The store with nothing around it.
    pub(super) fn bare(inner: S) -> Self {
        Self {
            fallback: None,
            denials: None,
            breaker: None,
            in_flight: None,
            timeout: None,
            inner: Arc::new(inner),
        }
    }

    /// Asks something that may free units: denials of the key are void.
    fn change<T: Send + 'static>(
        &self,
        take: &Take,
        ask: impl FnOnce(&S, &Take) -> StoreFuture<T>,
        map: impl FnOnce(T) -> T + Send + 'static,
    ) -> StoreFuture<T> {
        let denials = self.denials.as_ref();
        let guard = denials.map(|denials| denials.begin_change(take));
        self.call(take, Asked::Change, ask, move |_, answer| {
            drop(guard);
            answer.map(map)
        })
    }

    /// Asks the store inside if the breaker and the bound on questions in flight admit it, within
    /// the time-out. `after` makes the caller's answer of the store's.
    fn call<T: Send + 'static>(
        &self,
        take: &Take,
        asked: Asked,
        ask: impl FnOnce(&S, &Take) -> StoreFuture<T>,
        after: impl FnOnce(&Take, Result<T, StoreError>) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<T> {
        if let (Asked::Take, Some(failure)) = (asked, take.failure())
            && !self.inner.has_fallback()
        {
            return StoreFuture::ready(after(take, Err(failure.clone())));
        }
        let call = self.breaker.as_ref().map(|breaker| breaker.admit(take));
        let admitted = call.transpose().and_then(|call| {
            let permit = self.in_flight.as_ref().map(|it| it.permit(take, asked));
            Ok((call, permit.transpose()?.flatten()))
        });
        let (call, permit) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return StoreFuture::ready(after(take, Err(refusal))),
        };
        let answered = move |take: &Take, answer: Result<T, StoreError>| {
            drop(permit);
            if let Some(call) = call {
                call.answered(take, asked, &answer);
            }
            after(take, answer)
        };
        let deadline = self.timeout.map(Deadline::after);
        let take = deadline.map_or(Cow::Borrowed(take), |deadline| {
            Cow::Owned(take.clone().within(deadline))
        });
        let pending = match ask(&self.inner, &take).now() {
            Ok(answer) => return StoreFuture::ready(answered(&take, answer)),
            Err(pending) => pending,
        };
        let take = take.into_owned();
        let Some(bound) = self.timeout else {
            return StoreFuture::boxed(async move { answered(&take, pending.await) });
        };
        let inner = Arc::clone(&self.inner);
        StoreFuture::boxed(async move {
            let answer = tokio::time::timeout(bound, pending).await;
            let answer = answer.unwrap_or_else(|_| {
                let message = format!("{} did not answer within {bound:?}", inner.name());
                Err(StoreError::new(StoreErrorKind::Timeout, message))
            });
            answered(&take, answer)
        })
    }
}

impl<S> Clone for Wrapped<S> {
    fn clone(&self) -> Self {
        Self {
            fallback: self.fallback.clone(),
            denials: self.denials.clone(),
            breaker: self.breaker.clone(),
            in_flight: self.in_flight.clone(),
            timeout: self.timeout,
            inner: Arc::clone(&self.inner),
        }
    }
}

/// Bounds the time of a store's answers.
///
/// After that time the answer is a [`StoreError`] of the kind [`Timeout`](StoreErrorKind::Timeout).
/// A `RedisStore` inside, through whatever other wrappers, has its server refuse what is later; if
/// its own time-out was set, too, the earlier one counts.
///
/// It needs a tokio runtime with its timer enabled, unless the store inside answers immediately.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{MemoryStore, Store};
/// use tidegate::store::Timeout;
///
/// let store = Timeout::new(MemoryStore::new(), Duration::from_millis(20));
/// assert_eq!(store.name(), "memory");
/// ```
#[derive(Debug, Clone)]
pub struct Timeout<S>(Wrapped<S>);

impl<S: Store> Timeout<S> {
    /// Answers of `inner` within `bound`, or an error.
    #[must_use]
    pub fn new(inner: S, bound: Duration) -> Self {
        Self(Wrapped {
            timeout: Some(bound),
            ..Wrapped::bare(inner)
        })
    }
}

impl<S: Store> Wrapper for Timeout<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        &self.0
    }
}

/// Bounds how many questions wait for a store's answer at once: it does not ask more.
///
/// They are answered immediately with a [`StoreError`] of the kind
/// [`Overloaded`](StoreErrorKind::Overloaded), so that a store that has become slow does not gather
/// requests that would all be too late. A question is a take, a refund or a reset. Each
/// needs a permit, also where the store inside answers immediately, except [repeats](Take::repeat)
/// of callers that wait, takes of [shadow rules](crate::Rule::into_shadow), and refunds
/// [by outcome](crate::Rule::with_refund_on), which have a bound of their own. A future that is
/// dropped gives its permit back. Clones share the permits.
///
/// ```
/// use tidegate::MemoryStore;
/// use tidegate::store::InFlight;
///
/// let store = InFlight::new(MemoryStore::new(), 1_024);
/// # let _ = store;
/// ```
#[derive(Debug, Clone)]
pub struct InFlight<S> {
    wrapped: Wrapped<S>,
    under_way: InFlightCounter,
}

/// The bound on questions under way.
#[derive(Debug, Clone)]
pub(super) struct QuestionLimit {
    max: usize,
    under_way: InFlightCounter,
    overloaded: StoreError,
}

impl<S: Store> InFlight<S> {
    /// The default of [`Resilient`](crate::Resilient): 1,024. At a time-out of 50 ms, a store that
    /// answers in the last moment still gives 20,000 answers a second.
    pub const DEFAULT_MAX: usize = 1_024;

    /// At most `max` questions under way; with 0 only repeats are asked.
    #[must_use]
    pub fn new(inner: S, max: usize) -> Self {
        let limit = QuestionLimit::new(&inner.name(), max);
        Self {
            under_way: limit.under_way.clone(),
            wrapped: Wrapped {
                in_flight: Some(limit),
                ..Wrapped::bare(inner)
            },
        }
    }

    /// How many questions wait for an answer now.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.number()
    }
}

impl<S: Store> Wrapper for InFlight<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        &self.wrapped
    }
}

impl QuestionLimit {
    /// At most `max` questions under way to the store of this name.
    pub(super) fn new(name: &str, max: usize) -> Self {
        let message = format!("{name} was not asked, it still has {max} questions to answer");
        Self {
            max,
            under_way: InFlightCounter::default(),
            overloaded: StoreError::new(StoreErrorKind::Overloaded, message),
        }
    }

    /// Questions of callers that wait need none, nor do those of shadow rules and refunds for which
    /// nobody waits: no request may be refused because of them, and the layer bounds their number.
    fn permit(&self, take: &Take, asked: Asked) -> Result<Option<Permit>, StoreError> {
        let is_free = match asked {
            Asked::Take => take.is_repeat() || take.rule().is_shadow(),
            Asked::Change => take.is_unawaited(),
        };
        if is_free {
            return Ok(None);
        }
        let permit = self.under_way.try_acquire(self.max);
        permit.map(Some).ok_or_else(|| self.overloaded.clone())
    }
}
