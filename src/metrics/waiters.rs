use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::open_charges::{Count, OpenCharges};

/// The requests that wait for units of one count.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// In order of arrival.
    pub(super) all: BTreeMap<u64, WaiterState>,
    /// How many of them hope for open charges alone.
    pub(super) hoping: usize,
    /// The most permits that there are for one that has waited.
    most_permits: u64,
    /// Before that, none asks on the chance that another process has given back.
    next_look: Option<Instant>,
    /// Hears of the permits that come back, in any process.
    pub(super) listener: Option<Listener>,
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Listener(pub(super) AbortHandle);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
pub(super) struct WaiterState {
    cost: u64,
    /// Whether this count has denied it.
    is_denied: bool,
    /// Whether no other count has.
    is_denied_alone: bool,
    /// How many permits there are for it, if the count is of permits: plans differ.
    permits: u64,
    /// Whether only units that are given back can reach it within its patience.
    needs_refund: bool,
    /// Whether it gives up if this process has no open charges.
    hopes_for_charges: bool,
    /// Whether units were given back that may suffice: it asks.
    may_ask: bool,
    /// Whether nobody knows how many units were given back, if any.
    is_look: bool,
    /// Whether it has heard of these units, and nobody knows whether it needs them.
    was_woken: bool,
    /// Whether it asks now. What it is granted may be given back.
    is_asking: bool,
    changed: Arc<Notify>,
}

/// A pause between questions of the waiters of one count that only a refund can help, and about
/// which this process has heard nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same for a permit, whose return other processes announce.
const LOOK_FOR_PERMIT_EVERY: Duration = Duration::from_secs(1);

impl Waiters {
    /// One more, with this number, that asks now.
    pub(super) fn add(
        &mut self,
        number: u64,
        waited: &WaitedCount,
        is_denied_alone: bool,
        changed: &Arc<Notify>,
    ) {
        let state = WaiterState {
            cost: waited.cost,
            is_denied: waited.is_denied,
            is_denied_alone,
            permits: waited.permits,
            needs_refund: false,
            hopes_for_charges: false,
            may_ask: false,
            is_look: false,
            was_woken: false,
            is_asking: true,
            changed: Arc::clone(changed),
        };
        self.most_permits = self.most_permits.max(waited.permits);
        self.all.insert(number, state);
    }

    pub(super) fn is_one_asking(&self) -> bool {
        self.all.values().any(|waiter| waiter.is_asking)
    }

    /// There is no charge to hope for: those that need one give up.
    pub(super) fn tell_hopeless(&self) {
        let waiters = self.all.values().filter(|it| it.hopes_for_charges);
        waiters.for_each(|waiter| waiter.changed.notify_one());
    }

    /// The first waiters ask, as many as these units suffice for: before others those that no other
    /// count denies.
    pub(super) fn wake_for(&mut self, units: u64, is_look: bool) {
        let mut left = units;
        for alone in [true, false] {
            let waiters = self.all.values_mut();
            let waiters = waiters.filter(|it| !it.may_ask && (it.is_denied || it.is_asking));
            for waiter in waiters.filter(|it| it.is_denied_alone == alone) {
                waiter.wake(is_look);
                left = left.saturating_sub(waiter.cost);
                if left == 0 {
                    return;
                }
            }
        }
    }

    /// The waiters that only a refund can help, and that were not woken.
    fn sleepers(&mut self) -> impl Iterator<Item = &mut WaiterState> {
        let waiters = self.all.values_mut();
        waiters.filter(|it| it.needs_refund && !it.may_ask)
    }

    /// Another process may have given back: the first one of the sleepers that cost least asks.
    fn look(&mut self, now: Instant, every: Duration) {
        if self.next_look.is_none_or(|next| next <= now) {
            self.next_look = Some(now + every);
            let order = |waiter: &&mut WaiterState| (!waiter.is_denied_alone, waiter.cost);
            let cheapest = self.sleepers().min_by_key(order);
            cheapest.into_iter().for_each(|waiter| waiter.wake(true));
        }
    }
}

impl WaiterState {
    fn wake(&mut self, is_look: bool) {
        (self.may_ask, self.is_look) = (true, is_look);
        self.changed.notify_one();
    }
}

/// What a request waits for that its retry-after does not reach in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hope {
    /// Charges that this process has open.
    OpenCharges,
    /// These, and what other processes give back.
    Refunds,
    /// A permit.
    Permit,
}

impl Hope {
    const fn look_every(self) -> Duration {
        match self {
            Self::Permit => LOOK_FOR_PERMIT_EVERY,
            Self::OpenCharges | Self::Refunds => LOOK_EVERY,
        }
    }
}

/// A count of a request that waits.
#[derive(Debug)]
pub(crate) struct WaitedCount {
    pub(crate) hash: u64,
    /// What the request costs there.
    pub(crate) cost: u64,
    /// Whether it has denied the request.
    pub(crate) is_denied: bool,
    /// Whether the number of its waiters is bounded.
    pub(crate) is_bounded: bool,
    /// How many permits there are for it, or 0 for a count of units.
    pub(crate) permits: u64,
}

/// The place of a request among the waiters of each of its counts, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    pub(super) charges: OpenCharges,
    /// The hash of each of its counts, and the number of its arrival there.
    pub(super) places: SmallVec<[(u64, u64); 1]>,
    pub(super) changed: Arc<Notify>,
}

impl WaitingPlace {
    /// Sleeps until then, or until units are given back.
    pub(crate) async fn sleep_until(&self, until: Instant) {
        self.begin(None);
        while !self.may_ask() {
            if timeout_at(until, self.changed.notified()).await.is_err() {
                break;
            }
        }
        self.each(|state| state.is_asking = true);
    }

    /// Waits for units that are given back, or for a permit. Returns whether to ask: also once
    /// there is another reason, which is looked for every 100 ms, or every second; and false once
    /// `until` is over, or, unless there is `hope` beyond them, when this process has no open
    /// charges of a count that denied it.
    pub(crate) async fn refunded(
        &self,
        until: Option<Instant>,
        hope: Hope,
        has_reason: impl Fn() -> bool,
    ) -> bool {
        self.begin(Some(hope));
        loop {
            if self.may_ask() || has_reason() {
                self.each(|state| state.is_asking = true);
                return true;
            }
            let now = Instant::now();
            let (mut has_hope, mut next_look) = (hope != Hope::OpenCharges, None);
            self.each_denying(|count| {
                has_hope = has_hope || count.has_hope();
                next_look = next_look.into_iter().chain(count.waiters.next_look).min();
            });
            if !has_hope || until.is_some_and(|until| until <= now) {
                return false;
            }
            let look_at = next_look.unwrap_or(now);
            let wake_at = until.map_or(look_at, |until| until.min(look_at));
            if timeout_at(wake_at, self.changed.notified()).await.is_err() {
                self.each_denying(|count| count.waiters.look(Instant::now(), hope.look_every()));
            }
        }
    }

    /// Units were given back after it had asked: it asks again.
    pub(crate) fn wake(&self) {
        self.each(|state| {
            if state.is_denied {
                state.wake(false);
            }
        });
    }

    /// It was granted units. If it only looked for them, there may be more: two waiters ask next,
    /// so that all who can be granted soon are.
    pub(crate) fn granted(&self) {
        self.change(|count, own| {
            let waiters = &mut count.waiters;
            if waiters.all.get(&own).is_some_and(|state| state.is_look) {
                let next = waiters.sleepers().take(2);
                next.for_each(|waiter| waiter.wake(true));
            }
        });
    }

    /// It has asked, and was denied by the counts with these hashes. What it was woken for in
    /// another one is the next one's there.
    pub(crate) fn denied(&self, by: &[u64]) {
        let mut hashes = self.places.iter().map(|(hash, _)| hash);
        self.change(|count, own| {
            let is_denied = hashes.next().is_some_and(|hash| by.contains(hash));
            let most_permits = count.waiters.most_permits;
            let waiters = &mut count.waiters.all;
            let state = waiters
                .get_mut(&own)
                .filter(|it| is_denied && it.permits > 0);
            if let Some(state) = state
                && std::mem::take(&mut state.was_woken)
                && state.permits < most_permits
            {
                // Its plan has no room: the next one asks whose plan may have some.
                let own = state.permits;
                let mut others = waiters
                    .values_mut()
                    .filter(|it| it.is_denied && !it.may_ask);
                let next = others.find(|it| it.permits > own);
                next.into_iter().for_each(|it| it.wake(false));
            }
        });
        if self.places.len() == 1 {
            return;
        }
        let mut hashes = self.places.iter().map(|(hash, _)| hash);
        self.change(|count, own| {
            let is_denied = hashes.next().is_some_and(|hash| by.contains(hash));
            let Some(state) = count.waiters.all.get_mut(&own) else {
                return;
            };
            state.is_denied = is_denied;
            state.is_denied_alone = by.len() == 1;
            let was_woken = std::mem::take(&mut state.was_woken);
            if state.is_denied {
                return;
            }
            let may_ask = std::mem::take(&mut state.may_ask);
            let is_look = std::mem::take(&mut state.is_look);
            state.is_asking = false;
            if was_woken || may_ask {
                count.waiters.wake_for(1, is_look);
            }
        });
    }

    fn begin(&self, hope: Option<Hope>) {
        self.change(|count, own| {
            let waiters = &mut count.waiters;
            let Some(state) = waiters.all.get_mut(&own) else {
                return;
            };
            let needs_refund = hope.is_some() && state.is_denied;
            let hopes = needs_refund && hope == Some(Hope::OpenCharges);
            waiters.hoping -= usize::from(state.hopes_for_charges);
            waiters.hoping += usize::from(hopes);
            (state.needs_refund, state.hopes_for_charges) = (needs_refund, hopes);
            state.is_asking = false;
            let now = Instant::now();
            if let Some(every) = hope.filter(|_| needs_refund).map(Hope::look_every)
                && count.waiters.next_look.is_none_or(|next| next < now)
            {
                count.waiters.next_look = Some(now + every);
            }
            count.tell_hopeless();
        });
    }

    /// Whether units were given back since it asked last.
    fn may_ask(&self) -> bool {
        let mut may_ask = false;
        self.each(|state| {
            let is_woken = std::mem::take(&mut state.may_ask);
            state.was_woken |= is_woken;
            may_ask |= is_woken;
        });
        may_ask
    }

    /// Changes its state in each of its counts.
    fn each(&self, mut change: impl FnMut(&mut WaiterState)) {
        self.change(|count, own| {
            let state = count.waiters.all.get_mut(&own);
            state.into_iter().for_each(&mut change);
        });
    }

    /// Changes the counts that have denied it.
    fn each_denying(&self, mut change: impl FnMut(&mut Count)) {
        self.change(|count, own| {
            if count
                .waiters
                .all
                .get(&own)
                .is_some_and(|state| state.is_denied)
            {
                change(count);
            }
        });
    }

    /// Changes each of its counts, of which it has this number.
    fn change(&self, mut change: impl FnMut(&mut Count, u64)) {
        for (hash, own) in &self.places {
            self.charges.change(*hash, |count| change(count, *own));
        }
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.change(|count, own| {
            let state = count.waiters.all.remove(&own);
            let hoped = state.as_ref().is_some_and(|state| state.hopes_for_charges);
            count.waiters.hoping -= usize::from(hoped);
            // What it was woken for is the next one's.
            if state.is_some_and(|state| state.may_ask) {
                count.waiters.wake_for(1, false);
            }
            count.tell_hopeless();
        });
    }
}
