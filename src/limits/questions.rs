//! Decisions and counts without an HTTP request.

use std::collections::HashSet;
use std::iter;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::limits::Limits;
use super::paths::MAX_PATHS;
use crate::layer::{Call, Gate, Peek, SubjectKeys};
use crate::question::Ask;
use crate::take::Take;
use crate::warning::{Warning, WarningKind};

/// From so many checked paths on, a path without a rule is not remembered, nor warned about.
const MAX_CHECKED_WITHOUT_RULE: usize = 1_000;

impl Limits {
    /// Decides about a key by the rule of a path, for code that has no HTTP request to wrap: a
    /// message on a WebSocket, a job, a login whose user name is in the body.
    ///
    /// It decides as the path's layers do, and together with them: rule, store and fallback, shadow
    /// rules, counters, events and reloads are the same, and so are counts of equal keys. A path
    /// without a rule is admitted. What needs a request does not apply: key extractors, plans by
    /// closure ([`plan_value`](Call::plan_value) of the call says one), exemptions, costs by
    /// closure, waiting and callbacks. Of the policies for failures `on-error = "proceed"`
    /// applies.
    ///
    /// An extractor makes the key that it would find: `Header::new("x-user").key("alice")`. An
    /// empty text is a key of its own, and not that of a rule without one: `Key::default()`. Under
    /// a [joint](crate::Rule::joint) rule the key of each subject is said by its
    /// [name](SubjectKeys): `limits.check("api", [("user", user), ("address", address)])`. A path
    /// that only checks use is in use from its first check on, or once it is
    /// [declared](Self::declare_checks). Checks that are awaited together, as by `join_all`, share
    /// calls of Redis beyond the first eight.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    ///
    /// // For each message of a socket:
    /// match limits.check("chat", "alice").cost(3).await {
    ///     Ok(admitted) => assert_eq!(admitted.decision.map(|it| it.remaining()), Some(7)),
    ///     Err(refused) => eprintln!("{refused}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`](crate::layer::Refused) if the store denied it, or gave no decision, and if the
    /// [keys](SubjectKeys) are not those that the rule needs.
    pub fn check(&self, path: &str, key: impl Into<SubjectKeys>) -> Call {
        self.call(path).key(key)
    }

    /// Limits a function by the rule of a path: any asynchronous code, as a layer limits a handler.
    /// Where it is denied, or where there is no decision, the result is a refusal: see [`Call`].
    ///
    /// It decides as a [check](Self::check) does, and keeps its permit as long as the function
    /// runs. A path without a rule runs the function.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # async fn make_report() -> &'static str { "the report of today" }
    /// let limits = Limits::new([Rule::new("export", [Quota::per_hour(1)])?]);
    ///
    /// let export = async || match limits.call("export").key("alice").run(make_report).await {
    ///     Ok(report) => report,
    ///     Err(refused) if refused.decision().is_some() => "the report of yesterday",
    ///     Err(failed) => {
    ///         eprintln!("{failed:?}");
    ///         "later"
    ///     }
    /// };
    /// assert_eq!(export().await, "the report of today");
    /// assert_eq!(export().await, "the report of yesterday");
    ///
    /// // In a handler `?` answers with the refusal.
    /// let refused = limits.call("export").key("alice").run(make_report).await.unwrap_err();
    /// assert!(refused.to_string().starts_with("the limit of export is used up, again in "));
    /// # Ok(())
    /// # }
    /// ```
    pub fn call(&self, path: &str) -> Call {
        let gate = self.gate_of_checks(path);
        if gate.is_none() {
            self.paths.unmatched.fetch_add(1, Ordering::Relaxed);
        }
        Call::new(gate)
    }

    /// The gate of the checks of a path, made when it is asked for first. A path too many is not
    /// remembered.
    fn gate_of_checks(&self, path: &str) -> Option<Arc<Gate>> {
        let known = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = known.get(path) {
            return Some(Arc::clone(gate));
        }
        // Clients may choose the paths: those without a rule must not take all places.
        let has_place = known.len() < MAX_CHECKED_WITHOUT_RULE;
        drop(known);
        if !has_place && !self.rules.guard().contains(path) {
            return None;
        }
        let made = Arc::new(self.gate(path));
        made.decider.capabilities();
        let mut all = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_PATHS {
            return Some(made);
        }
        Some(Arc::clone(all.entry(path.into()).or_insert(made)))
    }

    /// Says at the start which paths are [checked](Self::check), so that [`verify`](Self::verify)
    /// and [`warnings`](Self::warnings) know them before their first check.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    /// assert!(limits.verify().is_err(), "no layer uses the rule");
    /// limits.declare_checks(["chat"]);
    /// limits.verify()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn declare_checks<'a>(&self, paths: impl IntoIterator<Item = &'a str>) {
        for path in paths {
            let _ = self.gate_of_checks(path);
        }
    }

    /// What a key has left by the rule of a path, without charging it. `None` if there is no rule.
    /// With [`plan`](Peek::plan) it is what is left of that plan's quotas. Under a
    /// [joint](crate::Rule::joint) rule it is about the subjects that are [named](SubjectKeys): the
    /// quotas of the others are full. An empty text is a key of its own, as in a
    /// [check](Self::check).
    ///
    /// It is allowed, unless the key is [locked out](crate::decision::Verdict::LockedOut) or
    /// [held](crate::decision::Verdict::OnHold): then it says so, and until when.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    /// limits.check("chat", "alice").await?;
    /// let left = limits.peek("chat", "alice").await?.expect("there is a rule");
    /// assert_eq!(left.remaining(), 9);
    /// assert!(limits.reset("chat", "alice").await?, "there was a count");
    /// assert!(!limits.reset("chat", "alice").await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if the store gives no answer, or a subject is named that
    /// the rule does not have.
    pub fn peek(&self, path: &str, key: impl Into<SubjectKeys>) -> Peek {
        let rule = self.rules.guard().find(path).cloned();
        let setter = rule.as_ref().and_then(|it| self.defaults.plan_setter(it));
        let without_plan = setter.map(|setter| {
            let warning = Warning::named(WarningKind::PlanOfCheck, setter).about(path);
            (Arc::clone(&self.warnings), warning)
        });
        Peek {
            store: Arc::clone(self.shared_store()),
            rule,
            keys: key.into(),
            plan: None,
            plan_value: None,
            without_plan,
            operator_keys: Arc::clone(&self.operator_keys),
        }
    }

    /// Whoever waits for its turn is denied now, and nobody waits from now on: requests behind
    /// layers, calls, checks and turns of [outgoing](Self::outgoing) calls, of all layers of these
    /// limits and their clones. Call it when a graceful shutdown begins, which else lasts as long as
    /// they may wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("job", [Quota::per_minute(1)])?]);
    /// limits.check("job", "a").await?;
    /// limits.stop_waiting();
    /// let denied = limits.check("job", "a").wait(Duration::from_secs(60)).await;
    /// assert!(denied.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_waiting(&self) {
        self.paths.stop_waiting();
    }

    /// Waits until the store has answered what no request waits for, for at most `bound`: refunds
    /// [by outcome](crate::Rule::with_refund_on), settlements, the release of
    /// [permits](crate::Rule::with_max_concurrent), and holds of [outgoing](Self::outgoing) calls;
    /// then until no callback of [crossings](Self::on_crossing) or [lock-outs](Self::on_lockout)
    /// runs. To one that calls it itself it returns `false`, at the bound.
    ///
    /// Call it at the end of a graceful shutdown, when the last request has ended and the last
    /// permit of a check is dropped: what is not given back by then stays charged, or held for its
    /// lease.
    ///
    /// Returns whether nothing waits and none runs any more. A refund that the store has not
    /// answered within 10 s is lost, since it may have been done: it waits no more, and is
    /// [counted](crate::metrics::RuleSnapshot::refunds_lost).
    ///
    /// It is about all layers of these limits and their clones.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timer enabled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("login", [Quota::per_minute(5)])?]);
    /// // axum::serve(listener, app).with_graceful_shutdown(signal).await?;
    /// assert!(limits.flush(Duration::from_secs(1)).await);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self, bound: Duration) -> bool {
        self.paths.log_denials();
        let (store, tellings) = (self.shared_store(), &self.paths.tellings);
        self.refunds.flush(&**store, tellings, bound).await
    }
}

/// Each count that the key of a take may have, by itself: those of the rule, of its plans and of the
/// values that this process knows, and of each subject the windows and periods that values in
/// other processes may have. It is without permits.
pub(crate) fn counts_of_plans(take: &Take, can_calendar: bool) -> Vec<Ask> {
    let rule = take.rule();
    let of_plans = rule.plans().filter_map(|name| rule.of_plan(name));
    let others = of_plans.chain(rule.values_with_counts());
    let others = others.chain([rule.for_all_periods()]);
    let takes = iter::once(take.clone()).chain(others.map(|it| take.under(it)));
    let counts = takes.flat_map(|take| (0..take.counts().len()).map(move |at| take.only(at)));
    let mut known = HashSet::new();
    let is_one = |ask: &Ask| {
        let spec = ask.counts()[0].spec();
        let is_kept = can_calendar || spec.calendar().is_none();
        !spec.is_permits() && is_kept && known.insert(ask.name(""))
    };
    counts.filter(is_one).collect()
}
