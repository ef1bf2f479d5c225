use std::any::Any;
use std::fmt;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::capabilities::{Capabilities, Condition};
use super::fleet::Fleet;
#[cfg(feature = "redis")]
use crate::connection::ReplyFuture;
use crate::decision::{Decision, Receipt};
use crate::error::{StoreError, StoreErrorKind};
use crate::question::{Ask, Change};

/// Keeps the counts and answers takes.
///
/// # Contract
///
/// - A take is atomic: it is charged to all quotas of its rule, or to none, whatever other callers
///   and processes ask at the same time.
/// - A denial is a [`Decision`], not an error. A denied take charges nothing and
///   extends no expiry.
/// - Counts belong to the rule's [id](crate::Rule::id) and the take's key. The quotas are those of
///   the [take](crate::store::Ask::quotas): when a rule changes, or two rules share a path, a charge
///   counts for as long as the window under which it was charged.
/// - A take is charged in the windows of its quotas, and in no others. Quotas of one window share
///   its count, whatever their max: so a plan goes on with what was charged under another one.
/// - Every key expires once all its quotas are replenished.
///
/// # Stores of your own
///
/// Anybody may implement it, over a database or around another store; `test_util::conformance`
/// checks the contract. Until the next minor version it gains only methods with a default, by which
/// the store cannot do what is new: what compiled goes on compiling, and no store admits more. A
/// store around another one has that default, too, until it passes the new method on, so
/// `CHANGELOG.md` names each.
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
    fn take(&self, ask: &Ask) -> StoreFuture<Decision>;

    /// The state of this rule and key: the decision on the same take which
    /// [only looks](crate::Take::looking). It charges nothing, and is allowed whatever the store
    /// says.
    ///
    /// # Errors
    ///
    /// Those of [`take`](Self::take).
    fn peek(&self, ask: &Ask) -> StoreFuture<Decision> {
        self.take(&ask.clone().looking()).map(Decision::looked)
    }

    /// Changes the counts that this asks about, and returns a number: what, says the
    /// [change](Change). A store that does not know a change answers
    /// [`Configuration`](StoreErrorKind::Configuration), which is the default.
    ///
    /// [`refund`](Self::refund), [`owe`](Self::owe), [`hold`](Self::hold), [`renew`](Self::renew)
    /// and [`reset`](Self::reset) are short for it. Implement this method, and leave those: a store
    /// around another one calls this one alone.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer. Whether something has changed is
    /// then unknown.
    fn change(&self, _ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let message = format!("the store {} does not {}", self.name(), change.verb());
        let kind = StoreErrorKind::Configuration;
        StoreFuture::ready(Err(StoreError::new(kind, message)))
    }

    /// [Gives back](Change::Refund) what the take with this receipt was charged, and returns how
    /// many units.
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
    /// let receipt = decision.receipt().expect("it was allowed");
    /// assert_eq!(store.refund(&take, &receipt).await?, 4);
    /// assert_eq!(store.peek(&take).await?.remaining(), 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`change`](Self::change). The receipt is used up.
    fn refund(&self, ask: &Ask, receipt: &Receipt) -> StoreFuture<u64> {
        self.change(ask, &Change::Refund(receipt.clone()))
    }

    /// [Charges](Change::Owe) units that were used beyond what the take with this receipt was
    /// charged, and returns how many; of several counts, the fewest.
    ///
    /// Handlers behind the layer use [`Charge::settle`](crate::store::Charge::settle).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let rule = Arc::new(Rule::new("tokens", [Quota::per_hour(10)])?);
    /// let take = Take::new(rule, Key::from("alice")).with_cost(4);
    /// let receipt = store.take(&take).await?.receipt().expect("it was allowed");
    /// // 15 were used.
    /// assert_eq!(store.owe(&take.clone().with_cost(11), &receipt).await?, 11);
    /// assert!(!store.take(&take.with_cost(1)).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`change`](Self::change).
    fn owe(&self, ask: &Ask, receipt: &Receipt) -> StoreFuture<u64> {
        self.change(ask, &Change::Owe(receipt.clone()))
    }

    /// [Holds](Change::Hold) a key for so long, and returns for how long it is held.
    ///
    /// # Errors
    ///
    /// Those of [`change`](Self::change). It is safe to ask again.
    fn hold(&self, ask: &Ask, time: Duration) -> StoreFuture<Duration> {
        let held = self.change(ask, &Change::Hold(time));
        held.map(Duration::from_micros)
    }

    /// [Keeps](Change::Renew) a permit for another lease.
    ///
    /// # Errors
    ///
    /// Those of [`change`](Self::change). It is safe to ask again.
    fn renew(&self, ask: &Ask, holder: &Receipt) -> StoreFuture<()> {
        let renewed = self.change(ask, &Change::Renew(holder.clone()));
        renewed.map(drop)
    }

    /// [Forgets](Change::Forget) what counts, and returns whether there was a count.
    ///
    /// # Errors
    ///
    /// Those of [`change`](Self::change). It is safe to ask again.
    fn reset(&self, ask: &Ask) -> StoreFuture<bool> {
        self.change(ask, &Change::Forget).map(|found| found > 0)
    }

    /// Calls `changed` whenever a permit of this count may have come back, in any process, as long
    /// as the future is polled. Default: `None`, the store does not hear of that. Then requests
    /// that wait ask whenever a permit of their own process comes back, and once a second.
    fn listen(&self, _ask: &Ask, _changed: Box<dyn Fn() + Send + Sync>) -> Option<StoreFuture<()>> {
        None
    }

    /// Waits until the store decides, for at most `bound`. A server awaits it before it listens:
    /// see [`Limits::ready`](crate::Limits::ready). A store around another one passes the question
    /// on. Default: it is ready.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) that says what is missing, once the bound is over. What
    /// will not pass by itself, such as a wrong password, is an error immediately.
    fn ready(&self, _bound: Duration) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    /// The same within a time-out: that of a store around this one, if it has one, or this store's
    /// own, whichever is shorter. A store around another one passes it on, too. Default:
    /// [`ready`](Self::ready).
    ///
    /// # Errors
    ///
    /// Those of [`ready`](Self::ready).
    fn ready_within(&self, bound: Duration, _timeout: Option<Duration>) -> StoreFuture<()> {
        self.ready(bound)
    }

    /// Waits until the permits are given back that takes may have been granted whose callers have
    /// left, for at most `bound`: see [`Limits::flush`](crate::Limits::flush). A store around another one passes
    /// the question on. Default: nothing has to be given back.
    ///
    /// Returns whether nothing is left.
    fn flush(&self, _bound: Duration) -> StoreFuture<bool> {
        StoreFuture::ready(Ok(true))
    }

    /// The store's name for people: `memory`, or an address without secrets.
    fn name(&self) -> String;

    /// What this store can do. It never changes. A store around another one passes on what it does
    /// not add itself. A caller that asks a store for what it lacks gets an error of the kind
    /// [`Configuration`](crate::store::StoreErrorKind::Configuration), and nothing is charged.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// What changes about this store: its warnings, and whether its breaker is open. A store around
    /// another one adds to the other one's. Default: a store in good health.
    fn condition(&self) -> Condition {
        Condition::default()
    }

    /// What the processes of a service share through this store. A store around another one passes
    /// the question on. Default: `None`, they share nothing.
    fn fleet(&self) -> Option<Arc<dyn Fleet>> {
        None
    }
}

/// The store behind the `Arc`, so that a store that is shared can be wrapped as well.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        S::take(self, ask)
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        S::change(self, ask, change)
    }

    fn listen(&self, ask: &Ask, changed: Box<dyn Fn() + Send + Sync>) -> Option<StoreFuture<()>> {
        S::listen(self, ask, changed)
    }

    fn ready(&self, bound: Duration) -> StoreFuture<()> {
        S::ready(self, bound)
    }

    fn ready_within(&self, bound: Duration, timeout: Option<Duration>) -> StoreFuture<()> {
        S::ready_within(self, bound, timeout)
    }

    fn flush(&self, bound: Duration) -> StoreFuture<bool> {
        S::flush(self, bound)
    }

    fn name(&self) -> String {
        S::name(self)
    }

    fn capabilities(&self) -> Capabilities {
        S::capabilities(self)
    }

    fn condition(&self) -> Condition {
        S::condition(self)
    }

    fn fleet(&self) -> Option<Arc<dyn Fleet>> {
        (**self).fleet()
    }
}

/// The store of layers that were given none. In builds with debug assertions it reads tokio's
/// clock, so that a test that pauses time moves the limits, too.
pub(crate) fn default_store() -> Arc<dyn Store> {
    let store = super::MemoryStore::new();
    if cfg!(debug_assertions) {
        Arc::new(store.tokio_clock())
    } else {
        Arc::new(store)
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
type ReplyFuture<T> = std::future::Pending<Result<T, StoreError>>;

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
    /// let mut ready: StoreFuture<u64> = StoreFuture::ready(Ok(3));
    /// assert!(ready.poll_now().is_some_and(|answer| answer.is_ok_and(|number| number == 3)));
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
        state: FutureState<T>,
    }
}

pin_project! {
    #[project = StateProj]
    enum FutureState<T> {
        Ready { answer: Option<Result<T, StoreError>> },
        Boxed { answer: Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>> },
        // The common case of a Redis store needs no box.
        Redis {
            #[pin]
            answer: ReplyFuture<T>,
        },
    }
}

impl<T> StoreFuture<T> {
    /// An answer that is there immediately, without an allocation.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        let answer = Some(answer);
        Self {
            state: FutureState::Ready { answer },
        }
    }

    /// Answers when this future does.
    pub fn boxed(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        let answer = Box::pin(answer);
        Self {
            state: FutureState::Boxed { answer },
        }
    }

    /// The answer to one question that travels to Redis.
    #[cfg(feature = "redis")]
    pub(super) fn redis(answer: ReplyFuture<T>) -> Self {
        Self {
            state: FutureState::Redis { answer },
        }
    }

    /// Whether it ends by the deadline of its question without anybody's help.
    pub(super) const fn keeps_deadline(&self) -> bool {
        matches!(self.state, FutureState::Redis { .. })
    }

    /// This future with another answer.
    pub(crate) fn map<U>(mut self, map: impl FnOnce(T) -> U + Send + 'static) -> StoreFuture<U>
    where
        T: Send + 'static,
    {
        match self.poll_now() {
            Some(answer) => StoreFuture::ready(answer.map(map)),
            None => StoreFuture::boxed(async move { self.await.map(map) }),
        }
    }

    /// Takes the answer out, if it is there: the future is then over. `None` if the answer has to
    /// be awaited.
    pub fn poll_now(&mut self) -> Option<Result<T, StoreError>> {
        match &mut self.state {
            FutureState::Ready { answer } => answer.take(),
            _ => None,
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
            FutureState::Ready { .. } => "StoreFuture::Ready",
            _ => "StoreFuture::Pending",
        })
    }
}
