//! What a store answers.
//!
//! ```
//! use tidegate::decision::{Source, Verdict};
//! use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rule = Rule::new("export", [Quota::per_hour(1)])?;
//! let take = Take::new(rule.into(), Key::from("alice"));
//! let store = MemoryStore::new();
//! let allowed = store.take(&take).await?;
//! assert_eq!(allowed.verdict(), Verdict::Allowed);
//! assert_eq!(allowed.source(), Source::Local);
//!
//! let denied = store.take(&take).await?;
//! assert_eq!(denied.remaining(), 0);
//! assert!(denied.quotas()[0].is_exceeded());
//! println!("again in {:?}", denied.retry_after());
//! # Ok(())
//! # }
//! ```

mod receipt;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::receipt::Charged;
pub use self::receipt::Receipt;
use crate::error::StoreError;
use crate::named::named;

/// The answer to one take: allowed or denied, what remains, and when to come back.
///
/// A handler gets it as the axum extractor `Option<Decision>`, and middleware
/// [from the extensions](Decision::from_extensions) of the request and of the response.
///
/// Every number is of the instant at which the store decided, after the take was charged if it was
/// allowed. All durations have a resolution of one microsecond.
#[derive(Clone, PartialEq, Eq)]
pub struct Decision {
    states: States,
    /// What was charged; nothing as 0 units.
    charged: Charged,
    /// Whether it was, if only at a cost of 0.
    has_receipt: bool,
    found: Found,
    /// In microseconds; of a denial.
    retry_after: u64,
    why: Why,
    source: Source,
    /// Whether it came after the time-out and still counts, because this process was slow.
    pub(crate) is_late: bool,
    /// Whether the take was asked at less than its request costs.
    pub(crate) is_reduced: bool,
    /// Whether failures are known that a success of this take would end.
    pub(crate) has_failures: bool,
}

/// A verdict without its words for a busy rule, which would make a decision larger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Allowed,
    Denied,
    Never,
}

/// Why a take was denied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Quotas,
    /// By permits alone.
    Busy,
    Hold,
    LockedOut,
    /// By quotas, for longer than the key is locked out.
    QuotasAndLockout,
}

/// What a store found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It fits, and was charged.
    Allowed,
    /// It does not fit now.
    Denied {
        /// How long until it fits, if no other take is charged before.
        retry_after: Duration,
    },
    /// As many requests of the key run as may [at a time](crate::Rule::with_max_concurrent), and no
    /// quota denies it. It may fit as soon as one of them ends.
    Busy {
        /// A [hint](crate::Rule::with_busy_retry): nobody knows when one ends.
        retry_after: Duration,
    },
    /// The key is [held](crate::Limits::hold), for longer than its quotas deny the take.
    /// [`Limits::peek`](crate::Limits::peek) says so, too.
    OnHold {
        /// How long until the hold ends.
        retry_after: Duration,
    },
    /// The key is [locked out](crate::rule::Lockout) after failures, for longer than its quotas
    /// deny the take. [`Limits::peek`](crate::Limits::peek) says so, too.
    LockedOut {
        /// How long until that ends.
        retry_after: Duration,
    },
    /// It costs more than a quota's max, or none may run at a time: no wait helps.
    Never,
}

/// Rounded up, so that no time that was promised is too short.
fn micros(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000);
    seconds.saturating_add(duration.subsec_nanos().div_ceil(1_000).into())
}

/// Most rules have one quota, and that one must not cost an allocation.
#[derive(Clone, PartialEq, Eq)]
enum States {
    One(QuotaState),
    Many(Arc<[QuotaState]>),
    /// A decision does not get larger for it.
    Rare(Arc<RareStates>),
}

/// What a fallback found, or a store under a rule of several subjects.
#[derive(Clone)]
struct RareStates {
    states: Box<[QuotaState]>,
    /// Why the fallback was asked.
    failure: Option<StoreError>,
    /// The receipt of each count.
    receipts: Option<Arc<[Receipt]>>,
}

/// Two failures are equal if their messages are.
impl PartialEq for RareStates {
    fn eq(&self, other: &Self) -> bool {
        let failure = |it: &Self| {
            let failure = it.failure.as_ref()?;
            Some((failure.kind(), failure.to_string()))
        };
        self.states == other.states
            && self.receipts == other.receipts
            && failure(self) == failure(other)
    }
}

impl Eq for RareStates {}

/// Decisions are copied at every step of a request.
const _: () = assert!(size_of::<Decision>() <= 80);

named! {
    /// Which store made a [`Decision`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Source: "The source in metrics" {
        /// Redis, for the whole fleet.
        Redis = "redis",
        /// The memory of this process.
        Local = "local",
        /// The memory of this process, for as long as the store that should have decided cannot: a
        /// [fallback](crate::Resilient::fallback). [`Decision::failure`] says why.
        Fallback = "fallback",
        /// The memory of this process, in which a [denial cache](crate::Resilient::denial_cache)
        /// keeps a denial of the store inside it.
        Cache = "cache",
        /// A custom store; [`Store::name`](crate::Store::name) says which.
        Other = "other",
        /// An operator, who [blocks](crate::Limits::block) the key for a while: no store was
        /// asked. Every quota of the decision has nothing left until the block ends. From then
        /// on the store decides.
        Operator = "operator",
    }
}

/// What a [`Decision`] knows of one quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaState {
    remaining: u64,
    /// In microseconds.
    reset_after: u64,
    max: u64,
    is_exceeded: bool,
    is_hidden: bool,
}

impl QuotaState {
    /// Response fields carry no integer of more than 15 digits, and no quota is larger.
    const MAX_REMAINING: u64 = 999_999_999_999_999;

    /// `remaining` units, of which more than any [`Quota`](crate::Quota) has count as the most that
    /// one can have, and replenished after `reset_after`. So many units are its
    /// [max](Self::with_max), too.
    #[must_use]
    pub fn new(remaining: u64, reset_after: Duration) -> Self {
        Self::from_micros(remaining.min(Self::MAX_REMAINING), micros(reset_after))
    }

    pub(crate) const fn reset_after_micros(&self) -> u64 {
        self.reset_after
    }

    pub(crate) const fn from_micros(remaining: u64, reset_after: u64) -> Self {
        Self {
            remaining,
            reset_after,
            max: remaining,
            is_exceeded: false,
            is_hidden: false,
        }
    }

    /// This state of a quota that has so many units when none is used: its max, or its burst.
    #[must_use]
    pub const fn with_max(mut self, max: u64) -> Self {
        self.max = max;
        self
    }

    /// This state behind a take of this cost, which was decided so.
    fn after(mut self, verdict: Verdict, cost: u64) -> Self {
        if let Verdict::LockedOut { retry_after } = verdict {
            // There is nothing until the end, and no quota denies it.
            self.remaining = 0;
            self.reset_after = self.reset_after.max(micros(retry_after));
        }
        let denies = match verdict {
            Verdict::Allowed | Verdict::LockedOut { .. } => false,
            // A count with room for what another one denies has nothing to wait for.
            Verdict::Denied { retry_after } if cost == 0 => !retry_after.is_zero(),
            Verdict::OnHold { .. } => cost > 0,
            _ => true,
        };
        self.is_exceeded = denies && self.remaining < cost.max(1);
        self
    }

    /// This state, of which it is known whether it denied the take.
    pub(crate) const fn exceeded(mut self, is_exceeded: bool) -> Self {
        self.is_exceeded = is_exceeded;
        self
    }

    /// After so many units of the request were given back, and so many more charged.
    pub(crate) fn settled(mut self, given_back: u64, charged: u64) -> Self {
        let left = self.remaining.saturating_add(given_back);
        self.remaining = left
            .min(self.max.max(self.remaining))
            .saturating_sub(charged);
        self
    }

    /// This state, of which clients are not told.
    pub(crate) const fn hidden(mut self) -> Self {
        self.is_hidden = true;
        self
    }

    /// Whether clients are not told of it: the quota is
    /// [hidden](crate::rule::Policy::hidden), or the request was not counted under it.
    #[must_use]
    pub const fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Whether this quota had no room for the take: it is one of those that denied it.
    #[must_use]
    pub const fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    /// Units that still fit into this quota's window now.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Units that this quota has when none is used: the max of the rule, plan or raise that
    /// decided, under GCRA the burst, and of requests at a time their number.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Units that are used now: [`max`](Self::max) without what [remains](Self::remaining). Units
    /// [owed](crate::Rule::with_owe_at_most) beyond max are not seen here.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("chat", [Quota::per_minute(10)])?]);
    /// let admitted = limits.check("chat", "alice").cost(8).await?;
    /// let decision = admitted.decision.expect("there is a rule");
    /// let [quota] = decision.quotas() else { unreachable!("it has one") };
    /// assert_eq!(quota.used() * 100 / quota.max(), 80, "percent");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.max.saturating_sub(self.remaining)
    }

    /// How long until all units of this quota are available again, if no take is charged before;
    /// zero if they are.
    #[must_use]
    pub const fn reset_after(&self) -> Duration {
        Duration::from_micros(self.reset_after)
    }
}

impl Decision {
    /// A decision of a store on a take of this cost: its verdict, and the state of each quota after
    /// it, in the rule's order. A take that is not allowed was denied by the quotas of which less
    /// than its cost remains; at a cost of 0, by those of which nothing does.
    pub fn new(
        verdict: Verdict,
        source: Source,
        cost: u64,
        states: impl ExactSizeIterator<Item = QuotaState>,
    ) -> Self {
        Self::from_states(verdict, source, cost, states, None)
    }

    pub(crate) fn from_states(
        verdict: Verdict,
        source: Source,
        cost: u64,
        mut states: impl ExactSizeIterator<Item = QuotaState>,
        receipt: Option<Receipt>,
    ) -> Self {
        let states = match (states.len(), states.next()) {
            (1, Some(state)) => return Self::from_state(verdict, source, cost, state, receipt),
            (_, first) => first.into_iter().chain(states),
        };
        let states: Arc<[_]> = states.map(|state| state.after(verdict, cost)).collect();
        Self::with_states(States::Many(states), verdict, source, receipt.as_ref())
    }

    /// A decision whose states say already what they denied.
    pub(crate) fn of_states(verdict: Verdict, source: Source, states: Arc<[QuotaState]>) -> Self {
        Self::with_states(States::Many(states), verdict, source, None)
    }

    #[inline]
    fn with_states(
        states: States,
        verdict: Verdict,
        source: Source,
        receipt: Option<&Receipt>,
    ) -> Self {
        let (found, why, retry_after) = match verdict {
            Verdict::Allowed => (Found::Allowed, Why::Quotas, Duration::ZERO),
            Verdict::Denied { retry_after } => (Found::Denied, Why::Quotas, retry_after),
            Verdict::Busy { retry_after } => (Found::Denied, Why::Busy, retry_after),
            Verdict::OnHold { retry_after } => (Found::Denied, Why::Hold, retry_after),
            Verdict::LockedOut { retry_after } => (Found::Denied, Why::LockedOut, retry_after),
            Verdict::Never => (Found::Never, Why::Quotas, Duration::ZERO),
        };
        Self {
            states,
            charged: Charged::by(receipt),
            has_receipt: receipt.is_some(),
            found,
            retry_after: micros(retry_after),
            why,
            source,
            is_late: false,
            is_reduced: false,
            has_failures: false,
        }
    }

    pub(crate) fn from_state(
        verdict: Verdict,
        source: Source,
        cost: u64,
        state: QuotaState,
        receipt: Option<Receipt>,
    ) -> Self {
        let states = States::One(state.after(verdict, cost));
        Self::with_states(states, verdict, source, receipt.as_ref())
    }

    /// A decision whose state says already whether it denied.
    pub(crate) fn of_state(
        verdict: Verdict,
        source: Source,
        state: QuotaState,
        receipt: Option<Receipt>,
    ) -> Self {
        Self::with_states(States::One(state), verdict, source, receipt.as_ref())
    }

    /// This decision with the receipt of what was charged. Default: nothing was.
    #[must_use]
    pub fn with_receipt(mut self, receipt: Option<Receipt>) -> Self {
        self.charged = Charged::by(receipt.as_ref());
        self.has_receipt = receipt.is_some();
        let receipts = receipt.and_then(|receipt| receipt.of_counts);
        match &self.states {
            States::One(_) | States::Many(_) if receipts.is_none() => self,
            _ => self.with_rare(|rare| rare.receipts = receipts),
        }
    }

    /// This decision as one of another store: [`Count`](crate::algorithm::Count) says
    /// [`Source::Local`].
    #[must_use]
    pub const fn with_source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// The receipt, if the take was allowed. That of a take at a cost of 0 has 0 units, and the
    /// store can [charge more](crate::Store::owe) by it. A [peek](crate::Store::peek) has none.
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        self.has_receipt.then(|| self.receipt_or_none())
    }

    pub(crate) const fn has_receipt(&self) -> bool {
        self.has_receipt
    }

    /// The receipt, of 0 units if nothing was charged.
    pub(crate) fn receipt_or_none(&self) -> Receipt {
        let Charged {
            stamp,
            serial,
            units,
        } = self.charged;
        Receipt {
            of_counts: self.rare().and_then(|rare| rare.receipts.clone()),
            ..Receipt::new(stamp, serial, units)
        }
    }

    /// The units that were charged.
    pub(crate) const fn units(&self) -> u64 {
        self.charged.units
    }

    /// Whether the request may go on. It was charged then, and only then.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.found, Found::Allowed)
    }

    /// When the same take would be allowed if nobody else asks: exactly then, not a microsecond
    /// earlier. Of a [busy](Verdict::Busy) rule it is a hint.
    ///
    /// `None` if it was allowed, and if it can never be, because it costs more than a quota's max.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.found {
            Found::Denied => Some(Duration::from_micros(self.retry_after)),
            Found::Allowed | Found::Never => None,
        }
    }

    /// Units that the tightest quota still has, of those that are not
    /// [hidden](QuotaState::is_hidden).
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let shown = self.quotas().iter().filter(|state| !state.is_hidden);
        shown.map(QuotaState::remaining).min().unwrap_or(0)
    }

    /// How long until all units of all quotas are available again, if no take is charged before.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        let resets = self.quotas().iter().map(QuotaState::reset_after);
        resets.max().unwrap_or_default()
    }

    /// The state of each quota, in the rule's order.
    #[must_use]
    pub fn quotas(&self) -> &[QuotaState] {
        match &self.states {
            States::One(state) => std::slice::from_ref(state),
            States::Many(states) => states,
            States::Rare(rare) => &rare.states,
        }
    }

    /// Whether nothing but [permits](crate::Rule::with_max_concurrent) denied it.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(self.why, Why::Busy)
    }

    /// Whether the key is [held](crate::Limits::hold): a partner that answers calls has said so. A
    /// [look](crate::Store::peek) that is allowed says it, too.
    #[must_use]
    pub const fn is_on_hold(&self) -> bool {
        matches!(self.why, Why::Hold)
    }

    /// Whether the key is [locked out](crate::rule::Lockout) after failures, also while a quota
    /// denies it for longer: then the [verdict](Self::verdict) is about that quota. A
    /// [look](crate::Store::peek) that is allowed says it, too.
    #[must_use]
    pub const fn is_locked_out(&self) -> bool {
        matches!(self.why, Why::LockedOut | Why::QuotasAndLockout)
    }

    /// Whether nothing denies it for longer than its lock-out.
    pub(crate) const fn is_denied_by_lockout(&self) -> bool {
        matches!(self.why, Why::LockedOut)
    }

    /// This decision about a key that is locked out for a shorter time than its quotas deny it.
    pub(crate) fn and_locked_out(mut self) -> Self {
        if matches!((self.found, self.why), (Found::Denied, Why::Quotas)) {
            self.why = Why::QuotasAndLockout;
        }
        self
    }

    const fn rare(&self) -> Option<&Arc<RareStates>> {
        match &self.states {
            States::Rare(rare) => Some(rare),
            States::One(_) | States::Many(_) => None,
        }
    }

    fn with_rare(mut self, change: impl FnOnce(&mut RareStates)) -> Self {
        let new = || RareStates {
            states: self.quotas().into(),
            failure: None,
            receipts: None,
        };
        let mut rare = self.rare().map_or_else(new, |rare| RareStates::clone(rare));
        change(&mut rare);
        self.states = States::Rare(Arc::new(rare));
        self
    }

    /// Which quotas denied the take. `quotas` has an element for each quota of the rule, such as
    /// its [policies](crate::Rule::policies): those of the quotas that were
    /// [exceeded](QuotaState::is_exceeded) are returned.
    pub fn denied_by<'a, T>(&'a self, quotas: &'a [T]) -> impl Iterator<Item = &'a T> + Clone {
        let states = quotas.iter().zip(self.quotas());
        states.filter_map(|(quota, state)| state.is_exceeded.then_some(quota))
    }

    /// What the store found.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        let retry_after = Duration::from_micros(self.retry_after);
        match self.found {
            Found::Allowed => Verdict::Allowed,
            Found::Denied => match self.why {
                Why::Quotas | Why::QuotasAndLockout => Verdict::Denied { retry_after },
                Why::Busy => Verdict::Busy { retry_after },
                Why::Hold => Verdict::OnHold { retry_after },
                Why::LockedOut => Verdict::LockedOut { retry_after },
            },
            Found::Never => Verdict::Never,
        }
    }

    /// Whether the request costs more than max and [reserves max](crate::Rule::with_reserve_max),
    /// as its rule says.
    #[must_use]
    pub const fn is_reduced(&self) -> bool {
        self.is_reduced
    }

    /// Which store decided.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Why the store did not decide, where a [fallback](crate::Resilient::fallback) did.
    #[must_use]
    pub fn failure(&self) -> Option<&StoreError> {
        self.rare()?.failure.as_ref()
    }

    /// This denial, repeated so much later by this source. It allocates nothing, so
    /// the reset-after of several quotas stays that of the denial.
    pub(crate) fn aged_by(&self, age: Duration, source: Source) -> Self {
        let mut aged = self.clone();
        (aged.source, aged.is_late) = (source, false);
        let micros = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        aged.retry_after = aged.retry_after.saturating_sub(micros);
        if let States::One(state) = &mut aged.states {
            state.reset_after = state.reset_after.saturating_sub(micros);
        }
        aged
    }

    /// This denial, which says that its take fits after this time.
    pub(crate) fn with_retry_after(mut self, time: Duration) -> Self {
        self.retry_after = micros(time);
        if let States::One(state) = &mut self.states {
            state.reset_after = state.reset_after.max(self.retry_after);
        }
        self
    }

    /// The decision about a take of this cost whose key is held for so long: this one, or where the
    /// hold is longer than its denial, this verdict.
    pub(crate) fn held_for(mut self, time: Duration, says: Verdict, cost: u64) -> Self {
        let is_longer = self
            .retry_after()
            .is_none_or(|retry_after| retry_after < time);
        let is_locked_out = matches!(says, Verdict::LockedOut { .. });
        if is_longer && !matches!(self.found, Found::Never) {
            let why = if is_locked_out {
                Why::LockedOut
            } else {
                Why::Hold
            };
            // A store says about a take at a cost of 0 only that its key is held.
            if cost == 0 {
                self = self.looked();
            }
            if is_locked_out {
                let states = self.states_mut().iter_mut();
                states.for_each(|state| *state = state.after(says, cost));
            }
            (self.found, self.why, self.retry_after) = (Found::Denied, why, micros(time));
            return self.with_receipt(None);
        }
        if is_locked_out {
            return self.and_locked_out();
        }
        self
    }

    /// This decision for a caller that only looks: it is allowed, and nothing was charged. Whether
    /// the key is held stays.
    pub(crate) fn looked(mut self) -> Self {
        (self.found, self.retry_after) = (Found::Allowed, 0);
        if self.is_busy() {
            self.why = Why::Quotas;
        }
        if self.quotas().iter().any(QuotaState::is_exceeded) {
            let states = self.states_mut().iter_mut();
            states.for_each(|state| state.is_exceeded = false);
        }
        self.with_receipt(None)
    }

    /// This answer to a look, as clients are shown it: it is allowed, unless the key is held. Then
    /// each quota has nothing left until that ends, as while an operator blocks the key.
    pub(crate) fn shown(mut self) -> Self {
        if !(self.is_on_hold() || self.is_locked_out()) {
            return self.looked();
        }
        let end = self.retry_after;
        for state in self.states_mut() {
            (state.remaining, state.reset_after) = (0, state.reset_after.max(end));
        }
        self
    }

    /// This denial with a retry-after that is no longer than this.
    pub(crate) fn within(&self, retry_after: Duration) -> Self {
        let mut sooner = self.clone();
        sooner.retry_after = sooner.retry_after.min(micros(retry_after));
        sooner
    }

    /// This decision, of whose quotas no more is left than by this look.
    pub(crate) fn with_least_left(mut self, look: &Self) -> Self {
        for (state, look) in self.states_mut().iter_mut().zip(look.quotas()) {
            state.remaining = state.remaining.min(look.remaining);
        }
        self
    }

    /// This denial, of whatever kind, with a retry-after that is no longer than this.
    pub(crate) fn for_now(mut self, at_most: Duration) -> Self {
        let at_most = micros(at_most);
        self.retry_after = match self.found {
            Found::Never => at_most,
            _ => self.retry_after.min(at_most),
        };
        self.found = Found::Denied;
        self
    }

    /// Says of each quota, by its place, whether clients are not told its state.
    #[cold]
    pub(crate) fn set_hidden(&mut self, is_hidden: impl Fn(usize) -> bool) {
        for (place, state) in self.states_mut().iter_mut().enumerate() {
            state.is_hidden = is_hidden(place);
        }
    }

    fn states_mut(&mut self) -> &mut [QuotaState] {
        match &mut self.states {
            States::One(state) => std::slice::from_mut(state),
            States::Many(states) => Arc::make_mut(states),
            States::Rare(rare) => &mut Arc::make_mut(rare).states,
        }
    }

    /// This decision as one of a fallback, which was asked because of this failure.
    pub(crate) fn with_failure(self, failure: StoreError) -> Self {
        let decision = self.with_source(Source::Fallback);
        decision.with_rare(|rare| rare.failure = Some(failure))
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut decision = f.debug_struct("Decision");
        decision
            .field("verdict", &self.verdict())
            .field("source", &self.source)
            .field("quotas", &self.quotas())
            .field("receipt", &self.receipt());
        if let Some(failure) = self.failure() {
            decision.field("failure", failure);
        }
        decision.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of decisions are in arrays that are indexed by the source.
    #[test]
    fn all_sources_stand_in_their_order() {
        let sources = Source::ALL.map(|source| source as usize);
        assert!(sources.into_iter().eq(0..Source::ALL.len()));
    }
}
