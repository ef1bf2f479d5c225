use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::sync::lock;

/// What this process may still give back of the counts of one path, and the requests that wait
/// for units of these counts. Clones are the same.
///
/// A charge is *open* while its request is in progress under a rule whose outcomes give back, and
/// while code holds it that may settle it.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenCharges(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How many charges are open, for readers without the lock.
    open: AtomicUsize,
    /// How often units were given back, of the counts of each hash modulo the length.
    refunds: [AtomicU32; 64 / size_of::<AtomicU32>()],
    /// By the hashes of their names. A count with neither charges nor waiters has no entry.
    counts: Mutex<HashMap<u64, Count>>,
}

#[derive(Debug, Default)]
struct Count {
    /// Units, and until when they count, in the order in which the charges were opened.
    charges: BTreeMap<u64, (u64, Instant)>,
    /// The units of all of them.
    units: u64,
    /// In order of arrival.
    waiters: BTreeMap<u64, WaiterState>,
    /// The number of the last charge or waiter.
    last: u64,
    /// Before that, no waiter asks on the chance that another process has given back.
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct WaiterState {
    cost: u64,
    /// Whether only units that are given back can reach it within its patience.
    needs_refund: bool,
    /// Whether units were given back that may suffice: it asks.
    may_ask: bool,
    /// Whether nobody knows how many units were given back, if any.
    is_look: bool,
    /// Whether it asks now. What it is granted may be given back.
    is_asking: bool,
    changed: Arc<Notify>,
}

/// A pause between questions of the waiters of one count that only a refund can help, and about
/// which this process has heard nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl OpenCharges {
    /// Counts a charge of so many units as open until it is closed, or counts no more.
    pub(crate) fn open(&self, hash: u64, units: u64, life: Duration) -> OpenCharge {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        let mut counts = lock(&self.0.counts);
        let count = counts.entry(hash).or_default();
        count.last += 1;
        count.units = count.units.saturating_add(units);
        let now = Instant::now();
        let until = now.checked_add(life).unwrap_or(now);
        count.charges.insert(count.last, (units, until));
        OpenCharge {
            charges: self.clone(),
            hash,
            number: count.last,
        }
    }

    /// The units of this count that are open.
    #[inline]
    pub(crate) fn units(&self, hash: u64) -> u64 {
        match self.0.open.load(Ordering::Acquire) {
            0 => 0,
            _ => self.change(hash, |count| count.units).unwrap_or(0),
        }
    }

    /// A number that changes when units of this count are given back, and sometimes else.
    pub(crate) fn refunds(&self, hash: u64) -> u32 {
        self.refunds_of(hash).load(Ordering::Acquire)
    }

    fn refunds_of(&self, hash: u64) -> &AtomicU32 {
        let refunds = &self.0.refunds;
        &refunds[hash as usize % refunds.len()]
    }

    /// Units of this count were given back, so that waiters ask: as many as the units suffice for.
    pub(crate) fn given_back(&self, hash: u64, units: u64) {
        self.refunds_of(hash).fetch_add(1, Ordering::Release);
        self.change(hash, |count| count.wake_for(units));
    }

    /// The count was reset: nothing that is open counts any more, and all who wait ask.
    pub(crate) fn was_reset(&self, hash: u64) {
        self.change(hash, |count| self.remove(count, |_, _| true));
        self.given_back(hash, u64::MAX);
    }

    /// A place among the waiters of this count, if there are fewer than `max`.
    pub(crate) fn wait(&self, hash: u64, cost: u64, max: usize) -> Option<WaitingPlace> {
        let mut counts = lock(&self.0.counts);
        let waiting = counts.get(&hash).map_or(0, |count| count.waiters.len());
        if waiting >= max {
            return None;
        }
        let count = counts.entry(hash).or_default();
        count.last += 1;
        let (arrival, changed) = (count.last, Arc::<Notify>::default());
        let state = WaiterState {
            cost,
            needs_refund: false,
            may_ask: false,
            is_look: false,
            is_asking: true,
            changed: Arc::clone(&changed),
        };
        count.waiters.insert(arrival, state);
        let charges = self.clone();
        Some(WaitingPlace {
            charges,
            hash,
            arrival,
            changed,
        })
    }

    /// Changes the count without what counts no more. It is dropped if it is empty afterwards.
    fn change<T>(&self, hash: u64, change: impl FnOnce(&mut Count) -> T) -> Option<T> {
        let mut counts = lock(&self.0.counts);
        let count = counts.get_mut(&hash)?;
        let first = count.charges.first_key_value();
        if first.is_some_and(|(_, (_, until))| *until <= Instant::now()) {
            let now = Instant::now();
            self.remove(count, |_, until| until <= now);
        }
        let changed = change(count);
        if count.charges.is_empty() && count.waiters.is_empty() {
            counts.remove(&hash);
        }
        Some(changed)
    }

    /// Removes charges that are open no more. Those that hoped for these alone give up.
    fn remove(&self, count: &mut Count, is_over: impl Fn(u64, Instant) -> bool) {
        let (units, mut removed) = (&mut count.units, 0);
        count.charges.retain(|number, (of, until)| {
            let stays = !is_over(*number, *until);
            if !stays {
                *units = units.saturating_sub(*of);
                removed += 1;
            }
            stays
        });
        // A reader that finds them closed also sees what was given back.
        self.0.open.fetch_sub(removed, Ordering::Release);
        count.tell_hopeless();
    }
}

impl Count {
    fn has_hope(&self) -> bool {
        !self.charges.is_empty() || self.waiters.values().any(|waiter| waiter.is_asking)
    }

    /// Waiters that hope for charges of this process alone give up if there is none.
    fn tell_hopeless(&self) {
        if !self.has_hope() {
            let waiters = self.waiters.values().filter(|it| it.needs_refund);
            waiters.for_each(|waiter| waiter.changed.notify_one());
        }
    }

    /// The first waiters ask, as many as these units suffice for.
    fn wake_for(&mut self, units: u64) {
        let mut left = units;
        for waiter in self.waiters.values_mut().filter(|it| !it.may_ask) {
            waiter.wake(false);
            left = left.saturating_sub(waiter.cost);
            if left == 0 {
                break;
            }
        }
    }

    /// The waiters that only a refund can help, and that were not woken.
    fn sleepers(&mut self) -> impl Iterator<Item = &mut WaiterState> {
        let waiters = self.waiters.values_mut();
        waiters.filter(|it| it.needs_refund && !it.may_ask)
    }

    /// Another process may have given back: the first one of the sleepers that cost least asks.
    fn look(&mut self, now: Instant) {
        if self.next_look.is_none_or(|next| next <= now) {
            self.next_look = Some(now + LOOK_EVERY);
            let cheapest = self.sleepers().min_by_key(|waiter| waiter.cost);
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

/// An open charge, until it is closed or dropped.
#[derive(Debug)]
pub(crate) struct OpenCharge {
    charges: OpenCharges,
    hash: u64,
    number: u64,
}

impl OpenCharge {
    /// It is settled: so many of its units were given back, or perhaps. Only the first call counts.
    pub(crate) fn close(&self, given_back: u64) {
        let is_open = |count: &mut Count| count.charges.contains_key(&self.number);
        if self.charges.change(self.hash, is_open) != Some(true) {
            return;
        }
        if given_back > 0 {
            self.charges.given_back(self.hash, given_back);
        }
        let is_own = |number, _| number == self.number;
        let remove = |count: &mut Count| self.charges.remove(count, is_own);
        self.charges.change(self.hash, remove);
    }
}

impl Drop for OpenCharge {
    fn drop(&mut self) {
        self.close(0);
    }
}

/// The place of a request among the waiters of its count, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    charges: OpenCharges,
    hash: u64,
    arrival: u64,
    changed: Arc<Notify>,
}

impl WaitingPlace {
    /// Sleeps until then, or until units are given back.
    pub(crate) async fn sleep_until(&self, until: Instant) {
        self.begin(false);
        while !self.may_ask() {
            if timeout_at(until, self.changed.notified()).await.is_err() {
                break;
            }
        }
        self.change(|state| state.is_asking = true);
    }

    /// Waits for units that are given back. Returns whether to ask: also once there is another
    /// reason, which is looked for every 100 ms; and false once `until` is over, or, unless there is
    /// `hope` beyond them, when this process has no open charges of the count.
    pub(crate) async fn refunded(
        &self,
        until: Option<Instant>,
        hope: bool,
        has_reason: impl Fn() -> bool,
    ) -> bool {
        self.begin(true);
        loop {
            if self.may_ask() || has_reason() {
                self.change(|state| state.is_asking = true);
                return true;
            }
            let now = Instant::now();
            let state = |count: &mut Count| (count.has_hope(), count.next_look);
            let (has_hope, next_look) = self.charges.change(self.hash, state).unwrap_or_default();
            if !(has_hope || hope) || until.is_some_and(|until| until <= now) {
                return false;
            }
            let look_at = next_look.unwrap_or(now);
            let wake_at = until.map_or(look_at, |until| until.min(look_at));
            if timeout_at(wake_at, self.changed.notified()).await.is_err() {
                self.charges
                    .change(self.hash, |count| count.look(Instant::now()));
            }
        }
    }

    /// Units were given back after it had asked: it asks again.
    pub(crate) fn wake(&self) {
        self.change(|state| state.wake(false));
    }

    /// It was granted units. If it only looked for them, there may be more: two waiters ask next,
    /// so that all who can be granted soon are.
    pub(crate) fn granted(&self) {
        if self.change(|state| state.is_look) == Some(true) {
            self.charges.change(self.hash, |count| {
                let next = count.sleepers().take(2);
                next.for_each(|waiter| waiter.wake(true));
            });
        }
    }

    fn begin(&self, needs_refund: bool) {
        self.change(|state| (state.needs_refund, state.is_asking) = (needs_refund, false));
        self.charges.change(self.hash, |count| {
            let now = Instant::now();
            if needs_refund && count.next_look.is_none_or(|next| next < now) {
                count.next_look = Some(now + LOOK_EVERY);
            }
            count.tell_hopeless();
        });
    }

    /// Whether units were given back since it asked last.
    fn may_ask(&self) -> bool {
        let taken = self.change(|state| std::mem::take(&mut state.may_ask));
        taken.unwrap_or(false)
    }

    fn change<T>(&self, change: impl FnOnce(&mut WaiterState) -> T) -> Option<T> {
        let own = |count: &mut Count| count.waiters.get_mut(&self.arrival).map(change);
        self.charges.change(self.hash, own).flatten()
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.charges.change(self.hash, |count| {
            let state = count.waiters.remove(&self.arrival);
            // What it was woken for is the next one's.
            if state.is_some_and(|state| state.may_ask) {
                count.wake_for(1);
            }
            count.tell_hopeless();
        });
    }
}
