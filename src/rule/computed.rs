use std::sync::{Arc, OnceLock};

use super::exemptions::Exemptions;
use super::plans::DerivedRules;
use super::policy::{Policy, PolicyTexts};
use super::rule::RuleSettings;
use crate::algorithm::{Algorithm, AlgorithmConfig};
use crate::counts::RuleCounts;
use crate::key::{escaped, hash};
use crate::quota::Quota;

/// What is made of a rule's settings. It does not change; a few values are made when they are
/// needed first.
#[derive(Clone)]
pub(super) struct Computed {
    /// The path, the algorithm and the shadow, as the names of a store's keys contain them.
    pub(super) id: Box<str>,
    pub(super) id_hash: u64,
    /// The policies' quotas, as a slice.
    pub(super) quotas: Box<[Quota]>,
    /// What a store keeps: at least one.
    pub(super) counts: Arc<RuleCounts>,
    pub(super) algorithm: AlgorithmConfig,
    /// Whether the rule or its file says so.
    pub(super) is_shadow: bool,
    /// Those of the rule and of its file, if there are any.
    pub(super) exemptions: Option<Arc<Exemptions>>,
    /// Whether clients are not told of some policy.
    pub(super) has_hidden: bool,
    /// What clients learn of the policies.
    pub(super) texts: PolicyTexts,
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
        let id = id_of(&settings.path, algorithm, is_shadow);
        let counts = settings.counts(&id, is_shadow);
        Self {
            id_hash: hash(&id),
            id,
            quotas,
            counts,
            algorithm: settings.algorithm,
            is_shadow,
            exemptions: Some(exemptions).filter(|it| !it.is_empty()),
            has_hidden: settings.policies.iter().any(Policy::is_hidden),
            texts: PolicyTexts::default(),
            derived: OnceLock::new(),
        }
    }
}

/// The id of a path under an algorithm: the counts of an algorithm, and those of a shadow rule,
/// belong to it alone.
fn id_of(path: &str, algorithm: Algorithm, is_shadow: bool) -> Box<str> {
    let shadow = if is_shadow { "~shadow" } else { "" };
    [&*escaped(path), algorithm.key_suffix(), shadow]
        .concat()
        .into()
}
