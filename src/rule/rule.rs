use std::fmt;
use std::sync::{Arc, OnceLock};

use super::exemptions::Exemptions;
use super::policy::{Per, Policy, PolicyTexts};
use super::quotas::check_policies;
use super::resolved::{Choice, Common, Resolved};
use super::rule_error::RuleError;
use super::rules::FileSwitches;
use super::settings::RuleSettings;
use super::subject::Subject;
use crate::algorithm::AlgorithmConfig;
use crate::key::KeyExtractor;
use crate::quota::Quota;

/// The limit of a path: one or more quotas, the key by which requests are counted, and the cost of
/// a request.
///
/// Every quota must have room for a request; the request is then charged to all of them together.
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
    /// What the user says.
    pub(super) settings: Arc<RuleSettings>,
    /// What a request has chosen, if the rule is made for one.
    pub(super) choice: Choice,
    /// What is made of both, when it is needed first.
    resolved: OnceLock<Resolved>,
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
        Self::with_policies(path, quotas.into_iter().map(Policy::from))
    }

    /// A rule with names for the quotas, which clients see in the `RateLimit` fields. Without
    /// names the only quota is named like the path, and of several quotas each like the path and
    /// its window, as in `login-1d`. One may have a [cost of its own](Policy::with_cost).
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
    /// [`RuleError`] if the path is empty, if there are no quotas or more than 16, if two quotas
    /// have the same name, or if one has a subject, which is for [`Rule::joint`].
    pub fn with_policies(
        path: &str,
        policies: impl IntoIterator<Item = Policy>,
    ) -> Result<Self, RuleError> {
        let mut policies: Box<[_]> = policies.into_iter().collect();
        let mut subjects = Vec::new();
        if policies.iter().any(|policy| policy.cost().is_some()) {
            // The name that it has in files.
            let only = Subject::with_key("key", None);
            let subject = |it: &mut Policy| _ = it.subject.get_or_insert(only.name().into());
            policies.iter_mut().for_each(subject);
            subjects.push(only);
        }
        Self::of_subjects(path, subjects.into(), policies)
    }

    /// A rule of these subjects; without them it is of one.
    pub(super) fn of_subjects(
        path: &str,
        subjects: Arc<[Subject]>,
        mut policies: Box<[Policy]>,
    ) -> Result<Self, RuleError> {
        Policy::name_all(path, &mut policies);
        if path.is_empty() {
            return Err(RuleError::EmptyPath);
        }
        check_policies(&policies)?;
        let settings = RuleSettings {
            path: path.into(),
            policies,
            subjects,
            cost: 1,
            ..RuleSettings::default()
        };
        settings.check_subjects(&settings.policies)?;
        Ok(Self {
            settings: Arc::new(settings),
            choice: Choice::default(),
            resolved: OnceLock::new(),
        })
    }

    /// This rule under a choice of a request that fits it.
    pub(super) fn under_choice(&self, choice: Choice) -> Arc<Self> {
        let common = Arc::clone(&self.resolved().common);
        let resolved = Resolved::new(&self.settings, &choice, common);
        Arc::new(Self {
            settings: Arc::clone(&self.settings),
            choice,
            resolved: resolved.into(),
        })
    }

    /// The only way to change a setting: nothing stays that was made of the settings before.
    pub(super) fn with(mut self, set: impl FnOnce(&mut RuleSettings)) -> Self {
        set(Arc::make_mut(&mut self.settings));
        self.resolved = OnceLock::new();
        self
    }

    /// What limits the requests of this choice.
    #[inline]
    pub(super) fn resolved(&self) -> &Resolved {
        self.resolved.get_or_init(|| {
            let common = Common::new(&self.settings);
            Resolved::new(&self.settings, &self.choice, common.into())
        })
    }

    /// The key by which requests are counted. Default: that of [`Limits::key`](crate::Limits::key);
    /// without one, all requests of the path are counted together. With
    /// [`Everyone`](crate::key::Everyone) they always are.
    #[must_use]
    pub fn with_key(self, key: impl KeyExtractor) -> Self {
        self.with(|it| it.key = Some(Arc::new(key)))
    }

    /// Between whom those that [wait](crate::RateLimitLayer::wait) take turns, such as tenants that
    /// share a quota: each has a lane, and the lane that was served least goes next, by what its
    /// requests cost. Those without such a key share a lane. Lanes are 1,024, by a hash. Where the
    /// places of those that wait are used up, the longest lane gives one to a shorter lane. Beside
    /// others that wait a newcomer waits for the turn of its lane, also where units are free. Plans
    /// may have [weights](super::Quotas::with_fair_weight).
    ///
    /// It holds within a process. Who sends many values of a key that is not authenticated has as
    /// many turns. Default: cheaper requests go first, until others are overdue.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::key::Header;
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// let model = Rule::new("model", [Quota::per_second(5)])?;
    /// let limits = Limits::new([model.with_fair_by(Header::new("x-tenant"))]);
    /// let layer = limits.layer("model").wait(Duration::from_secs(20));
    /// # let _ = layer;
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn with_fair_by(self, key: impl KeyExtractor) -> Self {
        self.with(|it| it.fair_by = Some(Arc::new(key)))
    }

    /// The requests that pass without being limited, beside those that the file exempts from all
    /// rules. Default: none.
    #[cfg(feature = "config")]
    pub(crate) fn with_exemptions(self, exemptions: Exemptions) -> Self {
        self.with(|it| it.exemptions = Arc::new(exemptions.and(&it.exemptions)))
    }

    /// This rule in a file that says this for all its rules, and nothing else.
    pub(super) fn in_file(self, file: &Arc<FileSwitches>) -> Self {
        self.with(|it| it.file = Some(Arc::clone(file)))
    }

    /// Whether its file says that the connections of denied uploads are closed.
    pub(crate) fn closes_uploads(&self) -> bool {
        self.settings
            .file
            .as_ref()
            .is_some_and(|it| it.closes_uploads)
    }

    /// Says that handlers [settle](crate::store::Charge::settle) what this rule charged, usually
    /// with units left, so that a request may [wait](crate::RateLimitLayer::wait) for these units
    /// beyond its retry-after. Default: false.
    #[must_use]
    pub fn with_settling(self, settles: bool) -> Self {
        self.with(|it| it.settles = settles)
    }

    /// Whether handlers [settle](Self::with_settling) what this rule charged.
    #[must_use]
    pub fn settles(&self) -> bool {
        self.settings.settles
    }

    /// To how many units, at least 1, a request [settles](crate::store::Charge::settle) that is
    /// dropped before its answer's head, or a [call](crate::Limits::call) before its function
    /// returned, unless code has settled, has metered, or keeps the charge: who leaves early pays
    /// this. Without effect unless the rule [settles](Self::with_settling). Default: the
    /// reservation stays.
    #[must_use]
    pub fn with_settle_dropped(self, units: u64) -> Self {
        self.with(|it| it.settle_dropped = Some(units.max(1)))
    }

    /// To how many units a dropped request [settles](Self::with_settle_dropped).
    #[must_use]
    pub fn settle_dropped(&self) -> Option<u64> {
        self.settings.settle_dropped.filter(|_| self.settles())
    }

    /// Lets a request whose cost, an estimate, is above a max of the quotas that decide it (of the
    /// rule, its plan or its raise, under GCRA the burst) reserve that max, where it would be
    /// denied for ever. The [settlement](crate::store::Charge::settle) charges what was used beyond
    /// it, and the decision [says so](crate::Decision::is_reduced). Without effect unless the rule
    /// [settles](Self::with_settling). Default: such a request never fits.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rule = Rule::new("chat", [Quota::per_minute(1_000)])?;
    /// let limits = Limits::new([rule.with_settling(true).with_reserve_max()]);
    /// let admitted = limits.check("chat", "acme").cost(8_000).await?;
    /// assert!(admitted.decision.is_some_and(|it| it.is_reduced()));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_reserve_max(self) -> Self {
        self.with(|it| it.reserves_max = true)
    }

    /// Whether a request above max [reserves max](Self::with_reserve_max).
    pub(crate) fn reserves_max(&self) -> bool {
        self.settings.reserves_max && self.settings.settles
    }

    /// How many units of each quota a key may owe: a [settlement](crate::store::Charge::settle)
    /// charges what was used beyond a reservation also above max, until so many units above it;
    /// what is beyond is forgiven. With 0 nothing is charged above max. At most
    /// [`Quota::MAX_UNITS`], and under [`Algorithm::Gcra`](crate::Algorithm::Gcra) what drains in
    /// ten years. Default: the max of each quota once more.
    ///
    /// ```
    /// use tidegate::{Quota, Rule};
    ///
    /// let rule = Rule::new("tokens", [Quota::per_minute(90_000)])?.with_owe_at_most(200_000);
    /// assert_eq!(rule.owe_at_most(), Some(200_000));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn with_owe_at_most(self, units: u64) -> Self {
        self.with(|it| it.owe_at_most = Some(units))
    }

    /// How many units of each quota a key [may owe](Self::with_owe_at_most); `None`: its max.
    #[must_use]
    pub fn owe_at_most(&self) -> Option<u64> {
        self.settings.owe_at_most
    }

    /// The units that one request consumes; [0 as well](crate::Take::with_cost). Default: 1.
    #[must_use]
    pub fn with_cost(self, cost: u64) -> Self {
        self.with(|it| it.cost = cost)
    }

    /// How requests are counted. Default:
    /// [`Algorithm::SlidingLog`](crate::Algorithm::SlidingLog).
    ///
    /// Each algorithm has counts of its own. A rule that changes its algorithm starts with empty
    /// counts; if it changes back in time, it finds its old counts.
    ///
    /// ```
    /// use tidegate::{Algorithm, Quota, Rule};
    /// use tidegate::algorithm::AlgorithmConfig;
    ///
    /// let smooth = Quota::per_second(100).with_burst(20)?;
    /// let search = Rule::new("search", [smooth])?.with_algorithm(Algorithm::Gcra);
    ///
    /// let coarse = AlgorithmConfig::from(Algorithm::SlidingWindow).sub_windows(16);
    /// let feed = Rule::new("feed", [Quota::per_hour(1_000_000)])?.with_algorithm(coarse);
    /// # let _ = (search, feed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_algorithm(self, algorithm: impl Into<AlgorithmConfig>) -> Self {
        self.with(|it| it.algorithm = algorithm.into())
    }

    /// This rule as a shadow rule: the store decides about each request and the
    /// [counters](crate::metrics) show what it would have denied, but no request is denied, delayed
    /// or given fields. It has keys of its own in the store, so that a process that enforces the
    /// rule and one that tries it do not charge each other. Default: the rule is enforced.
    ///
    /// Quotas are tried beside those of a rule in a second one, of another path. Its layer stands
    /// outside, so that it sees what the first rule denies.
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
    pub fn into_shadow(self) -> Self {
        self.with(|it| it.is_shadow = true)
    }

    /// Whether the rule is a [shadow rule](Self::into_shadow).
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.resolved().common.is_shadow
    }

    /// Adds a random part to the `Retry-After` of denials, and of answers without a decision, of at
    /// most this many percent, 0 to 100: many clients obey it to the second, so all that one window
    /// or outage has refused would come again in the same second. To `n` seconds a uniform whole
    /// number from 0 to `n * percent / 100`, rounded up, is added, in all forms of an answer alike;
    /// decisions and `t` stay exact. A larger number becomes 100. Default: 0.
    #[must_use]
    pub fn with_retry_after_jitter(self, percent: u8) -> Self {
        self.with(|it| it.retry_after_jitter = percent.min(100))
    }

    /// The random part of `Retry-After`, [in percent](Self::with_retry_after_jitter).
    #[must_use]
    pub fn retry_after_jitter(&self) -> u8 {
        self.settings.retry_after_jitter
    }

    /// What happens to a request for which the store could not decide. Default:
    /// [`OnError::Fallback`] if the store has a fallback, otherwise [`OnError::Respond`].
    #[must_use]
    pub fn with_on_error(self, on_error: OnError) -> Self {
        self.with(|it| it.on_error = Some(on_error))
    }

    /// The beginning of the names of this rule's keys in a store. End it with a separator: nothing
    /// is put between it and the path. Default: the store's own prefix.
    #[must_use]
    pub fn with_prefix(self, prefix: impl Into<Arc<str>>) -> Self {
        self.with(|it| it.prefix = Some(prefix.into()))
    }

    /// The name of what is limited.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.settings.path
    }

    /// The path, for callers that keep it longer than the rule.
    pub(crate) fn shared_path(&self) -> &Arc<str> {
        &self.settings.path
    }

    /// The quotas with their names.
    #[must_use]
    pub fn policies(&self) -> &[Policy] {
        &self.resolved().policies
    }

    /// Whether clients are not told of some of them.
    #[inline]
    pub(crate) fn has_hidden(&self) -> bool {
        self.resolved().has_hidden
    }

    /// The quotas alone, in the policies' order.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        &self.resolved().quotas
    }

    /// The path and the algorithm, as the names of a store's keys contain them: printable, without
    /// `:`, `{` and `}`. Different paths have different ids. The algorithm is appended as
    /// `~window`, `~gcra` or `~fixed`; nothing is appended for the sliding log. A shadow rule has
    /// `~shadow` behind that.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.resolved().common.id
    }

    /// The [prefix](Rule::with_prefix) of this rule's keys; `None` if the store's own applies.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.settings.prefix.as_deref()
    }

    /// Whether the sliding log may keep more than 10,000 entries for a key.
    pub(crate) fn has_large_log(&self) -> bool {
        const MAX: u64 = 10_000;
        let is_large = |it: &Policy| it.per == Per::Window && it.quota().max() > MAX;
        let keeps_log = self.algorithm().algorithm().keeps_log();
        keeps_log && self.policies().iter().any(is_large)
    }

    /// What clients learn of the policies.
    pub(crate) fn texts(&self) -> &PolicyTexts {
        &self.resolved().texts
    }

    pub(crate) fn exemptions(&self) -> Option<&Exemptions> {
        self.resolved().common.exemptions.as_deref()
    }

    pub(crate) fn extractor(&self) -> Option<&Arc<dyn KeyExtractor>> {
        self.settings.key.as_ref()
    }

    pub(crate) fn fair_by(&self) -> Option<&Arc<dyn KeyExtractor>> {
        self.settings.fair_by.as_ref()
    }

    /// The units that one request consumes.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.settings.cost
    }

    /// How requests are counted.
    #[must_use]
    pub fn algorithm(&self) -> AlgorithmConfig {
        self.settings.algorithm
    }

    /// The choice made with [`Rule::with_on_error`]; `None` if none was made.
    #[must_use]
    pub fn on_error(&self) -> Option<OnError> {
        self.settings.on_error
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule")
            .field(&self.settings)
            .field(&self.choice)
            .finish()
    }
}

impl fmt::Debug for dyn KeyExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mark())
    }
}

/// What happens to a request for which the store could not decide.
///
/// It comes before error callbacks: they answer what neither [`OnError::Proceed`] admits nor a
/// fallback decides.
///
/// A rule without a [choice](crate::Rule::with_on_error) behaves as [`OnError::Fallback`] if its
/// store has a [fallback](crate::Resilient::fallback), and as [`OnError::Respond`] if it has none.
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
    /// The error callback answers, else a 503, even if the store has a fallback.
    Respond,
    /// The handler runs, unlimited, even if the store has a fallback or there is an error callback.
    Proceed,
    /// A [fallback](crate::Resilient::fallback) decides, by this process's share of the quotas. If
    /// the store has none, it is as [`OnError::Respond`], and the log says so.
    Fallback,
}
