use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{KeyText, Name, RuleCounts};
use crate::algorithm::AlgorithmConfig;
use crate::algorithm::calendar::Calendar;
use crate::algorithm::lockout::LockoutSpec;
use crate::algorithm::period::Period;
use crate::algorithm::share::Share;
use crate::algorithm::spec::{Kind, Spec};
use crate::deadline::Deadline;
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::error::StoreError;
use crate::quota::Quota;

/// What a store is asked by a [take](crate::Take): may all of these counts be charged, each its
/// cost? By a change: which of them are meant, and how much. It knows nothing of rules.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::store::Ask;
/// use tidegate::{Key, Quota, Rule, Take};
///
/// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
/// let take = Take::new(rule, Key::from("alice")).with_cost(4);
/// let ask: &Ask = &take;
/// assert_eq!((ask.cost(), ask.name("")), (4, "export:alice".to_owned()));
/// assert_eq!(ask.quotas(), [Quota::per_hour(10)]);
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ask {
    /// The counts of the rule: the answer contains the states of all its quotas.
    of: Arc<RuleCounts>,
    /// What is asked about together, in the order of the rule's counts.
    counts: SmallVec<[CountAsk; 1]>,
    cost: u64,
    /// Whether the answers about its counts are made one: of a rule of several.
    is_joint: bool,
    only_looks: bool,
    caller: Caller,
    /// The lane in which the caller waits, if its rule has some. No store reads it.
    pub(crate) lane: Option<u16>,
    /// The earliest of the time-outs around the store; `None` if only its own counts.
    deadline: Option<Deadline>,
    /// Why the store gave no decision to an outer layer of the same request.
    failure: Option<Box<StoreError>>,
}

/// Who waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// It takes the answer as it is.
    Asks,
    /// It asks again later where the store is overloaded.
    IsPatient,
    /// It was denied, has waited, and asks again.
    Repeats,
    /// Nobody does, as for a refund, a release, a renewal or a hold.
    Nobody,
}

/// What is asked about one of the [counts](Ask::counts).
///
/// ```
/// use std::sync::Arc;
/// use tidegate::store::CountAsk;
/// use tidegate::{Key, Quota, Rule, Take};
///
/// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
/// let take = Take::new(rule, Key::from("alice")).with_cost(4);
/// let count: &CountAsk = &take.counts()[0];
/// assert_eq!((count.name(""), count.cost()), ("export:alice".to_owned(), 4));
/// assert_eq!(count.quotas(), [Quota::per_hour(10)]);
/// # Ok::<(), tidegate::rule::RuleError>(())
/// ```
#[derive(Debug, Clone)]
pub struct CountAsk {
    /// Its place among those of the rule.
    place: u8,
    name: Name,
    spec: Arc<Spec>,
    cost: u64,
    /// Whether it is charged at this cost whatever the request costs.
    pub(crate) has_own_cost: bool,
}

impl CountAsk {
    /// The count of this name at this place of a rule, for a request of this cost.
    #[inline]
    pub(crate) fn new(of: &RuleCounts, place: usize, name: Name, cost: u64) -> Self {
        let count = &of.list[place];
        Self {
            place: u8::try_from(place).expect("a rule has few counts"),
            name,
            spec: Arc::clone(&count.spec),
            cost: count.cost.unwrap_or(cost),
            has_own_cost: count.cost.is_some(),
        }
    }

    /// The units, in this count.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The places of its quotas among those of the rule.
    pub(crate) fn places<'a>(&self, of: &'a RuleCounts) -> &'a [usize] {
        &of.list[usize::from(self.place)].places
    }

    /// The place of its first quota among those of the rule.
    pub(crate) fn place_of_quota(&self, of: &RuleCounts) -> Option<usize> {
        self.places(of).first().copied()
    }

    /// Its place among the counts of the rule.
    pub(crate) fn place(&self) -> usize {
        self.place.into()
    }

    /// How it counts; `None` if it is of [permits](crate::Rule::with_max_concurrent), or of a
    /// [period](crate::rule::Policy::calendar) of the calendar.
    #[must_use]
    pub fn algorithm(&self) -> Option<AlgorithmConfig> {
        self.spec.windows().map(|windows| windows.config)
    }

    /// The period in which its units are counted; `None` if they are counted in windows, or it is
    /// of permits.
    #[must_use]
    pub fn period(&self) -> Option<&Period> {
        self.spec.calendar().map(|calendar| &calendar.period)
    }

    /// The quotas that are charged; of permits, how many there are at a time.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        self.spec.quotas()
    }

    /// How many units of each quota a key [may owe](crate::Rule::with_owe_at_most), which
    /// [`Count::owe`](crate::algorithm::Count::owe) takes; `None`: its max.
    #[must_use]
    pub fn owe_at_most(&self) -> Option<u64> {
        match &self.spec.kind {
            Kind::Windows(windows) => windows.owe_at_most,
            Kind::Calendar(calendar) => calendar.owe_at_most,
            Kind::Permits(_) => None,
        }
    }

    /// The name under which a store keeps it, as [`Ask::name`].
    #[must_use]
    pub fn name(&self, default_prefix: &str) -> String {
        self.name.text("", default_prefix)
    }

    /// What a store keeps it under.
    #[inline]
    pub(crate) const fn name_in_store(&self) -> &Name {
        &self.name
    }

    /// How it counts.
    #[inline]
    pub(crate) const fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    #[inline]
    pub(crate) const fn hash(&self) -> u64 {
        self.name.hash()
    }
}

impl Ask {
    /// How long an answer is awaited that no caller waits for. However late this process is, such a
    /// question is sent.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

    /// A first question about all counts of a rule, for one key with this hash.
    #[inline]
    pub(crate) fn of_key(of: &Arc<RuleCounts>, key: &KeyText, hash: u64, cost: u64) -> Self {
        let count = |place: usize| {
            let name = of.list[place].names.name_for(key, hash);
            CountAsk::new(of, place, name, cost)
        };
        let counts = match of.list.len() {
            1 => SmallVec::from_buf([count(0)]),
            number => (0..number).map(count).collect(),
        };
        Self::new(of, counts, cost)
    }

    /// A first question about these counts that no caller waits for yet.
    pub(crate) fn new(of: &Arc<RuleCounts>, counts: SmallVec<[CountAsk; 1]>, cost: u64) -> Self {
        Self {
            is_joint: of.is_joint || counts.len() != 1,
            of: Arc::clone(of),
            counts,
            cost,
            only_looks: false,
            caller: Caller::Asks,
            lane: None,
            deadline: None,
            failure: None,
        }
    }

    /// The path of the rule, for the log of a store.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.of.path
    }

    /// The same about one of its [counts](Self::counts) alone, the one at this place.
    ///
    /// # Panics
    ///
    /// If there is no count at this place.
    #[must_use]
    pub fn only(&self, count: usize) -> Self {
        let mut ask = self.clone();
        let mut count = self.counts[count].clone();
        count.has_own_cost = false;
        (ask.is_joint, ask.cost) = (false, count.cost);
        ask.counts = SmallVec::from_buf([count]);
        ask
    }

    /// The same at another cost, in units. At a cost of 0 a request still is a request: it fits
    /// unless more than a quota's max is used, quotas with a [cost of their
    /// own](crate::rule::Policy::with_cost) and [permits](crate::Rule::with_max_concurrent) charge
    /// it in full, and it can be settled. A quota of which the max is 0 lets no request pass. What
    /// [only looks](Self::looking) stays without a cost.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.set_cost(cost);
        self
    }

    pub(crate) fn set_cost(&mut self, cost: u64) {
        if self.only_looks {
            return;
        }
        for count in self.counts.iter_mut().filter(|it| !it.has_own_cost) {
            count.cost = cost;
        }
        self.cost = cost;
    }

    /// The same, which only looks: it has no cost, also in counts with a cost of their own and of
    /// permits, so that a store charges nothing. [`Store::peek`](crate::Store::peek) asks with it,
    /// and allows it whatever the store says.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Key, Quota, Rule, Take};
    ///
    /// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
    /// let look = Take::new(rule, Key::from("alice")).looking();
    /// assert_eq!((look.only_looks(), look.cost()), (true, 0));
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn looking(mut self) -> Self {
        self.counts.iter_mut().for_each(|count| count.cost = 0);
        (self.cost, self.only_looks) = (0, true);
        self
    }

    /// Whether this [only looks](Self::looking).
    #[must_use]
    pub const fn only_looks(&self) -> bool {
        self.only_looks
    }

    /// What is decided together, each count at its cost: all of them are charged, or none. A rule
    /// of one subject has one count.
    ///
    /// A store that can do that says so by
    /// [`Capabilities::joint`](crate::store::Capabilities::joint), and answers with what
    /// [`decision_of`](Self::decision_of) makes of the decisions about each.
    #[must_use]
    pub fn counts(&self) -> &[CountAsk] {
        &self.counts
    }

    /// Its count whose key failures lock out.
    pub(crate) fn lockout_count(&self) -> Option<&CountAsk> {
        let mut counts = self.counts.iter();
        counts.find(|count| count.spec.lockout().is_some())
    }

    /// After how many failures that key is held.
    pub(crate) fn lockout(&self) -> Option<&LockoutSpec> {
        self.lockout_count()?.spec.lockout()
    }

    /// The longest time for which a charge counts, in microseconds.
    pub(crate) fn life_micros(&self) -> u64 {
        let lives = self.counts.iter().map(|count| count.spec.life());
        lives.max().unwrap_or(0)
    }

    /// Whether both ask about a count.
    pub(crate) fn shares_count_with(&self, other: &Self) -> bool {
        let is_of_other = |it: &CountAsk| other.counts.iter().any(|other| other.name == it.name);
        self.counts.iter().any(is_of_other)
    }

    /// A hash of what it asks about.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        let hashes = self.counts.iter().map(CountAsk::hash);
        hashes.fold(0, |all: u64, it| all.rotate_left(1) ^ it)
    }

    /// The only count. Under a rule of several subjects, of which there may be none, its first one.
    #[inline]
    pub(crate) fn first(&self) -> Option<&CountAsk> {
        self.counts.first()
    }

    /// Each count with its part of the receipt.
    pub(crate) fn parts<'a>(
        &'a self,
        receipt: &'a Receipt,
    ) -> impl Iterator<Item = (&'a CountAsk, &'a Receipt)> {
        self.counts.iter().zip(receipt.counts())
    }

    /// Gives back in each count what `refund` can: it is asked for each with its part of the
    /// receipt. Returns how many units of the request's cost were given back.
    pub(crate) fn refund_each(
        &self,
        receipt: &Receipt,
        mut refund: impl FnMut(&CountAsk, &Receipt) -> u64,
    ) -> u64 {
        let given_back = self
            .parts(receipt)
            .map(|(ask, receipt)| refund(ask, receipt));
        self.refunded_units(receipt, &given_back.collect::<SmallVec<[u64; 1]>>())
    }

    /// How many units of the request's cost were given back, if these were in each of the counts:
    /// the most of counts without a cost of their own. Where there is no such count, all, or none.
    pub(crate) fn refunded_units(&self, receipt: &Receipt, given_back: &[u64]) -> u64 {
        let of_cost = self.counts.iter().zip(given_back);
        let of_cost = of_cost.filter(|(count, _)| !count.has_own_cost);
        let largest = of_cost.map(|(_, units)| *units).max();
        let is_any = given_back.iter().any(|units| *units > 0);
        let asked = self.cost.min(receipt.units());
        largest.unwrap_or(if is_any { asked } else { 0 })
    }

    /// Its counts that have the cost of the request, with their places: what is used beyond a
    /// reservation is charged in each of them.
    pub(crate) fn counts_owed(&self) -> impl Iterator<Item = (usize, &CountAsk)> {
        let counts = self.counts.iter().enumerate();
        counts.filter(|(_, count)| !count.has_own_cost && count.cost > 0)
    }

    /// For a refund of what was not used: it gives back nothing in counts with a cost of their own.
    pub(crate) fn at_cost_of_request(mut self) -> Self {
        for count in self.counts.iter_mut().filter(|it| it.has_own_cost) {
            count.cost = 0;
        }
        self
    }

    /// Whether the answers about its counts are made one.
    #[inline]
    pub(crate) const fn is_joint(&self) -> bool {
        self.is_joint
    }

    /// The same, asked again by a caller that was denied and has waited.
    ///
    /// Stores may answer repeats about one key together, and a [bound](crate::Resilient::in_flight)
    /// does not count them.
    #[must_use]
    pub fn repeat(mut self) -> Self {
        self.caller = Caller::Repeats;
        self.failure = None;
        self
    }

    /// Says that its caller asks again later where the store is overloaded.
    pub(crate) fn set_patient(&mut self) {
        if self.caller == Caller::Asks {
            self.caller = Caller::IsPatient;
        }
    }

    pub(crate) fn is_patient(&self) -> bool {
        self.caller == Caller::IsPatient
    }

    /// Whether this is a waiting caller's [repeat](crate::Take::repeat), and not a first question.
    #[must_use]
    pub const fn is_repeat(&self) -> bool {
        matches!(self.caller, Caller::Repeats)
    }

    /// The cost, in units.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// How its count counts, if there is one; `None` if that is of
    /// [permits](crate::Rule::with_max_concurrent) or of a
    /// [period](crate::rule::Policy::calendar) of the calendar.
    #[must_use]
    pub fn algorithm(&self) -> Option<AlgorithmConfig> {
        self.first()?.algorithm()
    }

    /// The quotas that have to have room and are charged, if there is one count: those of the rule.
    #[must_use]
    pub fn quotas(&self) -> &[Quota] {
        self.first().map_or(&[], CountAsk::quotas)
    }

    /// The name under which a store keeps its count, if there is one: the prefix, the rule's
    /// [id](crate::Rule::id), and the key's parts, joined by `:`. `default_prefix` is for rules
    /// that have no [prefix](crate::Rule::prefix) of their own.
    ///
    /// Neither ids nor parts of keys hold a bare `:`, so two different counts never share a name.
    /// Of several counts this is the name of the first one: each has a [name](CountAsk::name). Of
    /// none it is empty.
    ///
    /// ```
    /// use tidegate::{Algorithm, Key, Quota, Rule, Take};
    ///
    /// let rule = Rule::new("login", [Quota::per_minute(5)])?.with_algorithm(Algorithm::Gcra);
    /// let take = Take::new(rule.into(), Key::from("alice"));
    /// assert_eq!(take.name("CurrentLimiter:"), "CurrentLimiter:login~gcra:alice");
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    #[must_use]
    pub fn name(&self, default_prefix: &str) -> String {
        let first = self.first();
        first.map_or_else(String::new, |it| it.name(default_prefix))
    }

    /// Whether no request is denied by it.
    #[inline]
    pub(crate) fn in_shadow(&self) -> bool {
        self.of.in_shadow
    }

    pub(crate) fn falls_back(&self) -> bool {
        self.of.falls_back
    }

    /// Its counts of the calendar.
    pub(crate) fn of_calendar(&self) -> impl Iterator<Item = (&CountAsk, &Calendar)> {
        let counts = self.counts.iter();
        counts.filter_map(|count| Some((count, count.spec.calendar()?)))
    }

    /// What is left of a count of the calendar, by a decision.
    pub(crate) fn state_of<'a>(
        &self,
        count: &CountAsk,
        decision: &'a Decision,
    ) -> Option<&'a QuotaState> {
        let place = count.places(&self.of).first()?;
        decision.quotas().get(*place)
    }

    /// This question as a fallback asks its own store: under a share of each count that is not
    /// spent, with room for what the question costs or for what was charged. Behind these counts
    /// stand those of the whole quotas in longer windows.
    pub(crate) fn for_share(
        &self,
        share: Share,
        charged: Option<&Receipt>,
        is_spent: impl Fn(&CountAsk) -> bool,
    ) -> Self {
        let (mut ask, mut wholes) = (self.clone(), SmallVec::<[_; 4]>::new());
        for (at, count) in ask.counts.iter_mut().enumerate() {
            if charged.is_none() && is_spent(count) {
                count.spec = Spec::of_nothing();
                continue;
            }
            let charged = charged.and_then(|it| it.counts().get(at));
            let cost = charged.map_or(count.cost, Receipt::units);
            let shared = count.spec.for_share(share, cost);
            count.spec = shared.part;
            wholes.extend(shared.whole.map(|spec| CountAsk {
                name: count.name.of_whole(),
                spec,
                ..count.clone()
            }));
        }
        ask.is_joint |= !wholes.is_empty();
        ask.counts.extend(wholes);
        ask
    }

    /// Whether each count has room for its cost when nothing is charged.
    pub(crate) fn may_fit(&self) -> bool {
        self.counts.iter().all(|count| {
            let fits = |limit: u64| limit >= count.cost.max(1);
            match &count.spec.kind {
                Kind::Windows(windows) => windows.limits().all(fits),
                Kind::Calendar(calendar) => fits(calendar.max()),
                Kind::Permits(permits) => permits.max() > 0,
            }
        })
    }

    /// This question for a caller that waits no longer than this.
    pub(crate) fn within(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline.or_earlier(self.deadline));
        self
    }

    pub(crate) const fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Says that the store has just failed for the same request, so that the server is not asked;
    /// or that this is over.
    pub(crate) fn set_failure(&mut self, error: Option<Box<StoreError>>) {
        self.failure = error;
    }

    pub(crate) fn failure(&self) -> Option<&StoreError> {
        self.failure.as_deref()
    }

    /// A first question about the same counts at this cost, which no caller waits for.
    pub(crate) fn first_question(&self, cost: u64) -> Self {
        let mut ask = Self::new(&self.of, self.counts.clone(), cost).with_cost(cost);
        ask.is_joint = self.is_joint;
        ask
    }

    /// This question for a refund of so many units, for which nobody waits.
    pub(crate) fn for_refund(&self, units: u64) -> Self {
        self.first_question(units).unawaited(Self::PATIENCE)
    }

    /// This question, whose answer no caller waits for: no time-out of a store ends it, but this
    /// bound.
    pub(crate) fn unawaited(mut self, bound: Duration) -> Self {
        (self.caller, self.deadline) = (Caller::Nobody, Some(Deadline::after(bound)));
        self
    }

    pub(crate) const fn is_unawaited(&self) -> bool {
        matches!(self.caller, Caller::Nobody)
    }

    /// This question with what the caller of another one said of it.
    pub(crate) fn copy_caller(mut self, other: &Self) -> Self {
        (self.caller, self.deadline, self.lane) = (other.caller, other.deadline, other.lane);
        self.failure.clone_from(&other.failure);
        self
    }

    /// The decision about this question: `decisions` has one about each of its
    /// [counts](Self::counts), all charged, or none. It is allowed if each of them is, and says when
    /// the last of those that deny has room again.
    ///
    /// # Panics
    ///
    /// If there is not one decision about each count.
    #[must_use]
    pub fn decision_of(&self, decisions: Vec<Decision>) -> Decision {
        if !self.is_joint {
            let [decision] = <[_; 1]>::try_from(decisions).expect("one decision");
            return decision;
        }
        assert_eq!(decisions.len(), self.counts.len(), "one about each count");
        self.verdict_over(&decisions, self.states_at_places(&decisions))
    }

    /// The states of the rule's quotas, each at its place, by these decisions about the counts.
    fn states_at_places(&self, decisions: &[Decision]) -> Arc<[QuotaState]> {
        let mut states = self.of.untouched.to_vec();
        let room = |it: &QuotaState| (it.is_hidden(), !it.is_exceeded(), it.remaining());
        for (count, decision) in self.counts.iter().zip(decisions) {
            for (place, state) in count.places(&self.of).iter().zip(decision.quotas()) {
                // A fallback counts some twice, and tells what has less room.
                let known = &mut states[*place];
                if room(state) < room(known) {
                    *known = *state;
                }
            }
        }
        states.into()
    }

    /// The verdict and the receipt over these decisions about the counts, with these states.
    fn verdict_over(&self, decisions: &[Decision], states: Arc<[QuotaState]>) -> Decision {
        let verdict = decisions.iter().map(Decision::verdict);
        let verdict = verdict.fold(Verdict::Allowed, strictest);
        let source = decisions.last().map_or(Source::Local, Decision::source);
        let receipt = match verdict {
            Verdict::Allowed => self.receipt(decisions),
            _ => None,
        };
        let mut decision = Decision::of_states(verdict, source, states).with_receipt(receipt);
        if decisions.iter().any(Decision::is_locked_out) {
            decision = decision.and_locked_out();
        }
        let is_allowed = decision.is_allowed();
        decision.has_failures = is_allowed && decisions.iter().any(|it| it.has_failures);
        decision
    }

    /// One receipt of all counts. What was charged in counts with a cost of their own is no part of
    /// its units.
    fn receipt(&self, decisions: &[Decision]) -> Option<Receipt> {
        let first = decisions.iter().find_map(Decision::receipt)?;
        let receipts = decisions.iter().map(Decision::receipt_or_none).collect();
        let first = Receipt::new(first.stamp(), first.serial(), self.cost);
        Some(first.with_counts(receipts))
    }
}

/// The verdict about a question whose two counts have these verdicts.
fn strictest(one: Verdict, other: Verdict) -> Verdict {
    match (one, other) {
        (Verdict::Allowed, other) | (other, Verdict::Allowed) => other,
        (Verdict::Never, _) | (_, Verdict::Never) => Verdict::Never,
        // One count may be held: the answer has the longer time.
        (
            held @ (Verdict::LockedOut { retry_after: one } | Verdict::OnHold { retry_after: one }),
            Verdict::Denied { retry_after },
        )
        | (
            Verdict::Denied { retry_after },
            held @ (Verdict::LockedOut { retry_after: one } | Verdict::OnHold { retry_after: one }),
        ) if retry_after <= one => held,
        (denied @ Verdict::Denied { .. }, Verdict::LockedOut { .. } | Verdict::OnHold { .. })
        | (Verdict::LockedOut { .. } | Verdict::OnHold { .. }, denied @ Verdict::Denied { .. }) => {
            denied
        }
        (locked @ Verdict::LockedOut { .. }, _) | (_, locked @ Verdict::LockedOut { .. }) => locked,
        (Verdict::Denied { retry_after: one }, Verdict::Denied { retry_after: other }) => {
            let retry_after = one.max(other);
            Verdict::Denied { retry_after }
        }
        // A count with room for what another one denies has nothing to wait for.
        (busy @ Verdict::Busy { .. }, Verdict::Denied { retry_after })
        | (Verdict::Denied { retry_after }, busy @ Verdict::Busy { .. })
            if retry_after.is_zero() =>
        {
            busy
        }
        (denied @ Verdict::Denied { .. }, Verdict::Busy { .. })
        | (Verdict::Busy { .. }, denied @ Verdict::Denied { .. }) => denied,
        (busy @ Verdict::Busy { .. }, Verdict::Busy { .. }) => busy,
        // A rule whose partner holds has no permits, and one count that may be held.
        (hold @ Verdict::OnHold { .. }, _) | (_, hold @ Verdict::OnHold { .. }) => hold,
    }
}
