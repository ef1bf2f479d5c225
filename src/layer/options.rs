use std::collections::HashMap;
use std::sync::Arc;

use http::request::Parts;
use http::response;

use super::decisions::{Crossings, Listeners};
use crate::callback::{DegradeCallback, ErrorCallback, Form};
use crate::key::KeyExtractor;
use crate::key::ip::PeerHook;
use crate::rule::headers::Headers;
use crate::rule::{Plan, Rule, Rules, Subject};
use crate::warning::{Warning, WarningKind};

/// What an application says about the requests of a layer: the setters of
/// [`RateLimitLayer`](crate::RateLimitLayer) have the meaning and the defaults of each field.
///
/// The layers of [`Limits`](crate::Limits) begin with a copy of its options.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    /// For rules and layers without a key of their own.
    pub(crate) default_key: Option<Arc<dyn KeyExtractor>>,
    pub(super) cost: Option<Arc<Cost>>,
    pub(super) fair_by: Option<Arc<dyn KeyExtractor>>,
    pub(crate) plan: Option<Arc<ChoosePlan>>,
    pub(crate) plan_value: Option<Arc<ChoosePlanValue>>,
    /// Those of [`Limits`](crate::Limits), by path.
    pub(crate) plan_values: HashMap<Box<str>, Arc<ChoosePlanValue>>,
    /// Any one of them exempts a request.
    pub(crate) exempt: Vec<Arc<Exempt>>,
    pub(crate) peer: Option<PeerHook>,
    pub(crate) degrade: Option<Arc<dyn DegradeCallback>>,
    pub(crate) on_error: Option<Arc<dyn ErrorCallback>>,
    /// Gives back by the response, beside what the rule says.
    pub(super) refund_if: Option<Arc<RefundIf>>,
    /// The callbacks for shares of calendar quotas, and for keys that are locked out.
    pub(crate) listeners: Listeners,
    /// Before what a file says.
    pub(crate) headers: Option<Headers>,
    pub(crate) form: Form,
    /// Whether requests go on, and responses go back, without what the layer has decided.
    pub(super) without_extensions: WithoutExtensions,
    /// Whether nothing reads on what the client of a denied upload still sends.
    pub(crate) closes_uploads: bool,
}

/// Where a layer leaves out what it has decided.
#[derive(Clone, Copy, Default)]
pub(super) struct WithoutExtensions {
    pub(super) request: bool,
    pub(super) response: bool,
}

/// Says what a rule reads from the head of a request.
#[derive(Clone, Copy)]
pub(super) struct Reads<'a> {
    pub(super) rule: &'a Arc<Rule>,
    pub(super) key: Option<&'a dyn KeyExtractor>,
    /// Between whom those that wait are fair.
    pub(super) fair_by: Option<&'a dyn KeyExtractor>,
    /// Whether requests are counted by what is in their heads, or take turns by that.
    pub(super) has_key: bool,
}

/// Computes the cost of a request from its head.
type Cost = dyn Fn(&Parts) -> u64 + Send + Sync;
/// The plan of a request with this head.
type ChoosePlan = dyn Fn(&Parts) -> Option<&str> + Send + Sync;
/// The plan of a request with this head, as a value.
type ChoosePlanValue = dyn Fn(&Parts) -> Option<Plan> + Send + Sync;
/// Whether a request with this head passes without being limited.
type Exempt = dyn Fn(&Parts) -> bool + Send + Sync;
/// Whether the charge of a request with this response is given back.
type RefundIf = dyn Fn(&response::Parts) -> bool + Send + Sync;

impl Options {
    /// Callbacks that are never called under these rules: no share is reached, or no key locked out.
    pub(crate) fn idle_callbacks(&self, rules: &Rules) -> impl Iterator<Item = Warning> + use<> {
        let may_come = |it: &Arc<Crossings>| it.is_expected() || !self.plan_values.is_empty();
        let listeners = &self.listeners;
        let is_idle = listeners.crossings.as_ref().is_some_and(|it| !may_come(it));
        let is_idle = is_idle && !rules.iter().any(|rule| rule.has_calendar());
        let no_lockout =
            listeners.on_lockout.is_some() && !rules.iter().any(|it| it.counts_failures());
        let idle = |setter| Warning::named(WarningKind::IdleCallback, setter);
        let of_crossings = is_idle.then(|| idle("on_crossing"));
        let of_lockouts = no_lockout.then(|| idle("on_lockout").second());
        of_crossings.into_iter().chain(of_lockouts)
    }

    /// The setter of what chooses a plan of this rule by a request, which a check does not have.
    pub(crate) fn plan_setter(&self, rule: &Rule) -> Option<&'static str> {
        if self.plan_values.contains_key(rule.path()) {
            return Some("plan_value");
        }
        (self.plan.is_some() && rule.has_plans()).then_some("plan")
    }

    /// What code says in place of the rule's file, so that the file's value is unused.
    pub(super) fn hidden_answers(&self, rule: &Rule) -> Option<Warning> {
        let by_code = [self.headers.is_some(), self.degrade.is_some()];
        let hidden = rule.answers().hidden(by_code).join(" and ");
        (!hidden.is_empty()).then(|| Warning::with_name(WarningKind::HiddenByCode, hidden))
    }

    /// The layer's own extractor comes before the rule's, and that before the default.
    pub(super) fn extractor<'a>(&'a self, rule: &'a Rule) -> Option<&'a dyn KeyExtractor> {
        let own = self.key.as_ref().or(rule.extractor());
        own.or(self.default_key.as_ref()).map(Arc::as_ref)
    }

    /// What says who asks: the layer's own extractors come before the rule's.
    #[inline]
    pub(super) fn reads<'a>(&'a self, rule: &'a Arc<Rule>) -> Reads<'a> {
        let (key, fair_by) = (
            self.extractor(rule),
            self.fair_by.as_ref().or(rule.fair_by()),
        );
        Reads {
            rule,
            key,
            fair_by: fair_by.map(Arc::as_ref),
            has_key: key.is_some() || fair_by.is_some() || !rule.subjects().is_empty(),
        }
    }

    /// That of a subject of a joint rule: its own comes first.
    pub(super) fn extractor_of<'a>(
        &'a self,
        rule: &'a Rule,
        subject: &'a Subject,
    ) -> Option<&'a dyn KeyExtractor> {
        let own = subject.key().map(Arc::as_ref);
        own.or_else(|| self.extractor(rule))
    }
}

crate::named::debug_fields!(Options);
