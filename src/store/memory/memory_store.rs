use std::fmt;
use std::sync::{Arc, OnceLock};

use super::shard::{Answer, KeyNumbers, Place, Shard, instant};
use super::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use super::sync::{Mutex, MutexGuard, PoisonError, available_parallelism};
use crate::algorithm::core::{Asked, Hold, Now, State, StateKind};
use crate::algorithm::lockout::LockoutState;
use crate::algorithm::spec::{Kind, Spec, Windows};
use crate::clock::Clock;
use crate::decision::{Decision, Receipt, Source};
use crate::error::{StoreError, StoreErrorKind};
use crate::question::{Ask, Change, CountAsk, Name};
use crate::store::{Capabilities, Condition, Store, StoreFuture};
use crate::warning::{Warning, WarningKind};

/// Keeps the counts in the memory of this process: for services of one process, and for tests.
///
/// It answers immediately. Its clock is monotonic: the processor's time-stamp counter, or the
/// system's clock where the counter cannot be trusted. The counter's pace is measured when the
/// process makes its first store, which takes up to 200 ms; it is off the system's clock by some
/// tens of microseconds a second. Tests that pause time use
/// [`tokio_clock`](MemoryStore::tokio_clock).
///
/// Memory is bounded: it holds at most a given number of keys, and drops a key once all its quotas
/// are replenished. It never drops a key that still counts; when it is full of those, a take of a
/// new key is a [`StoreError`] of the kind [`Full`](StoreErrorKind::Full), so that a flood of keys
/// cannot lift anybody's limit. A key that was [reset](Store::reset) has its room for a millisecond
/// more.
///
/// A key that was charged once takes at most 91 bytes and its name, which is the rule's path and
/// the key: some 106 bytes for an IPv4 address and 131 for an IPv6 network, before the allocator
/// rounds up; while a part of the keys moves to a larger place, this part takes twice as much. A
/// flood of a million keys fills at most 144 MB. A key that is charged again, or asked again
/// together with others or while it is held, takes about 170 bytes more, and 16 for each entry of
/// a log. So does a key's first charge under a rule of several
/// quotas, of a window longer than 49 days, or of more than four billion units. Other keys use the
/// memory of dropped keys; it is freed when no key is left. Shadow rules have as much room again,
/// apart from this one. Periods of the calendar are those of the host's clock; their counts have a
/// room of the same size.
///
/// So have keys that are held, or have failed under a [lock-out](crate::rule::Lockout). Where it is
/// full, an eighth is forgotten of those that are not held: first how many times in a row they were
/// held, then the failures that end soonest. So a flood of `max_keys` names that each fail once
/// within the time of a lock-out makes it forget the failures of others, and never a hold; a new
/// name is an error only while all are held, or where an eighth of `max_keys` names fail within a
/// tenth of a second.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::{MemoryStore, RateLimitLayer};
///
/// let store = Arc::new(MemoryStore::with_max_keys(10_000));
/// let layer = RateLimitLayer::new("getId", Duration::from_secs(10), 5).store(store);
/// # let _ = layer;
/// ```
pub struct MemoryStore {
    pub(super) shards: Box<[Mutex<Shard>]>,
    pub(super) clock: Clock,
    /// How many there are of each kind of state.
    keys: [AtomicUsize; StateKind::ALL.len()],
    max_keys: usize,
    /// As many keys as are 80 % of them.
    nearly_full_at: usize,
    is_nearly_full: AtomicBool,
    /// The number of the last permit.
    last_holder: AtomicU64,
    /// When something was forgotten last because there was no room, in microseconds.
    forgot_at: AtomicU64,
    /// The counts of shadow rules.
    shadows: OnceLock<Box<Self>>,
    /// That of a store [beside](Self::beside) others.
    room: Option<SharedRoom>,
}

/// How many keys of windows stores have together that share their room.
pub(crate) type SharedRoom = Arc<Mutex<usize>>;

impl MemoryStore {
    /// How many keys [`MemoryStore::new`] holds at most.
    pub const DEFAULT_MAX_KEYS: usize = 100_000;

    /// An empty store for at most [`DEFAULT_MAX_KEYS`](Self::DEFAULT_MAX_KEYS) keys.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_keys(Self::DEFAULT_MAX_KEYS)
    }

    /// An empty store for at most `max_keys` keys. With 0, every new key is an error.
    #[must_use]
    pub fn with_max_keys(max_keys: usize) -> Self {
        let threads = available_parallelism().map_or(1, usize::from);
        let shards = (4 * threads).next_power_of_two().min(64);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            clock: Clock::default(),
            keys: StateKind::ALL.map(|_| AtomicUsize::new(0)),
            max_keys,
            nearly_full_at: max_keys - max_keys.div_ceil(5),
            is_nearly_full: AtomicBool::new(false),
            last_holder: AtomicU64::new(0),
            forgot_at: AtomicU64::new(u64::MAX),
            shadows: OnceLock::new(),
            room: None,
        }
    }

    /// An empty store with the clock of this one. It shares room for the keys of this one, of which
    /// each is counted so many times, with others: while it alone has keys of windows it may take
    /// all but an eighth, else it gets a new one only while it has fewer than are free.
    pub(crate) fn beside(&self, room: &SharedRoom, times: usize) -> Self {
        Self {
            clock: self.clock.clone(),
            room: Some(Arc::clone(room)),
            ..Self::with_max_keys(self.max_keys.saturating_mul(times))
        }
    }

    /// Reads the time from tokio's clock, so that `tokio::time::pause` and `advance` work on it. A
    /// decision takes about ten nanoseconds longer.
    #[must_use]
    pub fn tokio_clock(mut self) -> Self {
        self.clock = Clock::tokio();
        self
    }

    /// Reads the time from a clock that a test moves by hand.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn clock(mut self, clock: crate::clock::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// How many keys count for something now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.drop_forgotten();
        let of_shadows = self.shadows.get().map_or(0, |shadows| shadows.len());
        self.number(StateKind::Windows) + self.number(StateKind::Calendar) + of_shadows
    }

    pub(crate) fn drop_forgotten(&self) {
        let now = self.clock.now();
        for shard in &self.shards {
            self.drop_due(&mut lock(shard), now, usize::MAX);
        }
    }

    /// Whether nothing counts now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the keys of this rule are: shadow rules have a store of their own, so that none of
    /// their keys takes the room of a key that is limited.
    fn part_of(&self, ask: &Ask) -> &Self {
        if !ask.in_shadow() {
            return self;
        }
        self.shadows.get_or_init(|| {
            let clock = self.clock.clone();
            Box::new(Self {
                clock,
                ..Self::with_max_keys(self.max_keys)
            })
        })
    }

    /// The name's hash in its shard, the shard that it belongs to, and the time.
    #[inline(always)]
    fn locked(&self, name: &Name) -> (u32, MutexGuard<'_, Shard>, u64) {
        let (hash, at) = self.place_of(name);
        let shard = lock(&self.shards[at]);
        // Read under the lock: a thread that waits for the lock would come with an old instant.
        (hash, shard, self.clock.now())
    }

    /// The shard of a count, the time, and where the state of this kind is in it.
    fn locked_at<'a>(
        &'a self,
        count: &'a CountAsk,
        kind: StateKind,
    ) -> (MutexGuard<'a, Shard>, Now, Place<'a>) {
        let (hash, shard, now) = self.locked(count.name_in_store());
        let now = instant(now, &self.clock, [kind]);
        (shard, now, Place::new(count, hash, kind))
    }

    /// Drops up to so many keys that are not needed any more.
    #[inline]
    pub(super) fn drop_due(&self, shard: &mut Shard, now: u64, max: usize) {
        if shard.is_due(now) {
            self.freed(shard.drop_forgotten(now, &self.clock, max));
        }
    }

    /// The number of the permit that a take may get of a count of this kind.
    pub(super) fn next_holder(&self, kind: StateKind) -> u64 {
        match kind {
            StateKind::Permits => self.last_holder.fetch_add(1, Ordering::Relaxed) + 1,
            _ => 0,
        }
    }

    fn number(&self, kind: StateKind) -> usize {
        self.keys[kind as usize].load(Ordering::Relaxed)
    }

    /// The hash by which a shard knows the name, and the shard's index.
    #[inline]
    pub(super) fn place_of(&self, name: &Name) -> (u32, usize) {
        let hash = name.hash();
        // The upper bits: a shard uses the lower half.
        let at = (hash >> 48) as usize & (self.shards.len() - 1);
        (hash as u32, at)
    }

    /// Decides one take.
    pub(crate) fn decide(&self, ask: &Ask) -> Result<Decision, StoreError> {
        let part = self.part_of(ask);
        let answer = part.decide_known(ask);
        answer.unwrap_or_else(|| part.retry(|| part.decide_known(ask))?)
    }

    fn decide_known(&self, ask: &Ask) -> Answer {
        let ([count], false) = (ask.counts(), ask.is_joint()) else {
            return self.decide_list(ask);
        };
        let Kind::Windows(windows) = &count.spec().kind else {
            return self.decide_list(ask);
        };
        if count.spec().may_be_held() {
            return self.decide_with_hold(ask, count, windows);
        }
        let (hash, mut shard, now) = self.locked(count.name_in_store());
        // Two for each take: keys are dropped at least as fast as they come.
        self.drop_due(&mut shard, now, 2);
        let reserve = || self.reserve_of(StateKind::Windows, 1);
        let place = Place::new(count, hash, StateKind::Windows);
        shard.take(now, place, windows, ask.cost(), reserve)
    }

    /// Decides a take over one count of windows whose key may be held.
    #[inline(never)]
    fn decide_with_hold(&self, ask: &Ask, count: &CountAsk, windows: &Windows) -> Answer {
        let (hash, mut shard, now) = self.locked(count.name_in_store());
        self.drop_due(&mut shard, now, 2);
        let hold = self.hold_of(ask, (count, hash), &shard, now)?;
        let place = Place::new(count, hash, StateKind::Windows);
        if hold.time.is_some() {
            let asked = Asked {
                spec: count.spec(),
                cost: ask.cost(),
                holder: 0,
                hold,
            };
            let (mut loaded, now) = (shard.load(place), Now::within(now));
            return Some(Ok(asked.deny_held(shard.state(&mut loaded), now)));
        }
        let reserve = || self.reserve_of(StateKind::Windows, 1);
        let mut answer = shard.take(now, place, windows, ask.cost(), reserve);
        if let Some(Ok(decision)) = &mut answer {
            decision.has_failures = decision.is_allowed() && hold.has_failures;
        }
        answer
    }

    /// What holds the key of this count, which is in this shard. `None` if the failures of a take
    /// would find no room: nothing would lock the key out.
    pub(super) fn hold_of(
        &self,
        ask: &Ask,
        (count, hash): (&CountAsk, u32),
        shard: &Shard,
        now: u64,
    ) -> Option<Hold> {
        if !count.spec().may_be_held() {
            return Some(Hold::default());
        }
        let place = Place::new(count, hash, StateKind::Hold);
        if let Some(State::Hold(known)) = shard.known(place) {
            return Some(known.hold_at(now));
        }
        let may_fail = count.spec().lockout().is_some() && !ask.only_looks();
        let is_refused = may_fail && self.number(StateKind::Hold) >= self.max_keys;
        (!is_refused).then(Hold::default)
    }

    /// Asks for what there was no room for, as long as room is made.
    #[cold]
    fn retry<T>(&self, ask: impl Fn() -> Option<T>) -> Result<T, StoreError> {
        loop {
            let dropped = self.make_room();
            // Even if nothing was dropped here: another thread may just have made room.
            if let Some(answer) = ask() {
                return Ok(answer);
            }
            if !dropped {
                return Err(self.full());
            }
        }
    }

    /// Gives units back, or a permit, and returns their number.
    pub(crate) fn refund_counts(&self, ask: &Ask, receipt: &Receipt) -> u64 {
        let part = self.part_of(ask);
        ask.refund_each(receipt, |count, receipt| {
            let (spec, units) = (count.spec(), count.cost());
            // A permit goes back when its request has ended.
            if spec.is_permits() && ask.is_joint() {
                return 0;
            }
            let (mut shard, now, place) = part.locked_at(count, StateKind::from_spec(spec));
            let refunded = shard.refund(now, place, receipt, units);
            refunded.unwrap_or(0)
        })
    }

    /// Charges units above max, and returns their number.
    pub(crate) fn charge_owed(&self, ask: &Ask, receipt: &Receipt) -> Result<u64, StoreError> {
        let part = self.part_of(ask);
        let mut least = None;
        for (at, count) in ask.counts_owed() {
            let receipt = receipt.counts().get(at).unwrap_or(receipt);
            let (spec, units) = (count.spec(), count.cost());
            let charged = part.change_or_add(count, StateKind::from_spec(spec), |state, now| {
                state.owe(spec, now, receipt, units)
            })?;
            least = Some(least.map_or(charged, |least: u64| least.min(charged)));
        }
        Ok(least.unwrap_or(0))
    }

    /// Keeps a permit for another lease, also one that is not there.
    fn keep_permit(&self, ask: &Ask, holder: &Receipt) -> Result<u64, StoreError> {
        let part = self.part_of(ask);
        let counts = ask.counts().iter();
        for count in counts.filter(|count| count.spec().is_permits()) {
            part.change_or_add(count, StateKind::Permits, |state, now| {
                state.renew(count.spec(), now, holder);
            })?;
        }
        Ok(1)
    }

    /// Changes what is known of the hold of a count.
    fn change_hold(
        &self,
        ask: &Ask,
        count: Option<&CountAsk>,
        change: impl Fn(&mut LockoutState, &Spec, u64) -> u64,
    ) -> Result<u64, StoreError> {
        let (part, Some(count)) = (self.part_of(ask), count) else {
            return Ok(0);
        };
        part.change_or_add(count, StateKind::Hold, |state, now| match state {
            State::Hold(known) => change(known, count.spec(), now.micros),
            _ => 0,
        })
    }

    /// Forgets what counts for each count, and returns how many counted.
    pub(crate) fn forget(&self, ask: &Ask) -> u64 {
        let part = self.part_of(ask);
        let forget = |count: &CountAsk| {
            let spec = count.spec();
            let reset = |state: &mut State, now| state.reset(spec, now);
            let known = |kind| part.change_state(count, kind, reset, || false);
            let counted = known(StateKind::from_spec(spec));
            let was_held = match spec.lockout() {
                // Failures of takes from before count nothing.
                Some(_) => part.change_or_add(count, StateKind::Hold, reset).ok(),
                None => known(StateKind::Hold),
            };
            u64::from(counted == Some(true) || was_held == Some(true))
        };
        ask.counts().iter().map(forget).sum()
    }

    /// Changes the state of a count, or a new one.
    fn change_or_add<T>(
        &self,
        count: &CountAsk,
        kind: StateKind,
        change: impl Fn(&mut State, Now) -> T,
    ) -> Result<T, StoreError> {
        let changed = || self.change_state(count, kind, &change, || self.reserve_of(kind, 1));
        changed().map_or_else(|| self.retry(changed), Ok)
    }

    fn change_state<T>(
        &self,
        count: &CountAsk,
        kind: StateKind,
        change: impl FnOnce(&mut State, Now) -> T,
        reserve: impl FnOnce() -> bool,
    ) -> Option<T> {
        let (mut shard, now, place) = self.locked_at(count, kind);
        shard.change(now, place, |state| change(state, now), reserve)
    }

    /// Counts so many more keys of each kind if there is room for all.
    pub(super) fn reserve(&self, new: KeyNumbers) -> bool {
        let mut reserved = KeyNumbers::default();
        for kind in StateKind::ALL
            .into_iter()
            .filter(|kind| new[*kind as usize] > 0)
        {
            if !self.reserve_of(kind, new[kind as usize]) {
                self.freed(reserved);
                return false;
            }
            reserved[kind as usize] = new[kind as usize];
        }
        true
    }

    /// Counts so many more keys of a kind if there is room.
    fn reserve_of(&self, kind: StateKind, number: usize) -> bool {
        // There are no more permits than requests in progress.
        let is_bounded = kind != StateKind::Permits;
        let mut room = self.room_of(kind);
        let has_room = |keys: usize| match room.as_deref() {
            Some(all) if *all > keys => keys < self.max_keys.saturating_sub(*all),
            Some(all) => all + number <= self.max_keys - self.max_keys / 8,
            None => !is_bounded || keys + number <= self.max_keys,
        };
        let add = |keys: usize| has_room(keys).then_some(keys + number);
        let relaxed = Ordering::Relaxed;
        let mut before = self.keys[kind as usize].fetch_update(relaxed, relaxed, add);
        if let (Ok(keys), Some(all)) = (&mut before, &mut room) {
            *keys = **all;
            **all += number;
        }
        let passes = |keys: usize| (keys..keys + number).contains(&self.nearly_full_at);
        if is_bounded && before.is_ok_and(passes) {
            self.warn();
        }
        before.is_ok()
    }

    /// The keys of all stores that share the room for this kind.
    fn room_of(&self, kind: StateKind) -> Option<MutexGuard<'_, usize>> {
        let room = self.room.as_ref().filter(|_| kind == StateKind::Windows);
        room.map(|room| lock(room))
    }

    /// Logs once that the store is nearly full.
    #[cold]
    fn warn(&self) {
        if !self.is_nearly_full.swap(true, Ordering::Relaxed) {
            NEARLY_FULL.log();
        }
    }

    fn freed(&self, keys: KeyNumbers) {
        for (kind, freed) in StateKind::ALL.into_iter().zip(keys) {
            if freed > 0 {
                let room = self.room_of(kind);
                self.keys[kind as usize].fetch_sub(freed, Ordering::Relaxed);
                room.into_iter().for_each(|mut all| *all -= freed);
            }
        }
    }

    /// Drops keys that count no longer, of the first shard that has some. Where there are none, and
    /// failures have no room, it forgets some.
    fn make_room(&self) -> bool {
        let now = self.clock.now();
        let mut shards = self.shards.iter();
        let has_dropped = shards.any(|shard| {
            let mut shard = lock(shard);
            let dropped = shard.drop_forgotten(now, &self.clock, usize::MAX);
            // Under the lock: a thread that finds nothing to drop here finds the room.
            self.freed(dropped);
            dropped != KeyNumbers::default()
        });
        has_dropped || self.forget_failures(now)
    }

    /// Forgets an eighth of what is known of keys that failed and are not held, the least worth
    /// first. It does so ten times a second at most: a flood does not make each caller look at all
    /// keys.
    fn forget_failures(&self, now: u64) -> bool {
        const PAUSE: u64 = 100_000;
        let is_due = |at: u64| now.abs_diff(at) >= PAUSE;
        let is_full = self.number(StateKind::Hold) >= self.max_keys;
        let (relaxed, due) = (Ordering::Relaxed, |at| is_due(at).then_some(now));
        if !is_full || self.forgot_at.fetch_update(relaxed, relaxed, due).is_err() {
            return false;
        }
        let mut eviction_ranks = Vec::new();
        for shard in &self.shards {
            let shard_of = |(worth, at)| (worth, shard, at);
            eviction_ranks.extend(lock(shard).eviction_ranks(now).map(shard_of));
        }
        let excess = self.max_keys.div_ceil(8).min(eviction_ranks.len());
        if excess > 0 {
            eviction_ranks.select_nth_unstable_by_key(excess - 1, |it| it.0);
        }
        for (worth, shard, at) in &eviction_ranks[..excess] {
            self.freed(lock(shard).forget(now, *worth, *at));
        }
        excess > 0
    }

    fn full(&self) -> StoreError {
        StoreError::new(
            StoreErrorKind::Full,
            format!(
                "the in-memory store holds its {} keys and all still count; a new key is refused",
                self.max_keys
            ),
        )
    }
}

const NEARLY_FULL: Warning = Warning::named(WarningKind::MemoryNearlyFull, "max_keys");

/// A shard's state is whole between any two statements, so a panic elsewhere does not harm it.
pub(super) fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        StoreFuture::ready(self.decide(ask))
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        StoreFuture::ready(match change {
            Change::Refund(receipt) => Ok(self.refund_counts(ask, receipt)),
            Change::Owe(receipt) => self.charge_owed(ask, receipt),
            Change::Renew(holder) => self.keep_permit(ask, holder),
            Change::Hold(time) => {
                let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                self.change_hold(ask, ask.first(), |state, _, now| state.hold(now, time))
            }
            Change::Forget => Ok(self.forget(ask)),
            other => self.change_hold(ask, ask.lockout_count(), |state, spec, now| {
                let reported = spec.lockout().zip(other.reported());
                reported.map_or(0, |(spec, (at, what))| state.report(spec, now, at, what))
            }),
        })
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            joint: true,
            permits: true,
            calendar: true,
            owes: true,
            holds: true,
            source: Some(Source::Local),
            ..Capabilities::default()
        }
    }

    fn condition(&self) -> Condition {
        let is_nearly_full = self.is_nearly_full.load(Ordering::Relaxed);
        Condition {
            warnings: is_nearly_full.then_some(NEARLY_FULL).into_iter().collect(),
            is_breaker_open: None,
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("keys", &self.keys)
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}
