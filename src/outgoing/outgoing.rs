//! Calls of this service to a partner, paced for the whole fleet, which obey what it answers.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, StatusCode, response};

use super::partner::wanted_pause;
use super::ready_call::Turn;
use crate::charge::spawn;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::layer::Refused;
use crate::limits::Limits;
use crate::log_on_change::LogOnChange;
use crate::question::Ask;
use crate::rule::Rule;
use crate::take::Take;
use crate::trace;
use crate::warning::{Warning, WarningKind};

/// Tells of holds that were cut, and of holds that the store did not answer.
static CUT: LazyLock<LogOnChange> = LazyLock::new(LogOnChange::default);
static FAILED: LazyLock<LogOnChange> = LazyLock::new(LogOnChange::default);

impl Limits {
    /// Holds a key of an [outgoing](Rule::with_outgoing) rule for so long from now on, by the
    /// store's clock: until then calls of the key are denied in all processes, from the next
    /// decision on, whatever is left of the quotas. Returns for how long it is held now.
    ///
    /// A hold is never shortened, so a time of zero only asks; [`reset`](Self::reset) ends it.
    /// Longer ones than the rule's [`hold-at-most`](Rule::with_hold_at_most) are cut. Calls without
    /// a key are held by `Key::default()`; `""` is a key of its own. A fallback of this process
    /// obeys it, too, also if the store gives no answer. [`outgoing`](Self::outgoing) calls it by
    /// what a partner answers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("github", [Quota::per_minute(80)])?.with_outgoing()?]);
    /// limits.hold("github", "our-token", Duration::from_secs(30)).await?;
    /// let refused = limits.check("github", "our-token").await.unwrap_err();
    /// assert!(refused.retry_after() > Some(Duration::from_secs(29)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer, and if the path has no outgoing rule.
    pub async fn hold(
        &self,
        path: &str,
        key: impl Into<Key>,
        time: Duration,
    ) -> Result<Duration, StoreError> {
        let rule = self.rules.guard().find(path).cloned();
        let Some(rule) = rule.filter(|rule| rule.is_outgoing()) else {
            let message = format!("{path:?} has no rule with outgoing = true, which a hold needs");
            return Err(StoreError::new(StoreErrorKind::Configuration, message));
        };
        self.hold_key_of(&Take::new(rule, key.into()), time).await
    }

    async fn hold_key_of(&self, take: &Take, time: Duration) -> Result<Duration, StoreError> {
        let (rule, path) = (take.rule(), take.rule().path());
        let at_most = rule.hold_at_most();
        if time > at_most && CUT.failed() {
            let (asked, held) = (time.as_secs(), at_most.as_secs());
            trace::event!(warn: path, asked, held, "a hold was cut to hold-at-most");
        }
        let store = self.shared_store();
        store.hold(take, time.min(at_most)).await
    }

    /// Paces the calls of all processes to a partner by an [outgoing](Rule::with_outgoing) rule,
    /// and obeys what the partner answers. These [hold](Self::hold) the key for as long as they
    /// say:
    ///
    /// - a 429, a 503, and statuses that the rule [holds on](Rule::with_hold_on); for a second where
    ///   no field is understood, which is a [warning](WarningKind::RefusalNotUnderstood);
    /// - a 403, and a 400 that the rule holds on, if a field says when to come again, or that nothing
    ///   is left;
    /// - the gRPC statuses 8 and 14 with a pushback, a `google.rpc.RetryInfo` or one of the fields, in
    ///   the head or in the trailers;
    /// - every other answer with `RateLimit` fields, of any draft, or `X-RateLimit-Remaining: 0`.
    ///
    /// The first field that is understood decides, of several times in it the longest:
    /// `Retry-After-Ms`, `Retry-After`, others with `retry-after` in their names, `RateLimit`,
    /// `X-RateLimit-Reset-After`, `X-RateLimit-Reset`, and for refusals others that name a limit
    /// with its reset or interval. They have seconds, or milliseconds if their name ends with `-ms`
    /// or `-milliseconds`, dates, instants or durations such as `6m0s`. Dates and instants count
    /// from the answer's own `Date`, and hold for [a second](Rule::with_hold_untold) where it has
    /// none. What a cache answers, by its `Age`, holds for as much less, and nothing if it refuses no
    /// call.
    ///
    /// What was not used of a [cost](Outgoing::cost) is given back, and what was used beyond it is
    /// charged: see [`Turn::settle`]. An answer of which the rule's
    /// [`refund-on`](Rule::with_refund_on) has the status costs nothing.
    ///
    /// It is a tower layer for any client that is a service of HTTP requests, such as hyper-util's
    /// or tonic's `Channel`, and has [two calls](Outgoing::ready) for every other one. It never
    /// repeats a call, and never makes up a response.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("github", [Quota::per_minute(80)])?.with_outgoing()?]);
    /// let github = limits.outgoing("github").wait(Duration::from_secs(10));
    ///
    /// let turn = github.ready("our-token").await?;
    /// // let answer = client.get("https://api.github.com/user").send().await?;
    /// # let mut answer = http::Response::new(());
    /// # *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    /// # answer.headers_mut().insert("retry-after", "7".parse()?);
    /// turn.observe_response(answer.status(), answer.headers());
    /// // It was a 429 with `Retry-After: 7`. With more patience it would wait.
    /// let github = github.wait(Duration::from_secs(5));
    /// assert!(github.ready("our-token").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn outgoing(&self, path: &str) -> Outgoing {
        self.declare_checks([path]);
        let rule = self.rules().load().get(path).cloned();
        if rule.is_some_and(|rule| !rule.is_outgoing()) {
            let warning = Warning::new(WarningKind::NotOutgoing).about(path);
            self.warnings.add(warning);
        }
        Outgoing {
            limits: Arc::new(self.clone()),
            path: path.into(),
            key: Arc::new(|_| Key::default()),
            cost: None,
            cost_by: None,
            used_by: None,
            wait: Duration::ZERO,
            fair_by: None,
        }
    }
}

/// Calls to a partner: see [`Limits::outgoing`]. As a tower layer it makes an
/// [`OutgoingService`](super::OutgoingService).
///
/// ```
/// use std::time::Duration;
/// use tidegate::Limits;
/// use tidegate::limits::Outgoing;
///
/// fn partner(limits: &Limits) -> Outgoing {
///     limits.outgoing("partner").wait(Duration::from_secs(10))
/// }
/// # let _ = partner(&Limits::new([]));
/// ```
#[derive(Clone)]
#[must_use = "it paces nothing until calls go through it"]
pub struct Outgoing {
    limits: Arc<Limits>,
    path: Arc<str>,
    pub(super) key: Arc<dyn Fn(&Parts) -> Key + Send + Sync>,
    /// That of the next turn; `None`: that of the rule.
    pub(super) cost: Option<u64>,
    pub(super) cost_by: Option<Arc<CostBy>>,
    pub(super) used_by: Option<Arc<UsedBy>>,
    wait: Duration,
    fair_by: Option<Key>,
}

/// What a call costs, by the head of its request.
type CostBy = dyn Fn(&Parts) -> u64 + Send + Sync;
/// What a call has used, by the head of its answer.
type UsedBy = dyn Fn(&response::Parts) -> Option<u64> + Send + Sync;

impl Outgoing {
    /// A partner usually has one key, for which a quarter of them may wait.
    const MAX_WAITING: usize = 65_536;

    /// As whom a request calls, for the layer: a token, a tenant. Default: all calls together.
    ///
    /// ```
    /// use tidegate::{Key, Limits};
    ///
    /// let tenants = Limits::new([]).outgoing("partner").key_by(|head| {
    ///     let tenant = head.headers.get("x-tenant").and_then(|it| it.to_str().ok());
    ///     Key::from(tenant.unwrap_or_default())
    /// });
    /// # let _ = tenants;
    /// ```
    pub fn key_by(mut self, key: impl Fn(&Parts) -> Key + Send + Sync + 'static) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// What a call costs, in units: an estimate where the answer says what it has
    /// [used](Turn::settle). Quotas with a [cost of their own](crate::rule::Policy::with_cost) are
    /// charged that. Default: the rule's cost, which is 1 by default.
    ///
    /// ```
    /// use tidegate::rule::Policy;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // 50 requests and 40,000 tokens a minute to a model.
    /// let requests = Policy::from(Quota::per_minute(50)).with_cost(1);
    /// let tokens = Policy::from(Quota::per_minute(40_000));
    /// let model = Rule::with_policies("model", [requests, tokens])?.with_outgoing()?;
    /// let limits = Limits::new([model]);
    ///
    /// // What the prompt has, and the most that the answer may have.
    /// let mut turn = limits.outgoing("model").cost(1_200 + 2_048).ready("our-key").await?;
    /// // let answer = client.post(..).send().await?;
    /// # let answer = http::Response::new(());
    /// turn.settle(1_950); // `usage.total_tokens` of its body
    /// turn.observe_response(answer.status(), answer.headers());
    ///
    /// let left = limits.peek("model", "our-key").await?.expect("there is a rule");
    /// let left: Vec<_> = left.quotas().iter().map(|it| it.remaining()).collect();
    /// assert_eq!(left, [49, 38_050]);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn cost(mut self, units: u64) -> Self {
        self.cost = Some(units);
        self
    }

    /// What a call costs, for the layer, by the head of its request. Default: [`cost`](Self::cost).
    pub fn cost_by(mut self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.cost_by = Some(Arc::new(cost));
        self
    }

    /// What a call has used, for the layer, by the head of its answer: it is
    /// [settled](Turn::settle) then. A client that reads usage from the body says it in the
    /// extensions. Default, and for `None`: its cost.
    ///
    /// ```
    /// use tidegate::Limits;
    ///
    /// let model = Limits::new([]).outgoing("model").cost(4_000).used_by(|answer| {
    ///     answer.headers.get("x-tokens-used")?.to_str().ok()?.parse().ok()
    /// });
    /// # let _ = model;
    /// ```
    pub fn used_by(
        mut self,
        used: impl Fn(&response::Parts) -> Option<u64> + Send + Sync + 'static,
    ) -> Self {
        self.used_by = Some(Arc::new(used));
        self
    }

    /// How long a call may wait for its turn: for room in the quotas, or for the end of a hold that
    /// is near enough. Of one key 16,384 calls of a process may wait, and four times as many in
    /// all; beyond that they are denied. Default: it does not wait.
    pub fn wait(mut self, up_to: Duration) -> Self {
        self.wait = up_to;
        self
    }

    /// In whose turn calls [wait](Self::wait), such as a tenant's: see
    /// [`Rule::with_fair_by`](crate::Rule::with_fair_by). Default: calls without a value share one
    /// lane.
    pub fn fair_by(mut self, value: impl Into<Key>) -> Self {
        self.fair_by = Some(value.into());
        self
    }

    /// Its rule now, which is about later answers.
    pub(super) fn rule(&self) -> Option<Arc<Rule>> {
        let rule = self.limits.rules().load().get(&self.path).cloned();
        rule.filter(|rule| rule.is_outgoing())
    }

    /// Holds the key, if this answer says so: the store is asked before the caller goes on.
    pub(super) fn obey(&self, rule: Arc<Rule>, key: Key, status: StatusCode, headers: &HeaderMap) {
        let (limits, path) = (Arc::clone(&self.limits), Arc::clone(&self.path));
        let Some((pause, unread)) = wanted_pause(status, headers, &rule) else {
            return;
        };
        if let Some(field) = unread {
            let field = format_args!("{:.64}", field.as_str());
            let warning = Warning::with_name(WarningKind::RefusalNotUnderstood, field);
            limits.warnings.add(warning.about(&path));
        }
        let mut take = Take::new(rule, key);
        take.ask = take.ask.unawaited(Ask::PATIENCE);
        let place = limits.refunds.waiting();
        spawn(place.until(async move {
            let (held, path) = (limits.hold_key_of(&take, pause).await, &*path);
            match held {
                Ok(_) if FAILED.worked() => {
                    trace::event!(info: path, "holds are answered again");
                }
                Err(error) if FAILED.failed() => {
                    let error = error.to_string();
                    trace::event!(warn: path, error, "other processes do not know of a hold");
                }
                Ok(_) | Err(_) => {}
            }
        }));
    }

    /// Waits for the turn of a call with this key. The call follows, and then
    /// [`observe_response`](Turn::observe_response).
    ///
    /// # Errors
    ///
    /// [`Refused`] if there is no turn in time, or the store gives no decision. As a response it is a
    /// 503 with `Retry-After` in either case, and says nothing of the partner.
    pub async fn ready(&self, key: impl Into<Key>) -> Result<Turn, Refused> {
        let key = key.into();
        let mut call = self.limits.call(&self.path).key(key.clone());
        if let Some(units) = self.cost {
            call = call.cost(units);
        }
        if let Some(value) = &self.fair_by {
            call = call.fair_by(value.clone());
        }
        let call = call.max_waiting(Self::MAX_WAITING);
        let admitted = call.wait(self.wait).await?;
        Ok(Turn {
            outgoing: self.clone(),
            key,
            admitted,
            used: None,
        })
    }
}

crate::named::debug_fields!(Outgoing: path, wait);
