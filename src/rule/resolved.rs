use std::sync::{Arc, OnceLock};

use super::exemptions::Exemptions;
use super::plans::{Chosen, DerivedRules, PlanQuotas};
use super::policy::{Per, Policy, PolicyTexts};
use super::raise::Factors;
use super::rule::OnError;
use super::settings::RuleSettings;
use crate::algorithm::Algorithm;
use crate::algorithm::calendar::Calendar;
use crate::algorithm::spec::{HeldBy, Kind, Permits, Spec, Windows};
use crate::decision::QuotaState;
use crate::factor::Factor;
use crate::key::escaped;
use crate::question::Names;
use crate::question::{RuleCount, RuleCounts};
use crate::quota::Quota;

/// What a request has chosen of a rule, and by what an operator multiplies it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Choice {
    pub(super) chosen: Chosen,
    pub(super) factors: Factors,
}

/// What a request is limited by: what a rule says, under a choice. It does not change; a few values
/// are made when they are needed first.
#[derive(Clone)]
pub(super) struct Resolved {
    pub(super) common: Arc<Common>,
    pub(super) policies: Box<[Policy]>,
    /// The policies' quotas, as a slice.
    pub(super) quotas: Box<[Quota]>,
    /// What a store keeps: at least one.
    pub(super) counts: Arc<RuleCounts>,
    /// Whether clients are not told of some policy.
    pub(super) has_hidden: bool,
    /// What clients learn of the policies.
    pub(super) texts: PolicyTexts,
    /// The rule under other choices.
    pub(super) derived: OnceLock<Arc<DerivedRules>>,
}

/// What is the same under all choices.
pub(super) struct Common {
    /// The path, the algorithm and the shadow, as the names of a store's keys contain them.
    pub(super) id: Box<str>,
    /// Whether the rule or its file says so.
    pub(super) is_shadow: bool,
    /// Those of the rule and of its file, if there are any.
    pub(super) exemptions: Option<Arc<Exemptions>>,
}

impl Common {
    pub(super) fn new(settings: &RuleSettings) -> Self {
        let file = settings.file.as_deref();
        let exemptions = match file {
            None => Arc::clone(&settings.exemptions),
            Some(file) => Arc::new(Exemptions::clone(&settings.exemptions).and(&file.exemptions)),
        };
        let is_shadow = settings.is_shadow || file.is_some_and(|file| file.is_shadow);
        let id = id_of(&settings.path, settings.algorithm.algorithm(), is_shadow);
        Self {
            id,
            is_shadow,
            exemptions: Some(exemptions).filter(|it| !it.is_empty()),
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

impl Resolved {
    pub(super) fn new(settings: &RuleSettings, choice: &Choice, common: Arc<Common>) -> Self {
        let mut policies = match &choice.chosen {
            Chosen::Own => settings.policies.clone(),
            Chosen::Plan(PlanQuotas { quotas, .. }) | Chosen::Value(quotas) => {
                settings.merged(quotas)
            }
        };
        settings.raise(&mut policies, &choice.factors);
        Self {
            quotas: policies.iter().map(Policy::quota).collect(),
            counts: Arc::new(settings.counts(&policies, &choice.factors, &common)),
            has_hidden: policies.iter().any(Policy::is_hidden),
            policies,
            common,
            texts: PolicyTexts::default(),
            derived: OnceLock::new(),
        }
    }
}

/// What tells the counts of a rule apart.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CountId {
    /// The place and the name of its subject; `None` under a rule of one.
    subject: Option<(usize, Arc<str>)>,
    /// That of its quotas, if it is not that of the request.
    cost: Option<u64>,
    /// What its keys end with, beside those of the windows with this id.
    ending: &'static str,
}

impl CountId {
    /// The id of the count of the rule with this id, as keys in a store contain it.
    fn in_store(&self, id: &str) -> String {
        let cost = self
            .cost
            .map_or_else(String::new, |cost| format!("~{cost}"));
        match &self.subject {
            None => format!("{id}{cost}"),
            Some((_, name)) => format!("{{{id}}}:{}{cost}", escaped(name)),
        }
    }

    fn is_permits(&self) -> bool {
        self.ending == Names::PERMITS
    }
}

impl RuleSettings {
    /// The ids that the counts of these policies have in a store, without those of permits.
    pub(super) fn names_of_counts<'a>(
        &self,
        policies: impl IntoIterator<Item = &'a Policy>,
        id: &str,
    ) -> Vec<String> {
        let counts = self.ids_of_counts(policies);
        let counts = counts.iter().filter(|count| !count.is_permits());
        counts
            .map(|count| count.in_store(id) + count.ending)
            .collect()
    }

    /// The counts that a take under these policies is charged in.
    fn counts(&self, policies: &[Policy], factors: &Factors, common: &Common) -> RuleCounts {
        let ids = self.ids_of_counts(policies).into_iter();
        let counts = ids.map(|id| {
            let places = (0..policies.len()).filter(|at| self.count_of(&policies[*at]) == id);
            let places: Box<[_]> = places.collect();
            let quotas = places.iter().map(|at| policies[*at].quota()).collect();
            let subject = id.subject.as_ref().map_or(0, |(place, _)| *place);
            let factor = places.iter().filter_map(|place| factors.get(*place)).max();
            let per = &policies[places[0]].per;
            let spec = self.spec(&id, quotas, per, factor, common.is_shadow);
            let (prefix, name) = (self.prefix.as_deref(), id.in_store(&common.id));
            RuleCount {
                subject,
                // Each request holds one permit.
                cost: id.cost.or(id.is_permits().then_some(1)),
                names: Names::new(prefix, &name, id.ending),
                spec: Arc::new(spec),
                places,
            }
        });
        let counts: Box<[_]> = counts.collect();
        let has_own_cost = counts.iter().any(|it| it.cost.is_some());
        let algorithm = self.algorithm.algorithm();
        let full = |it: &Policy| QuotaState::from_micros(algorithm.limit(&it.quota()), 0).hidden();
        RuleCounts {
            path: Arc::clone(&self.path),
            is_joint: counts.len() > 1 || has_own_cost || !self.subjects.is_empty(),
            in_shadow: common.is_shadow,
            falls_back: matches!(self.on_error, None | Some(OnError::Fallback)),
            list: counts,
            untouched: policies.iter().map(full).collect(),
        }
    }

    fn count_of(&self, policy: &Policy) -> CountId {
        let place = self.place_of(policy.subject());
        CountId {
            subject: place.map(|it| (it, self.subjects[it].shared_name())),
            cost: policy.cost(),
            ending: match &policy.per {
                Per::Window => "",
                Per::Period(period) => period.ending(),
                Per::AtATime => Names::PERMITS,
            },
        }
    }

    /// Those in windows stand first, and those of permits behind all others. Of outgoing calls the
    /// one that counts their cost is first: it may be held.
    fn ids_of_counts<'a>(&self, policies: impl IntoIterator<Item = &'a Policy>) -> Vec<CountId> {
        let mut counts = Vec::new();
        for policy in policies {
            let id = self.count_of(policy);
            if !counts.contains(&id) {
                counts.push(id);
            }
        }
        let is_outgoing = self.hold_at_most.is_some();
        let is_behind = |id: &CountId| is_outgoing && id.cost.is_some();
        counts.sort_by_key(|id| (id.is_permits(), !id.ending.is_empty(), is_behind(id)));
        counts
    }

    fn spec(
        &self,
        id: &CountId,
        quotas: Box<[Quota]>,
        per: &Per,
        factor: Option<&Factor>,
        is_shadow: bool,
    ) -> Spec {
        let factor = factor.copied().unwrap_or(Factor::ONE);
        let owe_at_most = self.owe_at_most.map(|units| factor.times(units));
        match per {
            Per::Window => {
                let windows = Windows::new(self.algorithm, quotas, owe_at_most);
                let subject = id.subject.as_ref().map(|(place, _)| *place);
                let held_by = self.held_by(subject, id.cost);
                Spec::new(Kind::Windows(windows), held_by)
            }
            Per::Period(period) => {
                let calendar = Calendar {
                    period: period.clone(),
                    quotas: [quotas[0]],
                    owe_at_most,
                };
                Spec::new(Kind::Calendar(calendar), HeldBy::Nobody)
            }
            Per::AtATime => {
                let permits = Permits {
                    quotas: [quotas[0]],
                    is_unlimited: is_shadow,
                    lease: self.permits.lease,
                    busy_retry: self.permits.busy_retry,
                };
                Spec::new(Kind::Permits(permits), HeldBy::Nobody)
            }
        }
    }
}
