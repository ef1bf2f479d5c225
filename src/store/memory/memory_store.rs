use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::calendars::{CalendarOf, Calendars};
use super::holds::Holds;
use super::permits::Permits;
use super::shard::{Answer, CountOf, Shard};
use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::sync::{Mutex, MutexGuard, PoisonError, available_parallelism};
use crate::algorithm::lockout::LockoutState;
use crate::algorithm::spec::{Kind, Spec};
use crate::clock::Clock;
use crate::decision::{Decision, QuotaState, Receipt};
use crate::error::{StoreError, StoreErrorKind};
use crate::name::Name;
use crate::store::{Ask, Capabilities, Change, Condition, CountAsk, Store, StoreFuture};
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
/// flood of a million keys fills at most 144 MB. A key that is charged again takes about 170
/// bytes more, and 16 for each entry of a log. So does a key's first charge under a rule of several
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
    keys: AtomicUsize,
    pub(super) max_keys: usize,
    /// As many keys as are 80 % of them.
    nearly_full_at: usize,
    is_nearly_full: AtomicBool,
    /// The requests in progress.
    pub(super) permits: Mutex<Permits>,
    /// What counts in periods of the calendar, in as much room again as `max_keys`.
    pub(super) calendars: Mutex<Calendars>,
    /// The keys that a partner's answer or failures hold.
    holds: Mutex<Holds>,
    /// The counts of shadow rules.
    shadows: OnceLock<Box<Self>>,
}

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
            keys: AtomicUsize::new(0),
            max_keys,
            nearly_full_at: max_keys - max_keys.div_ceil(5),
            is_nearly_full: AtomicBool::new(false),
            permits: Mutex::default(),
            calendars: Mutex::default(),
            holds: Mutex::default(),
            shadows: OnceLock::new(),
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
        let now = self.clock.now();
        for shard in &self.shards {
            self.freed(lock(shard).drop_forgotten(now, usize::MAX));
        }
        let of_shadows = self.shadows.get().map_or(0, |shadows| shadows.len());
        let of_calendars = lock(&self.calendars).len(self.clock.wall());
        self.keys.load(Ordering::Relaxed) + of_calendars + of_shadows
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

    pub(super) fn shard(&self, at: usize) -> &Mutex<Shard> {
        &self.shards[at]
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now()
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
        answer.unwrap_or_else(|| part.decide_in_full(ask))
    }

    fn decide_known(&self, ask: &Ask) -> Answer {
        let ([count], false) = (ask.counts(), ask.is_joint()) else {
            return self.decide_list(ask);
        };
        let Kind::Windows(windows) = &count.spec().kind else {
            return self.decide_list(ask);
        };
        let name = count.name_in_store();
        let of = CountOf { name, windows };
        let (hash, mut shard, now) = self.locked(name);
        if shard.is_due(now) {
            // Two for each take: keys are dropped at least as fast as they come.
            self.freed(shard.drop_forgotten(now, 2));
        }
        if count.spec().may_be_held() {
            let (held_for, has_failures) = match self.hold_of(ask, count, now) {
                Ok(hold) => hold,
                Err(full) => return Some(Err(full)),
            };
            if let Some(held_for) = held_for {
                let decided = shard.take(hash, now, of, 0, || self.reserve(1))?;
                let has_room = |it: &QuotaState| it.remaining() >= ask.cost();
                let decided = match decided {
                    Ok(look) if look.is_allowed() && look.quotas().iter().all(has_room) => Ok(look),
                    _ => shard.take(hash, now, of, ask.cost(), || self.reserve(1))?,
                };
                return Some(decided.map(|it| held(it, count, held_for)));
            }
            let mut decided = shard.take(hash, now, of, ask.cost(), || self.reserve(1))?;
            if let Ok(decision) = &mut decided {
                decision.has_failures = decision.is_allowed() && has_failures;
            }
            return Some(decided);
        }
        shard.take(hash, now, of, ask.cost(), || self.reserve(1))
    }

    /// For how much longer the key of this count is held, and whether it has failures.
    ///
    /// A key whose failures would find no room is refused: nothing would lock it out.
    pub(super) fn hold_of(
        &self,
        ask: &Ask,
        count: &CountAsk,
        now: u64,
    ) -> Result<(Option<u64>, bool), StoreError> {
        if !count.spec().may_be_held() {
            return Ok((None, false));
        }
        let mut holds = lock(&self.holds);
        if let Some(known) = holds.known.get(&count.name_in_store().plain()) {
            return Ok((known.held_for(now), known.has_failures(now)));
        }
        let may_fail = count.spec().lockout().is_some() && !ask.only_looks();
        match may_fail && !holds.has_room(now, self.max_keys) {
            true => Err(self.full()),
            false => Ok((None, false)),
        }
    }

    /// Decides a take of a new key for which there is no room.
    #[cold]
    fn decide_in_full(&self, ask: &Ask) -> Result<Decision, StoreError> {
        loop {
            let dropped = self.make_room();
            // Even if nothing was dropped here: another thread may just have made room.
            if let Some(answer) = self.decide_known(ask) {
                return answer;
            }
            if !dropped {
                return Err(self.full());
            }
        }
    }

    /// How many units of a count are used in its period of the calendar.
    pub(crate) fn used_in_period(&self, ask: &Ask, count: &CountAsk) -> u64 {
        let part = self.part_of(ask);
        lock(&part.calendars).used(count.name_in_store(), part.clock.wall())
    }

    /// Gives units back, or a permit, and returns their number.
    pub(crate) fn give_back(&self, ask: &Ask, receipt: &Receipt) -> u64 {
        let part = self.part_of(ask);
        ask.given_back(receipt, |count, receipt| {
            let name = count.name_in_store();
            if count.spec().is_permits() {
                return match ask.is_joint() {
                    // A permit goes back when its request has ended.
                    true => 0,
                    false => lock(&part.permits).release(name, receipt),
                };
            }
            if count.spec().calendar().is_some() {
                let mut calendars = lock(&part.calendars);
                return calendars.refund(name, part.clock.wall(), receipt, count.cost());
            }
            let (hash, mut shard, now) = part.locked(name);
            shard.refund(hash, now, count, receipt)
        })
    }

    /// Charges units above max, and returns their number.
    pub(crate) fn charge_owed(&self, ask: &Ask, receipt: &Receipt) -> Result<u64, StoreError> {
        let part = self.part_of(ask);
        let mut least = None;
        for (at, count) in ask.counts_owed() {
            let owe = || {
                let name = count.name_in_store();
                if let Some(spec) = count.spec().calendar() {
                    let (mut calendars, now) = (lock(&part.calendars), part.clock.wall());
                    let receipt = receipt.counts().get(at)?;
                    let new = usize::from(!calendars.knows(name));
                    let has_room = calendars.has_room(new, now, part.max_keys);
                    let of = CalendarOf { name, spec, now };
                    return has_room.then(|| calendars.owe(of, receipt, count.cost()));
                }
                let windows = count.spec().windows()?;
                let (hash, mut shard, now) = part.locked(name);
                let of = CountOf { name, windows };
                shard.owe(hash, now, of, count.cost(), || part.reserve(1))
            };
            let charged = owe().or_else(|| part.make_room().then(owe).flatten());
            let charged = charged.ok_or_else(|| part.full())?;
            least = Some(least.map_or(charged, |least: u64| least.min(charged)));
        }
        Ok(least.unwrap_or(0))
    }

    /// Keeps a permit for another lease, also one that is not there.
    fn keep_permit(&self, ask: &Ask, holder: &Receipt) -> u64 {
        let part = self.part_of(ask);
        let mut permits = lock(&part.permits);
        for count in ask.counts() {
            if let Some(spec) = count.spec().permits() {
                permits.renew(count.name_in_store(), spec.lease, holder, self.clock.now());
            }
        }
        1
    }

    /// Changes what is known of the hold of a count.
    fn change_hold(
        &self,
        ask: &Ask,
        count: Option<&CountAsk>,
        change: impl FnOnce(&mut LockoutState, &Spec, u64) -> u64,
    ) -> Result<u64, StoreError> {
        let (part, Some(count)) = (self.part_of(ask), count) else {
            return Ok(0);
        };
        let name = count.name_in_store();
        let (_, _shard, now) = part.locked(name);
        let mut holds = lock(&part.holds);
        if holds.known.len() >= part.nearly_full_at {
            part.warn();
        }
        let state = holds.of_new(name.plain(), now, part.max_keys);
        Ok(change(state.ok_or_else(|| part.full())?, count.spec(), now))
    }

    /// Forgets what counts for each count, and returns how many counted.
    pub(crate) fn forget(&self, ask: &Ask) -> u64 {
        let part = self.part_of(ask);
        let forget = |count: &CountAsk| {
            let name = count.name_in_store();
            if count.spec().calendar().is_some() {
                let now = part.clock.wall();
                return u64::from(lock(&part.calendars).reset(name, now));
            }
            let (hash, mut shard, now) = part.locked(name);
            let holds = &mut lock(&part.holds).known;
            let known = holds.remove(&name.plain()).unwrap_or_default();
            if let Some(spec) = count.spec().lockout() {
                holds.insert(name.plain(), LockoutState::reset(spec, now));
            }
            let was_held = known.held_for(now).is_some() || known.has_failures(now);
            u64::from(shard.reset(hash, name, now) || was_held)
        };
        let counts = ask.counts().iter();
        let counts = counts.filter(|count| !count.spec().is_permits());
        counts.map(forget).sum()
    }

    /// Counts one more key if that is allowed.
    pub(super) fn reserve(&self, number: usize) -> bool {
        let add = |keys: usize| (keys + number <= self.max_keys).then_some(keys + number);
        let relaxed = Ordering::Relaxed;
        let before = self.keys.fetch_update(relaxed, relaxed, add);
        if before.is_ok_and(|keys| (keys..keys + number).contains(&self.nearly_full_at)) {
            self.warn();
        }
        before.is_ok()
    }

    /// Logs once that the store is nearly full.
    #[cold]
    fn warn(&self) {
        if !self.is_nearly_full.swap(true, Ordering::Relaxed) {
            NEARLY_FULL.log();
        }
    }

    pub(super) fn freed(&self, keys: usize) {
        if keys > 0 {
            self.keys.fetch_sub(keys, Ordering::Relaxed);
        }
    }

    /// Drops keys that count no longer, of the first shard that has some.
    fn make_room(&self) -> bool {
        let now = self.clock.now();
        let mut shards = self.shards.iter();
        shards.any(|shard| {
            let mut shard = lock(shard);
            let dropped = shard.drop_forgotten(now, usize::MAX);
            // Under the lock: a thread that finds nothing to drop here finds the room.
            self.freed(dropped);
            dropped > 0
        })
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

/// This decision about a count whose key is held for so long, in microseconds.
pub(super) fn held(decision: Decision, count: &CountAsk, time: u64) -> Decision {
    let time = Duration::from_micros(time);
    decision.held_for(time, count.spec().held_verdict(time), count.cost())
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
            Change::GiveBack(receipt) => Ok(self.give_back(ask, receipt)),
            Change::Owe(receipt) => self.charge_owed(ask, receipt),
            Change::Renew(holder) => Ok(self.keep_permit(ask, holder)),
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
