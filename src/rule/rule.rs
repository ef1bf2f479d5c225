use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::exemptions::Exemptions;
use super::outcomes::Outcomes;
use super::plans::{DerivedRules, PlanQuotas};
use super::policy::{Policy, PolicyTexts};
use super::quotas::check_policies;
use super::share::Share;
use crate::algorithm::{Algorithm, Counting};
use crate::key::{KeyExtractor, escape, hash};
use crate::quota::{MAX_QUOTAS, Quota};

/// A lease is at most this part of the shortest window: so at least 98 % of a quota can be used.
const LEASES_IN_WINDOW: u32 = 50;

/// The limit of a path: one or more quotas, the key by which requests are counted, and the cost of
/// a request.
///
/// Every quota must have room for a request; the request is then charged to all of them at once.
///
/// ```
/// use tidegate::{PeerIp, Quota, Rule};
///
/// let rule = Rule::new("login", [Quota::per_minute(5), Quota::per_day(50)])?.with_key(PeerIp);
/// assert_eq!(rule.path(), "login");
/// assert_eq!(rule.policies()[1].name(), "login-1d");
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Clone)]
pub struct Rule {
    pub(super) path: Arc<str>,
    /// The path and the algorithm, as the names of a store's keys contain them.
    id: Box<str>,
    /// The hash of the id, computed once.
    pub(super) id_hash: u64,
    prefix: Option<Arc<str>>,
    pub(super) policies: Box<[Policy]>,
    /// The policies' quotas, as a slice for the algorithms, and behind them those of the plans
    /// that only count.
    pub(super) quotas: Box<[Quota]>,
    /// The quotas that charges have to count under, beside those of the policies.
    pub(super) others: Box<[Quota]>,
    /// In alphabetical order of their names. A rule that is made for a plan has none.
    pub(super) plans: Box<[PlanQuotas]>,
    /// The plan that it is made for.
    pub(super) plan: Option<Arc<str>>,
    /// The longest time for which a charge counts, in microseconds.
    pub(super) life: u64,
    key: Option<Arc<dyn KeyExtractor>>,
    exemptions: Option<Arc<Exemptions>>,
    pub(super) refund_on: Option<Arc<Outcomes>>,
    cost: u64,
    pub(super) counting: Counting,
    on_error: Option<OnError>,
    /// How long units may be held ahead, in milliseconds; 0 without leases.
    pub(super) lease: u32,
    is_shadow: bool,
    /// Whether it is the shadow of another rule.
    is_candidate: bool,
    /// The candidate that is asked beside this rule.
    pub(super) shadow: Option<Arc<Self>>,
    pub(super) made: Made,
}

/// Values that are computed from a rule once, when they are needed first.
#[derive(Clone, Default)]
pub(super) struct Made {
    /// The quotas as a question to Redis contains them.
    #[cfg(feature = "redis")]
    question: OnceLock<Box<[u8]>>,
    /// What clients are told of the policies.
    texts: PolicyTexts,
    /// The rule with a fallback's share of the quotas, for the share that was asked for first.
    shared: OnceLock<(Share, Arc<Rule>)>,
    /// The rule with other quotas than its own.
    pub(super) derived: OnceLock<Arc<DerivedRules>>,
}

impl Rule {
    /// A rule with 1 to 16 quotas for a path. The path is any non-empty name of what is limited; it
    /// need not be the path of a URL.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the path is empty, if there are no quotas or more than 16, or if two quotas
    /// have the same window.
    pub fn new(path: &str, quotas: impl IntoIterator<Item = Quota>) -> Result<Self, RuleError> {
        let quotas: Vec<_> = quotas.into_iter().collect();
        let only = quotas.len() == 1;
        let named = |quota| Policy::unnamed(path, quota, only);
        Self::with_policies(path, quotas.into_iter().map(named))
    }

    /// The same with names for the quotas, which clients see in the `RateLimit` fields. Without
    /// names the only quota is named like the path, and of several quotas each like the path and
    /// its window, as in `login-1d`.
    ///
    /// ```
    /// use tidegate::rule::Policy;
    /// use tidegate::{Quota, Rule};
    ///
    /// let quick = Policy::new("quick", Quota::per_second(2));
    /// let daily = Policy::new("daily", Quota::per_day(1_000));
    /// let rule = Rule::with_policies("search", [quick, daily])?;
    /// assert_eq!(rule.policies()[1].name(), "daily");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the path is empty, if there are no quotas or more than 16, or if two quotas
    /// have the same name.
    pub fn with_policies(
        path: &str,
        policies: impl IntoIterator<Item = Policy>,
    ) -> Result<Self, RuleError> {
        let policies: Box<[Policy]> = policies.into_iter().collect();
        if path.is_empty() {
            return Err(RuleError::EmptyPath);
        }
        check_policies(&policies)?;
        let quotas: Box<[Quota]> = policies.iter().map(Policy::quota).collect();
        let id = id_of(path, Algorithm::default(), false);
        Ok(Self {
            path: path.into(),
            id_hash: hash(&id),
            id,
            prefix: None,
            life: longest_life(Algorithm::default().into(), &quotas),
            quotas,
            policies,
            others: Box::default(),
            plans: Box::default(),
            plan: None,
            key: None,
            exemptions: None,
            refund_on: None,
            cost: 1,
            counting: Algorithm::default().into(),
            on_error: None,
            lease: 0,
            is_shadow: false,
            is_candidate: false,
            shadow: None,
            made: Made::default(),
        })
    }

    /// The key by which requests are counted. Default: all requests of the path are counted
    /// together.
    #[must_use]
    pub fn with_key(mut self, key: impl KeyExtractor) -> Self {
        self.key = Some(Arc::new(key));
        self.remade()
    }

    /// The requests that pass without being limited. Default: none.
    #[cfg(feature = "config")]
    pub(crate) fn with_exemptions(mut self, exemptions: Exemptions) -> Self {
        self.exemptions = (!exemptions.is_empty()).then(|| Arc::new(exemptions));
        self.remade()
    }

    /// The units that one request consumes. A cost of 0 is always allowed. Default: 1.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self.remade()
    }

    /// How requests are counted. Default: [`Algorithm::SlidingLog`].
    ///
    /// Each algorithm has counts of its own. A rule that changes its algorithm starts with empty
    /// counts; if it changes back in time, it finds its old counts.
    ///
    /// ```
    /// use tidegate::{Algorithm, Quota, Rule};
    /// use tidegate::algorithm::Counting;
    ///
    /// let smooth = Quota::per_second(100).with_burst(20)?;
    /// let search = Rule::new("search", [smooth])?.with_algorithm(Algorithm::Gcra);
    ///
    /// let coarse = Counting::from(Algorithm::SlidingWindow).sub_windows(16);
    /// let feed = Rule::new("feed", [Quota::per_hour(1_000_000)])?.with_algorithm(coarse);
    /// # let _ = (search, feed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_algorithm(mut self, algorithm: impl Into<Counting>) -> Self {
        self.lease = 0;
        self.counting = algorithm.into().with_lease(0);
        self.count_along(&[]);
        self.renamed()
    }

    /// The same with the id that its path, algorithm and shadow demand.
    fn renamed(mut self) -> Self {
        self.id = id_of(&self.path, self.counting.algorithm(), self.is_shadow);
        self.id_hash = hash(&self.id);
        self.remade()
    }

    /// The same, about which nothing is known yet that was made of it before a change.
    pub(super) fn remade(mut self) -> Self {
        self.made = Made::default();
        self
    }

    /// The same rule as a shadow rule: the store decides about each request and the
    /// [counters](crate::metrics) show what it would have denied, but no request is denied, delayed
    /// or given fields. It has keys of its own in the store, so that a process that enforces the
    /// rule and one that tries it do not charge each other. Default: the rule is enforced.
    ///
    /// ```
    /// use tidegate::{Quota, Rule};
    ///
    /// let rule = Rule::new("login", [Quota::per_minute(5)])?.into_shadow();
    /// assert!(rule.is_shadow());
    /// assert_eq!(rule.id(), "login~shadow");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn into_shadow(mut self) -> Self {
        self.is_shadow = true;
        self.renamed()
    }

    /// Whether the rule is a [shadow rule](Self::into_shadow).
    #[must_use]
    pub const fn is_shadow(&self) -> bool {
        self.is_shadow
    }

    /// Whether it is tried beside the rule that decides.
    pub(crate) const fn is_candidate(&self) -> bool {
        self.is_candidate
    }

    /// Tries a candidate beside this rule: it becomes a [shadow rule](Self::into_shadow) of the
    /// same path. Each request asks it once, with the key and the cost that this rule has for the
    /// request, and the answer changes nothing but the [counters](crate::metrics). Default: none.
    ///
    /// A rule that is a shadow rule itself does not ask its candidate. When a charge of this rule
    /// is given back, in whole or in part, the same number of units is given back to the candidate.
    ///
    /// ```
    /// use tidegate::{Quota, Rule};
    ///
    /// let stricter = Rule::new("login", [Quota::per_minute(3)])?;
    /// let rule = Rule::new("login", [Quota::per_minute(5)])?.with_shadow(stricter);
    /// assert!(rule.shadow().is_some_and(|shadow| shadow.is_shadow()));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn with_shadow(mut self, candidate: Self) -> Self {
        let mut candidate = candidate;
        candidate.path = Arc::clone(&self.path);
        candidate.prefix = candidate.prefix.or_else(|| self.prefix.clone());
        candidate.shadow = None;
        candidate.is_candidate = true;
        self.shadow = Some(Arc::new(candidate.into_shadow()));
        self.remade()
    }

    /// The candidate that is tried beside this rule.
    #[must_use]
    pub const fn shadow(&self) -> Option<&Arc<Self>> {
        self.shadow.as_ref()
    }

    /// What happens to a request for which the store could not decide. Default:
    /// [`OnError::Fallback`] if the store has a fallback, otherwise [`OnError::Respond`].
    #[must_use]
    pub fn with_on_error(mut self, on_error: OnError) -> Self {
        self.on_error = Some(on_error);
        self.remade()
    }

    /// The beginning of the names of this rule's keys in a store. End it with a separator: nothing
    /// is put between it and the path. Default: the store's own prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        let prefix = prefix.into();
        if let Some(shadow) = &mut self.shadow {
            Arc::make_mut(shadow).prefix = Some(Arc::clone(&prefix));
        }
        self.prefix = Some(prefix);
        self.remade()
    }

    /// The name of what is limited.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path, for whoever keeps it longer than the rule.
    #[cfg(feature = "page")]
    pub(crate) const fn shared_path(&self) -> &Arc<str> {
        &self.path
    }

    /// The quotas with their names.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The quotas alone, in the policies' order.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas[..self.policies.len()]
    }

    /// The quotas that a take is charged to: behind those of the policies, those of other plans,
    /// which only count.
    pub(crate) fn charged_quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// The path and the algorithm, as the names of a store's keys contain them: printable, without
    /// `:`, `{` and `}`. Different paths have different ids. The algorithm is appended as
    /// `~window`, `~gcra` or `~fixed`; nothing is appended for the sliding log. A shadow rule has
    /// `~shadow` behind that.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The [prefix](Rule::with_prefix) of this rule's keys; `None` if the store's own applies.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Whether the sliding log may keep more than 10,000 entries for a key.
    pub(crate) fn has_large_log(&self) -> bool {
        const MAX: u64 = 10_000;
        let is_large = |quota: &Quota| quota.max() > MAX;
        self.counting.algorithm() == Algorithm::SlidingLog && self.quotas().iter().any(is_large)
    }

    /// The longest time for which a charge counts, in microseconds.
    pub(crate) const fn life_micros(&self) -> u64 {
        self.life
    }

    /// The quotas as a question to Redis contains them. `encode` is called once.
    #[cfg(feature = "redis")]
    pub(crate) fn question(&self, encode: impl FnOnce(&Self) -> Box<[u8]>) -> &[u8] {
        self.made.question.get_or_init(|| encode(self))
    }

    /// What clients are told of the policies.
    pub(crate) const fn texts(&self) -> &PolicyTexts {
        &self.made.texts
    }

    pub(crate) fn exemptions(&self) -> Option<&Exemptions> {
        self.exemptions.as_deref()
    }

    pub(crate) fn extractor(&self) -> Option<&dyn KeyExtractor> {
        self.key.as_deref()
    }

    /// The units that one request consumes.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// How requests are counted.
    #[must_use]
    pub const fn algorithm(&self) -> Counting {
        self.counting
    }

    /// Lets processes take units ahead for this long: a [`UnitLeases`](crate::store::UnitLeases)
    /// around the store leases a share of the quota, and hands it out without asking the store. The
    /// lease is shortened to a fiftieth of the shortest window, and to whole milliseconds. Default:
    /// no leases.
    ///
    /// A unit may be used as late as the lease ends. So a key that this rule charges counts each
    /// unit for its window and the lease, for every taker, also for those whose rule has no lease
    /// or a shorter one. The most that can be used of a quota is the part `window / (window +
    /// lease)`, at least 98 %. In a fixed window it is all: leases end with the window.
    ///
    /// A leased unit is granted with its lease. By the time it is used, a larger
    /// [plan](Self::with_plan) of the rule may have been granted more.
    ///
    /// A key counts longer until what rules with leases charged has left the window. A retry-after
    /// that reaches beyond that instant may be too long by the lease.
    ///
    /// Set the algorithm first. [`with_algorithm`](Self::with_algorithm) ends the leases.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Quota, Rule};
    ///
    /// let rule = Rule::new("feed", [Quota::new(Duration::from_secs(10), 1_000_000)?])?;
    /// let rule = rule.with_lease(Duration::from_millis(50))?;
    /// assert_eq!(rule.lease(), Some(Duration::from_millis(50)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`RuleError::NoLeases`] under [`Algorithm::Gcra`]: its buckets drain all the time, so no
    ///   window says until when a leased unit would have to count.
    /// - [`RuleError::LeaseTooLong`] if a window and the lease are longer than
    ///   [`Quota::MAX_WINDOW`] together.
    pub fn with_lease(mut self, lease: Duration) -> Result<Self, RuleError> {
        let algorithm = self.counting.algorithm();
        if algorithm.lease_end().is_none() {
            return Err(RuleError::NoLeases(algorithm.name()));
        }
        self.lease = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        self.shorten_lease(&[]);
        self.checked_life()
    }

    /// Shortens the lease for these windows, those of the rule and those of its plans.
    pub(super) fn shorten_lease(&mut self, others: &[Quota]) {
        let windows = self.all_quotas().chain(others.iter().copied());
        let shortest = windows
            .map(|quota| quota.window())
            .min()
            .unwrap_or_default();
        let longest_lease = (shortest / LEASES_IN_WINDOW).as_millis();
        let longest_lease = u32::try_from(longest_lease).unwrap_or(u32::MAX);
        self.lease = self.lease.min(longest_lease);
        self.counting = self.counting.with_lease(self.lease);
        self.life = longest_life(self.counting, &self.quotas);
    }

    pub(super) fn checked_life(self) -> Result<Self, RuleError> {
        match u128::from(self.life) > Quota::MAX_WINDOW.as_micros() {
            true if self.lease > 0 => Err(RuleError::LeaseTooLong),
            _ => Ok(self.remade()),
        }
    }

    /// How long units may be held ahead; `None` without leases.
    #[must_use]
    pub const fn lease(&self) -> Option<Duration> {
        match self.lease {
            0 => None,
            lease => Some(Duration::from_millis(lease as u64)),
        }
    }

    /// The choice made with [`Rule::with_on_error`]; `None` if none was made.
    #[must_use]
    pub const fn on_error(&self) -> Option<OnError> {
        self.on_error
    }

    /// This rule with a share of each quota. The rule for the first share is made once and kept; a
    /// process rarely uses a second share.
    pub(crate) fn of_share(&self, share: Share) -> Arc<Self> {
        let (known, rule) = self
            .made
            .shared
            .get_or_init(|| (share, Arc::new(self.make_share(share))));
        match *known == share {
            true => Arc::clone(rule),
            false => Arc::new(self.make_share(share)),
        }
    }

    fn make_share(&self, share: Share) -> Self {
        let (algorithm, cost) = (self.counting.algorithm(), self.cost.max(1));
        let shared = |policy: &Policy| {
            let quota = share.quota(&policy.quota(), algorithm, cost);
            policy.with_quota(quota)
        };
        let of_others = |quota: &Quota| {
            let shared = share.quota(quota, algorithm, cost);
            match quota.bounds() {
                true => shared.bounding(),
                false => shared,
            }
        };
        let mut rule = Self {
            policies: self.policies.iter().map(shared).collect(),
            others: self.others.iter().map(of_others).collect(),
            plans: Box::default(),
            made: Made::default(),
            ..self.clone()
        };
        rule.charge_along();
        rule
    }
}

/// The id of a path under an algorithm: the counts of an algorithm, and those of a shadow rule,
/// belong to it alone.
fn id_of(path: &str, algorithm: Algorithm, is_shadow: bool) -> Box<str> {
    let mut id = String::new();
    escape(path.as_bytes(), &mut id);
    id.push_str(algorithm.key_suffix());
    id.push_str(if is_shadow { "~shadow" } else { "" });
    id.into()
}

pub(super) fn longest_life(counting: Counting, quotas: &[Quota]) -> u64 {
    let lives = quotas.iter().map(|quota| counting.algorithm().life(quota));
    lives.max().unwrap_or(0) + counting.lease_micros()
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("path", &self.path)
            .field("policies", &self.policies)
            .field("plan", &self.plan)
            .field("plans", &self.plans)
            .field("has_key", &self.key.is_some())
            .field("refund_on", &self.refund_on)
            .field("cost", &self.cost)
            .field("counting", &self.counting)
            .field("on_error", &self.on_error)
            .field("lease", &self.lease())
            .field("prefix", &self.prefix)
            .field("is_shadow", &self.is_shadow)
            .field("shadow", &self.shadow)
            .finish()
    }
}

/// Why a [`Rule`](crate::Rule) cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The path is the empty string.
    #[error("the path is empty, expected the name of what is limited")]
    EmptyPath,
    /// There are no quotas, or more than 16.
    #[error("{0} quotas, expected 1 to {MAX_QUOTAS}")]
    NumberOfQuotas(usize),
    /// Two quotas have the same name.
    #[error("two quotas are named \"{0}\", expected a name of its own for each")]
    SameName(String),
    /// The name of a plan is the empty string.
    #[error("the plan has no name")]
    EmptyPlan,
    /// Two plans have the same name.
    #[error("two plans are named \"{0}\", expected a name of its own for each")]
    SamePlan(String),
    /// A lease under an algorithm that has none.
    #[error("no leases under {0}, expected sliding-log, sliding-window or fixed-window")]
    NoLeases(&'static str),
    /// A text that is not one of the outcomes of
    /// [`Rule::with_refund_on`](crate::Rule::with_refund_on).
    #[error("{0:?} is no outcome, expected {expected}", expected = Outcomes::EXPECTED)]
    NoOutcome(String),
    /// An empty list of outcomes.
    #[error("no outcome, expected {expected}", expected = Outcomes::EXPECTED)]
    NoOutcomes,
    /// A window with a lease is longer than a window may be.
    #[error("a window of ten years cannot be longer by a lease")]
    LeaseTooLong,
}

/// What happens to a request for which the store could not decide, unless an error callback answers
/// it.
///
/// A rule without a [choice](crate::Rule::with_on_error) behaves as [`OnError::Fallback`] if its
/// store has a [`Fallback`](crate::store::Fallback), and as [`OnError::Respond`] if it has none.
///
/// ```
/// use tidegate::rule::OnError;
/// use tidegate::{Quota, Rule};
///
/// // Searching goes on, unlimited, while Redis cannot be reached.
/// let search = Rule::new("search", [Quota::per_second(100)])?.with_on_error(OnError::Proceed);
/// assert_eq!(search.on_error(), Some(OnError::Proceed));
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnError {
    /// The request is answered with a 503, even if the store has a fallback.
    Respond,
    /// The handler runs, unlimited, even if the store has a fallback.
    Proceed,
    /// A [`Fallback`](crate::store::Fallback) decides, by this process's share of the quotas. If
    /// the store has none, the request is answered with a 503, and the log says so.
    Fallback,
}
