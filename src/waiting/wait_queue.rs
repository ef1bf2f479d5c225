//! The queues of the requests that wait in this process for units of a count: one asks for all.
//!
//! A waiter is in the queue of the count that has denied it, and of the quotas under which it asks.
//! The first waiter of a queue asks when the retry-after of the last answer is over, at least once
//! a second, and as soon as this process learns that units came back. The answer says how many
//! units are left, and wakes as many waiters as these suffice for: the lowest cost first, and
//! waiters of one cost in order of arrival.
//!
//! A waiter that has waited as long as its first retry-after said is *overdue*: it is the next, and
//! nobody else of its queue is charged before it has its answer. If that denies it, since others
//! have passed it before, nobody passes it until its new retry-after is over; if that answer denies
//! it, too, and nobody of its queue was admitted, others have taken its units whom no queue of this
//! process holds up: if somebody costs less, all may pass it until it is overdue again. A question
//! that spends less time on the way than the one before it arrives too early: its denial is none of
//! these.
//!
//! Under `fair-by` the waiters of a queue are in lanes, which take turns: see `line.rs`. They share a
//! queue for all counts of a subject but those of the calendar, named by the count that charges what
//! the request costs, since a turn is for all of them. Units of a count that the first one does not
//! lack wake nobody then; and a new first one asks, since the last answer says nothing of it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::replace;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant, timeout_at};

use super::line::{KeyedLane, Line, Rank, Sleeper};
use super::places::{Places, WaiterPlace};
use crate::sync::{OwnedTask, lock};

/// The queues of all counts of a path. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct WaitQueues {
    counts: Arc<Mutex<Queues>>,
    /// How many wait, for readers without the lock.
    waiting: Arc<AtomicUsize>,
    slots: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Queues {
    of: BTreeMap<QueueId, CountQueue>,
    /// Those that wait, by the hash of each count that bounds their number, and of their layer.
    places: HashMap<u64, Places>,
    /// The queues of which a count is not the first.
    others: BTreeSet<(u64, QueueId)>,
    /// Tasks that subscribe to the releases of permits, by the hash of their count.
    listeners: HashMap<u64, OwnedTask>,
    /// How many places were given so far.
    arrivals: u64,
    /// How many queues there were so far.
    born: u64,
}

/// A queue: the store gives all its waiters the same answer, but for their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId {
    /// The hash of the count's name: where those that wait take turns for several, of the first.
    pub(crate) count: u64,
    /// The hash of the quotas under which they are asked: each plan of a key has a queue of its own.
    pub(crate) quotas: u64,
}

#[derive(Debug)]
struct CountQueue {
    /// Which of the path's queues it is.
    number: u64,
    /// The hashes of the other counts for which its waiters wait.
    others: SmallVec<[u64; 1]>,
    line: Line,
    /// The waiters that were woken to ask and have no answer yet, with the places at which their
    /// claims found their lanes, the sum of their costs, and when the last of them was woken.
    asking: BTreeMap<Rank, u128>,
    claimed: u64,
    woken_at: Instant,
    /// Before this instant no waiter fits unless units come back: by the last answer about the
    /// lowest cost.
    free_at: Instant,
    asked_at: Instant,
    /// By the last answer, if it allowed its take and units come evenly, and for how many the other
    /// counts had room then.
    refill: Option<Refill>,
    starts: u64,
    /// The refill by any answer since units came back, for those who give up.
    told: Option<Refill>,
    /// By the last answer to a first waiter: which one that is, the count that it lacks, and until when.
    lacks: Option<(u64, u64, Instant)>,
    /// The lowest cost of the denials that tell of times to come, and when it fits by the last one.
    fits: Option<(u64, Instant)>,
    /// Those whose time is over, and who give up unless the next answer says that it is their turn.
    ending: Vec<Arc<Sleeper>>,
    /// How often units came back.
    returns: u64,
    /// How many of its waiters were admitted, and when the last one was.
    admitted: u64,
    admitted_at: Instant,
}

/// The place of one waiting request, until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitPlace {
    queues: WaitQueues,
    arrival: u64,
    /// The lane of which it takes up a place.
    lane: u16,
    /// Its queue, and its rank there. `None` until it was denied.
    at: Option<(QueueId, Rank)>,
    /// When it is overdue, by its answers. `None` while only fallbacks have denied it.
    overdue_at: Option<Instant>,
    /// A denial that names a time up to this one is no new denial: its question arrived before its
    /// units were free, by at most the round trip of the question that `overdue_at` is from.
    early_until: Option<Instant>,
    /// `Some` if it was overdue and denied once more, so that nobody passes it before it is again:
    /// how many of its queue had been admitted then.
    unpassed: Option<u64>,
    /// The `returns` of its queue when it was woken to ask.
    returns: AtomicU64,
    /// Whether it asks when it is not its turn.
    only_looks: bool,
    /// When its cost fits, by its last denial. `None` by that of a fallback, and if it only looked.
    fits_at: Option<Instant>,
    sleeper: Arc<Sleeper>,
}

/// What a denial says about the queue of a waiter.
#[derive(Debug)]
pub(crate) struct Lacking {
    pub(crate) queue: QueueId,
    /// The hashes of the other counts for which those of this queue wait.
    pub(crate) others: SmallVec<[u64; 1]>,
    /// That of the count which denies it.
    pub(crate) count: u64,
    /// Whether units of its counts came back since it was asked about.
    pub(crate) refunded: bool,
    pub(crate) lane: u16,
    /// That of its plan in the lane.
    pub(crate) weight: u16,
    pub(crate) cost: u64,
    /// What is left for waiters of a lower cost.
    pub(crate) left: Left,
    /// When there is room for its cost, if no units come back. `None`: the take has only looked,
    /// since others are before it.
    pub(crate) free_at: Option<Instant>,
    pub(crate) asked_at: Instant,
    /// When it is overdue, by this answer. `None` by that of a fallback.
    pub(crate) overdue_at: Option<Instant>,
    /// `Some` if units come evenly.
    pub(crate) refill: Option<Refill>,
}

/// The turn of an admitted request, for which its lane has paid.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) queue: QueueId,
    number: u64,
    lane: u16,
    weight: u16,
    since: Instant,
    window: Option<u64>,
}

impl Turn {
    /// The part of a window for which its units were kept and held.
    fn held(&self) -> [u128; 2] {
        let held = self.since.elapsed().as_micros();
        self.window
            .map_or([0, 1], |it| [held, u128::from(it.max(1))])
    }
}

/// What an answer that allows a take says about the waiters behind it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Left {
    pub(crate) units: u64,
    /// For how many the other counts of the queue have room.
    pub(crate) starts: u64,
    /// Whether units come back only by refunds and releases, and not as time passes.
    pub(crate) only_return: bool,
    /// `Some` if units come evenly, one after the other.
    pub(crate) refill: Option<Refill>,
    /// The shortest window, in microseconds, if units do not come evenly.
    pub(crate) window: Option<u64>,
}

/// The rate of units that come evenly, and when the limit is full again if no unit is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refill {
    pub(crate) limit: u64,
    pub(crate) full_at: Instant,
    /// The rate: `units` come in every `micros` microseconds.
    pub(crate) units: u64,
    pub(crate) micros: u64,
}

impl Refill {
    /// How many units have come by this instant, from any one on.
    fn come_by(&self, at: Instant) -> i128 {
        let units = |time: Duration| time.as_micros() as i128 * i128::from(self.units);
        let micros = i128::from(self.micros);
        match at.checked_duration_since(self.full_at) {
            Some(later) => units(later) / micros,
            None => -(units(self.full_at - at) + micros - 1) / micros,
        }
    }

    /// When this number of units is available; for more than the limit, when that many have come if
    /// each is taken as it comes.
    pub(crate) fn at(&self, units: u64) -> Instant {
        let time = |units: u64| {
            let micros = u128::from(units) * u128::from(self.micros) / u128::from(self.units);
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
        };
        let earlier = time(self.limit.saturating_sub(units));
        let later = time(units.saturating_sub(self.limit));
        let at = self.full_at.checked_sub(earlier).unwrap_or(self.full_at);
        at.checked_add(later).unwrap_or(at)
    }
}

/// The first waiter of a queue asks at least this often.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(1);
/// A waiter that was woken to ask and has not asked within this time may be a future that nobody
/// polls: the next waiter asks.
const PATIENCE: Duration = Duration::from_millis(250);
/// Where units come evenly, at most this many questions of one queue are in flight at a time.
const MAX_ASKING: usize = 64;
/// At most this many requests that an overloaded store did not answer ask again at a time: at a
/// round trip of 8 ms, 2,000 in a second. More of them slow down the other requests of this
/// process: their slowest checks take twice as long beside 64, and 1.4 times as long beside 16.
const MAX_ASKING_AGAIN: usize = 16;

impl WaitQueues {
    /// Returns a place if fewer requests wait than each of these bounds says, for the count or in
    /// the layer with this hash, or more in another lane than in this one, of which the youngest is
    /// denied then.
    pub(crate) fn enter(
        &self,
        bounds: impl Iterator<Item = (u64, usize)>,
        (lane, lane_key): KeyedLane,
        until: Option<Instant>,
    ) -> Option<WaitPlace> {
        let bounds: SmallVec<[(u64, usize); 2]> = bounds.collect();
        let mut queues = lock(&self.counts);
        let place = (lane, queues.arrivals + 1);
        let displaced = |queues: &Queues, (hash, max)| match queues.places.get(&hash) {
            _ if max == 0 => None,
            Some(places) if !places.has(place) => places.for_one_of(lane, max),
            _ => Some(None),
        };
        let has_place = bounds.iter().all(|it| displaced(&queues, *it).is_some());
        if !has_place || self.are_closed() {
            return None;
        }
        queues.arrivals += 1;
        let sleeper = Arc::new(Sleeper {
            changed: Notify::new(),
            since: Instant::now(),
            until,
            bounded_by: bounds.iter().map(|(hash, _)| *hash).collect(),
            lane_key,
        });
        for bound in bounds {
            // Who makes room in one of them does so in all.
            if let Some(Some((place, displaced))) = displaced(&queues, bound) {
                queues.free(place, &displaced);
            }
            let places = queues.places.entry(bound.0).or_default();
            places.add(place, Arc::clone(&sleeper));
        }
        self.waiting.fetch_add(1, Ordering::Release);
        Some(WaitPlace {
            queues: self.clone(),
            arrival: place.1,
            lane,
            at: None,
            overdue_at: None,
            early_until: None,
            unpassed: None,
            returns: AtomicU64::default(),
            only_looks: false,
            fits_at: None,
            sleeper,
        })
    }

    /// Nobody waits from now on: those that do give up.
    pub(crate) fn close(&self) {
        self.slots.close();
        let queues = lock(&self.counts);
        let sleeping = queues.of.values().flat_map(|it| it.line.sleepers());
        sleeping.for_each(|it| it.changed.notify_one());
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.slots.is_closed()
    }

    /// How many requests wait now, and how many have begun to wait so far.
    pub(crate) fn numbers(&self) -> [u64; 2] {
        let arrivals = lock(&self.counts).arrivals;
        [self.waiting.load(Ordering::Relaxed) as u64, arrivals]
    }

    /// For how long that one sleeps which has waited longest.
    pub(crate) fn longest(&self) -> Duration {
        let queues = lock(&self.counts);
        let sleeping = queues.of.values().flat_map(|it| it.line.sleepers());
        let since = sleeping.map(|it| it.since).min();
        since.map_or(Duration::ZERO, |it| it.elapsed())
    }

    /// The keys of the lanes of all that wait, as far as they are noted, and for how long each does.
    #[cfg_attr(not(feature = "page"), allow(dead_code))]
    pub(crate) fn keys(&self) -> Vec<(Arc<str>, Duration)> {
        let queues = lock(&self.counts);
        let waiting = queues.places.iter().flat_map(|(hash, it)| {
            let waiting = it.lanes.values().flat_map(BTreeMap::values);
            // Of the places that one has, that of its layer.
            waiting.filter(move |it| it.bounded_by.last() == Some(hash))
        });
        let keys = waiting.filter_map(|it| Some((it.lane_key.clone()?, it.since.elapsed())));
        keys.collect()
    }

    /// The first of these queues in which somebody is overdue that came before the waiter at this
    /// place, or before a newcomer; under lanes, in which anybody waits before a newcomer, or before
    /// one that asks when it is not its turn.
    #[inline]
    pub(crate) fn before(
        &self,
        queues: impl Iterator<Item = QueueId>,
        has_lanes: bool,
        place: Option<&WaitPlace>,
    ) -> Option<QueueId> {
        match self.waiting.load(Ordering::Acquire) {
            0 => None,
            _ => self.find_before(queues, has_lanes, place),
        }
    }

    fn find_before(
        &self,
        mut ids: impl Iterator<Item = QueueId>,
        has_lanes: bool,
        place: Option<&WaitPlace>,
    ) -> Option<QueueId> {
        let arrival = place.map_or(u64::MAX, |it| it.arrival);
        let own = place.and_then(|it| it.at).map(|(id, _)| id);
        let queues = lock(&self.counts);
        let is_before = |rank: &Rank| rank.is_overdue() && rank.arrival < arrival;
        ids.find(|id| match queues.of.get(id) {
            None => false,
            // Calls may have lanes of their own.
            Some(queue) if has_lanes || queue.line.has_lanes() => {
                place.is_none_or(|it| it.only_looks)
            }
            Some(queue) => {
                // Its own queue has woken it after those that ask.
                let asking = queue.asking.keys().next().filter(|_| own != Some(*id));
                asking.is_some_and(is_before) || queue.line.first().as_ref().is_some_and(is_before)
            }
        })
    }

    /// When this cost fits in this queue if nobody asks but those whose questions are under way.
    /// `refill` is by an answer of now.
    pub(crate) fn fits_at(
        &self,
        id: QueueId,
        cost: u64,
        refill: Option<Refill>,
    ) -> Option<Instant> {
        let mut queues = lock(&self.counts);
        let queue = queues.of.get_mut(&id)?;
        queue.told = refill.or(queue.told);
        queue.fits_at(cost)
    }

    /// The request of this turn has used so many units more than its lane has paid for, or gave so
    /// many back. If nobody of its queue waits any more, that is over.
    pub(crate) fn settle(&self, turn: &Turn, more: u64, back: u64) {
        let mut queues = lock(&self.counts);
        let queue = queues.of.get_mut(&turn.queue);
        if let Some(queue) = queue.filter(|it| it.number == turn.number) {
            let of = (turn.lane, turn.weight);
            queue.line.settle(of, more, back, turn.held());
            queue.line.notify_first();
        }
    }

    /// Whether units come too late until this instant for a newcomer that was denied so, since they
    /// come evenly, and others of its lane are before it.
    pub(crate) fn are_late(&self, by: &Lacking, until: Instant) -> bool {
        let mut queues = lock(&self.counts);
        let arrival = queues.arrivals + 1;
        let (Some(refill), Some(queue)) = (by.refill, queues.of.get_mut(&by.queue)) else {
            return false;
        };
        let has_units = |from, to| refill.come_by(from) < refill.come_by(to);
        let (of, only_looked) = ((by.lane, arrival, by.cost), by.free_at.is_none());
        let ahead = queue.line.ahead(of, until, only_looked, has_units);
        ahead > 0 && refill.at(ahead.saturating_add(by.cost.max(1))) > until
    }

    /// Units of this count came back: the first waiter of each of its queues asks.
    pub(crate) fn wake_after_refund(&self, count: u64) {
        let mut queues = lock(&self.counts);
        queues.ask_now(count);
    }

    /// A permit of this process was released. Where the store announces releases, waiters wake when
    /// the announcement arrives.
    pub(crate) fn wake_after_release(&self, count: u64) {
        let mut queues = lock(&self.counts);
        if !queues.listeners.contains_key(&count) {
            queues.ask_now(count);
        }
    }

    /// Starts a task that subscribes to the releases of this count's permits. It runs for as long
    /// as a request waits for the count.
    pub(crate) fn listen(&self, count: u64, start: impl FnOnce() -> Option<AbortHandle>) {
        let mut queues = lock(&self.counts);
        let waits = !queues.of_count(count).is_empty();
        if waits && !queues.listeners.contains_key(&count) {
            let started = start().map(OwnedTask);
            queues.listeners.extend(started.map(|it| (count, it)));
        }
    }
}

impl Queues {
    /// The queues of those that wait for this count.
    fn of_count(&self, count: u64) -> SmallVec<[QueueId; 2]> {
        let of = |count| [0, u64::MAX].map(|quotas| QueueId { count, quotas });
        let [first, last] = of(count);
        let [least, most] = [of(0)[0], of(u64::MAX)[1]];
        let own = self.of.range(first..=last).map(|(id, _)| *id);
        let others = self.others.range((count, least)..=(count, most));
        own.chain(others.map(|(_, id)| *id)).collect()
    }

    /// Units of this count came back: the first waiter of each of its queues asks.
    fn ask_now(&mut self, count: u64) {
        for id in self.of_count(count) {
            let queue = self.of.get_mut(&id);
            queue.into_iter().for_each(|it| it.has_more(count));
        }
    }

    /// A waiter leaves, or another one takes its place.
    fn free(&mut self, place: WaiterPlace, sleeper: &Sleeper) {
        for hash in &sleeper.bounded_by {
            if let Entry::Occupied(mut places) = self.places.entry(*hash) {
                places.get_mut().remove(place);
                if places.get().is_empty() {
                    places.remove();
                }
            }
        }
    }

    /// Takes a waiter out of its queue, and returns the place of its claim, if it was asking. An
    /// empty queue is dropped.
    fn leave(&mut self, (id, rank): (QueueId, Rank)) -> Option<u128> {
        let queue = self.of.get_mut(&id)?;
        queue.line.remove(rank);
        let claim = queue.is_answered(rank);
        if queue.line.is_empty() && queue.asking.is_empty() {
            let left = self.of.remove(&id).map(|it| it.others).unwrap_or_default();
            for count in left.into_iter().chain([id.count]) {
                self.others.remove(&(count, id));
                if self.of_count(count).is_empty() {
                    self.listeners.remove(&count);
                }
            }
        }
        claim
    }
}

impl CountQueue {
    fn new(number: u64, others: SmallVec<[u64; 1]>, free_at: Instant, now: Instant) -> Self {
        Self {
            number,
            others,
            line: Line::default(),
            asking: BTreeMap::new(),
            claimed: 0,
            woken_at: now,
            free_at,
            asked_at: now,
            refill: None,
            starts: u64::MAX,
            told: None,
            lacks: None,
            fits: None,
            ending: Vec::new(),
            returns: 0,
            admitted: 0,
            admitted_at: now,
        }
    }

    /// Units of this count came back: the first waiter asks, unless it lacks another one.
    fn has_more(&mut self, count: u64) {
        let lacks = self.lacks.filter(|(.., until)| *until > Instant::now());
        let first = self.line.first().map(|it| it.arrival);
        match lacks {
            Some((who, of, _)) if of != count && first == Some(who) => self.returns += 1,
            _ => self.ask_now(),
        }
    }

    /// Whether the last answer is about another one than is the first now, who may lack another count.
    fn is_told_of_another(&self) -> bool {
        let first = self.line.first().map(|it| it.arrival);
        let is_told = self.lacks.is_some_and(|(who, ..)| first != Some(who));
        is_told && !self.others.is_empty() && self.asking.is_empty()
    }

    /// The first waiter asks.
    fn ask_now(&mut self) {
        let now = Instant::now();
        self.returns += 1;
        (self.free_at, self.refill) = (now, None);
        (self.told, self.fits, self.lacks) = (None, None, None);
        if let Some(rank) = self.line.first() {
            self.wake(rank, now);
        }
    }

    /// Wakes this waiter, which asks.
    fn wake(&mut self, rank: Rank, now: Instant) {
        if let Some(waiter) = self.line.remove(rank) {
            waiter.changed.notify_one();
            let place = self.line.claim(rank);
            self.asking.insert(rank, place);
            self.claimed = self.claimed.saturating_add(rank.cost);
            self.woken_at = now;
        }
    }

    /// This waiter has its answer, or leaves. Returns the place of its claim, if it was asking.
    fn is_answered(&mut self, rank: Rank) -> Option<u128> {
        let claim = self.asking.remove(&rank);
        if claim.is_some() {
            self.ending.drain(..).for_each(|it| it.changed.notify_one());
            self.claimed = self.claimed.saturating_sub(rank.cost);
            self.line.give_back(rank);
        }
        claim
    }

    /// A waiter of this rank was denied, and its cost fits at `free_at`: notes when the next one has
    /// to ask, and wakes those that fit by the answer.
    fn is_denied(&mut self, by: &Lacking, rank: Rank, free_at: Instant, now: Instant) {
        let first = self.line.first();
        let is_first = first == Some(rank);
        // A look does not say how many are before it.
        if by.free_at.is_none() && self.refill.is_some() {
            self.wake_due(now);
        } else if by.free_at.is_some() || is_first {
            self.refill = None;
            self.asked_at = now;
            // An answer about a higher cost does not say when a lower one fits.
            let is_passed = first.is_some_and(|first| !first.is_overdue());
            if is_first || is_passed && free_at < self.free_at {
                self.free_at = free_at;
            }
            if is_first {
                self.lacks = Some((rank.arrival, by.count, free_at));
            }
            self.wake_fitting(by.left, now);
        }
    }

    /// Wakes as many waiters as these units suffice for. A waiter at no cost needs one unit, too:
    /// where none is left, the key may owe units, and the answer does not say whether a take at no
    /// cost fits.
    fn wake_fitting(&mut self, left: Left, now: Instant) {
        let mut units = left.units.saturating_sub(self.claimed);
        let mut starts = left.starts.saturating_sub(self.asking.len() as u64);
        while let Some(rank) = self.line.first()
            && rank.cost.max(1) <= units
            && starts > 0
        {
            (units, starts) = (units - rank.cost, starts - 1);
            self.wake(rank, now);
        }
    }

    /// Where units come evenly, wakes the waiters whose units are available by now, beyond those
    /// that waiters in flight ask for, and notes when the next waiter has to ask. Where a round
    /// trip takes longer than a unit, several questions are in flight.
    fn wake_due(&mut self, now: Instant) {
        let Some(refill) = self.refill else {
            return;
        };
        while let Some(rank) = self.line.first() {
            self.free_at = refill.at(self.claimed.saturating_add(rank.cost.max(1)));
            if self.free_at > now || self.has_enough_asking() {
                return;
            }
            self.wake(rank, now);
        }
    }

    /// Whether no more than those whose questions are under way ask where units come evenly.
    fn has_enough_asking(&self) -> bool {
        let asking = self.asking.len();
        asking >= MAX_ASKING || asking as u64 >= self.starts
    }

    /// When this cost fits if nobody asks but those whose questions are under way, as far as the
    /// answers to others say. They take their units first, and the queues before it do not count.
    fn fits_at(&self, cost: u64) -> Option<Instant> {
        let told = self
            .told
            .map(|it| it.at(self.claimed.saturating_add(cost.max(1))));
        let fits = self.fits.filter(|(of, _)| *of <= cost);
        told.or(fits.map(|(_, at)| at))
    }

    /// Whether this waiter was woken to ask, or nobody is before it.
    fn is_next(&self, rank: Rank) -> bool {
        let is_first = || self.asking.is_empty() && self.line.first() == Some(rank);
        !self.line.contains(rank) || is_first()
    }

    /// What this waiter does now.
    fn look(&mut self, rank: Rank, now: Instant, bound: WaitBound) -> WaiterStep {
        let WaitBound { until, may_return } = bound;
        let is_over = until.is_some_and(|until| until <= now);
        let is_late = until.is_some_and(|until| until < self.free_at);
        if !self.line.contains(rank) {
            return WaiterStep::Ask;
        }
        if is_late && (is_over || !may_return) {
            return WaiterStep::GiveUp;
        }
        let mut ask_at = self.free_at.min(self.asked_at + ASK_EVERY);
        if self.is_told_of_another() {
            ask_at = now;
        }
        if !self.asking.is_empty() && (self.refill.is_none() || self.has_enough_asking()) {
            ask_at = ask_at.max(self.woken_at + PATIENCE);
        }
        // The second waiter takes over if the first does not ask; the others check once a second.
        let before = self.line.before(rank);
        ask_at += [Duration::ZERO, PATIENCE, 2 * PATIENCE][before];
        let first = self.line.first();
        if ask_at <= now {
            // The task that polls those before it seems to be stuck.
            for _ in 0..before {
                if let Some(first) = self.line.first() {
                    self.wake(first, now);
                }
            }
        } else if let Some(until) = until
            && is_over
            && first.is_some_and(|it| it != rank && it.is_overdue())
        {
            // It would pass that one with its last question. At the end itself, as timers count,
            // that one may still find units for both.
            let past = until + Duration::from_millis(1);
            return match self.asking.is_empty() {
                true if now < past => WaiterStep::At(past),
                false if now < until + PATIENCE => WaiterStep::End(until + PATIENCE),
                _ => WaiterStep::GiveUp,
            };
        }
        if is_over || ask_at <= now {
            self.wake(rank, now);
            return WaiterStep::Ask;
        }
        WaiterStep::At(match before {
            2 => now + ASK_EVERY,
            _ => ask_at,
        })
    }
}

/// How long a waiter goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitBound {
    /// When it gives up. `None` for a waiter without a limit.
    pub(super) until: Option<Instant>,
    /// Whether units of the count that denied it may come back.
    pub(super) may_return: bool,
}

/// What a waiter does next.
enum WaiterStep {
    Ask,
    /// It has to ask, and it is not its turn.
    Look,
    GiveUp,
    /// It checks again at this instant.
    At(Instant),
    /// The same, or as soon as a question that is under way has its answer.
    End(Instant),
}

impl WaitPlace {
    /// The request was denied: it waits in this queue from now on.
    pub(crate) fn denied(&mut self, by: Lacking) {
        let now = Instant::now();
        let mut queues = lock(&self.queues.counts);
        let was_early = by.overdue_at <= self.early_until;
        // Who has only looked was not denied.
        let is_due = |at| at <= by.asked_at && by.free_at.is_some() && !was_early;
        if by.overdue_at.is_some() && self.overdue_at.is_none_or(is_due) {
            let queue = queues.of.get(&by.queue);
            let again = self.overdue_at.and(queue.map(|it| it.admitted).or(Some(0)));
            // Who costs as much lacks as much.
            let is_passed = || queue.is_some_and(|it| it.line.has_cheaper(by.cost));
            self.unpassed = again.filter(|_| self.unpassed != again || !is_passed());
            self.overdue_at = by.overdue_at;
            let round_trip = now.saturating_duration_since(by.asked_at);
            self.early_until = by.overdue_at.and_then(|at| at.checked_add(round_trip));
        }
        let is_overdue = self.unpassed.is_some() || self.overdue_at.is_some_and(|at| at <= now);
        let rank = Rank::new(&by, self.arrival);
        let rank = if is_overdue { rank.overdue() } else { rank };
        let before = self.at.replace((by.queue, rank));
        // Units may have come back since the store answered its question.
        let returns = self.returns.load(Ordering::Relaxed);
        let same = before.is_some_and(|(id, _)| id == by.queue);
        let queue = queues.of.get(&by.queue);
        let crossed = match same {
            true => queue.is_some_and(|queue| queue.returns != returns),
            false => before.is_some() && by.refunded,
        };
        let free_at = by.free_at.filter(|_| !crossed).unwrap_or(now);
        // Enter the new queue before leaving the old one: an empty queue is dropped.
        let Queues {
            of, others, born, ..
        } = &mut *queues;
        let queue = of.entry(by.queue).or_insert_with(|| {
            *born += 1;
            others.extend(by.others.iter().map(|count| (*count, by.queue)));
            CountQueue::new(*born, by.others.clone(), free_at, now)
        });
        if !same {
            self.unpassed = self.unpassed.map(|_| queue.admitted);
        }
        before.inspect(|(_, before)| {
            queue.is_answered(*before);
        });
        queue.line.add(rank, Arc::clone(&self.sleeper));
        self.fits_at = by.free_at.filter(|_| !crossed).and(by.overdue_at);
        if !crossed {
            queue.told = by.refill.or(queue.told);
        }
        if let Some(at) = self.fits_at
            && queue
                .fits
                .is_none_or(|(cost, at)| by.cost <= cost || at <= now)
        {
            queue.fits = Some((by.cost, at));
        }
        self.returns.store(queue.returns, Ordering::Relaxed);
        queue.is_denied(&by, rank, free_at, now);
        queue.line.notify_first();
        if let Some(before) = before.filter(|before| *before != (by.queue, rank)) {
            let asked = queues.leave(before).is_some();
            // It was woken to ask for that queue, and its question was about another one.
            if asked
                && !same
                && let Some(queue) = queues.of.get_mut(&before.0)
            {
                queue.ask_now();
            }
        }
    }

    /// Waits for a slot in which to ask an overloaded store again; slots are given in order of
    /// arrival. `None` if there is none until this instant.
    pub(crate) async fn slot(&self, until: Instant) -> Option<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.queues.slots).acquire_owned();
        timeout_at(until, slot).await.ok()?.ok()
    }

    /// When its cost fits if nobody else asks, as far as is known.
    pub(super) fn fits_at(&self) -> Option<Instant> {
        let (id, rank) = self.at?;
        let queues = lock(&self.queues.counts);
        let queue = queues.of.get(&id)?;
        let is_of_now = queue.returns == self.returns.load(Ordering::Relaxed);
        let own = self.fits_at.filter(|_| is_of_now);
        own.max(queue.fits_at(rank.cost))
    }

    /// Whether it waits no more: nobody does, or a shorter lane has its place.
    pub(super) fn is_closed(&self) -> bool {
        self.is_displaced(&lock(&self.queues.counts)) || self.queues.are_closed()
    }

    fn is_displaced(&self, queues: &Queues) -> bool {
        let place = (self.lane, self.arrival);
        let bounded_by = self.sleeper.bounded_by.iter();
        let mut places = bounded_by.map(|hash| queues.places.get(hash));
        places.any(|it| it.is_none_or(|it| !it.has(place)))
    }

    /// The request was allowed. `left` returns what is left of the count with this hash, for which
    /// it has waited. Its lane pays for it, if others wait on.
    pub(crate) fn allowed(mut self, left: impl FnOnce(u64) -> Left) -> Option<Turn> {
        let at = self.at.take()?;
        let left = left(at.0.count);
        let returns = self.returns.load(Ordering::Relaxed);
        let mut queues = lock(&self.queues.counts);
        let place = queues.leave(at);
        let queue = queues.of.get_mut(&at.0)?;
        let now = Instant::now();
        queue.line.admit(at.1, place.unwrap_or_default());
        queue.admitted += 1;
        // Since then more and more units were kept for it that others could have used.
        let kept_since = replace(&mut queue.admitted_at, now).max(self.sleeper.since);
        let kept = now.saturating_duration_since(kept_since) / 2;
        queue.lacks = None;
        queue.asked_at = now;
        if queue.returns == returns {
            (queue.refill, queue.told) = (left.refill, left.refill);
            queue.starts = left.starts;
            if left.only_return {
                queue.free_at = now + ASK_EVERY;
            }
        }
        match queue.refill {
            Some(_) => queue.wake_due(now),
            None => queue.wake_fitting(left, now),
        }
        queue.line.notify_first();
        Some(Turn {
            queue: at.0,
            number: queue.number,
            lane: at.1.lane,
            weight: at.1.weight,
            since: now.checked_sub(kept).unwrap_or(now),
            window: left.window,
        })
    }

    /// Waits until it has to ask. Returns false if it gives up: its time is over, or there is no
    /// room before that and no unit can come back. Once a second it also checks whether it
    /// `must_ask`.
    pub(crate) async fn turn(&mut self, bound: WaitBound, must_ask: impl Fn() -> bool) -> bool {
        self.only_looks = false;
        loop {
            let (now, must) = (Instant::now(), must_ask());
            if self.overdue_at.is_some_and(|at| at <= now) && self.is_now_overdue() {
                // So are others of this instant that came before it.
                yield_now().await;
            }
            let wake_at = match self.look(now, bound, must) {
                WaiterStep::Ask => return true,
                WaiterStep::Look => {
                    self.only_looks = true;
                    return true;
                }
                WaiterStep::GiveUp => return false,
                WaiterStep::At(at) | WaiterStep::End(at) => at.min(now + ASK_EVERY),
            };
            let overdue_at = self.overdue_at.filter(|at| *at > now);
            let until = bound.until.filter(|at| *at > now);
            let wake_at = until
                .into_iter()
                .chain(overdue_at)
                .fold(wake_at, Instant::min);
            let _ = timeout_at(wake_at, self.sleeper.changed.notified()).await;
        }
    }

    /// Whether it becomes overdue now.
    fn is_now_overdue(&mut self) -> bool {
        let Some((id, rank)) = self.at.filter(|(_, rank)| !rank.is_overdue()) else {
            return false;
        };
        let mut queues = lock(&self.queues.counts);
        let Some(queue) = queues.of.get_mut(&id) else {
            return false;
        };
        let Some(sleeper) = queue.line.remove(rank) else {
            return false;
        };
        let rank = rank.overdue();
        queue.line.add(rank, sleeper);
        self.at = Some((id, rank));
        true
    }

    fn look(&self, now: Instant, bound: WaitBound, must: bool) -> WaiterStep {
        let mut queues = lock(&self.queues.counts);
        if self.queues.are_closed() || self.is_displaced(&queues) {
            return WaiterStep::GiveUp;
        }
        let Some((id, rank)) = self.at else {
            return WaiterStep::Ask;
        };
        let Some(queue) = queues.of.get_mut(&id) else {
            return WaiterStep::Ask;
        };
        let step = match must {
            true if queue.is_next(rank) => WaiterStep::Ask,
            true => WaiterStep::Look,
            false => queue.look(rank, now, bound),
        };
        if matches!(step, WaiterStep::Ask | WaiterStep::Look) {
            queue.wake(rank, now);
            self.returns.store(queue.returns, Ordering::Relaxed);
            if queue.refill.is_some() {
                queue.wake_due(now);
                queue.line.notify_first();
            }
        }
        if let WaiterStep::End(_) = step {
            queue.ending.push(Arc::clone(&self.sleeper));
        }
        step
    }
}

impl Drop for WaitPlace {
    fn drop(&mut self) {
        let mut queues = lock(&self.queues.counts);
        self.queues.waiting.fetch_sub(1, Ordering::Release);
        queues.free((self.lane, self.arrival), &self.sleeper);
        let Some(at) = self.at else {
            return;
        };
        let asked = queues.leave(at).is_some();
        if let Some(queue) = queues.of.get_mut(&at.0) {
            // The next waiter asks in its place.
            if asked {
                queue.ask_now()
            } else {
                queue.line.notify_first()
            }
        }
    }
}

impl Default for WaitQueues {
    fn default() -> Self {
        Self {
            counts: Arc::default(),
            waiting: Arc::default(),
            slots: Arc::new(Semaphore::new(MAX_ASKING_AGAIN)),
        }
    }
}
