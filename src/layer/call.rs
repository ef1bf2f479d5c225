//! Decisions for code that has no HTTP request, and functions that run behind one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::action::Admission;
use super::admitted::Admitted;
use super::decisions::Decided;
use super::gate::Gate;
use super::refused::{CallError, Refused, no_head};
use super::subject_keys::SubjectKeys;
use crate::callback::{Cause, ErrorCallbackChain, Failed, Recovery, recover, recover_own};
use crate::charge::in_call;
use crate::error::KeyError;
use crate::key::Key;
use crate::rule::{Plan, Rule, Subject};
use crate::take::Take;

/// A function that a rule limits: see [`Limits::call`](crate::Limits::call). Without a function it
/// is a question: see [`Limits::check`](crate::Limits::check).
///
/// Dropping a future of it before it is done may or may not charge it, as with a request.
///
/// | | the function returns | the call returns |
/// |---|---|---|
/// | [`run`](Self::run) | `T` | `Result<T, Refused>` |
/// | [`try_run`](Self::try_run) | `Result<V, E>` | `Result<V, CallError<E>>` |
/// | [`run_with`](Self::run_with) a chain | `T` | `Result<T, Refused>` |
/// | [`try_run_with`](Self::try_run_with) a chain | `Result<V, E>` | `Result<V, CallError<E>>` |
///
/// The caller says what answers in place of a function that was refused: it matches on the result.
/// The function is not boxed, so the future is `Send` where it is. It finds its charge in
/// [`Charges::current`](crate::store::Charges::current).
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
pub struct Call {
    /// Missing for a path without a rule that is not remembered.
    gate: Option<Arc<Gate>>,
    keys: SubjectKeys,
    cost: Option<u64>,
    plan: Option<Plan>,
    plan_value: Option<Plan>,
    says_plan: bool,
    wait: Duration,
    fair_by: Option<Key>,
    /// How many calls of the path may wait; `None`: as many as requests of a layer.
    max_waiting: Option<usize>,
    refuses_on_error: bool,
}

impl Call {
    /// About everybody's count.
    pub(crate) fn new(gate: Option<Arc<Gate>>) -> Self {
        Self {
            gate,
            keys: SubjectKeys::from(Key::default()),
            cost: None,
            plan: None,
            plan_value: None,
            says_plan: false,
            wait: Duration::ZERO,
            fair_by: None,
            max_waiting: None,
            refuses_on_error: false,
        }
    }

    /// Says whose count the call is about: a key, or under a [joint](Rule::joint) rule the
    /// [keys](SubjectKeys) of its subjects. Default: that of all calls of the path together.
    pub fn key(mut self, key: impl Into<SubjectKeys>) -> Self {
        self.keys = key.into();
        self
    }

    /// Decides by the quotas of this [plan](Rule::with_plan) of the rule. One that the rule does
    /// not have counts as none. Default: none, the rule's own quotas: what
    /// [`Limits::plan`](crate::Limits::plan) finds in a request does not reach a call.
    pub fn plan(mut self, name: &str) -> Self {
        self.plan = Some(Plan::new(name));
        self.says_plan = true;
        self
    }

    /// Decides by this [plan](Plan::of), which comes before one that has a [name](Self::plan). One
    /// that does not fit the rule counts as none. Default: none; the closure of
    /// [`Limits::plan_value`](crate::Limits::plan_value) does not reach a call.
    pub fn plan_value(mut self, plan: impl Into<Option<Plan>>) -> Self {
        self.plan_value = plan.into();
        self.says_plan = true;
        self
    }

    /// Asks for so many units; [0 as well](crate::Take::with_cost). Default: the rule's cost, which
    /// is 1 by default.
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = Some(units);
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
        self.wait = up_to;
        self
    }

    /// In whose turn it waits, such as a tenant's: see [`Rule::with_fair_by`]. Default: under such a
    /// rule all calls without a value share a lane.
    pub fn fair_by(mut self, value: impl Into<Key>) -> Self {
        self.fair_by = Some(value.into());
        self
    }

    /// At most `max` calls of the path wait at the same time, and a quarter of these for one key.
    pub(crate) fn max_waiting(mut self, max: usize) -> Self {
        self.max_waiting = Some(max);
        self
    }

    /// Refuses where there is no decision, also under a rule with `on-error = "proceed"`: what
    /// becomes of it then is the caller's choice. Default: what the [rule](Rule::with_on_error)
    /// says.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("export", [Quota::per_minute(60)])?]);
    /// let rows = limits.call("export").key("alice").refuse_on_error().run(async || 7).await;
    /// assert_eq!(rows.unwrap_or(0), 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse_on_error(mut self) -> Self {
        self.refuses_on_error = true;
        self
    }

    /// Runs the function, unless it is denied or there is no decision.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the function did not run.
    pub async fn run<T>(self, function: impl AsyncFnOnce() -> T) -> Result<T, Refused> {
        let admission = self.admission().await?;
        Ok(run_admitted(admission, function, |_| false).await)
    }

    /// Runs a function that may fail. Under a rule with `refund-on = ["error"]` an `Err`
    /// gives back what the call was charged.
    ///
    /// # Errors
    ///
    /// [`CallError`] if the function did not run, or with its own error.
    pub async fn try_run<V, E>(
        self,
        function: impl AsyncFnOnce() -> Result<V, E>,
    ) -> Result<V, CallError<E>> {
        let admission = self.admission().await?;
        let returned = run_admitted(admission, function, Result::is_err).await;
        returned.map_err(CallError::Inner)
    }

    /// Runs the function, unless it is denied. Where there is no decision, the callbacks of this
    /// chain are asked, by the type of the error.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the function did not run, and no callback answered.
    pub async fn run_with<T: Send + 'static>(
        self,
        chain: &ErrorCallbackChain<T>,
        function: impl AsyncFnOnce() -> T,
    ) -> Result<T, Refused> {
        match self.recovered(chain).await? {
            Ok(admission) => Ok(run_admitted(admission, function, |_| false).await),
            Err(answer) => Ok(answer),
        }
    }

    /// Runs a function that may fail, as [`try_run`](Self::try_run) does. The callbacks of this
    /// chain are asked where there is no decision, and where the function itself fails.
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
    /// let call = limits.call("export").key("alice");
    /// let rows = call.try_run_with(&errors, async || Err(io::ErrorKind::BrokenPipe.into()));
    /// assert_eq!(rows.await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError`] if the function did not run, or with its own error, and no callback answered.
    ///
    /// # Panics
    ///
    /// If a callback keeps a clone of the [`Failed`] with an error that it does not answer.
    pub async fn try_run_with<V: Send + 'static, E: Send + Sync + 'static>(
        self,
        chain: &ErrorCallbackChain<Result<V, E>>,
        function: impl AsyncFnOnce() -> Result<V, E>,
    ) -> Result<V, CallError<E>> {
        let admission = match self.recovered(chain).await? {
            Ok(admission) => admission,
            Err(answer) => return answer.map_err(CallError::Inner),
        };
        let limited_by = admission.as_ref().map(|it| Arc::clone(&it.rule));
        let returned = run_admitted(admission, function, Result::is_err).await;
        let answered = match (returned, limited_by) {
            (Err(error), Some(rule)) => recover_own(chain, rule, no_head(), error).await,
            (returned, _) => Ok(returned),
        };
        answered.unwrap_or_else(Err).map_err(CallError::Inner)
    }

    /// Asks the gate, and counts what comes of it. A call that nothing limits has no admission.
    async fn admission(mut self) -> Result<Option<Admission>, Refused> {
        match self.decided().await {
            None => Ok(None),
            Some((gate, decided)) => Self::admit(gate, decided),
        }
    }

    /// The same, where this chain is asked first if there is no decision. An inner error is the
    /// answer of the chain. A panic of a callback is logged, and no answer.
    async fn recovered<T: Send + 'static>(
        mut self,
        chain: &ErrorCallbackChain<T>,
    ) -> Result<Result<Option<Admission>, T>, Refused> {
        let Some((gate, mut decided)) = self.decided().await else {
            return Ok(Ok(None));
        };
        if let Some(cause) = decided.cause().filter(|_| decided.is_for(chain)) {
            let failed = Failed::new(Arc::clone(decided.rule()), no_head(), cause.clone());
            let recovery = recover(chain, failed).await;
            match decided.recovered(cause, recovery.unwrap_or(Recovery::Propagate)) {
                Ok(goes_on) => decided = goes_on,
                Err(answer) => return Ok(Err(answer)),
            }
        }
        Self::admit(gate, decided).map(Ok)
    }

    /// Asks the gate. Returns it with what was decided, which is not counted yet; `None` where nothing
    /// limits the call.
    async fn decided(&mut self) -> Option<(Arc<Gate>, Decided)> {
        let mut gate = self.gate.take()?;
        let keys = if self.wait.is_zero() {
            // A call that does not wait needs its keys once.
            std::mem::replace(&mut self.keys, Key::default().into())
        } else {
            let turns = &gate.decider.path.turns;
            turns.may_wait.store(true, Ordering::Relaxed);
            gate = Arc::new(gate.waiting_up_to(self.wait, self.max_waiting));
            self.keys.clone()
        };
        let rule = gate.rule_or_count()?;
        if !self.says_plan {
            gate.inspect_plan(&rule);
        }
        let take = self.take(&gate, rule, keys);
        gate.inspect(None, take.as_ref().ok());
        let decided = match take {
            Ok(take) => {
                let anew = |rule| self.take(&gate, rule, self.keys.clone());
                let deciding = gate.decide(take, None);
                let decided = deciding.decided(&gate.decider, anew).await;
                decided.unwrap_or_else(|decided| *decided)
            }
            Err(decided) => *decided,
        };
        let decided = match self.refuses_on_error {
            true => decided.refused_on_error(),
            false => decided,
        };
        Some((gate, decided))
    }

    /// Counts what was decided, and says whether the call goes on.
    fn admit(gate: Arc<Gate>, decided: Decided) -> Result<Option<Admission>, Refused> {
        let rule = Arc::clone(decided.rule());
        let admission = gate.admission(decided);
        admission.map_err(|refusal| Refused::new(rule, refusal, gate))
    }

    /// Makes the take of this call under this rule. An error is what becomes of the call without a
    /// question.
    fn take(&self, gate: &Gate, rule: Arc<Rule>, keys: SubjectKeys) -> Result<Take, Box<Decided>> {
        let cost = self.cost.unwrap_or(rule.cost());
        let rule = gate.under(rule, self.plan_value.as_ref().or(self.plan.as_ref()));
        let is_everyone = |subject: &Subject| gate.options.extractor_of(&rule, subject).is_none();
        match keys.take_of_all(Arc::clone(&rule), is_everyone) {
            Ok(take) => {
                let mut take = take.with_cost(cost);
                if self.fair_by.is_some() || rule.fair_by().is_some() {
                    gate.set_lane(&mut take, self.fair_by.as_ref());
                }
                Ok(take)
            }
            // Whatever fails, a shadow rule lets it pass.
            Err(_) if rule.is_shadow() => Err(Decided::unlimited(rule).into()),
            Err(message) => {
                let error = KeyError::server(message);
                gate.count_missing_key(&rule, "check", &error);
                Err(Decided::Failed(rule, Cause::Key(error)).into())
            }
        }
    }
}

/// Runs the function, which has its permits as long, and finds its charge. What it was charged is
/// given back if it has failed and its rule says so.
async fn run_admitted<T>(
    admission: Option<Admission>,
    function: impl AsyncFnOnce() -> T,
    has_failed: fn(&T) -> bool,
) -> T {
    let charge = admission.as_ref().and_then(|it| it.answer.clone());
    let returned = in_call(charge, async { function().await }).await;
    if let Some(mut admission) = admission {
        admission.is_answered = true;
        if has_failed(&returned) {
            admission.service_failed();
        }
    }
    returned
}

impl IntoFuture for Call {
    type Output = Result<Admitted, Refused>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async {
            let admission = self.admission().await?;
            Ok(admission.map(Admitted::new).unwrap_or_default())
        })
    }
}
