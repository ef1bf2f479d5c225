use std::pin::Pin;
use std::sync::Arc;

use super::decisions::Warnings;
use super::subject_keys::SubjectKeys;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::fleet::OperatorKeys;
use crate::rule::{Plan, Rule};
use crate::store::Store;
use crate::warning::Warning;

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
    pub(crate) store: Arc<dyn Store>,
    /// Missing without a rule.
    pub(crate) rule: Option<Arc<Rule>>,
    pub(crate) keys: SubjectKeys,
    pub(crate) plan: Option<Plan>,
    pub(crate) plan_value: Option<Plan>,
    /// The warning of a look for which the caller names no plan.
    pub(crate) without_plan: Option<(Arc<Warnings>, Warning)>,
    pub(crate) operator_keys: Arc<OperatorKeys>,
}

impl Peek {
    /// What is left of the quotas of this [plan](Rule::with_plan) of the rule. One that the rule
    /// does not have counts as none. Default: none, the rule's own quotas.
    pub fn plan(mut self, name: &str) -> Self {
        self.plan = Some(Plan::new(name));
        self.without_plan = None;
        self
    }

    /// Asks what is left of this [plan](Plan::of), which comes before one that has a
    /// [name](Self::plan). One that does not fit the rule counts as none. Default: none.
    pub fn plan_value(mut self, plan: impl Into<Option<Plan>>) -> Self {
        self.plan_value = plan.into();
        self.without_plan = None;
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
            if let Some((warnings, warning)) = self.without_plan {
                warnings.add(warning);
            }
            let plan = self.plan_value.or(self.plan);
            let under = plan.and_then(|plan| rule.under(&plan).ok());
            let rule = under.unwrap_or(rule);
            let take = self.keys.take_asked(rule, &self.store)?;
            let take = self.operator_keys.raised(take);
            let look = self.store.take(&take.ask.clone().looking()).await?;
            let is_held = look.is_on_hold() || look.is_locked_out();
            Ok(Some(if is_held { look } else { look.looked() }))
        })
    }
}
