use std::fmt::Debug;
use std::iter::empty;
use std::mem::replace;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, SystemTime};

use super::charges::Charges;
use super::meter::Meter;
use super::open_charges::OpenCharge;
use super::path_state::PathState;
use super::refund_queue::RefundQueue;
use crate::decision::{self, Decision, Receipt, Source};
use crate::error::{StoreError, StoreErrorKind};
use crate::question::Ask;
use crate::store::{Store, StoreFuture};
use crate::sync::lock;
use crate::take::Take;
use crate::waiting::Turn;

/// What one layer charged an allowed request, and where: it can be refunded once.
///
/// The layer puts it into [`Charges`]. Code that asks a store by itself makes one of the take and
/// the receipt of its decision; two charges of one receipt would be given back twice.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::store::Charge;
/// use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryStore::new());
/// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
/// let take = Take::new(rule, Key::from("alice")).with_cost(4);
/// let decision = store.take(&take).await?;
///
/// let receipt = decision.receipt().expect("the take was allowed");
/// let charge = Charge::new(store, take, receipt);
/// assert_eq!(charge.refund().await?, 4);
/// assert_eq!(charge.refund().await?, 0, "only once");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Charge {
    pub(super) inner: Arc<ChargeInner>,
    /// While a charge keeps this, its units may come back.
    kept_open: Option<Arc<OpenCharge>>,
}

/// The state of a charge, which its clones share.
#[derive(Debug)]
pub(super) struct ChargeInner {
    store: Arc<dyn Store>,
    take: Take,
    /// The decision, with the receipt of what was charged.
    decision: Decision,
    /// The counters and open charges of the layer that charged the request.
    pub(super) path: Option<Arc<PathState>>,
    /// The code that is told what becomes of it.
    pub(super) listeners: Option<Arc<dyn ChargeListener>>,
    /// Sends what no caller waits for.
    pub(super) refunds: RefundQueue,
    pub(super) state: Mutex<ChargeState>,
    /// The decision with what an awaited settlement has changed, for the fields of the response.
    settled: OnceLock<Box<Decision>>,
}

impl Drop for ChargeInner {
    fn drop(&mut self) {
        if self.decision.units() > 0
            && self.take.rule().settles()
            && let Some(path) = &self.path
        {
            path.settlements.note(false);
        }
    }
}

/// Code that is told what becomes of charges.
pub(crate) trait ChargeListener: Debug + Send + Sync {
    /// A settlement has charged this take more than it reserved.
    fn settled(&self, take: &Take, store: &Arc<dyn Store>, path: &Arc<PathState>);

    /// A failure has begun a hold: of this take's key, the step, and when the hold ends.
    fn locked_out(&self, take: &Take, path: &PathState, step: u64, until: SystemTime);
}

#[derive(Debug, Default)]
pub(super) struct ChargeState {
    /// Whether a refund or settlement has begun.
    is_claimed: bool,
    /// Whether a failure or a success of the request was reported.
    pub(super) is_reported: bool,
    /// How many bytes the body of the response has, if it or a field says so.
    length: Option<u64>,
    /// Is alive while a clone may give units back: denials then say that units may come back.
    open: Weak<OpenCharge>,
    /// The turn that its request had, if its lane has paid for it.
    turn: Option<Box<Turn>>,
}

impl Charge {
    /// The charge of this take, with the receipt that the store gave for it.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, take: Take, receipt: Receipt) -> Self {
        let verdict = decision::Verdict::Allowed;
        let decision = Decision::new(verdict, Source::Other, receipt.units(), empty());
        let decision = decision.with_receipt(Some(receipt));
        Self::decided(store, take, decision, None, RefundQueue::default(), None)
    }

    /// Whether both charges are of one store, and share a count there.
    pub(crate) fn shares_count_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.store, &other.inner.store)
            && self.take().shares_count_with(other.take())
    }

    /// The charge of a take that a layer's store has allowed. The layer counts its refunds.
    pub(crate) fn decided(
        store: Arc<dyn Store>,
        take: Take,
        decision: Decision,
        path: Option<Arc<PathState>>,
        refunds: RefundQueue,
        listeners: Option<Arc<dyn ChargeListener>>,
    ) -> Self {
        let inner = ChargeInner {
            store,
            take,
            decision,
            path,
            listeners,
            refunds,
            state: Mutex::default(),
            settled: OnceLock::new(),
        };
        Self {
            inner: Arc::new(inner),
            kept_open: None,
        }
    }

    /// The layer's decision.
    pub(crate) fn decision(&self) -> &Decision {
        &self.inner.decision
    }

    /// The layer's decision, with what a caller has settled since then and waited for.
    #[inline]
    pub(crate) fn settled_decision(&self) -> &Decision {
        let settled = self.inner.settled.get();
        settled.map_or(&self.inner.decision, Box::as_ref)
    }

    /// Notes what is left of each quota after a settlement.
    fn note_settled(&self, what: Effect, settled: Settled) {
        let (decision, policies) = (self.decision(), self.take().rule().policies());
        let own_cost = u64::from(matches!(what, Effect::Refund));
        let states = decision.quotas().iter().zip(policies);
        let states = states.map(|(state, policy)| match policy.cost() {
            _ if policy.is_concurrent() => *state,
            None => state.settled(settled.given_back, settled.charged),
            Some(cost) => state.settled(cost * own_cost, 0),
        });
        let after = Decision::of_states(decision.verdict(), decision.source(), states.collect());
        let _ = self.inner.settled.set(Box::new(after));
    }

    /// This charge for code that may settle it, if something was charged.
    pub(crate) fn for_settling(&self) -> Option<Self> {
        if !self.inner.decision.has_receipt() {
            return None;
        }
        self.inner.refunds.remember_runtime();
        Some(self.clone().keeping_open())
    }

    /// While the returned value is kept, and the charge is not settled, its units may come back:
    /// denials say so.
    fn open_charge(&self) -> Option<Arc<OpenCharge>> {
        let path = self.inner.path.as_ref().filter(|_| self.has_units())?;
        let mut state = lock(&self.inner.state);
        let open = state.open.upgrade();
        if open.is_some() || state.is_claimed {
            return open;
        }
        let receipt = self.inner.decision.receipt_or_none();
        let counts = self.take().parts(&receipt);
        let counts = counts.map(|(count, receipt)| (count.hash(), receipt.units()));
        let life = Duration::from_micros(self.take().life_micros());
        let opened = Arc::new(path.open.open(counts, life));
        state.open = Arc::downgrade(&opened);
        Some(opened)
    }

    /// Whether something was charged, if only in counts with a cost of their own.
    fn has_units(&self) -> bool {
        let decision = &self.inner.decision;
        let in_counts = || {
            let receipt = decision.receipt_or_none();
            receipt.counts().iter().any(|count| count.units() > 0)
        };
        decision.units() > 0 || in_counts()
    }

    /// This charge, which stays open until it is settled or dropped.
    pub(crate) fn keeping_open(mut self) -> Self {
        self.kept_open = self.open_charge();
        self
    }

    /// Whether code keeps it open, too, and may settle it.
    pub(crate) fn is_kept_by_code(&self) -> bool {
        let open = self.kept_open.as_ref();
        open.is_some_and(|open| Arc::strong_count(open) > 1)
    }

    /// From now on this clone does not keep the charge open.
    pub(crate) fn stop_keeping_open(&mut self) {
        self.kept_open = None;
    }

    /// Closes the open charge. `given_back` units of the request's cost were given back, or may
    /// have been.
    fn close(&self, what: Effect, given_back: u64) {
        if let Some(open) = lock(&self.inner.state).open.upgrade() {
            open.close(|count| self.units_in(count, what, given_back));
        }
    }

    /// How many units are given back in its count at this place, if so many of the request's cost
    /// are.
    fn units_in(&self, count: usize, what: Effect, units: u64) -> u64 {
        let receipt = self.inner.decision.receipt_or_none();
        match what.units_in(self.take(), count, units) {
            Some(units) => units,
            None => receipt.counts().get(count).map_or(0, Receipt::units),
        }
    }

    /// The lane of its request has paid for this turn.
    pub(crate) fn paid_by(&self, turn: Option<Turn>) {
        lock(&self.inner.state).turn = turn.map(Box::new);
    }

    /// The lane of its request pays what was used beyond the reservation, and gets the rest back.
    fn settle_turn(&self, what: Effect, path: &PathState, settled: Settled) {
        let turn = lock(&self.inner.state).turn.take();
        let of = |turn: &Turn| {
            let mut counts = self.take().counts().iter();
            counts.position(|it| it.hash() == turn.queue.count)
        };
        if let Some((turn, count)) = turn.and_then(|it| of(&it).map(|count| (it, count))) {
            // Else it would use for nothing what is forgiven.
            let used = settled.charged.saturating_add(settled.forgiven);
            let units_in = |units| self.units_in(count, what, units);
            let (more, back) = match used {
                0 => (0, units_in(settled.given_back)),
                _ => (units_in(used), 0),
            };
            path.open.queues().settle(&turn, more, back);
        }
    }

    /// The take that was allowed: its rule, key and cost.
    #[must_use]
    pub fn take(&self) -> &Take {
        &self.inner.take
    }

    /// The store's receipt.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.inner.decision.receipt_or_none()
    }

    /// The store that was charged.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Gives all units back that still count, and returns their number. Clones are the same charge,
    /// and it is given back once: the first caller does it, and every other refund returns 0,
    /// also after an error, and after a future that was dropped.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer. Whether units were given back is then unknown.
    /// There is no use in asking again: units that were not given back stay charged until their
    /// window has passed.
    pub async fn refund(&self) -> Result<u64, StoreError> {
        let settled = self.settle_by(Effect::Refund).await?;
        Ok(settled.given_back)
    }

    /// Charges what was used in place of what was reserved. Callers that do not know the cost of a
    /// request beforehand take an estimate, and settle when it is known.
    ///
    /// Of a reservation that was too large, all but `used` units that still count are given back.
    /// What was used beyond one that was too small is charged now, whatever has become of the
    /// reservation, also above max: no key [owes](crate::Rule::with_owe_at_most) more than the max
    /// of the quota once more, unless the rule says otherwise, and what is beyond is forgiven.
    /// Later takes are denied until what is above max has ceased to count.
    ///
    /// A request at a cost of 0 has reserved nothing: a settlement charges what it has used.
    ///
    /// A charge is settled or [refunded](Self::refund) once: whatever comes first counts, also if
    /// all units were used, and everything else changes nothing. `settle(0)` is a refund, except
    /// that quotas with a [cost of their own](crate::rule::Policy::with_cost) stay as they are: a
    /// request that used no token is a request.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("tokens", [Quota::per_minute(10_000)])?]);
    /// let admitted = limits.check("tokens", "alice").cost(4_000).await?;
    /// let charge = admitted.charge.expect("it was charged");
    /// // The answer of the model had 1,500 tokens.
    /// assert_eq!(charge.settle(1_500).await?.given_back, 2_500);
    /// assert_eq!(charge.refund().await?, 0, "it is settled");
    ///
    /// let admitted = limits.check("tokens", "alice").cost(4_000).await?;
    /// let charge = admitted.charge.expect("it was charged");
    /// // This one had 30,000: 20,000 are used now, and more are not charged.
    /// let settled = charge.settle(30_000).await?;
    /// assert_eq!((settled.charged, settled.forgiven), (14_500, 11_500));
    /// assert!(limits.check("tokens", "alice").await.is_err(), "denied");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store gives no answer, or [cannot](crate::store::Capabilities::owes)
    /// charge more than was reserved. Whether something was charged or given back is then unknown,
    /// and there is no use in asking again; except after one of the kind
    /// [`Overloaded`](crate::store::StoreErrorKind::Overloaded) under a rule of one count: the
    /// store was not asked, and the charge can be settled again.
    pub async fn settle(&self, used: u64) -> Result<Settled, StoreError> {
        self.settle_by(Effect::settle(used)).await
    }

    /// Counts what the request uses, and [settles](Self::settle) when it is dropped: see [`Meter`].
    #[must_use = "it settles when it is dropped"]
    pub fn meter(&self) -> Meter {
        Meter::new(Charges::single(self.clone()))
    }

    /// Notes how many bytes the body of the response has, if it is known.
    pub(crate) fn note_length(&self, bytes: Option<u64>) {
        if bytes.is_some() {
            lock(&self.inner.state).length = bytes;
        }
    }

    pub(super) fn length(&self) -> u64 {
        lock(&self.inner.state).length.unwrap_or(u64::MAX)
    }

    /// Notes that code settles or refunds it, or meters what it uses.
    pub(crate) fn note_settled_by_code(&self) {
        let path = self.inner.path.iter();
        path.for_each(|it| it.settlements.note(true));
    }

    pub(super) async fn settle_by(&self, what: Effect) -> Result<Settled, StoreError> {
        self.note_settled_by_code();
        match self.claim(what) {
            Some(refund) => match refund.ask().await {
                Ok(units) => Ok(refund.answered(units)),
                Err(error) => {
                    // If there are several counts, the store may have been asked about some.
                    let is_one = self.take().counts().len() == 1;
                    if is_one && error.kind() == StoreErrorKind::Overloaded {
                        refund.was_not_sent();
                    }
                    Err(error)
                }
            },
            None => Ok(Settled::default()),
        }
    }

    /// Claims the right to settle this charge. `None` if another caller has it, or if there is
    /// nothing to give back or to charge.
    pub(super) fn claim(&self, what: Effect) -> Option<Refund> {
        if replace(&mut lock(&self.inner.state).is_claimed, true) {
            return None;
        }
        let (units, mut owed) = what.units(self.inner.decision.units());
        let question = |units| self.take().first_question(units);
        if owed > 0 && question(owed).counts_owed().next().is_none() {
            owed = 0;
        }
        // A request at a cost of 0 gets back what quotas with a cost of their own were charged.
        let gives_back = units > 0 || matches!(what, Effect::Refund) && self.has_units();
        if !gives_back && owed == 0 {
            self.close(what, 0);
            return None;
        }
        Some(Refund {
            // It is open until the store has answered.
            charge: Self {
                inner: Arc::clone(&self.inner),
                kept_open: lock(&self.inner.state).open.upgrade(),
            },
            what,
            units,
            owed,
            is_awaited: true,
            is_answered: false,
        })
    }
}

/// What a [settlement](Charge::settle) has done.
///
/// ```
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::new([Rule::new("tokens", [Quota::per_minute(100)])?]);
/// let admitted = limits.check("tokens", "alice").cost(10).await?;
/// let settled = admitted.charge.expect("it was charged").settle(40).await?;
/// assert_eq!((settled.given_back, settled.charged, settled.forgiven), (0, 30, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settled {
    /// Units that were reserved and not used, and still counted.
    pub given_back: u64,
    /// Units that were used beyond the reservation, and charged. If they were charged in several
    /// counts, the fewest.
    pub charged: u64,
    /// Units that were used beyond the reservation, and are more than the key
    /// [may owe](crate::Rule::with_owe_at_most). If there are several counts, the most.
    pub forgiven: u64,
}

impl Settled {
    pub(super) fn add(&mut self, other: Self) {
        self.given_back = self.given_back.saturating_add(other.given_back);
        self.charged = self.charged.saturating_add(other.charged);
        self.forgiven = self.forgiven.saturating_add(other.forgiven);
    }
}

/// What becomes of a charge.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Everything is given back.
    Refund,
    /// The units of the request's cost that were not used are. Counts with a cost of their own stay
    /// as they are.
    Settle {
        used: u64,
        /// Whether units that were used beyond the cost are charged.
        owes: bool,
    },
    /// Its request has failed, or succeeded: nothing is given back.
    Failed,
    Succeeded,
}

impl Effect {
    /// The request has used this number of units.
    pub(crate) const fn settle(used: u64) -> Self {
        let owes = true;
        Self::Settle { used, owes }
    }

    /// Does this in the background.
    pub(crate) fn apply(self, charge: &Charge) {
        match self {
            Self::Failed => charge.failed(),
            Self::Succeeded => charge.succeeded(),
            what => charge.inner.refunds.settle(charge, what),
        }
    }

    /// How many units are given back, and charged, of a reservation.
    const fn units(self, reserved: u64) -> (u64, u64) {
        let (used, owes) = match self {
            Self::Settle { used, owes } => (used, owes),
            _ => (0, false),
        };
        let beyond = used.saturating_sub(reserved) * owes as u64;
        (reserved.saturating_sub(used), beyond)
    }

    /// How many units are given back in the take's count at this place, if `units` of the request's
    /// cost are. `None`: all that the count was charged.
    fn units_in(self, ask: &Ask, count: usize, units: u64) -> Option<u64> {
        let count = &ask.counts()[count];
        if count.spec().is_permits() {
            // A permit goes back when its request has ended.
            return Some(0);
        }
        match self {
            _ if !count.has_own_cost => Some(units),
            Self::Refund => None,
            _ => Some(0),
        }
    }
}

/// The exclusive right to settle a charge.
#[derive(Debug)]
pub(super) struct Refund {
    charge: Charge,
    what: Effect,
    /// The units of the request's cost that are given back.
    units: u64,
    /// The units that are charged instead, where more was used than reserved.
    owed: u64,
    /// Whether a caller waits for the answer. If none does, a refund without an answer counts as
    /// lost; a charge beyond the reservation without an answer always does.
    is_awaited: bool,
    is_answered: bool,
}

impl Refund {
    /// This refund, whose answer no caller waits for.
    pub(super) fn unawaited(mut self) -> Self {
        self.is_awaited = false;
        self
    }

    pub(super) fn ask(&self) -> StoreFuture<u64> {
        let (take, units) = (self.charge.take(), self.units.max(self.owed));
        let mut ask = match self.is_awaited {
            true => take.ask.clone().with_cost(units),
            false => take.for_refund(units),
        };
        if let Effect::Settle { .. } = self.what {
            ask = ask.at_cost_of_request();
        }
        let receipt = self.charge.inner.decision.receipt_or_none();
        match self.owed {
            0 => self.charge.inner.store.refund(&ask, &receipt),
            _ => self.charge.inner.store.owe(&ask, &receipt),
        }
    }

    /// The store was not asked: the charge may be given back once more.
    fn was_not_sent(mut self) {
        self.is_answered = true;
        lock(&self.charge.inner.state).is_claimed = false;
    }

    /// Counts what the store has given back or charged: never more than it was asked for, whatever
    /// it answers.
    pub(super) fn answered(mut self, units: u64) -> Settled {
        let charged = units.min(self.owed);
        let settled = Settled {
            given_back: units.min(self.units),
            charged,
            forgiven: self.owed - charged,
        };
        let path = self.charge.inner.path.as_ref();
        if let Some(path) = path {
            path.counters.refunded(settled.given_back);
            path.counters.owed(settled.charged, settled.forgiven);
        }
        // Before units that came back wake the next one.
        path.inspect(|it| self.charge.settle_turn(self.what, it, settled));
        self.charge.close(self.what, settled.given_back);
        if self.is_awaited {
            self.charge.note_settled(self.what, settled);
        }
        let listeners = self.charge.inner.listeners.as_ref().zip(path);
        if let Some((listeners, path)) = listeners.filter(|_| charged > 0) {
            listeners.settled(self.charge.take(), self.charge.store(), path);
        }
        self.is_answered = true;
        settled
    }
}

impl Drop for Refund {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        if let Some(PathState { counters, .. }) = self.charge.inner.path.as_deref()
            && (!self.is_awaited || self.owed > 0)
        {
            counters.numbers.refunds_lost.add(1);
        }
        // Without an answer it is not known what was given back: requests that wait ask.
        self.charge.close(self.what, self.units);
    }
}
