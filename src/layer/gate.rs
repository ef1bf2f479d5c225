use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{Extensions, Request};

use super::action::{Action, Begun};
use super::decisions::{Decided, Decider, Deciding, RuleSource};
use super::options::{Options, Reads};
use super::outer_layers::{Outages, WaitingSince};
use crate::callback::{Cause, Panicked, caught};
use crate::error::{KeyError, KeyErrorKind};
use crate::key::silent_peers::FOUND;
use crate::key::{Key, KeyExtractor, PeerAddr};
use crate::metrics::RuleSnapshot;
use crate::rule::{Exemptions, Plan, Rule, SharedRules};
use crate::take::Take;
use crate::trace;
use crate::waiting::{Wait, lane_of};
use crate::warning::{Warning, WarningKind};

/// Reads the heads of a path's requests, for a layer or for checks, and says what becomes of them.
/// All services of a layer share its gate.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) decider: Decider,
    pub(crate) options: Options,
    /// The number of requests that came, as far as they are looked at for mistakes in the set-up.
    pub(super) inspected: Arc<AtomicU32>,
}

/// What the head of a request says, or what is done with it without a question.
type OrAction<T> = Result<T, Box<Action>>;

impl Gate {
    pub(crate) fn new(rule: RuleSource) -> Self {
        Self {
            decider: Decider::new(rule),
            options: Options::default(),
            inspected: Arc::default(),
        }
    }

    /// For a path whose rule comes from these rules at each request.
    pub(crate) fn named(rules: &SharedRules, path: &str) -> Self {
        let (rules, path) = (rules.clone(), path.into());
        Self::new(RuleSource::Named { rules, path })
    }

    /// This gate, whose requests may wait so long, and if it is said, so many.
    pub(super) fn waiting_up_to(&self, up_to: Duration, max: Option<usize>) -> Self {
        let mut gate = self.clone();
        let waiting = &mut gate.decider.waiting;
        (waiting.up_to, waiting.max) = (up_to, max.unwrap_or(waiting.max));
        gate
    }

    /// The rule for a request or a check that has just arrived. One without a rule is counted,
    /// unless limiting is disabled.
    #[inline]
    pub(super) fn rule_or_count(&self) -> Option<Arc<Rule>> {
        let (rules, path) = match &self.decider.rule {
            RuleSource::Fixed(rule) => return Some(Arc::clone(rule)),
            RuleSource::Named { rules, path } => (rules.guard(), path),
        };
        let rule = rules.get(path);
        if rule.is_none() && !rules.contains(path) {
            self.decider.path.counters.unmatched.add(1);
        }
        rule.cloned()
    }

    /// The counters of the path, read now; `None` without a rule.
    pub(super) fn snapshot(&self) -> Option<RuleSnapshot> {
        let state = &self.decider.path;
        match &self.decider.rule {
            RuleSource::Fixed(rule) => Some(state.snapshot(rule)),
            RuleSource::Named { rules, path } => Some(state.snapshot(rules.guard().find(path)?)),
        }
    }

    /// Decides about a request that has just arrived, if anything limits it.
    #[inline]
    pub(super) fn begin<B>(self: &Arc<Self>, request: Request<B>) -> (Begun, Request<B>) {
        let Some(rule) = self.rule_or_count() else {
            return (Err(Action::Pass), request);
        };
        // A request whose head is not read stays in one piece: taking it apart and putting it
        // together again is a good part of what a decision costs.
        let reads = self.options.reads(&rule);
        if !self.reads_head(reads, &request) {
            let take = Take::new(rule, Key::default());
            self.inspect(Some(request.headers()), Some(&take));
            let deciding = self.decide(take, Some(request.extensions()));
            return (self.begun(deciding), request);
        }
        let (mut head, body) = request.into_parts();
        let take = self.read_head(reads, &mut head);
        self.inspect(Some(&head.headers), take.as_ref().ok());
        let begun = match take {
            Ok(take) => self.begun(self.decide(take, Some(&head.extensions))),
            Err(action) => Err(*action),
        };
        (begun, Request::from_parts(head, body))
    }

    /// How far a request is. What was decided is not copied out of here.
    #[inline]
    #[allow(clippy::result_large_err, reason = "a box would cost an allocation")]
    fn begun(self: &Arc<Self>, deciding: Deciding) -> Begun {
        match deciding {
            Deciding::Done(decided) => Err(self.act(decided)),
            deciding => Ok(deciding),
        }
    }

    /// Decides about a take that has just arrived, of a request with these extensions, if there is
    /// one: outer layers may have let it wait, or know of an outage.
    #[inline]
    pub(super) fn decide(&self, take: Take, request: Option<&Extensions>) -> Deciding {
        let decider = &self.decider;
        let since = request.filter(|_| decider.waiting.is_on());
        let since = since.and_then(|it| Some(it.get::<WaitingSince>()?.0));
        let outages = request.and_then(Extensions::get::<Outages>);
        let outage = outages.and_then(|it| it.of(decider.store()));
        decider.decide(take, Wait::May(since), outage)
    }

    /// Whether the take of this request depends on its head.
    #[inline]
    fn reads_head<B>(&self, of: Reads<'_>, request: &Request<B>) -> bool {
        let (options, rule) = (&self.options, of.rule);
        let has_exemptions = || !options.exempt.is_empty() || rule.exemptions().is_some();
        let has_choice = || {
            rule.has_plans()
                || options.plan_value.is_some()
                || options.plan.is_none() && request.extensions().get::<Plan>().is_some()
        };
        of.has_key || options.cost.is_some() || has_exemptions() || has_choice()
    }

    /// Exemption, key, cost and quotas of the request with this head. Whatever fails, a shadow rule
    /// lets the request pass.
    pub(super) fn read_head(self: &Arc<Self>, of: Reads<'_>, head: &mut Parts) -> OrAction<Take> {
        let mut take = self.try_read_head(of, head);
        if take.is_err() && of.rule.is_shadow() {
            take = Err(Box::new(Action::Pass));
        }
        take
    }

    fn try_read_head(self: &Arc<Self>, of: Reads<'_>, head: &mut Parts) -> OrAction<Take> {
        for exempt in &self.options.exempt {
            if caught("exemption", of.rule.path(), || exempt(head))? {
                return Err(Box::new(Action::Pass));
            }
        }
        self.find_peer(of, head)?;
        if of.rule.exemptions().is_some_and(|it| it.contain(head)) {
            return Err(Box::new(Action::Pass));
        }
        let rule = self.choose_plan(Arc::clone(of.rule), head)?;
        let Some(fair_by) = of.fair_by else {
            return self.take_of(rule, of.key, head);
        };
        let key = caught("fair_by", rule.path(), || fair_by.extract(head))?;
        let mut take = self.take_of(rule, of.key, head)?;
        self.set_lane(&mut take, key.ok().as_ref());
        Ok(take)
    }

    /// Puts a take into the lane of this key of `fair-by`. Those without one have a lane, too.
    #[cold]
    pub(super) fn set_lane(&self, take: &mut Take, key: Option<&Key>) {
        take.ask.lane = Some(lane_of(key.map(Key::hash_in_names)));
        let is_noted = self.decider.path.notes.are_on();
        take.lane_key = is_noted.then(|| key.cloned().unwrap_or_default().into());
    }

    #[inline]
    fn take_of(
        self: &Arc<Self>,
        rule: Arc<Rule>,
        extractor: Option<&dyn KeyExtractor>,
        head: &Parts,
    ) -> OrAction<Take> {
        if !rule.subjects().is_empty() {
            return self.take_of_subjects(rule, head);
        }
        let key = match extractor {
            None => Key::default(),
            Some(extractor) => self.key(&rule, extractor, head)?,
        };
        let cost = self.cost(&rule, head)?;
        Ok(Take::for_key(rule, key, cost))
    }

    /// The take of a joint rule, by the key of each subject.
    #[inline(never)]
    fn take_of_subjects(self: &Arc<Self>, rule: Arc<Rule>, head: &Parts) -> OrAction<Take> {
        let keys = rule.subjects().iter().map(|subject| {
            let Some(extractor) = self.options.extractor_of(&rule, subject) else {
                return Ok(Some(Key::default()));
            };
            if !subject.may_be_absent() {
                return self.key(&rule, extractor, head).map(Some);
            }
            let key = caught("key extractor", rule.path(), || extractor.find(head))?;
            key.map_err(|error| self.without_key(&rule, extractor, error))
        });
        let keys = keys.collect::<OrAction<_>>()?;
        let cost = self.cost(&rule, head)?;
        Ok(Take::joint(rule, keys).with_cost(cost))
    }

    #[inline(always)]
    fn key(
        self: &Arc<Self>,
        rule: &Arc<Rule>,
        extractor: &dyn KeyExtractor,
        head: &Parts,
    ) -> OrAction<Key> {
        let key = caught("key extractor", rule.path(), || extractor.extract(head))?;
        if FOUND.take() {
            // The inspection that follows is as that of the second request.
            self.inspected.fetch_min(1, Ordering::Relaxed);
        }
        key.map_err(|error| self.without_key(rule, extractor, error))
    }

    #[inline]
    fn cost(&self, rule: &Rule, head: &Parts) -> Result<u64, Panicked> {
        match &self.options.cost {
            None => Ok(rule.cost()),
            Some(cost) => caught("cost", rule.path(), || cost(head)),
        }
    }

    /// What becomes of a request without a key.
    #[cold]
    fn without_key(
        self: &Arc<Self>,
        rule: &Arc<Rule>,
        extractor: &dyn KeyExtractor,
        error: KeyError,
    ) -> Box<Action> {
        self.count_missing_key(rule, &extractor.mark(), &error);
        Box::new(self.act(Decided::Failed(Arc::clone(rule), Cause::Key(error))))
    }

    /// Counts a request or a check without this key. The first one is logged, since clients could
    /// fill the log, and nothing of what a client sent.
    #[cold]
    pub(super) fn count_missing_key(&self, rule: &Rule, key: &str, error: &KeyError) {
        self.decider.path.counters.key_failed(error.kind());
        let is_servers = error.kind() == KeyErrorKind::Server;
        let (path, kind) = (rule.path(), error.kind().name());
        let new = (path.to_owned(), key.to_owned(), is_servers);
        if self.decider.warnings.is_first_without_key(new) {
            let error = is_servers.then(|| error.to_string());
            trace::event!(
                warn: path, key, kind, error,
                "there is no key: a request gets a 400, or a 500 if it is the server's mistake (in \
                 shadow it passes), a check an error; others like it are not logged"
            );
        }
    }

    /// Puts what the hook finds where the rule's extractor and its exemptions look for it.
    fn find_peer(&self, of: Reads<'_>, head: &mut Parts) -> Result<(), Panicked> {
        let rule = of.rule;
        let has_exempt_networks = || rule.exemptions().is_some_and(Exemptions::needs_address);
        if let Some(hook) = &self.options.peer
            && (of.has_key || has_exempt_networks())
            && let Some(peer) = caught("peer hook", rule.path(), || hook.find(&head.extensions))?
        {
            head.extensions.insert(PeerAddr(peer));
        }
        Ok(())
    }

    /// The rule under the plan of the request with this head.
    pub(super) fn choose_plan(&self, rule: Arc<Rule>, head: &Parts) -> Result<Arc<Rule>, Panicked> {
        let options = &self.options;
        if let Some(choose) = &options.plan_value
            && let Some(plan) = caught("plan_value", rule.path(), || choose(head))?
        {
            return Ok(self.under(rule, Some(&plan)));
        }
        match &options.plan {
            Some(choose) if rule.has_plans() => {
                match caught("plan", rule.path(), || choose(head))? {
                    Some(name) => Ok(self.under_name(rule, name)),
                    None => Ok(rule),
                }
            }
            Some(_) => Ok(rule),
            None => match head.extensions.get::<Plan>() {
                Some(plan) if plan.name().is_none() => Ok(self.without_bound_plan(rule)),
                plan => Ok(self.under(rule, plan)),
            },
        }
    }

    /// The extensions of a request have a plan by value, which says nothing of its path. Where code
    /// binds one to a path, the other paths are meant to go without.
    #[cold]
    fn without_bound_plan(&self, rule: Arc<Rule>) -> Arc<Rule> {
        let options = &self.options;
        let is_bound = options.plan_value.is_some() || !options.plan_values.is_empty();
        if !is_bound && rule.is_first_unknown_plan(true) {
            let warning = Warning::new(WarningKind::UnfitPlan).second();
            self.decider.warnings.add(warning.about(rule.path()));
        }
        rule
    }

    /// The rule under this plan. A plan that the rule lacks, or that does not fit it, is counted
    /// and logged once, and the rule's own quotas decide.
    pub(super) fn under(&self, rule: Arc<Rule>, plan: Option<&Plan>) -> Arc<Rule> {
        let Some(plan) = plan else {
            return rule;
        };
        match plan.name() {
            // Where a rule has no plans, a name says nothing.
            Some(_) if !rule.has_plans() => rule,
            Some(name) => self.under_name(rule, name),
            None => match rule.under(plan) {
                Ok(under) => under,
                Err(error) => self.without_plan(rule, true, || {
                    Warning::with_name(WarningKind::UnfitPlan, error)
                }),
            },
        }
    }

    fn under_name(&self, rule: Arc<Rule>, name: &str) -> Arc<Rule> {
        match rule.of_plan(name) {
            Some(under) => under,
            None => self.without_plan(rule, false, || Warning::unknown_plan(name)),
        }
    }

    /// The rule's own quotas decide. Clients may choose the names of plans, so only the first one
    /// makes a warning.
    #[cold]
    fn without_plan(
        &self,
        rule: Arc<Rule>,
        is_value: bool,
        warning: impl FnOnce() -> Warning,
    ) -> Arc<Rule> {
        self.decider.path.counters.numbers.unknown_plans.add(1);
        if rule.is_first_unknown_plan(is_value) {
            self.decider.warnings.add(warning().about(rule.path()));
        }
        rule
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("rule", &self.decider.rule)
            .field("store", &self.decider.store.get())
            .finish_non_exhaustive()
    }
}
