use std::sync::{Arc, OnceLock};

use super::exemptions::Exemptions;
use super::plans::DerivedRules;
use super::policy::{Policy, PolicyTexts};
use super::rule::{Rule, RuleSettings};
use super::share::Share;
use super::subject::SubjectCount;
use crate::algorithm::{Algorithm, AlgorithmConfig};
use crate::key::{escape, hash};
use crate::quota::Quota;

/// What is made of a rule's settings. It does not change; a few values are made when they are
/// needed first.
#[derive(Clone)]
pub(super) struct Computed {
    /// The path, the algorithm and the shadow, as the names of a store's keys contain them.
    pub(super) id: Box<str>,
    pub(super) id_hash: u64,
    /// The policies' quotas, as a slice for the algorithms.
    pub(super) quotas: Box<[Quota]>,
    /// What a store keeps of a joint rule; empty for one of one subject.
    pub(super) counts: Box<[SubjectCount]>,
    pub(super) algorithm: AlgorithmConfig,
    /// The longest time for which a charge counts, in microseconds.
    pub(super) life: u64,
    /// Whether the rule or its file says so.
    pub(super) is_shadow: bool,
    /// Those of the rule and of its file, if there are any.
    pub(super) exemptions: Option<Arc<Exemptions>>,
    /// The quotas as a question to Redis contains them.
    #[cfg(feature = "redis")]
    pub(super) question: OnceLock<Box<[u8]>>,
    /// Whether clients are not told of some policy.
    pub(super) has_hidden: bool,
    /// What clients learn of the policies.
    pub(super) texts: PolicyTexts,
    /// The rule with a fallback's share of the quotas, for the share that was asked for first.
    pub(super) shared: OnceLock<(Share, Arc<Rule>)>,
    /// The rule with other quotas than its own.
    pub(super) derived: OnceLock<Arc<DerivedRules>>,
}

impl Computed {
    pub(super) fn of(settings: &RuleSettings) -> Self {
        let algorithm = settings.algorithm.algorithm();
        let quotas: Box<[_]> = settings.policies.iter().map(Policy::quota).collect();

        let file = settings.file.as_deref();
        let exemptions = match file {
            None => Arc::clone(&settings.exemptions),
            Some(file) => Arc::new(Exemptions::clone(&settings.exemptions).and(&file.exemptions)),
        };
        let is_shadow = settings.is_shadow || file.is_some_and(|file| file.is_shadow);
        let id_of_path = || id_of(&settings.path, algorithm, is_shadow);
        let id = settings.id_of_count.clone().unwrap_or_else(id_of_path);
        let counts = settings.counts(&id);
        let lives = quotas.iter().map(|quota| algorithm.life(quota));
        let of_counts = counts.iter().map(|count| count.rule.life_micros());
        let life = lives.chain(of_counts).max().unwrap_or(0);
        Self {
            // Permits have the id of the count beside them.
            id_hash: hash(&id) ^ u64::from(settings.is_permits),
            id,
            quotas,
            counts,
            algorithm: settings.algorithm,
            life,
            is_shadow,
            exemptions: Some(exemptions).filter(|it| !it.is_empty()),
            #[cfg(feature = "redis")]
            question: OnceLock::new(),
            has_hidden: settings.policies.iter().any(Policy::is_hidden),
            texts: PolicyTexts::default(),
            shared: OnceLock::new(),
            derived: OnceLock::new(),
        }
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
