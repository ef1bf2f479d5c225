use std::any::{Any, type_name};
use std::error::Error;
use std::fmt;
use std::future::ready;
use std::sync::Arc;

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;

use super::degrade_callback::BoxFuture;
use super::form::AnswerForm;
use super::problem_document::{Panicked, guarded, internal_error};
use crate::decision::Decision;
use crate::error::{KeyError, KeyErrorKind, StoreError, StoreErrorKind};
use crate::rule::Rule;

/// Answers a request for which no decision could be made, or whose handler failed.
///
/// Asynchronous closures are callbacks, too; they return a [`Recovery`] or a response, and
/// [`on_error_fn`](crate::RateLimitLayer::on_error_fn) infers their types. One that uses what it
/// has captured clones it, and returns an `async move` block. An `Arc` of
/// a callback may serve many routes. An [`ErrorCallbackChain`](crate::ErrorCallbackChain) has a
/// callback for each type of error. A panic is answered with a 500. The layer adds `Cache-Control:
/// no-store` to the response, and to a 503 `Retry-After`, unless the callback has set them.
///
/// Where a rule says [`OnError::Proceed`](crate::rule::OnError::Proceed), or a
/// [fallback](crate::Resilient::fallback) has decided in place of the store, that applies and the
/// callback is not called, unless it says that it [wants to be](Self::also_with_fallback).
///
/// ```
/// use std::time::Duration;
/// use tidegate::{RateLimitLayer, Recovery};
///
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5)
///     .on_error_fn(async |failed| {
///         eprintln!("unlimited for now: {failed}");
///         Recovery::Proceed
///     });
/// # let _ = layer;
/// ```
///
/// `A` is what it answers with: a response, or what a [call](crate::Limits::call) returns.
pub trait ErrorCallback<A = Response>: Send + Sync + 'static {
    /// What happens to the request.
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery<A>>;

    /// Whether this callback is called, too, where a fallback has decided, or the rule
    /// [proceeds](crate::rule::OnError::Proceed). It may then answer in place of that, which
    /// applies if it [propagates](Recovery::Propagate): [`Failed::fallback`] is the decision.
    /// Default: `false`. [`AlsoWithFallback`] says so for a closure.
    fn also_with_fallback(&self) -> bool {
        false
    }

    /// Whether this callback lets through what the store could not decide, as [`FailOpen`] does: a
    /// rule with a [lock-out](crate::rule::Lockout) warns of it. Default: `false`.
    fn proceeds(&self) -> bool {
        false
    }
}

/// An error callback that is called, too, where a fallback has decided or the rule proceeds: to
/// count outages, or to answer in place of these.
///
/// ```
/// use std::time::Duration;
/// use tidegate::callback::AlsoWithFallback;
/// use tidegate::{Failed, RateLimitLayer, Recovery};
///
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5)
///     .on_error(AlsoWithFallback(async |failed: Failed| {
///         eprintln!("{failed}; decided here: {}", failed.fallback().is_some());
///         Recovery::Propagate
///     }));
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct AlsoWithFallback<C>(pub C);

impl<A, C: ErrorCallback<A>> ErrorCallback<A> for AlsoWithFallback<C> {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery<A>> {
        self.0.recover(failed)
    }

    fn also_with_fallback(&self) -> bool {
        true
    }
}

/// What happens to a request after a failure.
#[derive(Debug)]
#[non_exhaustive]
pub enum Recovery<A = Response> {
    /// The handler runs as if the request had been allowed. For an error of the handler, which has
    /// run already, and for a request without a key, this is the same as [`Recovery::Propagate`]:
    /// otherwise a client could avoid its limit by omitting what its key is made of.
    Proceed,
    /// The client gets this response, or a call returns this.
    Respond(A),
    /// The callback does not handle the error. An error of the handler is returned unchanged. After
    /// an error of the store, the decision of a [fallback](crate::Resilient::fallback) applies, or
    /// the rule's [`OnError`](crate::rule::OnError). A request without a key is answered with a 400
    /// or 500.
    Propagate,
}

impl<R: IntoResponse> From<R> for Recovery {
    fn from(response: R) -> Self {
        Self::Respond(response.into_response())
    }
}

impl<A, F, Fut> ErrorCallback<A> for F
where
    F: Fn(Failed) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: Into<Recovery<A>>> + Send + 'static,
{
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery<A>> {
        let recovery = self(failed);
        Box::pin(async move { recovery.await.into() })
    }
}

impl<A, T: ErrorCallback<A> + ?Sized> ErrorCallback<A> for Arc<T> {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery<A>> {
        T::recover(self, failed)
    }

    fn also_with_fallback(&self) -> bool {
        T::also_with_fallback(self)
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// A request for which no decision could be made, or whose handler failed.
///
/// Drop it before the callback returns. An error of the handler that the callback
/// [propagates](crate::Recovery::Propagate) must have no other owner by then; otherwise the request
/// is answered with a 500.
#[derive(Clone)]
#[non_exhaustive]
pub struct Failed {
    /// The rule that limits the request.
    pub rule: Arc<Rule>,
    /// The request without its body.
    pub head: Parts,
    cause: Cause,
}

/// What failed: the store, the key or the handler.
///
/// ```
/// use tidegate::Failed;
/// use tidegate::callback::FailureKind;
/// use tidegate::key::KeyErrorKind;
/// use tidegate::store::StoreErrorKind;
///
/// fn status(failed: &Failed) -> u16 {
///     match failed.kind() {
///         FailureKind::Key(KeyErrorKind::Server) => 500,
///         FailureKind::Key(_) => 400,
///         FailureKind::Store(StoreErrorKind::Timeout) => 504,
///         _ => 503,
///     }
/// }
/// # let _ = status;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The store could not decide.
    Store(StoreErrorKind),
    /// The request has no key, because of a mistake of the client or of the server.
    Key(KeyErrorKind),
    /// The handler failed, after the request had been allowed.
    Inner,
}

#[derive(Clone)]
pub(crate) enum Cause {
    Key(KeyError),
    Store(StoreError, Instead),
    Inner(Arc<dyn Any + Send + Sync>, &'static str),
}

/// What decides in place of the store that has failed.
#[derive(Clone)]
pub(crate) enum Instead {
    Nothing,
    /// The rule, which [proceeds](crate::rule::OnError::Proceed).
    Rule,
    Fallback(Decision),
}

impl Cause {
    /// Whether callbacks are asked that do not say that they [want to
    /// be](ErrorCallback::also_with_fallback).
    const fn is_undecided(&self) -> bool {
        !matches!(self, Self::Store(_, Instead::Rule | Instead::Fallback(_)))
    }

    pub(super) fn inner<E: Send + Sync + 'static>(error: Arc<E>) -> Self {
        Self::Inner(error, type_name::<E>())
    }
}

impl Failed {
    pub(crate) const fn new(rule: Arc<Rule>, head: Parts, cause: Cause) -> Self {
        Self { rule, head, cause }
    }

    /// What failed, and how.
    #[must_use]
    pub const fn kind(&self) -> FailureKind {
        match &self.cause {
            Cause::Key(error) => FailureKind::Key(error.kind()),
            Cause::Store(error, _) => FailureKind::Store(error.kind()),
            Cause::Inner(..) => FailureKind::Inner,
        }
    }

    /// The decision that a [fallback](crate::Resilient::fallback) made in place of the store, for a
    /// callback that [wants to know](ErrorCallback::also_with_fallback). It applies if the callback
    /// [propagates](crate::Recovery::Propagate) the error.
    #[must_use]
    pub const fn fallback(&self) -> Option<&Decision> {
        match &self.cause {
            Cause::Store(_, Instead::Fallback(decision)) => Some(decision),
            _ => None,
        }
    }

    /// Whether the handler failed, after the request had been allowed.
    #[must_use]
    pub const fn is_inner(&self) -> bool {
        matches!(self.cause, Cause::Inner(..))
    }

    /// The error of the type `E`, if the failure is one or was caused by one.
    ///
    /// Without a decision the failure is a [`StoreError`] or a [`KeyError`]. An error of the
    /// handler is found by its own type, also inside of a `Box<dyn Error + Send + Sync>`. Its
    /// causes are found only if it is boxed.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match &self.cause {
            Cause::Key(error) => in_chain(error),
            Cause::Store(error, _) => in_chain(error),
            Cause::Inner(error, _) => match error.downcast_ref::<BoxError>() {
                Some(boxed) => in_chain(&**boxed),
                None => error.downcast_ref(),
            },
        }
    }
}

fn in_chain<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.rule.path();
        match &self.cause {
            Cause::Key(error) => write!(f, "no key for \"{path}\": {error}"),
            Cause::Store(error, _) => write!(f, "no decision for \"{path}\": {error}"),
            Cause::Inner(error, name) => match error.downcast_ref::<BoxError>() {
                Some(boxed) => write!(f, "\"{path}\" failed: {boxed}"),
                None => write!(f, "\"{path}\" failed with a {name}"),
            },
        }
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed")
            .field("cause", &format_args!("{self}"))
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

/// Lets a request through to the handler, unlimited, if the store could not decide.
///
/// A request without a key is not let through: it is answered with a 400 or 500.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{FailOpen, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).on_error(FailOpen);
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct FailOpen;

impl<A: Send + 'static> ErrorCallback<A> for FailOpen {
    fn recover(&self, _: Failed) -> BoxFuture<'_, Recovery<A>> {
        Box::pin(ready(Recovery::Proceed))
    }

    fn proceeds(&self) -> bool {
        true
    }
}

/// Runs an error callback.
pub(crate) async fn recover<A>(
    callback: &(impl ErrorCallback<A> + ?Sized),
    failed: Failed,
) -> Result<Recovery<A>, Panicked> {
    let rule = Arc::clone(&failed.rule);
    guarded("error callback", rule.path(), || callback.recover(failed)).await
}

/// Runs an error callback because the inner service has failed.
pub(crate) async fn recover_inner<E: Send + Sync + 'static>(
    callback: Arc<dyn ErrorCallback>,
    rule: Arc<Rule>,
    head: Parts,
    form: AnswerForm,
    error: E,
) -> Result<Response<Body>, E> {
    match recovery_of(&*callback, rule, head, error).await {
        (Ok(Recovery::Respond(response)), _) => Ok(response),
        (Err(panicked), _) => Ok(internal_error(&panicked, &form)),
        (Ok(_), Some(error)) => Err(error),
        (Ok(_), None) => Ok(internal_error(&KEPT, &form)),
    }
}

/// Runs the callbacks of a call because its function has failed. A panic of one is no answer.
pub(crate) async fn recover_own<A: Send + 'static, E: Send + Sync + 'static>(
    chain: &ErrorCallbackChain<A>,
    rule: Arc<Rule>,
    head: Parts,
    error: E,
) -> Result<A, E> {
    match recovery_of(chain, rule, head, error).await {
        (Ok(Recovery::Respond(answer)), _) => Ok(answer),
        (_, Some(error)) => Err(error),
        (_, None) => panic!("{KEPT}"),
    }
}

const KEPT: &str = "the error callback kept a clone of an error that it did not answer";

/// What an error callback says about an error, and the error, unless the callback keeps it, against
/// its contract.
async fn recovery_of<A, E: Send + Sync + 'static>(
    callback: &(impl ErrorCallback<A> + ?Sized),
    rule: Arc<Rule>,
    head: Parts,
    error: E,
) -> (Result<Recovery<A>, Panicked>, Option<E>) {
    let error = Arc::new(error);
    let failed = Failed::new(rule, head, Cause::inner(Arc::clone(&error)));
    let recovery = recover(callback, failed).await;
    (recovery, Arc::try_unwrap(error).ok())
}

/// Error callbacks by type of error and priority.
///
/// The callback with the lowest priority number answers, among those whose type matches the error.
/// If several have the same number, the one that was added first answers. If none matches, the
/// error is not handled, as with [`Recovery::Propagate`].
///
/// ```
/// use http::StatusCode;
/// use tidegate::{ErrorCallbackChain, Failed, Recovery, StoreError};
/// use tidegate::key::KeyError;
///
/// let chain = ErrorCallbackChain::new()
///     .on::<KeyError>(async |_: Failed| (StatusCode::BAD_REQUEST, "who are you?"))
///     .on::<StoreError>(async |_: Failed| Recovery::Proceed)
///     .any_with_priority(9, async |_: Failed| StatusCode::BAD_GATEWAY);
/// # let _ = chain;
/// ```
///
/// A chain of a [call](crate::Limits::call) answers with what the function returns, and also the
/// function's own errors: see [`Call::try_run_with`](crate::layer::Call::try_run_with).
pub struct ErrorCallbackChain<A = Response> {
    /// In the order in which they are tried.
    entries: Vec<ChainEntry<A>>,
}

struct ChainEntry<A> {
    priority: i32,
    matches: fn(&Failed) -> bool,
    callback: Box<dyn ErrorCallback<A>>,
}

impl ErrorCallbackChain {
    /// The priority of callbacks that are added without one: 1.
    pub const DEFAULT_PRIORITY: i32 = 1;

    /// A chain without callbacks: it handles no error. It answers with responses; the
    /// [default](Self::default) of another type answers with that.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<A> Default for ErrorCallbackChain<A> {
    fn default() -> Self {
        let entries = Vec::new();
        Self { entries }
    }
}

impl<A: 'static> ErrorCallbackChain<A> {
    /// Adds a callback for errors of the type `E`, with the priority 1. Its type matches as in
    /// [`Failed::downcast_ref`].
    #[must_use]
    pub fn on<E: Error + 'static>(self, callback: impl ErrorCallback<A>) -> Self {
        self.on_with_priority::<E>(ErrorCallbackChain::DEFAULT_PRIORITY, callback)
    }

    /// Adds a callback for errors of the type `E`.
    #[must_use]
    pub fn on_with_priority<E: Error + 'static>(
        self,
        priority: i32,
        callback: impl ErrorCallback<A>,
    ) -> Self {
        let matches = |failed: &Failed| failed.downcast_ref::<E>().is_some();
        self.with(priority, matches, callback)
    }

    /// Adds a callback for all errors, with the priority 1.
    #[must_use]
    pub fn any(self, callback: impl ErrorCallback<A>) -> Self {
        self.any_with_priority(ErrorCallbackChain::DEFAULT_PRIORITY, callback)
    }

    /// Adds a callback for all errors.
    #[must_use]
    pub fn any_with_priority(self, priority: i32, callback: impl ErrorCallback<A>) -> Self {
        self.with(priority, |_| true, callback)
    }

    fn with(
        mut self,
        priority: i32,
        matches: fn(&Failed) -> bool,
        callback: impl ErrorCallback<A>,
    ) -> Self {
        let callback = Box::new(callback);
        let entries = &self.entries;
        let index = entries.partition_point(|entry| entry.priority <= priority);
        let entry = ChainEntry {
            priority,
            matches,
            callback,
        };
        self.entries.insert(index, entry);
        self
    }
}

impl<A: Send + 'static> ErrorCallback<A> for ErrorCallbackChain<A> {
    fn recover(&self, failed: Failed) -> BoxFuture<'_, Recovery<A>> {
        let is_called = |entry: &&ChainEntry<A>| {
            let is_wanted = failed.cause.is_undecided() || entry.callback.also_with_fallback();
            is_wanted && (entry.matches)(&failed)
        };
        match self.entries.iter().find(is_called) {
            Some(entry) => entry.callback.recover(failed),
            None => Box::pin(ready(Recovery::Propagate)),
        }
    }

    /// Whether one of the callbacks is.
    fn also_with_fallback(&self) -> bool {
        let mut callbacks = self.entries.iter().map(|entry| &entry.callback);
        callbacks.any(|callback| callback.also_with_fallback())
    }
}

impl<A> fmt::Debug for ErrorCallbackChain<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let priorities = self.entries.iter().map(|entry| entry.priority);
        f.debug_list().entries(priorities).finish()
    }
}
