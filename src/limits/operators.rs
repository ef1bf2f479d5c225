//! What an operator does to a key, at once or for a while, from code and from a page.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::timeout;

use super::fleet::has_timer;
use super::{Limits, counts_of_plans};
use crate::callback::BoxFuture;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{Key, KeyExtractor, escaped};
use crate::layer::SubjectKeys;
use crate::rule::{Factor, Policy, Rule, Subject};
use crate::store::{OperatorKey, OperatorKind, Store};
use crate::sync::lock;
use crate::trace;

/// How long the store may take.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The longest name of an operator, in characters.
const MAX_BY: usize = 100;
/// The longest note, in characters.
const MAX_NOTE: usize = 200;

impl Limits {
    /// Denies the requests of a key for 1 second to a day, in all processes of the service within
    /// two seconds: without a question to the store, and without a charge. Those that wait for
    /// their turn are denied, too. `Duration::ZERO` ends it. `by` says who does it, for the log and
    /// for pages, if there are any; it may be empty, and 100 characters are kept.
    /// A [note](Operation::note) says why. Of a key that no request had lately, the log has a
    /// warning.
    ///
    /// The key is that of a [check](Self::check); under a joint rule of one subject, by its
    /// [name](SubjectKeys). A block comes before that the key is let through, and ends that. A
    /// shadow rule and a rule that is switched off deny nothing.
    ///
    /// With a store on Redis this process takes part in the [fleet](Self::join_fleet) from now on,
    /// as each process has to that shall obey. Without Redis it is about this process. While Redis
    /// is gone, what is known stays until its end, and nothing can be added.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    /// let hour = Duration::from_secs(3_600);
    /// limits.block("chat", "mallory", hour, "ops@example.com").await?;
    /// assert!(limits.check("chat", "mallory").await.is_err());
    ///
    /// limits.block("chat", "mallory", Duration::ZERO, "ops@example.com").await?;
    /// assert!(limits.check("chat", "mallory").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`OperatorError`] that says what is wrong, such as the key of an address where the rule counts
    /// by networks of another size (`client-ip/48`) and no request had that key lately:
    /// [`ClientIp::key`](crate::ClientIp::key) makes the right one. After that of the store it is not
    /// known whether the key is blocked.
    pub fn block(
        &self,
        path: &str,
        key: impl Into<SubjectKeys>,
        time: Duration,
        by: &str,
    ) -> Operation {
        self.operation(Ok(OperatorKind::Blocked), path, key.into(), time, by)
    }

    /// Admits the requests of a key for 1 second to a day without a question to the store, as
    /// [`block`](Self::block) denies them. Under a joint rule the other subjects decide, as if the
    /// request had no such key. It ends a block.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block).
    pub fn let_through(
        &self,
        path: &str,
        key: impl Into<SubjectKeys>,
        time: Duration,
        by: &str,
    ) -> Operation {
        self.operation(Ok(OperatorKind::LetThrough), path, key.into(), time, by)
    }

    /// Multiplies the quotas of a key by a [factor](Factor) of 0.01 to 1,000 for a minute to 90
    /// days, in all processes of the service within two seconds: max, burst, requests at a time and
    /// units that may be owed, of the plan that a request has anyway, also in a fallback's share.
    /// Each is rounded down, and at least 1 where it was not 0. A request that costs more than what
    /// a factor below 1 leaves of a max is denied as [never](crate::decision::Verdict::Never)
    /// fitting. Under a joint rule they are the quotas of one subject. Another raise of the key
    /// replaces it, unless that would take something from it: [`replace`](Operation::replace).
    /// `Duration::ZERO` ends it, and for the rest it is as [`block`](Self::block).
    ///
    /// [`only`](Operation::only) raises some of them alone, such as a budget.
    ///
    /// Units that were used count on, before and after: once the raise ends, a key that used more
    /// than its plan is denied until those units have left the window. While a key is let through
    /// or blocked, its raise waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    /// let day = Duration::from_secs(86_400);
    /// limits.raise("chat", "alice", 2.5, day, "ops@example.com").await?;
    /// let left = limits.peek("chat", "alice").await?.expect("there is a rule");
    /// assert_eq!(left.remaining(), 25);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block).
    pub fn raise(
        &self,
        path: &str,
        key: impl Into<SubjectKeys>,
        factor: f64,
        time: Duration,
        by: &str,
    ) -> Operation {
        let of_end = Some(Factor::ONE).filter(|_| time.is_zero());
        let known = of_end.or_else(|| Factor::new(factor));
        let known = known.ok_or(OperatorError::Factor(factor));
        let kind = known.map(OperatorKind::Raised);
        self.operation(kind, path, key.into(), time, by)
    }

    /// Forgets what a key has used by the rule of a path, in windows and in days, weeks and months,
    /// whatever plan has chosen them, here or in another process. Counts of an earlier algorithm
    /// stay. So do those with a [cost of their own](crate::rule::Policy::with_cost) that only plans
    /// have which this process has not seen: of another file, or [by value](crate::rule::Plan::of).
    ///
    /// Says whether there was a count to forget, which may have ceased to count; there is none
    /// where a layer has no rule. Under a [joint](crate::Rule::joint) rule it is about the subjects
    /// that are [named](SubjectKeys). The log has a line for it if it says [by](Reset::by) whom;
    /// else, as by code at each login, it has the number of resets of the path, at most once in ten
    /// seconds.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer. Whether the count was forgotten is then
    /// unknown; it is safe to ask again. Also if neither a rule nor a layer has the path, or a
    /// subject is named that the rule does not have.
    pub fn reset<'a>(&'a self, path: &'a str, key: impl Into<SubjectKeys>) -> Reset<'a> {
        Reset(self, path, key.into(), None)
    }

    /// The keys that are let through, blocked or raised, as far as this process knows: those that
    /// it has set itself, and once it takes part in the [fleet](Self::join_fleet), all of the
    /// service. With the time that they still have, in the order of path and key.
    #[must_use]
    pub fn operator_keys(&self) -> Vec<OperatorKey> {
        self.operator_keys.list()
    }

    fn operation(
        &self,
        kind: Result<OperatorKind, OperatorError>,
        path: &str,
        keys: SubjectKeys,
        time: Duration,
        by: &str,
    ) -> Operation {
        let one = kind.map(|kind| OperatorKey {
            kind,
            path: path.into(),
            key: "".into(),
            by: Some(by.into()),
            note: None,
            only: Arc::default(),
            replaces: false,
            time,
        });
        let limits = self.clone();
        Operation { limits, keys, one }
    }

    /// Does it, in all processes, and logs it. Returns whether the key is known: a request had it
    /// lately, or an operator has done something with it.
    pub(crate) async fn operate(&self, mut one: OperatorKey) -> Result<bool, OperatorError> {
        let kind = one.kind;
        let was_operated = !self.operator_keys.find(&one.path, &one.key).is_empty();
        let fleet = self.shared_store().fleet();
        // An operator can end it, also if the rule is gone; a fleet may know more keys at first.
        if one.time.is_zero() {
            let is_told = fleet.is_none() || self.member.state().is_accepted == Some(true);
            if is_told && !was_operated && !self.rules.knows(&one.path) {
                return Err(OperatorError::NoRule(one.path.to_string()));
            }
        } else {
            if !(least(kind)..=kind.max_time()).contains(&one.time) {
                let time = one.time;
                return Err(OperatorError::Time { kind, time });
            }
            let rule = self.rules().guard().find(&one.path).cloned();
            let rule = rule.ok_or_else(|| OperatorError::NoRule(one.path.to_string()))?;
            let known = kind.is_raise().then(|| names_of_quotas(&rule, &one.key));
            let known = known.unwrap_or_default();
            if let Some(name) = one.only.iter().find(|name| !known.contains(&***name)) {
                let (name, known) = (name.to_string(), known.into_iter().collect());
                return Err(OperatorError::NoQuota { name, known });
            }
            if let Some(raise) = self.operator_keys.stands_against(&one) {
                return Err(OperatorError::Stands(raise.into()));
            }
        }
        (one.by, one.note) = (line(one.by, MAX_BY), line(one.note, MAX_NOTE));
        let said = one.clone();
        let (path, (key, row)) = (&*said.path, self.member.named_key(&one.path, &one.key));
        let [by, note] = [&said.by, &said.note].map(|it| it.as_deref().unwrap_or_default());
        let seconds = one.time.as_secs();
        #[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
        let what = match kind {
            _ if seconds > 0 => Done(kind).to_string(),
            OperatorKind::Raised(_) => "no longer raised".to_owned(),
            _ => format!("no longer {}", Done(kind)),
        };
        let stands = match &fleet {
            Some(fleet) => within(fleet.set_key(&one)).await,
            None => Ok(Some(said.clone())),
        };
        if let Err(error) = &stands {
            let error = error.to_string();
            trace::event!(warn: path, key, row, by, note, seconds, error, "a key may be {what}");
        }
        match stands? {
            // Another process has been quicker.
            Some(raise) if one.takes_from(&raise) => {
                return Err(OperatorError::Stands(raise.into()));
            }
            Some(_) if self.set_key(one, fleet.is_some()) => {}
            _ => return Err(OperatorError::TooMany(kind)),
        }
        let is_known = seconds == 0 || was_operated || self.is_used(path, &said.key).await;
        if is_known {
            trace::event!(info: path, key, row, by, note, seconds, "a key is {what}");
            return Ok(true);
        }
        let meant = self.other_mark(path, &said.key).await;
        trace::event!(warn: path, key, row, by, note, seconds, meant,
            "a key is {what} that no request had lately: is it the one?");
        Ok(false)
    }

    /// What the log calls a key that requests had lately, and that has the mark of another alternative.
    async fn other_mark(&self, path: &str, name: &str) -> Option<String> {
        let rule = self.rules().guard().find(path).cloned()?;
        let (subject, text) = Key::split_subject(name);
        let subject = subject.unwrap_or_default();
        let value = Key::from_text(text.rsplit_once('|').map_or(text, |(_, value)| value))?;
        let extractors = self.single_extractors(&rule, &subject);
        let marked = extractors.iter().map(|it| it.marked(value.clone()));
        for key in marked
            .chain([value.clone()])
            .map(|it| it.with_subject(&subject))
        {
            if key.as_str() != name && self.is_used(path, key.as_str()).await {
                let (shown, row) = self.member.named_key(path, key.as_str());
                return Some(shown.unwrap_or(row));
            }
        }
        None
    }

    /// Whether requests of this key, by its name, count or were denied lately; true also if nobody
    /// knows.
    async fn is_used(&self, path: &str, name: &str) -> bool {
        let used = async {
            let key = Key::from_text(name)?;
            let rule = self.rules().guard().find(path).cloned()?;
            let rule = self.last_chosen(&rule, &key).unwrap_or(rule);
            let keys = SubjectKeys::of_name(name)?;
            let store = self.shared_store();
            let take = keys.take_asked(rule, store).ok()?;
            let counts = counts_of_plans(&take, store.capabilities().calendar);
            let peeks = counts.iter().map(|it| store.peek(it));
            let left = within(try_join_all(peeks)).await.ok()?;
            Some(left.iter().any(|it| !it.reset_after().is_zero()))
        };
        self.was_denied(path, name) || used.await.unwrap_or(true)
    }

    /// Lets a key through, blocks it or raises it in this process, or ends that, without a wait for
    /// the next list. Returns whether there was room, if no other process has a list.
    fn set_key(&self, one: OperatorKey, is_shared: bool) -> bool {
        let mut state = self.member.state();
        state.own_changes += 1;
        // No list has it, so the next report brings the whole list.
        state.version = u64::MAX;
        state.changes += 1;
        self.operator_keys.set(one, is_shared)
    }

    /// Whether no request of this rule has this key of an address: it counts addresses by networks of
    /// another size, and by nothing that may make such a key.
    fn is_nobodys_address(&self, rule: &Rule, subject: &str, key: &Key) -> bool {
        let extractors = self.single_extractors(rule, subject);
        let is_by_network = |it: &Arc<dyn KeyExtractor>| it.mark() == "client-ip";
        extractors.iter().any(is_by_network)
            && extractors
                .iter()
                .all(|it| match it.key_of_text(key.as_str()) {
                    Some(made) => made != *key,
                    None => is_by_network(it),
                })
    }

    /// What makes the keys of this subject, each alternative by itself.
    fn single_extractors(&self, rule: &Rule, subject: &str) -> Vec<Arc<dyn KeyExtractor>> {
        let subject = rule.subjects().iter().find(|it| it.name() == subject);
        let mut extractors = self.extractors_of(rule.path(), Some(rule), subject);
        let alternatives = extractors.iter().flat_map(|it| it.alternatives());
        let alternatives: Vec<_> = alternatives.collect();
        extractors.retain(|it| it.alternatives().is_empty());
        extractors.extend(alternatives);
        extractors
    }

    /// What makes the keys of a path, or of a subject of its rule: in layers with a key of their
    /// own, or else in all.
    pub(crate) fn extractors_of(
        &self,
        path: &str,
        rule: Option<&Rule>,
        subject: Option<&Subject>,
    ) -> Vec<Arc<dyn KeyExtractor>> {
        if let Some(own) = subject.and_then(Subject::key) {
            return vec![Arc::clone(own)];
        }
        let of_layers = lock(&self.paths.states)
            .get(path)
            .map(|it| it.counters.extractors());
        let mut extractors = of_layers.unwrap_or_default();
        if extractors.is_empty() {
            let of_rule = rule.and_then(Rule::extractor);
            extractors.extend(of_rule.or(self.defaults.default_key.as_ref()).cloned());
        }
        extractors
    }

    /// The rule with the quotas by which this process has decided about a key, or that of a
    /// subject, last, if a request has chosen them.
    pub(crate) fn last_chosen(&self, rule: &Arc<Rule>, key: &Key) -> Option<Arc<Rule>> {
        let last = lock(&self.paths.states)
            .get(rule.path())
            .and_then(|it| it.notes.last_rule(key))?;
        rule.chosen_as(&last)
    }
}

/// The beginning of a text, in one line.
fn line(text: Option<Arc<str>>, max_chars: usize) -> Option<Arc<str>> {
    let line: String = text?.chars().take(max_chars).collect();
    (!line.is_empty()).then(|| crate::unseen::blanked(&line).into())
}

/// What an operator does to a key, with a note if there is one. It is done when this is awaited:
/// see [`Limits::block`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
/// let hour = Duration::from_secs(3_600);
/// let block = limits.block("chat", "mallory", hour, "ops@example.com");
/// block.note("spam, ticket 4711").await?;
/// assert_eq!(limits.operator_keys()[0].note.as_deref(), Some("spam, ticket 4711"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is done until it is awaited"]
pub struct Operation {
    limits: Limits,
    keys: SubjectKeys,
    /// Without its key.
    one: Result<OperatorKey, OperatorError>,
}

impl Operation {
    /// Says why, for the log and for pages. 200 characters are kept. Default: nothing.
    pub fn note(mut self, note: &str) -> Self {
        if let Ok(one) = &mut self.one {
            one.note = Some(note.into());
        }
        self
    }

    /// Raises the quotas of these [names](crate::rule::Policy::name) alone, of the rule and of its
    /// plans, and leaves the others as they are. Default: all are raised. A name that no quota of
    /// the key has is an error, and so is an empty list.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::rule::{Period, Policy};
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let month = Policy::calendar(Period::MONTH, 1_000).named("monthly");
    /// let rule = Rule::with_policies("chat", [Quota::per_minute(20).into(), month])?;
    /// let limits = Limits::new([rule]);
    /// let days = Duration::from_secs(30 * 86_400);
    /// limits.raise("chat", "acme", 3.0, days, "sales").only(["monthly"]).await?;
    /// let left = limits.peek("chat", "acme").await?.expect("there is a rule");
    /// let left: Vec<_> = left.quotas().iter().map(|it| it.remaining()).collect();
    /// assert_eq!(left, [20, 3_000]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn only<Name: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = Name>) -> Self {
        if let Ok(one) = &mut self.one {
            let names = names.into_iter().map(Into::into);
            one.only = names.collect();
            if one.only.is_empty() {
                // No quota has this name, so it is refused; an empty list would raise all.
                one.only = ["".into()].into();
            }
        }
        self
    }

    /// Ends a raise of the key that is larger, longer, or of other quotas, which is an
    /// [error](OperatorError::Stands) else.
    pub fn replace(mut self) -> Self {
        self.one.iter_mut().for_each(|one| one.replaces = true);
        self
    }

    async fn run(self) -> Result<(), OperatorError> {
        let (limits, mut one) = (self.limits, self.one?);
        // A task of another runtime may watch this process already.
        if !has_timer() || !limits.watch_process() {
            return Err(OperatorError::NoRuntime);
        }
        let rule = limits.rules().guard().find(&one.path).cloned();
        let key = self.keys.only(rule.as_deref());
        let (subject, key) = key.map_err(OperatorError::Key)?;
        one.key = key.with_subject(&subject).as_str().into();
        if let Some(rule) = rule.filter(|_| key.is_address && !one.time.is_zero())
            && limits.is_nobodys_address(&rule, &subject, &key)
            && !limits.is_used(&one.path, &one.key).await
        {
            let (path, key) = (rule.path(), key.as_str());
            return Err(OperatorError::Key(format!(
                "{path:?} counts by networks of another size than {key}, so no request has that \
                 key: expected that of ClientIp::key, with the ipv4_prefix and ipv6_prefix of the rule"
            )));
        }
        limits.operate(one).await.map(drop)
    }
}

impl IntoFuture for Operation {
    type Output = Result<(), OperatorError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// A reset of a key. It is done when this is awaited: see [`Limits::reset`].
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
/// limits.check("chat", "alice").await?;
/// let had_a_count = limits.reset("chat", "alice").by("ops@example.com").await?;
/// assert!(had_a_count);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing is done until it is awaited"]
pub struct Reset<'a>(&'a Limits, &'a str, SubjectKeys, Option<Arc<str>>);

impl Reset<'_> {
    /// Says who does it: then the log has a line of its own for it. It may be empty, and 100
    /// characters are kept. Default: nobody is named.
    pub fn by(mut self, by: &str) -> Self {
        self.3 = Some(line(Some(by.into()), MAX_BY).unwrap_or_default());
        self
    }

    async fn run(self) -> Result<bool, StoreError> {
        let Self(limits, path, keys, by) = self;
        let Some(rule) = limits.rules.guard().find(path).cloned() else {
            let error = OperatorError::NoRule(path.to_owned()).to_string();
            let error = StoreError::new(StoreErrorKind::Configuration, error);
            return limits.rules.knows(path).then_some(false).ok_or(error);
        };
        let store = limits.shared_store();
        let take = keys.take_asked(rule, store)?;
        let counts = counts_of_plans(&take, store.capabilities().calendar);
        let found = async {
            let mut found = false;
            // Not together: a breaker that is half open lets one through.
            for count in &counts {
                found |= store.reset(count).await?;
            }
            Ok(found)
        };
        let found = match has_timer() {
            true => within(found).await,
            false => found.await,
        };
        limits.paths.was_reset(path, &counts);
        let names = take.named_keys();
        if found.is_ok() {
            let names = names.iter().flatten();
            names.for_each(|it| limits.paths.limited.forget(path, it.as_str()));
            limits.member.state().changes += 1;
        }
        let Some(by) = by.as_deref() else {
            let told = found.is_ok().then(|| take.rule().shared_path());
            told.into_iter().for_each(|it| limits.paths.count_reset(it));
            return found;
        };
        for key in names.iter().flatten() {
            let (key, row) = limits.member.named_key(path, key.as_str());
            match found.as_ref().map_err(ToString::to_string) {
                Ok(found) => trace::event!(info: path, key, row, by, found,
                    "the count of a key was reset"),
                Err(error) => trace::event!(warn: path, key, row, by, error,
                    "the count of a key may have been reset"),
            }
        }
        found
    }
}

impl<'a> IntoFuture for Reset<'a> {
    type Output = Result<bool, StoreError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The names of the quotas of this key that a request of the rule may have.
fn names_of_quotas(rule: &Arc<Rule>, key: &str) -> BTreeSet<String> {
    // Under a joint rule the text of the key begins with its subject.
    let begins = |name: &str| key.starts_with(&format!("{}>", escaped(name)));
    let subject = rule.subjects().iter().position(|it| begins(it.name()));
    let is_of_key = |policy: &&Policy| {
        let place = policy
            .subject()
            .map_or(Some(0), |it| rule.place_of_subject(it));
        subject.is_none() || place == subject
    };
    let plans = rule.plans().filter_map(|name| rule.of_plan(name));
    let rules = plans
        .chain(rule.values_with_counts())
        .chain([Arc::clone(rule)]);
    let names = |rule: Arc<Rule>| {
        let policies = rule.policies().iter().filter(is_of_key);
        Vec::from_iter(policies.map(|it| it.name().to_owned()))
    };
    rules.flat_map(names).collect()
}

/// The shortest time for which it is done.
const fn least(kind: OperatorKind) -> Duration {
    Duration::from_secs(if kind.is_raise() { 60 } else { 1 })
}

/// The store's answer to an operator. A store of somebody else may not come back.
pub(crate) async fn within<T>(
    question: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(MAX_WAIT, question).await.unwrap_or_else(|_| {
        let message = format!("no answer within {MAX_WAIT:?}");
        Err(StoreError::new(StoreErrorKind::Timeout, message))
    })
}

/// Why a key is not [blocked](Limits::block), [let through](Limits::let_through) or
/// [raised](Limits::raise).
///
/// ```
/// use std::time::Duration;
/// use tidegate::limits::OperatorError;
/// use tidegate::{Limits, Rules};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limits = Limits::new(Rules::default());
/// let blocked = limits.block("chat", "mallory", Duration::from_secs(60), "ops").await;
/// assert!(matches!(blocked, Err(OperatorError::NoRule(path)) if path == "chat"));
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// No rule has this path. What was begun can be ended without one.
    #[error("there is no rule {0:?}: correct the path, or add the rule")]
    NoRule(String),
    /// The rule needs another key.
    #[error("{0}")]
    Key(String),
    /// No quota of the rule or of its plans has this name; only a raise is about some quotas.
    #[error("there is no quota {name:?} to raise, expected of {known:?}")]
    NoQuota {
        /// The name.
        name: String,
        /// The names of the key's quotas.
        known: Vec<String>,
    },
    /// The time is too short or too long.
    #[error("a key cannot be {} for {time:?}, expected {} to {} seconds, or zero to end it",
        Done(*kind), least(*kind).as_secs(), kind.max_time().as_secs())]
    Time {
        /// The operation.
        kind: OperatorKind,
        /// For how long.
        time: Duration,
    },
    /// The factor is out of range.
    #[error("the factor is {0}, expected 0.01 to 1000")]
    Factor(f64),
    /// The key has this raise, which is larger, longer, or of other quotas:
    /// [`replace`](Operation::replace) ends it.
    #[error("the key is {} for {} more seconds{}: say replace to end that", Done(.0.kind),
        .0.time.as_secs(), match &*.0.only { [] => String::new(), only => format!(", of {only:?}") })]
    Stands(Box<OperatorKey>),
    /// There are [as many](OperatorKey::MAX) such keys as may be.
    #[error("{} keys are {} already", OperatorKey::MAX, match .0 {
        OperatorKind::Raised(_) => "raised".to_owned(),
        kind => Done(*kind).to_string(),
    })]
    TooMany(OperatorKind),
    /// Nothing can tell the other processes.
    #[error("expected a tokio runtime with its timer enabled")]
    NoRuntime,
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

crate::error::debug_as_message!(OperatorError);

/// What is done to a key, in words.
struct Done(OperatorKind);

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            OperatorKind::Blocked => f.write_str("blocked"),
            OperatorKind::LetThrough => f.write_str("let through"),
            OperatorKind::Raised(factor) => write!(f, "raised by {factor}"),
        }
    }
}
