//! Decisions for code that has no HTTP request, and functions that run behind one.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::request::Parts;

use super::action::{Admission, Refusal};
use super::admitted::Admitted;
use super::decide::{Outcome, Permits};
use super::gate::Gate;
use super::refused::{CallError, Refused};
use super::subject_keys::SubjectKeys;
use crate::callback::{Cause, Denied, ErrorCallbackChain, Failed, Recovery, recover, recover_own};
use crate::error::KeyError;
use crate::key::Key;
use crate::rule::{Plan, Rule, Subject};
use crate::store::{Take, in_call};

/// A function that a rule limits: see [`Limits::call`](crate::Limits::call). Without a function it
/// is a question: see [`Limits::check`](crate::Limits::check).
///
/// Dropping a future of it before it is done may or may not charge it, as with a request.
///
/// | with | what [`run`](Self::run) returns | what [`try_run`](Self::try_run) returns |
/// |---|---|---|
/// | nothing, or [`degrade`](Self::degrade) | `Result<T, Refused>` | `Result<V, CallError<E>>` |
/// | [`degrade`](Self::degrade) and [`on_error`](Self::on_error) | `T` | `Result<V, E>` |
/// | [`on_error_chain`](Self::on_error_chain) | `Result<T, Refused>` | `Result<V, CallError<E>>` |
///
/// `T`, or `Result<V, E>`, is what the function returns, and what the callbacks return in its
/// place. Neither the function nor a callback is boxed, so the future is `Send` where they are. The
/// function finds its charge in [`Charges::current`](crate::store::Charges::current).
///
/// Awaited without a function it says whether the code may go on. Under a rule that says how many
/// may run [at a time](Rule::with_max_concurrent), keep the answer as long as the work takes: see
/// [`Admitted`].
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("upload", [Quota::per_hour(100)])?]);
/// // A file of 30 units by a customer with the plan "pro", if the rule has one.
/// let admitted = limits.check("upload", "alice").cost(30).plan("pro").await?;
/// assert_eq!(admitted.decision.map(|it| it.remaining()), Some(70));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is asked until it is awaited or runs a function"]
pub struct Call<D = Unset, E = Unset> {
    settings: CallSettings,
    degrade: D,
    on_error: E,
}

/// What a caller says about a call: its path, key, cost and quotas, and how long it may wait.
#[derive(Debug)]
struct CallSettings {
    /// Missing for a path without a rule that is not remembered.
    gate: Option<Arc<Gate>>,
    keys: SubjectKeys,
    cost: Option<u64>,
    plan: Option<Plan>,
    plan_value: Option<Plan>,
    wait: Duration,
    /// How many calls of the path may wait; `None`: as many as requests of a layer.
    max_waiting: Option<usize>,
}

/// A [`Call`] has no such callback.
///
/// ```
/// use tidegate::Limits;
/// use tidegate::layer::{Call, Unset};
///
/// let call: Call<Unset, Unset> = Limits::new([]).call("export");
/// # let _ = call;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Unset;

/// A [`Call`] has this callback.
///
/// ```
/// use tidegate::Limits;
/// use tidegate::layer::{Call, Unset, With};
///
/// let call: Call<With<_>, Unset> = Limits::new([]).call("export").degrade(async |_| 7);
/// # let _ = call;
/// ```
pub struct With<F>(F);

impl Call {
    /// About everybody's count.
    pub(crate) fn new(gate: Option<Arc<Gate>>) -> Self {
        let settings = CallSettings {
            gate,
            keys: SubjectKeys::from(Key::default()),
            cost: None,
            plan: None,
            plan_value: None,
            wait: Duration::ZERO,
            max_waiting: None,
        };
        let (degrade, on_error) = (Unset, Unset);
        Self {
            settings,
            degrade,
            on_error,
        }
    }

    /// Says whose count the call is about: a key, or under a [joint](Rule::joint) rule the
    /// [keys](SubjectKeys) of its subjects. Default: that of all calls of the path together.
    pub fn key(mut self, key: impl Into<SubjectKeys>) -> Self {
        self.settings.keys = key.into();
        self
    }

    /// Decides by the quotas of this [plan](Rule::with_plan) of the rule. One that the rule does
    /// not have counts as none. Default: none, the rule's own quotas.
    pub fn plan(mut self, name: &str) -> Self {
        self.settings.plan = Some(Plan::new(name));
        self
    }

    /// Decides by this [plan](Plan::of), which comes before one that has a [name](Self::plan). One
    /// that does not fit the rule counts as none. Default: none.
    pub fn plan_value(mut self, plan: impl Into<Option<Plan>>) -> Self {
        self.settings.plan_value = plan.into();
        self
    }

    /// Asks for so many units; [0 as well](Take::with_cost). Default: the rule's cost, which is 1 by default.
    pub fn cost(mut self, units: u64) -> Self {
        self.settings.cost = Some(units);
        self
    }

    /// How long it may wait where it is denied, as a request behind a layer that
    /// [waits](crate::RateLimitLayer::wait). Of all calls of the path 1,024 may wait at the same
    /// time, and of one key a quarter of these. Default: it does not wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rule = Rule::new("export", [Quota::per_minute(60)])?.with_max_concurrent(1)?;
    /// let limits = Limits::new([rule]);
    /// let admitted = limits.check("export", "alice").wait(Duration::from_secs(2)).await?;
    /// # drop(admitted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self, up_to: Duration) -> Self {
        self.settings.wait = up_to;
        self
    }

    /// At most `max` calls of the path wait at the same time, and a quarter of these for one key.
    pub(crate) fn max_waiting(mut self, max: usize) -> Self {
        self.settings.max_waiting = Some(max);
        self
    }

    /// Returns what this callback returns where the call is denied: the function does not run then.
    /// A callback has the same type as the function. Default: the denial is returned.
    ///
    /// The [head](Denied::head) of the denied request is an empty one. A panic in a callback of a
    /// call is a panic of the call.
    pub fn degrade<T, F: AsyncFnOnce(Denied) -> T>(self, callback: F) -> Call<With<F>> {
        Call {
            settings: self.settings,
            degrade: With(callback),
            on_error: self.on_error,
        }
    }
}

impl<D> Call<D> {
    /// Returns what the callbacks of this chain return where there is no decision, by the type of
    /// the error. A chain also answers an error that the function itself returns, under
    /// [`try_run`](Call::try_run). What none of its callbacks answers is returned.
    ///
    /// ```
    /// use std::io;
    /// use tidegate::{ErrorCallbackChain, Failed, Limits, Quota, Recovery, Rule, StoreError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // Made once.
    /// let errors = ErrorCallbackChain::<io::Result<u32>>::default()
    ///     .on::<StoreError>(async |_: Failed| Recovery::Proceed)
    ///     .on::<io::Error>(async |_: Failed| Recovery::Respond(Ok(0)));
    ///
    /// let limits = Limits::new([Rule::new("export", [Quota::per_minute(60)])?]);
    /// let call = limits.call("export").key("alice").on_error_chain(&errors);
    /// let rows = call.try_run(async || Err(io::ErrorKind::BrokenPipe.into())).await?;
    /// assert_eq!(rows, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_error_chain<T>(
        self,
        chain: &ErrorCallbackChain<T>,
    ) -> Call<D, &ErrorCallbackChain<T>> {
        Call {
            settings: self.settings,
            degrade: self.degrade,
            on_error: chain,
        }
    }
}

impl<D> Call<With<D>> {
    /// Returns what this callback returns where there is no decision: the store failed, or the
    /// [key](SubjectKeys) of a subject is missing. It is not called for an error of the function,
    /// which is the result. Default: the failure is returned.
    ///
    /// It stands behind [`degrade`](Call::degrade): with both there is an answer to everything.
    pub fn on_error<T, F: AsyncFnOnce(Failed) -> T>(self, callback: F) -> Call<With<D>, With<F>> {
        Call {
            settings: self.settings,
            degrade: self.degrade,
            on_error: With(callback),
        }
    }
}

impl<D> Call<D> {
    /// Runs the function, unless it is denied or there is no decision.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the function did not run, and no callback answered.
    pub async fn run<T>(self, function: impl AsyncFnOnce() -> T) -> Result<T, Refused>
    where
        D: OnDenied<T>,
    {
        Ok(self.limit(function, |_| false).await?.0)
    }

    /// Runs a function that may fail. Under a rule with `refund-on = ["error"]` an `Err`
    /// gives back what the call was charged.
    ///
    /// # Errors
    ///
    /// [`CallError`] if the function did not run and no callback answered, or with its own error.
    pub async fn try_run<V, E>(
        self,
        function: impl AsyncFnOnce() -> Result<V, E>,
    ) -> Result<V, CallError<E>>
    where
        D: OnDenied<Result<V, E>>,
    {
        let (returned, _) = self.limit(function, Result::is_err).await?;
        returned.map_err(CallError::Inner)
    }
}

impl<D, T: Send + 'static> Call<D, &ErrorCallbackChain<T>> {
    /// Runs the function, unless it is denied or there is no decision.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the function did not run, and no callback answered.
    pub async fn run(self, function: impl AsyncFnOnce() -> T) -> Result<T, Refused>
    where
        D: OnDenied<T>,
    {
        Ok(self.limit(function, |_| false).await?.0)
    }
}

impl<D, V, E> Call<D, &ErrorCallbackChain<Result<V, E>>>
where
    V: Send + 'static,
    E: Send + Sync + 'static,
{
    /// Runs a function that may fail. Under a rule with `refund-on = ["error"]` an `Err` of
    /// the function gives back what the call was charged.
    ///
    /// # Errors
    ///
    /// [`CallError`] if the function did not run, or with its own error, and no callback answered.
    ///
    /// # Panics
    ///
    /// If a callback keeps a clone of the [`Failed`] with an error that it does not answer.
    pub async fn try_run(
        self,
        function: impl AsyncFnOnce() -> Result<V, E>,
    ) -> Result<V, CallError<E>>
    where
        D: OnDenied<Result<V, E>>,
    {
        let chain = self.on_error;
        let returned = match self.limit(function, Result::is_err).await? {
            (Err(error), Some(rule)) => {
                let answered = recover_own(chain, rule, no_head(), error).await;
                answered.unwrap_or_else(Err)
            }
            (returned, _) => returned,
        };
        returned.map_err(CallError::Inner)
    }
}

impl<D, E> Call<With<D>, With<E>> {
    /// Runs the function, or the callback that answers in its place.
    pub async fn run<T>(self, function: impl AsyncFnOnce() -> T) -> T
    where
        D: AsyncFnOnce(Denied) -> T,
        E: AsyncFnOnce(Failed) -> T,
    {
        self.answer(function, |_| false).await
    }

    /// Runs a function that may fail. Under a rule with `refund-on = ["error"]` an `Err` of
    /// the function gives back what the call was charged.
    ///
    /// # Errors
    ///
    /// That of the function, or of the callback that answered in its place.
    pub async fn try_run<V, Er>(
        self,
        function: impl AsyncFnOnce() -> Result<V, Er>,
    ) -> Result<V, Er>
    where
        D: AsyncFnOnce(Denied) -> Result<V, Er>,
        E: AsyncFnOnce(Failed) -> Result<V, Er>,
    {
        self.answer(function, Result::is_err).await
    }

    async fn answer<T>(self, function: impl AsyncFnOnce() -> T, has_failed: fn(&T) -> bool) -> T
    where
        D: AsyncFnOnce(Denied) -> T,
        E: AsyncFnOnce(Failed) -> T,
    {
        let (rule, refusal) = match self.settings.decided().await {
            None => return run_admitted(None, function, has_failed).await,
            Some((_, Outcome::Failed(rule, cause))) => (rule, Refusal::Failed(cause)),
            Some((gate, outcome)) => {
                let rule = Arc::clone(outcome.rule());
                match gate.admission(outcome) {
                    Ok(admission) => return run_admitted(admission, function, has_failed).await,
                    Err(refusal) => (rule, refusal),
                }
            }
        };
        match refusal {
            Refusal::Denied(take, decision) => {
                (self.degrade.0)(Denied::new(take, decision, no_head())).await
            }
            Refusal::Failed(cause) => (self.on_error.0)(Failed::new(rule, no_head(), cause)).await,
        }
    }
}

impl<D, E> Call<D, E> {
    /// Runs the function if it may run. Otherwise it says what a callback has answered, or who has
    /// refused it. With the rule that has limited the function, if it ran.
    async fn limit<T>(
        self,
        function: impl AsyncFnOnce() -> T,
        has_failed: fn(&T) -> bool,
    ) -> Result<(T, Option<Arc<Rule>>), Refused>
    where
        D: OnDenied<T>,
        E: Recover<T>,
    {
        let Some((gate, outcome)) = self.settings.decided().await else {
            return Ok((run_admitted(None, function, has_failed).await, None));
        };
        let outcome = match self.on_error.recover(outcome).await {
            Ok(outcome) => outcome,
            Err(answer) => return Ok((answer, None)),
        };
        match admission(gate, outcome) {
            Ok(admission) => {
                let limited_by = admission.as_ref().map(|it| Arc::clone(&it.rule));
                let returned = run_admitted(admission, function, has_failed).await;
                Ok((returned, limited_by))
            }
            Err(refused) => Ok((self.degrade.answer(refused).await?, None)),
        }
    }
}

impl CallSettings {
    /// Asks the gate. Returns it with the outcome, which is not counted yet; `None` where nothing
    /// limits the call.
    async fn decided(mut self) -> Option<(Arc<Gate>, Outcome)> {
        let mut gate = self.gate.take()?;
        // A call that does not wait needs its keys once.
        let keys = match self.wait.is_zero() {
            true => std::mem::replace(&mut self.keys, Key::default().into()),
            false => {
                gate = Arc::new(gate.waiting_up_to(self.wait, self.max_waiting));
                self.keys.clone()
            }
        };
        let rule = gate.rule_or_count()?;
        gate.inspect(&rule, None);
        let outcome = match self.take(&gate, rule, keys) {
            Ok(take) => {
                let anew = |rule| self.take(&gate, rule, self.keys.clone());
                let outcome = gate.decide(take, None).outcome(&gate, anew).await;
                outcome.unwrap_or_else(|outcome| *outcome)
            }
            Err(outcome) => *outcome,
        };
        Some((gate, outcome))
    }

    /// Makes the take of this call under this rule. An error is what becomes of the call without a
    /// question.
    fn take(&self, gate: &Gate, rule: Arc<Rule>, keys: SubjectKeys) -> Result<Take, Box<Outcome>> {
        let cost = self.cost.unwrap_or(rule.cost());
        let rule = gate.under(rule, self.plan_value.as_ref().or(self.plan.as_ref()));
        let is_everyone = |subject: &Subject| gate.options.extractor_of(&rule, subject).is_none();
        match keys.take_of_all(Arc::clone(&rule), is_everyone) {
            Ok(take) => Ok(take.with_cost(cost)),
            // Whatever fails, a shadow rule lets it pass.
            Err(_) if rule.is_shadow() => Err(Outcome::Pass(rule, None, Permits::default()).into()),
            Err(message) => {
                let error = KeyError::server(message);
                gate.count_missing_key(&rule, &error);
                Err(Outcome::Failed(rule, Cause::Key(error)).into())
            }
        }
    }

    async fn checked(self) -> Result<Admitted, Refused> {
        let Some((gate, outcome)) = self.decided().await else {
            return Ok(Admitted::default());
        };
        let admission = admission(gate, outcome)?;
        Ok(admission.map(Admitted::of).unwrap_or_default())
    }
}

/// Counts the outcome, and says whether the call goes on. One that nothing limits has no admission.
fn admission(gate: Arc<Gate>, outcome: Outcome) -> Result<Option<Admission>, Refused> {
    let rule = Arc::clone(outcome.rule());
    let admission = gate.admission(outcome);
    admission.map_err(|refusal| Refused::new(rule, refusal, gate))
}

/// Runs the function, which holds its permits as long, and finds its charge. What it was charged is
/// given back if it has failed and its rule says so.
async fn run_admitted<T>(
    admission: Option<Admission>,
    function: impl AsyncFnOnce() -> T,
    has_failed: fn(&T) -> bool,
) -> T {
    let charge = admission.as_ref().and_then(|it| it.answer.clone());
    let returned = in_call(charge, async { function().await }).await;
    if let Some(admission) = admission
        && has_failed(&returned)
    {
        admission.refund_error();
    }
    returned
}

/// Callbacks that are asked first where there is no decision.
trait Recover<T> {
    /// What goes on, or the answer of a callback.
    async fn recover(self, outcome: Outcome) -> Result<Outcome, T>;
}

impl<T> Recover<T> for Unset {
    async fn recover(self, outcome: Outcome) -> Result<Outcome, T> {
        Ok(outcome)
    }
}

impl<T: Send + 'static> Recover<T> for &ErrorCallbackChain<T> {
    /// A panic of a callback is logged, and no answer.
    async fn recover(self, outcome: Outcome) -> Result<Outcome, T> {
        let Some(cause) = outcome.cause().filter(|_| outcome.is_for(self)) else {
            return Ok(outcome);
        };
        let failed = Failed::new(Arc::clone(outcome.rule()), no_head(), cause.clone());
        let recovery = recover(self, failed).await;
        outcome.recovered(cause, recovery.unwrap_or(Recovery::Propagate))
    }
}

/// The head of the request that a call does not have.
fn no_head() -> Parts {
    Request::new(()).into_parts().0
}

/// What answers a [`Call`] that was denied: an asynchronous function of [`Denied`], or nothing.
pub trait OnDenied<T>: Sized {
    /// What it answers. A failure is returned.
    #[doc(hidden)]
    fn answer(self, refused: Refused) -> impl Future<Output = Result<T, Refused>>;
}

impl<T> OnDenied<T> for Unset {
    async fn answer(self, refused: Refused) -> Result<T, Refused> {
        Err(refused)
    }
}

impl<T, F: AsyncFnOnce(Denied) -> T> OnDenied<T> for With<F> {
    async fn answer(self, refused: Refused) -> Result<T, Refused> {
        Ok(self.0(refused.into_denied(no_head())?).await)
    }
}

impl<F> fmt::Debug for With<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("With")
    }
}

impl IntoFuture for Call {
    type Output = Result<Admitted, Refused>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.settings.checked())
    }
}
