//! Decisions for code that has no HTTP request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum_core::response::{IntoResponse, Response};
use http::request::Parts;

use super::action::{Refusal, marked};
use super::decide::Outcome;
use super::gate::Gate;
use super::subject_keys::SubjectKeys;
use crate::callback::{Cause, Failed, Recovery, grpc, recover};
use crate::decision::Decision;
use crate::error::{KeyError, StoreError};
use crate::rule::{Quotas, Rule, Subject};
use crate::store::{Charge, LatePermit, Permit, Store};

/// A question to [`Limits::check`](crate::Limits::check): await it.
///
/// Dropping its future before it is done may or may not charge the question, as with a request.
///
/// Under a rule that says how many may run [at a time](Rule::with_max_concurrent), keep the answer
/// as long as the work takes: `let admitted = limits.check(..).await?;`. See [`Admitted`].
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
#[must_use = "nothing is asked until it is awaited"]
pub struct Check {
    /// Missing for a path without a rule that is not remembered.
    gate: Option<Arc<Gate>>,
    keys: SubjectKeys,
    cost: Option<u64>,
    plan: Option<Box<str>>,
    quotas: Option<Arc<Quotas>>,
    wait: Duration,
}

impl Check {
    pub(crate) fn new(gate: Option<Arc<Gate>>, keys: SubjectKeys) -> Self {
        Self {
            gate,
            keys,
            cost: None,
            plan: None,
            quotas: None,
            wait: Duration::ZERO,
        }
    }

    /// Decides by the quotas of this [plan](Rule::with_plan) of the rule. One that the rule does
    /// not have counts as none. Default: none, the rule's own quotas.
    pub fn plan(mut self, name: &str) -> Self {
        self.plan = Some(name.into());
        self
    }

    /// Decides by these quotas in place of the rule's and its plans', as a layer with
    /// [`quotas`](crate::RateLimitLayer::quotas) does. Default: none.
    pub fn quotas(mut self, quotas: impl Into<Option<Arc<Quotas>>>) -> Self {
        self.quotas = quotas.into();
        self
    }

    /// Asks for so many units. 0 only looks. Default: the rule's cost, which is 1 by default.
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = Some(units);
        self
    }

    /// How long it may wait where it is denied, as a request behind a layer that
    /// [waits](crate::RateLimitLayer::wait). Of all checks of the path 1,024 may wait at the same
    /// time. Default: it does not wait.
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

    async fn decide(self) -> Result<Admitted, Refused> {
        let Some(mut gate) = self.gate else {
            return Ok(Admitted::default());
        };
        if !self.wait.is_zero() {
            gate = Arc::new(gate.waiting_up_to(self.wait));
        }
        let Some(rule) = gate.rule_or_count() else {
            return Ok(Admitted::default());
        };
        gate.inspect(&rule, None);
        let cost = self.cost.unwrap_or(rule.cost());
        let rule = match self.quotas {
            Some(quotas) => gate.with_quotas(&rule, quotas),
            None => gate.with_plan(rule, self.plan.as_deref()),
        };
        let is_everyone = |subject: &Subject| gate.options.extractor_of(&rule, subject).is_none();
        let mut outcome = match self.keys.take_of_all(Arc::clone(&rule), is_everyone) {
            Ok(take) => {
                let deciding = gate.decide(take.with_cost(cost), None);
                deciding.outcome(&gate).await
            }
            // Whatever fails, a shadow rule lets it pass.
            Err(_) if rule.is_shadow() => return Ok(Admitted::default()),
            Err(message) => {
                let error = KeyError::server(message);
                gate.count_missing_key(&rule, &error);
                Outcome::Failed(rule, Cause::Key(error))
            }
        };
        gate.count(&mut outcome);
        let rule = Arc::clone(outcome.rule());
        let refusal = match outcome {
            Outcome::Pass(_, _, permits) => {
                return Ok(Admitted {
                    in_shadow: permits.in_shadow,
                    ..Admitted::default()
                });
            }
            Outcome::Proceed(..) => return Ok(Admitted::default()),
            Outcome::Allowed(charge, _, permits) => {
                return Ok(Admitted {
                    decision: Some(charge.decision().clone()),
                    charge: charge.hand_out(),
                    permit: permits.own.map(|permit| gate.hand_out(permit, &rule)),
                    in_shadow: permits.in_shadow,
                });
            }
            Outcome::Denied(take, decision) => Refusal::Denied(take, decision),
            Outcome::Failed(_, cause) => Refusal::Failed(cause),
        };
        Err(Refused(Box::new(Refusing {
            rule,
            refusal,
            gate,
        })))
    }
}

impl IntoFuture for Check {
    type Output = Result<Admitted, Refused>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.decide())
    }
}

/// A question to [`Limits::peek`](crate::Limits::peek): await it.
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
/// let left = limits.peek("chat", "alice").await?.expect("there is a rule");
/// assert_eq!(left.remaining(), 10);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct Peek {
    store: Arc<dyn Store>,
    /// Missing without a rule.
    rule: Option<Arc<Rule>>,
    keys: SubjectKeys,
    plan: Option<Box<str>>,
    quotas: Option<Arc<Quotas>>,
}

impl Peek {
    pub(crate) const fn new(
        store: Arc<dyn Store>,
        rule: Option<Arc<Rule>>,
        keys: SubjectKeys,
    ) -> Self {
        Self {
            store,
            rule,
            keys,
            plan: None,
            quotas: None,
        }
    }

    /// What is left of the quotas of this [plan](Rule::with_plan) of the rule. One that the rule
    /// does not have counts as none. Default: none, the rule's own quotas.
    pub fn plan(mut self, name: &str) -> Self {
        self.plan = Some(name.into());
        self
    }

    /// What is left of these quotas, in place of the rule's and its plans'. Default: none.
    pub fn quotas(mut self, quotas: impl Into<Option<Arc<Quotas>>>) -> Self {
        self.quotas = quotas.into();
        self
    }
}

impl IntoFuture for Peek {
    type Output = Result<Option<Decision>, StoreError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Some(rule) = self.rule else {
                return Ok(None);
            };
            let chosen = match self.quotas {
                Some(quotas) => Some(rule.of_quotas(quotas)),
                None => self.plan.and_then(|name| rule.of_plan(&name)),
            };
            let rule = chosen.unwrap_or_else(|| rule.for_no_plan());
            let take = self.keys.take_asked(rule, &self.store)?;
            self.store.peek(&take).await.map(Some)
        })
    }
}

/// The answer to a [`Check`] that may go on.
///
/// Under a rule that says how many may run [at a time](Rule::with_max_concurrent) it holds the
/// permit, so it has to have a name that lives as long as the work takes:
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # async fn export() {}
/// let rule = Rule::new("export", [Quota::per_minute(60)])?.with_max_concurrent(1)?;
/// let limits = Limits::new([rule]);
/// // Neither `limits.check("export", "alice").await?;` nor `let _ = ..` would keep it.
/// let admitted = limits.check("export", "alice").await?;
/// export().await;
/// assert!(limits.check("export", "alice").await.is_err(), "it still runs");
/// drop(admitted); // The next one may run.
/// # Ok(())
/// # }
/// ```
///
/// Its charge can be given back:
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("mail", [Quota::per_minute(10)])?]);
/// let admitted = limits.check("mail", "alice").await?;
/// // The mail could not be sent: alice does not pay for it.
/// if let Some(charge) = admitted.charge {
///     assert_eq!(charge.refund().await?, 1);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Admitted {
    /// The store's decision. `None` if nobody decided: there is no rule for the path, it is
    /// switched off or a shadow rule, an operator lets the key through, or the store failed and the
    /// rule says `on-error = "proceed"`.
    pub decision: Option<Decision>,
    /// The charge, which can be given back. `None` if nothing was charged, as at a cost of 0.
    pub charge: Option<Charge>,
    /// The right to run, under a rule that says how many may [at a
    /// time](Rule::with_max_concurrent): keep it, or this answer, as long as the work takes. It
    /// goes back when it is dropped, and what is dropped [at
    /// once](crate::warning::WarningKind::PermitNotKept) limits nothing. `None` under other rules.
    pub permit: Option<Permit>,
    /// That of the rule's candidate.
    #[allow(dead_code, reason = "it goes back with the answer")]
    in_shadow: Option<LatePermit>,
}

/// The answer to a [`Check`] that may not go on: it was denied, or the store gave no decision, or
/// the check lacks the [key](SubjectKeys) of a subject.
///
/// It is an axum response: the problem document and the fields that a layer without callbacks
/// answers with; [`answer`](Self::answer) asks the application's callbacks. Its text
/// tells a client no more than these; [`error`](Refused::error) is for the log.
///
/// ```
/// use tidegate::layer::Refused;
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(0)])?]);
/// let refused: Refused = limits.check("chat", "alice").await.unwrap_err();
/// assert!(refused.decision().is_some(), "it was denied");
/// assert!(refused.retry_after().is_none(), "no wait helps");
/// assert_eq!(refused.to_string(), "the limit of chat is used up");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Refused(Box<Refusing>);

#[derive(Clone)]
struct Refusing {
    rule: Arc<Rule>,
    refusal: Refusal,
    gate: Arc<Gate>,
}

impl Refused {
    /// The rule that was asked about.
    #[must_use]
    pub fn rule(&self) -> &Arc<Rule> {
        &self.0.rule
    }

    /// The decision that denied it; `None` if the store gave none.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        match &self.0.refusal {
            Refusal::Denied(_, decision) => Some(decision),
            Refusal::Failed(_) | Refusal::Panicked(_) => None,
        }
    }

    /// Why the store gave no decision; `None` if it was denied.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        match &self.0.refusal {
            Refusal::Failed(Cause::Store(error, _)) => Some(error),
            _ => None,
        }
    }

    /// What is wrong with the [keys](SubjectKeys) that the check was given: those of a
    /// [joint](Rule::joint) rule's subjects. `None` if it was denied, or the store failed.
    #[must_use]
    pub fn key_error(&self) -> Option<&KeyError> {
        match &self.0.refusal {
            Refusal::Failed(Cause::Key(error)) => Some(error),
            _ => None,
        }
    }

    /// When the same question would be allowed; `None` where no wait helps, or nobody knows. Where
    /// [as many run as may](Decision::is_busy) it is a hint.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }

    /// The answer that a layer of the path would give to a request with this head: that of the
    /// [degrade callback](crate::Limits::degrade) or of the
    /// [error callback](crate::Limits::on_error) of the [`Limits`](crate::Limits). Without one it
    /// is the crate's own, in the form that the request expects: a problem document, or a gRPC
    /// status. So the handshake of a WebSocket and a handler behind a layer answer alike.
    ///
    /// An error callback cannot admit what was refused already: where it
    /// [proceeds](crate::callback::Recovery::Proceed), the answer is the crate's own, too.
    ///
    /// ```
    /// use axum::extract::{Request, State};
    /// use axum::response::Response;
    /// use tidegate::Limits;
    ///
    /// async fn handshake(State(limits): State<Limits>, request: Request) -> Response {
    ///     let (head, _) = request.into_parts();
    ///     match limits.check("chat", "alice").await {
    ///         Ok(_) => Response::default(),
    ///         Err(refused) => refused.answer(head).await,
    ///     }
    /// }
    /// # let _ = handshake;
    /// ```
    pub async fn answer(self, head: Parts) -> Response {
        let Refusing {
            rule,
            refusal,
            gate,
        } = *self.0;
        let grpc = grpc::content_type(&head.method, &head.headers).cloned();
        let options = &gate.options;
        let refusal = match (refusal, options.degrade.clone(), &options.on_error) {
            (Refusal::Denied(take, decision), Some(callback), _) => {
                return gate.degrade(callback, take, decision, head).await;
            }
            (Refusal::Failed(cause), _, Some(callback)) => {
                match recover(&**callback, Failed::new(rule, head, cause.clone())).await {
                    Ok(Recovery::Respond(response)) => return marked(response),
                    Ok(Recovery::Proceed | Recovery::Propagate) => Refusal::Failed(cause),
                    Err(panicked) => Refusal::Panicked(panicked),
                }
            }
            (refusal, ..) => refusal,
        };
        gate.answer(refusal, grpc.as_ref())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refusing { refusal, gate, .. } = *self.0;
        gate.answer(refusal, None)
    }
}

/// Its text, and the error of the store or of the keys.
impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.error(), self.key_error()) {
            (Some(error), _) => write!(f, "{self}: {error:?}"),
            (_, Some(error)) => write!(f, "{self}: {error:?}"),
            (None, None) => fmt::Display::fmt(self, f),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.rule().path();
        match (self.decision(), self.retry_after()) {
            (Some(decision), _) if decision.is_busy() => {
                write!(f, "as many requests of {path} run as may at a time")
            }
            (None, _) => write!(f, "the limit of {path} cannot be checked now"),
            (Some(_), None) => write!(f, "the limit of {path} is used up"),
            (Some(_), Some(wait)) => {
                // Rounded up: an earlier question would be denied.
                let seconds = wait.as_millis().div_ceil(1_000).max(1);
                write!(f, "the limit of {path} is used up, again in {seconds} s")
            }
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let key_error = || Some(self.key_error()? as _);
        self.error().map(|error| error as _).or_else(key_error)
    }
}
