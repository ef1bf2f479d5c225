//! Decisions for code that has no HTTP request.

use std::fmt;
use std::ops::ControlFlow::{Break, Continue};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum_core::response::{IntoResponse, Response};

use super::action::Refusal;
use super::decide::{Begun, Verdict};
use super::responder::Responder;
use super::settings::Settings;
use crate::callback::Cause;
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::rule::{OnError, Rule};
use crate::store::{Charge, Store, Take};

/// A question to [`Limits::check`](crate::Limits::check): await it.
///
/// Dropping its future before it is done may or may not charge the question, as with a request.
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
#[must_use = "nothing is asked until it is awaited"]
pub struct Check {
    /// Missing for a path without a rule that is not remembered.
    settings: Option<Arc<Settings>>,
    key: Key,
    cost: Option<u64>,
    plan: Option<Box<str>>,
}

impl Check {
    pub(crate) fn new(settings: Option<Arc<Settings>>, key: Key) -> Self {
        Self {
            settings,
            key,
            cost: None,
            plan: None,
        }
    }

    /// Decides by the quotas of this [plan](Rule::with_plan) of the rule. One that the rule does
    /// not have counts as none. Default: none, the rule's own quotas.
    pub fn plan(mut self, name: &str) -> Self {
        self.plan = Some(name.into());
        self
    }

    /// Asks for so many units. 0 only looks. Default: the rule's cost, which is 1 by default.
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = Some(units);
        self
    }

    async fn decide(self) -> Result<Admitted, Refused> {
        let Some(settings) = self.settings else {
            return Ok(Admitted::default());
        };
        let Some(rule) = settings.rule() else {
            settings.count_unmatched();
            return Ok(Admitted::default());
        };
        settings.inspect(&rule, None);
        let cost = self.cost.unwrap_or(rule.cost());
        let rule = settings.with_plan(rule, self.plan.as_deref());
        let take = Take::new(rule, self.key).with_cost(cost);
        if settings.let_through(&take) {
            return Ok(Admitted::default());
        }
        let decider = &settings.decider;
        if take.rule().is_shadow() {
            decider.take_in_shadow(take, None);
            return Ok(Admitted::default());
        }
        let judged = match decider.take_first(take) {
            Begun::Judged(judged) => judged,
            Begun::Asked(asked, answer) => decider.judge_later(asked, answer).await,
        };
        let verdict = match judged {
            Break(verdict) => verdict,
            Continue(waiting) => {
                let is_let_through = |take: &Take| settings.let_through(take);
                match decider.wait(waiting, is_let_through).await {
                    Some(verdict) => verdict,
                    None => return Ok(Admitted::default()),
                }
            }
        };
        let responder = &settings.responder;
        responder.count(&verdict);
        let refused = |rule, cause| {
            Err(Refused(Box::new(Refusing {
                rule,
                cause,
                responder: Arc::clone(responder),
            })))
        };
        match verdict {
            Verdict::Allowed(answer) => Ok(Admitted {
                decision: Some(answer.decision().clone()),
                charge: answer.of_units(),
            }),
            Verdict::Denied(take, decision) => refused(take.into_rule(), Why::Denied(decision)),
            Verdict::Failed(rule, _) if rule.on_error() == Some(OnError::Proceed) => {
                responder.counters.proceeded();
                Ok(Admitted::default())
            }
            Verdict::Failed(rule, cause) => {
                let error = match cause {
                    Cause::Store(error, _) => error,
                    Cause::Key(_) | Cause::Inner(..) => {
                        StoreError::new(StoreErrorKind::Unavailable, "there is no decision")
                    }
                };
                refused(rule, Why::Failed(error))
            }
        }
    }
}

impl IntoFuture for Check {
    type Output = Result<Admitted, Refused>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.decide())
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("settings", &self.settings)
            .field("key", &self.key)
            .field("cost", &self.cost)
            .field("plan", &self.plan)
            .finish()
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
    key: Key,
    plan: Option<Box<str>>,
}

impl Peek {
    pub(crate) const fn new(store: Arc<dyn Store>, rule: Option<Arc<Rule>>, key: Key) -> Self {
        Self {
            store,
            rule,
            key,
            plan: None,
        }
    }

    /// What is left of the quotas of this [plan](Rule::with_plan) of the rule. One that the rule
    /// does not have counts as none. Default: none, the rule's own quotas.
    pub fn plan(mut self, name: &str) -> Self {
        self.plan = Some(name.into());
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
            let of_plan = self.plan.and_then(|name| rule.of_plan(&name));
            let rule = of_plan.unwrap_or_else(|| rule.for_no_plan());
            let take = Take::new(rule, self.key);
            self.store.peek(&take).await.map(Some)
        })
    }
}

/// The answer to a [`Check`] that may go on.
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
    /// The store's decision. `None` if nobody decided: there is no rule for the path, it is switched
    /// off or a shadow rule, an operator lets the key through, or the store failed and the rule says
    /// `on-error = "proceed"`.
    pub decision: Option<Decision>,
    /// The charge, which can be given back. `None` if nothing was charged, as at a cost of 0.
    pub charge: Option<Charge>,
}

/// The answer to a [`Check`] that may not go on: it was denied, or the store gave no decision.
///
/// It is an axum response: the problem document and the fields that the layer answers with. Its text
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
    cause: Why,
    responder: Arc<Responder>,
}

#[derive(Debug, Clone)]
enum Why {
    Denied(Decision),
    Failed(StoreError),
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
        match &self.0.cause {
            Why::Denied(decision) => Some(decision),
            Why::Failed(_) => None,
        }
    }

    /// Why the store gave no decision; `None` if it was denied.
    #[must_use]
    pub fn error(&self) -> Option<&StoreError> {
        match &self.0.cause {
            Why::Denied(_) => None,
            Why::Failed(error) => Some(error),
        }
    }

    /// When the same question would be allowed; `None` where no wait helps, or nobody knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refusing {
            rule,
            cause,
            responder,
        } = *self.0;
        let refusal = match cause {
            Why::Denied(decision) => Refusal::Denied(rule, decision),
            Why::Failed(_) => Refusal::NoDecision,
        };
        responder.answer(refusal, None)
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("path", &self.0.rule.path())
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.rule.path();
        match (&self.0.cause, self.retry_after()) {
            (Why::Failed(_), _) => write!(f, "the limit of {path} cannot be checked now"),
            (Why::Denied(_), None) => write!(f, "the limit of {path} is used up"),
            (Why::Denied(_), Some(wait)) => {
                // Rounded up: asking earlier is in vain.
                let seconds = wait.as_millis().div_ceil(1_000).max(1);
                write!(f, "the limit of {path} is used up, again in {seconds} s")
            }
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().map(|error| error as _)
    }
}
