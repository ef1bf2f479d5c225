use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderMap;

use super::decisions::{RuleSource, Warnings};
use super::gate::Gate;
use crate::callback::caught;
use crate::charge::Permit;
use crate::key::{Key, KeyExtractor, has_token};
use crate::rule::{Rule, may_be_everyone};
use crate::store::Store;
use crate::take::Take;
use crate::warning::{Warning, WarningKind};

/// The first requests of a layer, which are all looked at for mistakes in the set-up.
const ALL: u32 = 100;
/// From then on one of so many is,
const EVERY: u32 = 64;
/// and none after so many.
const LAST: u32 = 10_000;

impl Gate {
    /// Looks for mistakes in the set-up that a request with these fields shows, and its take if
    /// there is one, if it is one of the first requests, or its extractor has just found something
    /// by many of them. Code that asks without a request has no fields.
    #[inline]
    pub(super) fn inspect(&self, fields: Option<&HeaderMap>, take: Option<&Take>) {
        if self.inspected.load(Ordering::Relaxed) < LAST {
            self.inspect_first(fields, take);
        }
    }

    /// A permit for a caller of a check, of which the first ones are watched: a caller that does
    /// not keep it limits nothing.
    pub(super) fn watch_permit(&self, permit: Permit, rule: &Rule) -> Permit {
        if self.inspected.load(Ordering::Relaxed) > ALL {
            return permit;
        }
        let warnings = Arc::clone(&self.decider.warnings);
        let warning = Warning::new(WarningKind::PermitNotKept).about(rule.path());
        permit.watched(move || warnings.add(warning.clone()))
    }

    /// Looks whether one of the first checks lacks the plan that a request would have.
    pub(super) fn inspect_plan(&self, rule: &Rule) {
        if self.inspected.load(Ordering::Relaxed) < ALL
            && let Some(setter) = self.options.plan_setter(rule)
        {
            let warning = Warning::named(WarningKind::PlanOfCheck, setter);
            self.decider.warnings.add(warning.about(rule.path()));
        }
    }

    #[cold]
    fn inspect_first(&self, fields: Option<&HeaderMap>, take: Option<&Take>) {
        let warnings = &self.decider.warnings;
        let number = self.inspected.fetch_add(1, Ordering::Relaxed);
        if number >= ALL && !number.is_multiple_of(EVERY) {
            return;
        }
        match &self.decider.rule {
            RuleSource::Named { rules, .. } if number == 0 => warnings.begin(rules.downgrade()),
            // The runtime that waited may have ended.
            RuleSource::Named { rules, .. } if warnings.has_started() => {
                warnings.log_unused(rules);
                let idle = self.options.idle_callbacks(&rules.guard());
                idle.for_each(|it| warnings.add(it));
            }
            RuleSource::Named { .. } | RuleSource::Fixed(_) => {}
        }
        let Some(rule) = &self.decider.rule() else {
            return;
        };
        let take = take.filter(|_| number < ALL);
        let has_token = |key: &Key| has_token(key.as_str());
        let shows_token = take.is_some_and(|it| match it.keys() {
            None => has_token(it.key()),
            Some(keys) => keys.iter().flatten().any(has_token),
        });
        let of_token = shows_token.then(|| Warning::new(WarningKind::ReadableToken));
        let (options, subjects) = (&self.options, rule.subjects());
        let warning = |extractor: &dyn KeyExtractor| {
            let find = || extractor.warning(fields?);
            caught("key extractor", rule.path(), find).ok().flatten()
        };
        let only = subjects.is_empty().then(|| options.extractor(rule));
        let of_subjects = subjects.iter().map(|it| options.extractor_of(rule, it));
        let extractors = only.into_iter().chain(of_subjects).flatten();
        let of_keys = extractors.filter_map(warning);
        let of_keys = of_keys.filter(|it| it.kind != WarningKind::LockoutOfGuesses);
        let has_unused_key = options.key.as_ref().or(rule.extractor()).is_some()
            && !subjects.is_empty()
            && subjects.iter().all(|subject| subject.key().is_some());
        let of_unused_key = has_unused_key.then(|| Warning::new(WarningKind::KeyOfJointRule));
        let exemptions = rule.exemptions().zip(fields);
        let of_exemptions = exemptions.and_then(|(it, fields)| it.warning(fields));
        let sees_none = rule.outcomes().is_some_and(|it| !it.contain_error());
        let is_check = fields.is_none() && sees_none;
        let of_check = is_check.then(|| Warning::named(WarningKind::OutcomeOfCheck, "refund-on"));
        // The key of a check is in its call, and who writes a layer in one line means all clients.
        let is_named = matches!(self.decider.rule, RuleSource::Named { .. });
        let has_none = fields.is_some() && is_named && !self.knows_keys(rule);
        // What a rule of `Limits` says itself is told when it is loaded.
        let told = rule.warnings(rule.extractor().map(Arc::as_ref));
        let mut of_lockout = rule.warnings(options.extractor(rule));
        of_lockout.retain(|it| !is_named || told.iter().all(|told| told.kind != it.kind));
        // A check gets an error, whatever the callback of requests says.
        let callback = options.on_error.as_ref().filter(|_| fields.is_some());
        if callback.is_some_and(|it| it.proceeds()) {
            self.decider.warn_of_open_lockout(rule, "FailOpen");
        }
        let is_everyones = || options.extractor(rule).is_none_or(may_be_everyone);
        let holds = fields.is_some() && rule.counts_failures() && subjects.is_empty();
        let of_no_key = match holds && is_everyones() {
            true => Some(Warning::named(WarningKind::NoKey, "lockout").second()),
            false => has_none.then(|| Warning::new(WarningKind::NoKey)),
        };
        let of_hidden = fields.and_then(|_| options.hidden_answers(rule));
        let found = [
            of_token,
            of_unused_key,
            of_exemptions,
            of_check,
            of_no_key,
            of_hidden,
        ];
        let found = of_keys.chain(found.into_iter().flatten()).chain(of_lockout);
        for found in found.chain(Warnings::of_rule(
            rule,
            options.extractor(rule),
            Some(&self.decider.path),
        )) {
            warnings.add(found.about(rule.path()));
        }
        // The store logs by itself what it finds later.
        let condition = caught("store", rule.path(), || self.decider.store().condition());
        for found in condition.map(|it| it.warnings).unwrap_or_default() {
            if found.kind == WarningKind::DefaultPrefix {
                warnings.add(found);
            }
        }
    }
}
