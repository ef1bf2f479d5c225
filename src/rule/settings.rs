use std::sync::Arc;
use std::time::Duration;

use super::answers::AnswerSettings;
use super::exemptions::Exemptions;
use super::lockout::Lockout;
use super::max_concurrent::PermitSettings;
use super::outcomes::Outcomes;
use super::plans::PlanQuotas;
use super::policy::Policy;
use super::rule::OnError;
use super::rule_error::RuleError;
use super::rules::FileSwitches;
use super::subject::Subject;
use crate::algorithm::AlgorithmConfig;
use crate::key::KeyExtractor;

/// What a user says of a rule. Nothing in it is derived.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleSettings {
    pub(super) path: Arc<str>,
    pub(super) policies: Box<[Policy]>,
    /// Those of a joint rule; empty if there is one.
    pub(super) subjects: Arc<[Subject]>,
    /// In alphabetical order of their names.
    pub(super) plans: Arc<[PlanQuotas]>,
    pub(super) prefix: Option<Arc<str>>,
    pub(super) key: Option<Arc<dyn KeyExtractor>>,
    pub(super) fair_by: Option<Arc<dyn KeyExtractor>>,
    /// Without those of its file.
    pub(super) exemptions: Arc<Exemptions>,
    pub(super) answers: AnswerSettings,
    /// What its file says for all rules.
    pub(super) file: Option<Arc<FileSwitches>>,
    pub(super) refund_on: Option<Arc<Outcomes>>,
    pub(super) settles: bool,
    /// To how many units a request settles that is dropped before its answer.
    pub(super) settle_dropped: Option<u64>,
    /// Whether a cost above max reserves max.
    pub(super) reserves_max: bool,
    /// `None`: the max of each quota.
    pub(super) owe_at_most: Option<u64>,
    pub(super) cost: u64,
    pub(super) algorithm: AlgorithmConfig,
    pub(super) on_error: Option<OnError>,
    pub(super) is_shadow: bool,
    /// In percent of what a denied client is told to wait.
    pub(super) retry_after_jitter: u8,
    /// The name of the only subject, if code gave it one.
    pub(super) only_subject: Option<Arc<str>>,
    pub(super) permits: PermitSettings,
    /// How long a partner's answer may hold a key; `None` if none may.
    pub(super) hold_at_most: Option<Duration>,
    /// How long a refusal holds a key that does not say it.
    pub(super) hold_untold: Option<Duration>,
    /// With which other statuses a partner refuses calls.
    pub(super) hold_on: Option<Arc<Outcomes>>,
    pub(super) lockout: Option<Arc<Lockout>>,
}

impl RuleSettings {
    /// Those of the rule, and what was said of those of its plans.
    pub(super) fn given_policies(&self) -> impl Iterator<Item = &Policy> {
        let of_plans = self.plans.iter().flat_map(|plan| plan.quotas.given());
        self.policies.iter().chain(of_plans)
    }

    /// The place of the subject with this name, without one that of the first; `None` under a rule
    /// of one.
    pub(super) fn place_of(&self, name: Option<&str>) -> Option<usize> {
        let mut subjects = self.subjects.iter();
        subjects.position(|it| name.is_none_or(|name| it.name() == name))
    }

    /// Whether each policy is of a subject of the rule. Only those of a joint rule have costs of
    /// their own.
    pub(super) fn check_subjects(&self, policies: &[Policy]) -> Result<(), RuleError> {
        for policy in policies {
            if let Some(name) = &policy.subject
                && self.subjects.iter().all(|it| it.name() != &**name)
            {
                return Err(RuleError::UnknownSubject(name.to_string()));
            }
            if policy.cost().is_some() && self.subjects.is_empty() {
                let unnamed = || policy.quota().to_string();
                let name = Some(policy.name()).filter(|name| !name.is_empty());
                let name = name.map_or_else(unnamed, str::to_owned);
                return Err(RuleError::CostWithoutSubject(name));
            }
        }
        Ok(())
    }

    /// Whether one at least of these policies limits a subject that is in every request.
    pub(super) fn has_certain_subject(&self, policies: &[Policy]) -> bool {
        let subject_of = |policy: &Policy| match &policy.subject {
            Some(name) => self.subjects.iter().find(|it| it.name() == &**name),
            None => self.subjects.first(),
        };
        let mut subjects = policies.iter().map(subject_of);
        subjects.any(|subject| subject.is_none_or(|it| !it.may_be_absent()))
    }
}
