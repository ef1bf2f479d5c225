use std::pin::Pin;
use std::sync::Arc;

use super::subject_keys::SubjectKeys;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::rule::{Quotas, Rule};
use crate::store::Store;

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
