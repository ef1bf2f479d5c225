use std::any::Any;
use std::fmt;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::Take;
use super::fleet::{LetThrough, News, Report, Reported};
#[cfg(feature = "redis")]
use crate::connection::AnswerFuture;
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::warning::Warning;

/// Keeps the counts and answers takes.
///
/// # Contract
///
/// - A take is atomic: it is charged to all quotas of its rule, or to none, whatever other callers
///   and processes ask at the same time.
/// - A denial is a [`Decision`], not an error. A denied take charges nothing and
///   extends no expiry.
/// - Counts belong to the rule's [id](crate::Rule::id) and the take's key. The quotas are those of
///   the [take](Take::quotas): when a rule changes, or two rules share a path, a charge counts for
///   as long as the window under which it was charged.
/// - A take is charged to all of these quotas, also to those that only count, because another plan
///   of the rule has them: so no plan admits more than its max of what was charged under any plan.
///   Those deny nothing, and a decision has no state of them.
/// - Every key expires once all its quotas are replenished.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// let rule = Arc::new(Rule::new("export", [Quota::per_hour(1)])?);
/// let take = Take::new(rule, Key::from("alice"));
/// assert!(store.take(&take).await?.is_allowed());
/// assert!(!store.take(&take).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
pub trait Store: Debug + Send + Sync + 'static {
    /// Decides a take.
    ///
    /// It is called once for each question, and the future is ready or pending. A store may ask
    /// takes together that were asked at the same time. If the future is dropped before the
    /// question was sent, nothing is charged; afterwards the take may be charged.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no decision. Whether something was charged is
    /// then unknown.
    fn take(&self, take: &Take) -> StoreFuture<Decision>;

    /// The state of this rule and key: the decision on the same take at a cost of 0, which charges
    /// nothing.
    ///
    /// # Errors
    ///
    /// Those of [`take`](Self::take).
    fn peek(&self, take: &Take) -> StoreFuture<Decision> {
        self.take(&take.clone().with_cost(0))
    }

    /// Gives back what the take with this receipt was charged, at most as many units as `take`
    /// costs, and returns their number. `take` is of the same rule and key.
    ///
    /// The caller asks once for each receipt, also after an error: the store does not know which
    /// receipts were given back, and a second time it may give back units of others. A
    /// [`Charge`](crate::store::Charge) keeps to that.
    ///
    /// Units that no longer count are not given back, so no window ever holds more than its max of
    /// units that were not given back. The number is 0, too, where the store does not know any
    /// more: after its data was lost, and while its clock is behind the last charge.
    ///
    /// A fixed window and a sliding window give back exactly. A sliding log does so at up to 32
    /// places between charges that still count; beyond that it takes some of these charges for
    /// later ones, so that they count longer, never shorter. GCRA gives back what has not begun to
    /// drain; of refunds in another order than that of the takes it may give back less, from the
    /// fifth place on.
    ///
    /// Handlers behind the layer use [`Charges`](crate::store::Charges).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
    /// let take = Take::new(rule, Key::from("alice")).with_cost(4);
    /// let decision = store.take(&take).await?;
    /// assert_eq!(decision.remaining(), 6);
    ///
    /// // The export failed: alice does not pay for it.
    /// let receipt = decision.receipt().expect("it was allowed, and cost something");
    /// assert_eq!(store.refund(&take, &receipt).await?, 4);
    /// assert_eq!(store.peek(&take).await?.remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer. Whether something was given back is
    /// then unknown, and the receipt is used up.
    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64>;

    /// Forgets what counts for the key of this take under its rule: the next take finds nothing
    /// charged. Returns whether there was a count: one that has ceased to count, and was not
    /// dropped yet, may be found, too. For operators and tests; [`peek`](Self::peek) shows what
    /// there is. Other rules of the same path and algorithm, whose counts these are as well, begin
    /// anew, too; counts of other algorithms stay.
    ///
    /// Receipts of earlier takes give nothing back afterwards. Nor does the receipt of a take that
    /// is charged right after the reset, in the same microsecond: a receipt from before could equal
    /// it. Without a reset, when a store loses its data, an earlier receipt may give back what is
    /// charged after the loss in the same millisecond. Stores over
    /// [`Count`](crate::algorithm::Count) call its [`reset`](crate::algorithm::Count::reset).
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer. Whether anything was forgotten is
    /// then unknown; it is safe to ask again.
    fn reset(&self, take: &Take) -> StoreFuture<bool>;

    /// The store's name for people: `memory`, or an address without secrets. Stores with one name
    /// that begins with `redis `, as that of a `RedisStore` does, are taken for one server: after a
    /// time-out, later layers of the same request leave all of them alone.
    fn name(&self) -> String;

    /// Whether this store has a [`Fallback`](crate::store::Fallback). A store around another one
    /// passes the question on. Default: no.
    fn has_fallback(&self) -> bool {
        false
    }

    /// Whether this store hands out units ahead, as [`UnitLeases`](crate::store::UnitLeases) does. A
    /// store around another one passes the question on. Default: no.
    fn has_leases(&self) -> bool {
        false
    }

    /// The time-out of this store's answers, if one was set. After a time-out, later layers of the
    /// same request leave the store alone for this long. A store around another one passes the
    /// question on. Default: `None`, not known.
    fn answers_within(&self) -> Option<Duration> {
        None
    }

    /// Mistakes in the set-up of this store that show now; see [`Warning`]. A store around another
    /// one passes the question on. Default: none.
    fn warnings(&self) -> Vec<Warning> {
        Vec::new()
    }

    /// Whether a [`CircuitBreaker`](crate::store::CircuitBreaker) keeps questions from the store
    /// now. A store around another one passes the question on. Default: `None`, there is none.
    fn is_breaker_open(&self) -> Option<bool> {
        None
    }

    /// Keeps what a process says of itself for a few seconds, and returns what all processes of its
    /// service share. `Limits` with a page asks once a second. A store around another one passes
    /// this and the next two questions on. Default: `None`, the processes share nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn report(&self, _report: &Report) -> StoreFuture<Option<News>> {
        StoreFuture::ready(Ok(None))
    }

    /// What the processes of the service said last. Of more than [`Reported::MAX`] one more is told,
    /// and the rest is not. Default: nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn reports(&self) -> StoreFuture<Vec<Reported>> {
        StoreFuture::ready(Ok(Vec::new()))
    }

    /// Lets a key through, for all processes of the service: they learn of it by their next
    /// [report](Self::report). Returns whether it does: the service may have
    /// [as many](LetThrough::MAX) as it may. Default: `None`, the processes share nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn let_through(&self, _key: &LetThrough) -> StoreFuture<Option<bool>> {
        StoreFuture::ready(Ok(None))
    }
}

/// The store behind the `Arc`, so that a store that is shared can be wrapped as well.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        S::take(self, take)
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        S::refund(self, take, receipt)
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        S::reset(self, take)
    }

    fn name(&self) -> String {
        S::name(self)
    }

    fn has_fallback(&self) -> bool {
        S::has_fallback(self)
    }

    fn has_leases(&self) -> bool {
        S::has_leases(self)
    }

    fn answers_within(&self) -> Option<Duration> {
        S::answers_within(self)
    }

    fn warnings(&self) -> Vec<Warning> {
        S::warnings(self)
    }

    fn is_breaker_open(&self) -> Option<bool> {
        (**self).is_breaker_open()
    }

    fn report(&self, report: &Report) -> StoreFuture<Option<News>> {
        (**self).report(report)
    }

    fn reports(&self) -> StoreFuture<Vec<Reported>> {
        (**self).reports()
    }

    fn let_through(&self, key: &LetThrough) -> StoreFuture<Option<bool>> {
        (**self).let_through(key)
    }
}

/// The store of layers that were given none. In builds with debug assertions it reads tokio's
/// clock, so that a test that pauses time moves the limits, too.
pub(crate) fn default_store() -> Arc<dyn Store> {
    let store = super::MemoryStore::new();
    match cfg!(debug_assertions) {
        true => Arc::new(store.tokio_clock()),
        false => Arc::new(store),
    }
}

/// The store as all its users share it. One that is an `Arc<dyn Store>` already stays that.
pub(crate) fn shared<S: Store>(store: S) -> Arc<dyn Store> {
    let any: &dyn Any = &store;
    match any.downcast_ref::<Arc<dyn Store>>() {
        Some(store) => Arc::clone(store),
        None => Arc::new(store),
    }
}

#[cfg(not(feature = "redis"))]
type AnswerFuture<T> = std::future::Pending<Result<T, StoreError>>;

pin_project! {
    /// The future of a store's answer.
    ///
    /// It is ready immediately, as with memory, or pending. It borrows nothing, so that a service
    /// can keep it beside the request that it is about.
    ///
    /// ```
    /// use tidegate::StoreError;
    /// use tidegate::store::{StoreErrorKind, StoreFuture};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let ready: StoreFuture<u64> = StoreFuture::ready(Ok(3));
    /// assert_eq!(ready.now().expect("it is there").ok(), Some(3));
    ///
    /// let later: StoreFuture<u64> = StoreFuture::boxed(async {
    ///     Err(StoreError::new(StoreErrorKind::Unavailable, "the database is gone"))
    /// });
    /// assert!(later.await.is_err());
    /// # }
    /// ```
    #[must_use = "a question whose future is dropped may never be asked"]
    pub struct StoreFuture<T> {
        #[pin]
        state: State<T>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<T> {
        Ready { answer: Option<Result<T, StoreError>> },
        Boxed { answer: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>> },
        // The common case of a Redis store needs no box.
        Redis {
            #[pin]
            answer: AnswerFuture<T>,
        },
    }
}

impl<T> StoreFuture<T> {
    /// An answer that is there immediately, without an allocation.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        let answer = Some(answer);
        Self {
            state: State::Ready { answer },
        }
    }

    /// Answers when this future does.
    pub fn boxed(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        let answer = Box::pin(answer);
        Self {
            state: State::Boxed { answer },
        }
    }

    /// The answer to one question that travels to Redis.
    #[cfg(feature = "redis")]
    pub(super) fn redis(answer: AnswerFuture<T>) -> Self {
        Self {
            state: State::Redis { answer },
        }
    }

    /// The answer, if it is there.
    ///
    /// # Errors
    ///
    /// The future itself, if the answer has to be waited for.
    #[allow(
        clippy::result_large_err,
        reason = "it is no error, and a box would cost an allocation"
    )]
    pub fn now(self) -> Result<Result<T, StoreError>, Self> {
        match self.state {
            State::Ready {
                answer: Some(answer),
            } => Ok(answer),
            state => Err(Self { state }),
        }
    }
}

impl<T> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Ready { answer } => {
                Poll::Ready(answer.take().expect("polled after completion"))
            }
            StateProj::Boxed { answer } => answer.as_mut().poll(cx),
            StateProj::Redis { answer } => answer.poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Ready { .. } => "StoreFuture::Ready",
            _ => "StoreFuture::Pending",
        })
    }
}
