use std::any::Any;
use std::fmt;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::Ask;
use super::capabilities::{Capabilities, Condition};
use super::fleet::Fleet;
#[cfg(feature = "redis")]
use crate::connection::ReplyFuture;
use crate::decision::{Decision, Receipt};
use crate::error::{StoreError, StoreErrorKind};

/// Keeps the counts and answers takes.
///
/// # Contract
///
/// - A take is atomic: it is charged to all quotas of its rule, or to none, whatever other callers
///   and processes ask at the same time.
/// - A denial is a [`Decision`], not an error. A denied take charges nothing and
///   extends no expiry.
/// - Counts belong to the rule's [id](crate::Rule::id) and the take's key. The quotas are those of
///   the [take](crate::store::Ask::quotas): when a rule changes, or two rules share a path, a charge counts for
///   as long as the window under which it was charged.
/// - A take is charged in the windows of its quotas, and in no others. Quotas of one window share
///   its count, whatever their max: so a plan goes on with what was charged under another one.
/// - Every key expires once all its quotas are replenished.
///
/// # Stores of your own
///
/// Anybody may implement it, over a database or around another store;
/// `test_util::conformance` checks the contract. Until the next minor version it gains only methods
/// with a default, by which the store cannot do what is new: what compiled goes on compiling, and no
/// store admits more. A store around another one has that default, too, until it passes the new
/// method on, so `CHANGELOG.md` names each.
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
    /// [only looks](crate::Take::looking). It charges nothing, and is allowed whatever the store says.
    ///
    /// # Errors
    ///
    /// Those of [`take`](Self::take).
    fn peek(&self, ask: &Ask) -> StoreFuture<Decision> {
        self.take(&ask.clone().looking()).map(Decision::looked)
    }

    /// Gives back what the take with this receipt was charged, at most as many units as `ask`
    /// costs, and returns their number. `ask` is of the same counts.
    ///
    /// The caller asks once for each receipt, also after an error: the store does not know which
    /// receipts were given back, and a second time it may give back units of others. A
    /// [`Charge`](crate::store::Charge) keeps to that.
    ///
    /// Units that no longer count are not given back, so no window ever counts more than its max of
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
    /// let receipt = decision.receipt().expect("it was allowed");
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
    fn refund(&self, ask: &Ask, receipt: &Receipt) -> StoreFuture<u64>;

    /// Charges units that were used beyond what the take with this receipt was charged: up to what
    /// `ask` costs, also above max, but no more than its rule
    /// [may owe](crate::Rule::with_owe_at_most). Returns how many were charged; of several counts,
    /// the fewest. It is never denied, and does not depend on what has become of the receipt, which
    /// says only which store gave it: a fallback, or the store inside. Later takes are denied until
    /// what is above max has ceased to count.
    ///
    /// Handlers behind the layer use [`Charge::settle`](crate::store::Charge::settle). Default: the
    /// store cannot, see [`Capabilities::owes`].
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
    /// [`StoreError`](crate::StoreError) if there is no answer. Whether something was charged is
    /// then unknown.
    fn owe(&self, _ask: &Ask, _receipt: &Receipt) -> StoreFuture<u64> {
        let message = format!("{} charges no units beyond a reservation", self.name());
        let kind = StoreErrorKind::Configuration;
        StoreFuture::ready(Err(StoreError::new(kind, message)))
    }

    /// Holds the key of this take, of an [outgoing](crate::Rule::with_outgoing) rule, for so long
    /// from now on, by the store's clock: until then its takes are denied as
    /// [`OnHold`](crate::decision::Verdict::OnHold), whatever it has left. A hold is never
    /// shortened; a [reset](Self::reset) ends it. Returns for how long the key is held, and no time
    /// only asks that. Default: the store cannot, see [`Capabilities::holds`].
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer. It is safe to ask again.
    fn hold(&self, _ask: &Ask, _time: Duration) -> StoreFuture<Duration> {
        let message = format!(
            "the store {} holds no keys: see Capabilities::holds",
            self.name()
        );
        let error = StoreError::new(StoreErrorKind::Configuration, message);
        StoreFuture::ready(Err(error))
    }

    /// Keeps a permit for another [lease](crate::Rule::with_permit_lease). `ask` is [only](Ask::only)
    /// the count of permits, and `holder` its part of the receipt. A permit that the store has lost is there again, also above max: the request of its holder runs. Default: the
    /// store keeps permits until they are refunded.
    ///
    /// A permit is released by a [refund](Self::refund) of its part of the receipt.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer. It is safe to ask again.
    fn renew(&self, _ask: &Ask, _holder: &Receipt) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    /// Calls `changed` whenever a permit of this count may have come back, in any process, as long
    /// as the future is polled. Default: `None`, the store does not hear of that. Then requests
    /// that wait ask whenever a permit of their own process comes back, and once a second.
    fn listen(&self, _ask: &Ask, _changed: Box<dyn Fn() + Send + Sync>) -> Option<StoreFuture<()>> {
        None
    }

    /// Forgets what counts for the key of this take under its rule: the next take finds nothing
    /// charged. Returns whether there was a count: one that has ceased to count, and was not
    /// dropped yet, may be found, too. For operators and tests; [`peek`](Self::peek) shows what
    /// there is. Other rules of the same path and algorithm, whose counts these are as well, begin
    /// anew, too; counts of other algorithms stay.
    ///
    /// [Permits](crate::Rule::with_max_concurrent) stay: their requests run.
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
    fn reset(&self, ask: &Ask) -> StoreFuture<bool>;

    /// Waits until the store can answer, for at most `bound`. A server awaits it before it listens,
    /// so that its first requests find a connection: see [`Limits::ready`](crate::Limits::ready). A
    /// store around another one passes the question on. Default: it is ready.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) that says what is missing, once the bound is over. What
    /// will not pass by itself, such as a wrong password, is an error immediately.
    fn ready(&self, _bound: Duration) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    /// Waits until what takes may have been granted whose callers have left is given back, for at
    /// most `bound`: see [`Limits::flush`](crate::Limits::flush). A store around another one passes
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

    fn refund(&self, ask: &Ask, receipt: &Receipt) -> StoreFuture<u64> {
        S::refund(self, ask, receipt)
    }

    fn owe(&self, ask: &Ask, receipt: &Receipt) -> StoreFuture<u64> {
        S::owe(self, ask, receipt)
    }

    fn hold(&self, ask: &Ask, time: Duration) -> StoreFuture<Duration> {
        S::hold(self, ask, time)
    }

    fn renew(&self, ask: &Ask, holder: &Receipt) -> StoreFuture<()> {
        S::renew(self, ask, holder)
    }

    fn listen(&self, ask: &Ask, changed: Box<dyn Fn() + Send + Sync>) -> Option<StoreFuture<()>> {
        S::listen(self, ask, changed)
    }

    fn reset(&self, ask: &Ask) -> StoreFuture<bool> {
        S::reset(self, ask)
    }

    fn ready(&self, bound: Duration) -> StoreFuture<()> {
        S::ready(self, bound)
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

    /// This future with another answer.
    fn map(mut self, map: impl FnOnce(T) -> T + Send + 'static) -> Self
    where
        T: Send + 'static,
    {
        match self.poll_now() {
            Some(answer) => Self::ready(answer.map(map)),
            None => Self::boxed(async move { self.await.map(map) }),
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
