use std::fmt;
use std::sync::{Arc, OnceLock};

use super::{OnError, Policy, Share};
use crate::algorithm::{Algorithm, Counting};
use crate::key::{KeyExtractor, escape, hash};
use crate::quota::{MAX_QUOTAS, Quota};

/// What limits a path: one or more quotas, who is counted together, and what a request costs.
///
/// ```
/// use tidegate::{PeerIp, Quota, Rule};
///
/// let rule = Rule::new("login", [Quota::per_minute(5), Quota::per_day(50)])?.key(PeerIp);
/// assert_eq!(rule.path(), "login");
/// assert_eq!(rule.policies()[1].name(), "login-1d");
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Clone)]
pub struct Rule {
    path: Arc<str>,
    /// The path and the algorithm as they stand in the names of a store's keys.
    id: Box<str>,
    id_hash: u64,
    prefix: Option<Arc<str>>,
    policies: Box<[Policy]>,
    /// The policies' quotas side by side, as the algorithms want them.
    quotas: Box<[Quota]>,
    /// How long a charge counts at most, in microseconds.
    life: u64,
    key: Option<Arc<dyn KeyExtractor>>,
    cost: u64,
    counting: Counting,
    on_error: Option<OnError>,
    /// What a store's question says of the quotas, encoded once.
    question: OnceLock<Box<[u8]>>,
    /// What a fallback counts by, for the share that was asked for first.
    shared: OnceLock<(Share, Arc<Self>)>,
}

impl Rule {
    /// The rule of a path: any non-empty name of what is limited, and 1 to 16 quotas that all have
    /// to have room.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if the path is empty, if there is no quota, or more than 16.
    pub fn new(path: &str, quotas: impl IntoIterator<Item = Quota>) -> Result<Self, RuleError> {
        let quotas: Vec<_> = quotas.into_iter().collect();
        let only = quotas.len() == 1;
        let named = |quota| Policy::unnamed(path, quota, only);
        Self::with_policies(path, quotas.into_iter().map(named))
    }

    /// The same with names for the quotas, which clients see in the `RateLimit` fields.
    ///
    /// # Errors
    ///
    /// As [`Rule::new`], and if two quotas have the same name.
    pub fn with_policies(
        path: &str,
        policies: impl IntoIterator<Item = Policy>,
    ) -> Result<Self, RuleError> {
        let policies: Box<[Policy]> = policies.into_iter().collect();
        if path.is_empty() {
            return Err(RuleError::EmptyPath);
        }
        if !(1..=MAX_QUOTAS).contains(&policies.len()) {
            return Err(RuleError::NumberOfQuotas(policies.len()));
        }
        for (at, policy) in policies.iter().enumerate() {
            if policies[..at]
                .iter()
                .any(|other| other.name() == policy.name())
            {
                return Err(RuleError::SameName(policy.name().to_owned()));
            }
        }
        let quotas: Box<[Quota]> = policies.iter().map(Policy::quota).collect();
        let id = id_of(path, Algorithm::default());
        Ok(Self {
            path: path.into(),
            id_hash: hash(&id),
            id,
            prefix: None,
            life: longest_life(Algorithm::default(), &quotas),
            quotas,
            policies,
            key: None,
            cost: 1,
            counting: Algorithm::default().into(),
            on_error: None,
            question: OnceLock::new(),
            shared: OnceLock::new(),
        })
    }

    /// Who is counted together. Default: everybody who uses the path.
    #[must_use]
    pub fn key(mut self, key: impl KeyExtractor) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// Units that one request takes. Default: 1.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self.shared = OnceLock::new();
        self
    }

    /// How takes are counted. Default: [`Algorithm::SlidingLog`].
    ///
    /// Each algorithm has counts of its own: a rule that changes its algorithm starts afresh, and one that
    /// changes back finds what still counts of before.
    ///
    /// ```
    /// use tidegate::{Algorithm, Quota, Rule};
    /// use tidegate::algorithm::Counting;
    ///
    /// let smooth = Quota::per_second(100).with_burst(20)?;
    /// let search = Rule::new("search", [smooth])?.algorithm(Algorithm::Gcra);
    ///
    /// let coarse = Counting::from(Algorithm::SlidingWindow).sub_windows(16);
    /// let feed = Rule::new("feed", [Quota::per_hour(1_000_000)])?.algorithm(coarse);
    /// # let _ = (search, feed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn algorithm(mut self, algorithm: impl Into<Counting>) -> Self {
        self.counting = algorithm.into();
        self.life = longest_life(self.counting.algorithm(), &self.quotas);
        self.id = id_of(&self.path, self.counting.algorithm());
        self.id_hash = hash(&self.id);
        self.question = OnceLock::new();
        self.shared = OnceLock::new();
        self
    }

    /// What becomes of a request without a decision of the store. Default: [`OnError::Fallback`] where the store has
    /// one, and [`OnError::Respond`] where it has none.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = Some(on_error);
        self
    }

    /// What the names of this rule's keys in a store begin with, instead of the store's own prefix.
    /// End it with a separator: nothing is put between it and the path.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = Some(prefix.into());
        self.shared = OnceLock::new();
        self
    }

    /// The name of what is limited.
    #[must_use]
    pub fn path(&self) -> &str {
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
        &self.quotas
    }

    /// The path as stores name it: printable, without `:`, `{` and `}`. Two paths have two ids. Behind it
    /// stands the algorithm, unless it is the sliding log: `~window`, `~gcra` or `~fixed`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Of the id, made once.
    pub(crate) const fn id_hash(&self) -> u64 {
        self.id_hash
    }

    /// See [`Rule::prefix`].
    #[must_use]
    pub fn key_prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// How long a charge counts at most, in microseconds.
    pub(crate) const fn life_micros(&self) -> u64 {
        self.life
    }

    /// What a store's question says of this rule, encoded when it is first asked for.
    #[cfg(feature = "redis")]
    pub(crate) fn question(&self, encode: impl FnOnce(&Self) -> Box<[u8]>) -> &[u8] {
        self.question.get_or_init(|| encode(self))
    }

    pub(crate) fn extractor(&self) -> Option<&dyn KeyExtractor> {
        self.key.as_deref()
    }

    /// Units that one request takes.
    #[must_use]
    pub const fn request_cost(&self) -> u64 {
        self.cost
    }

    /// How takes are counted.
    #[must_use]
    pub const fn counting(&self) -> Counting {
        self.counting
    }

    /// See [`Rule::on_error`]; `None` if nothing was said.
    #[must_use]
    pub const fn error_policy(&self) -> Option<OnError> {
        self.on_error
    }

    /// This rule with the share of each quota: made once for the first share that is asked for, since there is
    /// hardly ever a second.
    pub(crate) fn of_share(&self, share: Share) -> Arc<Self> {
        let (known, rule) = self
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
        let policies: Box<[Policy]> = self.policies.iter().map(shared).collect();
        let quotas: Box<[Quota]> = policies.iter().map(Policy::quota).collect();
        Self {
            life: longest_life(algorithm, &quotas),
            quotas,
            policies,
            question: OnceLock::new(),
            shared: OnceLock::new(),
            ..self.clone()
        }
    }
}

/// A state belongs to its algorithm, so its name says which.
fn id_of(path: &str, algorithm: Algorithm) -> Box<str> {
    let suffix = algorithm.key_suffix();
    let mut id = String::with_capacity(path.len() + suffix.len());
    escape(path.as_bytes(), &mut id);
    id.push_str(suffix);
    id.into()
}

fn longest_life(algorithm: Algorithm, quotas: &[Quota]) -> u64 {
    let lives = quotas.iter().map(|quota| algorithm.life(quota));
    lives.max().unwrap_or(0)
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("path", &self.path)
            .field("policies", &self.policies)
            .field("has_key", &self.key.is_some())
            .field("cost", &self.cost)
            .field("counting", &self.counting)
            .field("on_error", &self.on_error)
            .field("prefix", &self.prefix)
            .finish()
    }
}

/// Why a [`Rule`] cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The path is the empty string.
    #[error("the path is empty, expected the name of what is limited")]
    EmptyPath,
    /// There are no quotas, or too many.
    #[error("{0} quotas, expected 1 to {MAX_QUOTAS}")]
    NumberOfQuotas(usize),
    /// Two quotas have the same name.
    #[error("two quotas are named \"{0}\", expected a name of its own for each")]
    SameName(String),
}
