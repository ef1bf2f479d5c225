use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
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
    /// Whether this count has denied it.
    is_denied: bool,
    /// Whether no other count has.
    is_denied_alone: bool,
    /// Whether only units that are given back can reach it within its patience.
    needs_refund: bool,
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

impl OpenCharges {
    /// Counts a charge as open until it is closed, or counts no more: so many units in each count,
    /// which is given by its hash.
    pub(crate) fn open(
        &self,
        counts: impl Iterator<Item = (u64, u64)>,
        life: Duration,
    ) -> OpenCharge {
        let now = Instant::now();
        let until = now.checked_add(life).unwrap_or(now);
        let mut known = lock(&self.0.counts);
        let places = counts.map(|(hash, units)| {
            self.0.open.fetch_add(1, Ordering::Relaxed);
            let count = known.entry(hash).or_default();
            count.last += 1;
            count.units = count.units.saturating_add(units);
            count.charges.insert(count.last, (units, until));
            (hash, count.last)
        });
        OpenCharge {
            charges: self.clone(),
            places: places.collect(),
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
        self.change(hash, |count| count.wake_for(units, false));
    }

    /// The count was reset: nothing that is open counts any more, and all who wait ask.
    pub(crate) fn was_reset(&self, hash: u64) {
        self.change(hash, |count| self.remove(count, |_, _| true));
        self.given_back(hash, u64::MAX);
    }

    /// A place among the waiters of these counts, if each has fewer than `max` that is bounded.
    pub(crate) fn wait(&self, of: &[WaitedCount], max: usize) -> Option<WaitingPlace> {
        let mut counts = lock(&self.0.counts);
        let waiting = |hash| counts.get(&hash).map_or(0, |count| count.waiters.len());
        if of.iter().any(|it| it.is_bounded && waiting(it.hash) >= max) {
            return None;
        }
        let changed = Arc::<Notify>::default();
        let is_denied_alone = of.iter().filter(|it| it.is_denied).count() == 1;
        let places = of.iter().map(|waited| {
            let count = counts.entry(waited.hash).or_default();
            count.last += 1;
            let state = WaiterState {
                cost: waited.cost,
                is_denied: waited.is_denied,
                is_denied_alone,
                needs_refund: false,
                may_ask: false,
                is_look: false,
                was_woken: false,
                is_asking: true,
                changed: Arc::clone(&changed),
            };
            count.waiters.insert(count.last, state);
            (waited.hash, count.last)
        });
        let places = places.collect();
        Some(WaitingPlace {
            charges: self.clone(),
            places,
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

    /// The first waiters ask, as many as these units suffice for: before others those that no other
    /// count denies.
    fn wake_for(&mut self, units: u64, is_look: bool) {
        let mut left = units;
        for alone in [true, false] {
            let waiters = self.waiters.values_mut();
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
        let waiters = self.waiters.values_mut();
        waiters.filter(|it| it.needs_refund && !it.may_ask)
    }

    /// Another process may have given back: the first one of the sleepers that cost least asks.
    fn look(&mut self, now: Instant) {
        if self.next_look.is_none_or(|next| next <= now) {
            self.next_look = Some(now + LOOK_EVERY);
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

/// An open charge, until it is closed or dropped.
#[derive(Debug)]
pub(crate) struct OpenCharge {
    charges: OpenCharges,
    /// The hash of each of its counts, and its number there.
    places: SmallVec<[(u64, u64); 1]>,
}

impl OpenCharge {
    /// It is settled: so many units of each of its counts were given back, or perhaps. Only the
    /// first call counts.
    pub(crate) fn close(&self, given_back: impl Fn(usize) -> u64) {
        for (at, (hash, own)) in self.places.iter().enumerate() {
            let is_open = |count: &mut Count| count.charges.contains_key(own);
            if self.charges.change(*hash, is_open) != Some(true) {
                continue;
            }
            let given_back = given_back(at);
            if given_back > 0 {
                self.charges.given_back(*hash, given_back);
            }
            let is_own = |number, _| number == *own;
            let remove = |count: &mut Count| self.charges.remove(count, is_own);
            self.charges.change(*hash, remove);
        }
    }
}

impl Drop for OpenCharge {
    fn drop(&mut self) {
        self.close(|_| 0);
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
}

/// The place of a request among the waiters of each of its counts, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    charges: OpenCharges,
    /// The hash of each of its counts, and the number of its arrival there.
    places: SmallVec<[(u64, u64); 1]>,
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
        self.each(|state| state.is_asking = true);
    }

    /// Waits for units that are given back. Returns whether to ask: also once there is another
    /// reason, which is looked for every 100 ms; and false once `until` is over, or, unless there is
    /// `hope` beyond them, when this process has no open charges of a count that denied it.
    pub(crate) async fn refunded(
        &self,
        until: Option<Instant>,
        hope: bool,
        has_reason: impl Fn() -> bool,
    ) -> bool {
        self.begin(true);
        loop {
            if self.may_ask() || has_reason() {
                self.each(|state| state.is_asking = true);
                return true;
            }
            let now = Instant::now();
            let (mut has_hope, mut next_look) = (false, None);
            self.each_denying(|count| {
                has_hope |= count.has_hope();
                next_look = next_look.into_iter().chain(count.next_look).min();
            });
            if !(has_hope || hope) || until.is_some_and(|until| until <= now) {
                return false;
            }
            let look_at = next_look.unwrap_or(now);
            let wake_at = until.map_or(look_at, |until| until.min(look_at));
            if timeout_at(wake_at, self.changed.notified()).await.is_err() {
                self.each_denying(|count| count.look(Instant::now()));
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
            if count.waiters.get(&own).is_some_and(|state| state.is_look) {
                let next = count.sleepers().take(2);
                next.for_each(|waiter| waiter.wake(true));
            }
        });
    }

    /// It has asked, and was denied by the counts with these hashes. What it was woken for in another
    /// one is the next one's there.
    pub(crate) fn denied(&self, by: &[u64]) {
        if self.places.len() == 1 {
            return;
        }
        let mut hashes = self.places.iter().map(|(hash, _)| hash);
        self.change(|count, own| {
            let is_denied = hashes.next().is_some_and(|hash| by.contains(hash));
            let Some(state) = count.waiters.get_mut(&own) else {
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
                count.wake_for(1, is_look);
            }
        });
    }

    fn begin(&self, needs_refund: bool) {
        self.each(|state| {
            state.needs_refund = needs_refund && state.is_denied;
            state.is_asking = false;
        });
        self.change(|count, own| {
            let state = count.waiters.get(&own);
            let needs_refund = state.is_some_and(|state| state.needs_refund);
            let now = Instant::now();
            if needs_refund && count.next_look.is_none_or(|next| next < now) {
                count.next_look = Some(now + LOOK_EVERY);
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
            count
                .waiters
                .get_mut(&own)
                .into_iter()
                .for_each(&mut change)
        });
    }

    /// Changes the counts that have denied it.
    fn each_denying(&self, mut change: impl FnMut(&mut Count)) {
        self.change(|count, own| {
            if count.waiters.get(&own).is_some_and(|state| state.is_denied) {
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
            let state = count.waiters.remove(&own);
            // What it was woken for is the next one's.
            if state.is_some_and(|state| state.may_ask) {
                count.wake_for(1, false);
            }
            count.tell_hopeless();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing stays behind of charges and waiters over several counts.
    #[test]
    fn a_count_without_charges_and_waiters_has_no_entry() {
        let charges = OpenCharges::default();
        let entries = || lock(&charges.0.counts).len();
        let open =
            |counts: &[(u64, u64)]| charges.open(counts.iter().copied(), Duration::from_secs(60));
        let waited = |hash| WaitedCount {
            hash,
            cost: 1,
            is_denied: hash == 3,
            is_bounded: hash != 3,
        };
        let (settled, dropped) = (open(&[(1, 5), (3, 5)]), open(&[(2, 5), (3, 1)]));
        assert_eq!((entries(), charges.units(3)), (3, 6));
        let place = charges.wait(&[waited(1), waited(3)], 1).expect("room");
        assert!(
            charges.wait(&[waited(1), waited(3)], 1).is_none(),
            "one at a time"
        );
        let other = charges.wait(&[waited(4), waited(3)], 1).expect("room");
        settled.close(|count| [5, 0][count]);
        settled.close(|_| unreachable!("it is closed"));
        assert_eq!((charges.units(1), charges.units(3)), (0, 1));
        assert_eq!((charges.refunds(1), charges.refunds(3)), (1, 0));
        place.denied(&[1]);
        drop((settled, dropped));
        assert_eq!(entries(), 3, "of the waiters");
        drop(place);
        drop(other);
        assert_eq!((entries(), charges.0.open.load(Ordering::Relaxed)), (0, 0));
    }
}
