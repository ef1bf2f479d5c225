//! What algorithms share that keep a counter for each quota, in constant memory.

use smallvec::SmallVec;

use super::algorithm::{AlgorithmState, MAX_HELD, MODULUS_MASK, TEN_YEARS};
use super::byte_reader::{ByteReader, ByteWriter, check};
use super::count::CountError;
use super::counter::{Counter, CounterRefund, Level};
use super::quota_use::{QuotaUse, verdict};
use super::refunded_ranges::RefundedRanges;
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::quota::{MAX_CHARGED, Quota, number_that_limit};

/// The most counters of earlier quotas that are kept beside those of the rule, and beside one that
/// counts for all.
pub(super) const MAX_EARLIER: usize = 4;
pub(super) const MAX_EARLIER_BESIDE_BOUND: usize = 2;
/// As many as counts in bytes may have.
const MAX_EARLIER_READ: usize = 16;

/// The counters of one key: those of its rule's quotas, and those of earlier quotas for as long as
/// what was charged under them still counts.
///
/// Each take is charged to all of them. So two rules may take turns on one key, as they do during a
/// rolling deployment, and neither refills the other.
#[derive(Debug, Clone)]
pub(super) struct Counters<T> {
    kept: SmallVec<[KeptCounter<T>; 1]>,
    /// The number of units ever charged, modulo 2^52: tells takes of one instant apart, and their
    /// order.
    serial: u64,
    /// When something was charged last.
    last_charge: u64,
    /// Units are numbered by the serial numbers, which have run since its `since`. Empty where
    /// refunds need not know it.
    refunded: RefundedRanges,
}

impl<T> Default for Counters<T> {
    fn default() -> Self {
        Self {
            kept: SmallVec::new(),
            serial: 0,
            last_charge: 0,
            refunded: RefundedRanges::default(),
        }
    }
}

impl<T: Counter> Counters<T> {
    /// Decides a take, and charges it if it is allowed.
    pub(super) fn decide(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u16,
        cost: u64,
    ) -> Decision {
        if let [quota] = quotas
            && let [only] = &mut self.kept[..]
            && only.counter.can_serve(quota, sub_windows)
            && self.last_charge <= now
        {
            let level = only.counter.level(now, self.last_charge);
            if level.used == 0 || only.needed_until > now {
                return self.take_from_only(now, quota, cost, level);
            }
        }
        self.take_from_any(now, quotas, sub_windows, cost)
    }

    /// The fast path, without lists: one quota, and no counter but its own. Without it a take takes
    /// 3 to 4 times as long, a denied one twice: 29 to 33 ns in place of 6 to 10.
    fn take_from_only(&mut self, now: u64, quota: &Quota, cost: u64, level: Level) -> Decision {
        let KeptCounter {
            counter,
            needed_until,
            ..
        } = &mut self.kept[0];
        let mut quota_use = QuotaUse {
            limit: T::limit(quota),
            used: level.used,
        };
        let wait = |_| counter.wait(now, quota_use.limit, cost);
        let verdict = verdict(cost, &[quota_use], wait);
        let mut receipt = None;
        if verdict == Verdict::Allowed && cost > 0 {
            counter.serve(quota);
            counter.charge(now, level, cost);
            *needed_until = now.saturating_add(counter.life());
            quota_use.used += cost;
            if level.used == 0 {
                self.kept[0].refundable_since = self.restart_serial(now);
            }
            self.serial = self.serial.wrapping_add(cost) & MODULUS_MASK;
            self.last_charge = now;
            receipt = Some(Receipt::new(now, self.serial, cost));
        } else if verdict == Verdict::Allowed {
            receipt = Some(Receipt::new(now, 0, 0));
        }
        let state = quota_use.state(now, || self.kept[0].counter.ends_at());
        Decision::from_state(verdict, Source::Local, cost, state, receipt)
    }

    fn take_from_any(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u16,
        cost: u64,
    ) -> Decision {
        let quotas = &quotas[..quotas.len().min(MAX_CHARGED)];
        let mut uses = [QuotaUse::default(); MAX_CHARGED];
        let (mut places, new) = self.load(now, quotas, sub_windows, &mut uses);
        let known = self.known(now);
        let counter_at = |place: usize| match place.checked_sub(known.len()) {
            None => &known[place].counter,
            Some(place) => &new[place],
        };
        let uses = &mut uses[..number_that_limit(quotas)];
        let verdict = verdict(cost, uses, |index| {
            counter_at(places[index]).wait(now, uses[index].limit, cost)
        });
        if verdict != Verdict::Allowed || cost == 0 {
            let states = states(uses, now, |index| counter_at(places[index]).ends_at());
            let receipt = (verdict == Verdict::Allowed).then(|| Receipt::new(now, 0, 0));
            return Decision::from_states(verdict, Source::Local, cost, states, receipt);
        }
        if now < self.last_charge {
            // Only a charge may change anything. The take is allowed then, too: the same units
            // count.
            self.follow_clock_back(now);
            return self.take_from_any(now, quotas, sub_windows, cost);
        }

        let places = &mut places[..quotas.len()];
        self.prepare(now, quotas, places, new);
        self.charge(now, places, cost, 0);
        uses.iter_mut().for_each(|quota_use| quota_use.used += cost);
        let ends_at = |index: usize| self.kept[places[index]].counter.ends_at();
        let states = states(uses, now, ends_at);
        let receipt = Some(Receipt::new(now, self.serial, cost));
        Decision::from_states(verdict, Source::Local, cost, states, receipt)
    }

    /// Charges up to `units`, also above the limits: as many as fit under `most` of each quota.
    /// Returns their number.
    pub(super) fn owe(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u16,
        units: u64,
        most: &dyn Fn(&Quota) -> u64,
    ) -> u64 {
        let quotas = &quotas[..quotas.len().min(MAX_CHARGED)];
        let mut uses = [QuotaUse::default(); MAX_CHARGED];
        let (mut places, new) = self.load(now, quotas, sub_windows, &mut uses);
        let limiting = number_that_limit(quotas);
        let rooms = uses[..limiting].iter().zip(quotas);
        let rooms = rooms.map(|(quota_use, quota)| most(quota).saturating_sub(quota_use.used));
        let units = rooms.fold(units, u64::min);
        if units > 0 && now < self.last_charge {
            self.follow_clock_back(now);
            return self.owe(now, quotas, sub_windows, units, most);
        }
        if units > 0 {
            let places = &mut places[..quotas.len()];
            self.prepare(now, quotas, places, new);
            self.charge(now, places, units, limiting);
        }
        units
    }

    /// The counters, if anything counts.
    fn known(&self, now: u64) -> &[KeptCounter<T>] {
        match self.is_forgotten(now) {
            true => &[],
            false => &self.kept,
        }
    }

    /// The index of each quota's counter, and the new counters, which come behind the known ones.
    /// Fills in how much of each quota is used.
    fn load(
        &self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u16,
        uses: &mut [QuotaUse],
    ) -> ([usize; MAX_CHARGED], SmallVec<[T; 1]>) {
        let known = self.known(now);
        let mut new = SmallVec::<[T; 1]>::new();
        let mut places = [0; MAX_CHARGED];
        for ((place, quota_use), quota) in places.iter_mut().zip(uses).zip(quotas) {
            let counters = known.iter().map(|kept| &kept.counter).chain(&new);
            let mut counters = counters.enumerate();
            let found = counters.find(|(_, counter)| counter.can_serve(quota, sub_windows));
            quota_use.limit = T::limit(quota);
            (*place, quota_use.used) = match found {
                Some((place, counter)) => (place, counter.used(now, self.last_charge)),
                None => {
                    let counter =
                        new_counter(known, now, self.last_charge, quota, quotas, sub_windows);
                    let used = counter.used(now, self.last_charge);
                    new.push(counter);
                    (known.len() + new.len() - 1, used)
                }
            };
        }
        (places, new)
    }

    /// Makes it ready for a charge: it has the new counters then, and no more earlier ones than it
    /// may have.
    fn prepare(&mut self, now: u64, quotas: &[Quota], places: &mut [usize], new: SmallVec<[T; 1]>) {
        let refundable_since = match self.is_forgotten(now) {
            false => self.refundable_since().max(now),
            true => {
                let refundable_since = self.restart_serial(now);
                self.kept.clear();
                refundable_since
            }
        };
        let kept = |counter| KeptCounter {
            counter,
            needed_until: 0,
            refundable_since,
        };
        self.kept.extend(new.into_iter().map(kept));
        for (place, quota) in places.iter().zip(quotas) {
            let kept = &mut self.kept[*place];
            kept.counter.serve(quota);
            kept.needed_until = now.saturating_add(kept.counter.life());
        }
        if self.kept.len() > 1 {
            let max_earlier = match quotas.iter().any(Quota::bounds) {
                true => MAX_EARLIER_BESIDE_BOUND,
                false => MAX_EARLIER,
            };
            self.drop_earlier(now, places, max_earlier);
        }
    }

    /// Charges all counters. `places` are those of the rule's quotas, of which the first `owing`
    /// may be above their limits then.
    fn charge(&mut self, now: u64, places: &[usize], cost: u64, owing: usize) {
        let owing = &places[..owing];
        for (place, kept) in self.kept.iter_mut().enumerate() {
            let level = kept.counter.level(now, now);
            let is_in_debt = level.used > T::limit(kept.counter.quota());
            let lost = match owing.contains(&place) {
                true => kept.counter.owe(now, level, cost),
                false => kept.counter.charge(now, level, cost),
            };
            if lost > 0 {
                kept.refundable_since = kept.refundable_since.max(now.saturating_add(1));
            }
            // Units owed last longer than a full counter does.
            if owing.contains(&place) || is_in_debt && places.contains(&place) {
                kept.needed_until = kept.needed_until.max(kept.counter.ends_at());
            }
        }
        self.serial = self.serial.wrapping_add(cost) & MODULUS_MASK;
        self.last_charge = now;
    }

    /// Lets the serial numbers run from zero again, unless a take with the same stamp may have such
    /// a number: a take of this very instant, or one from before the clock went back. Returns the
    /// instant since which a new counter can tell takes apart.
    fn restart_serial(&mut self, now: u64) -> u64 {
        let refundable_since = self.refundable_since();
        if refundable_since <= now && self.last_charge != now {
            self.serial = 0;
        }
        refundable_since.max(now)
    }

    /// The instant since which all counters can tell takes apart.
    fn refundable_since(&self) -> u64 {
        let since = self.kept.iter().map(|kept| kept.refundable_since);
        since.max().unwrap_or(0)
    }

    /// Whether its units are numbered as what was given back has them.
    fn knows_refunded(&self) -> bool {
        let refunded = &self.refunded;
        refunded.since() == self.refundable_since() && refunded.end() <= self.serial
    }

    /// Drops counters of earlier quotas that are of no use any more. Of more than `max`, it keeps
    /// those that are needed longest. No two counters are equal in all that they are sorted by.
    fn drop_earlier(&mut self, now: u64, places: &mut [usize], max: usize) {
        let is_earlier = |place: &usize| !places.contains(place);
        let mut earlier: Vec<_> = (0..self.kept.len()).filter(is_earlier).collect();
        earlier.sort_by_key(|place| {
            let kept = &self.kept[*place];
            let (counter, quota) = (&kept.counter, kept.counter.quota());
            let quota = (quota.window_micros(), quota.max(), counter.variant());
            std::cmp::Reverse((kept.needed_until, quota))
        });
        let (needed, mut dropped): (Vec<_>, _) = earlier.into_iter().partition(|place| {
            let kept = &self.kept[*place];
            kept.needed_until > now && kept.counter.used(now, self.last_charge) > 0
        });
        dropped.extend(needed.into_iter().skip(max));
        dropped.sort_unstable();
        for place in dropped.into_iter().rev() {
            self.kept.remove(place);
            let behind = places.iter_mut().filter(|other| **other > place);
            behind.for_each(|other| *other -= 1);
        }
    }

    /// Whether nothing counts.
    fn is_forgotten(&self, now: u64) -> bool {
        let counts = |kept: &KeptCounter<T>| {
            kept.needed_until > now && kept.counter.used(now, self.last_charge) > 0
        };
        !self.kept.iter().any(counts)
    }

    /// The clock went back to `now`: what was charged in its future counts as charged now.
    fn follow_clock_back(&mut self, now: u64) {
        let after_all_charges = self.last_charge.saturating_add(1);
        for kept in &mut self.kept {
            kept.counter.follow_clock_back(now, self.last_charge);
            let needed_until = now.saturating_add(kept.counter.life());
            kept.needed_until = kept.needed_until.min(needed_until);
            kept.refundable_since = kept.refundable_since.max(after_all_charges);
        }
        self.last_charge = now;
    }
}

/// A counter for a quota that has none: what counts under any other quota counts here, too.
fn new_counter<T: Counter>(
    known: &[KeptCounter<T>],
    now: u64,
    last_charge: u64,
    quota: &Quota,
    quotas: &[Quota],
    sub_windows: u16,
) -> T {
    let bound = quotas.iter().find(|quota| quota.bounds());
    let is_bound = |counter: &T| bound.is_some_and(|bound| counter.can_serve(bound, sub_windows));
    let needed = known.iter().filter(|kept| kept.needed_until > now);
    let carried_over =
        needed.map(
            |kept| match kept.counter.carried_over(now, last_charge, quota) {
                units if is_bound(&kept.counter) && kept.counter.may_lose(units) => MAX_HELD,
                units => units,
            },
        );
    match carried_over.max() {
        None | Some(0) => T::new(quota, sub_windows),
        Some(units) => T::charged_once(quota, sub_windows, last_charge, units),
    }
}

/// What a decision says about each quota. `ends_at` is called with the quota's index.
fn states(
    uses: &[QuotaUse],
    now: u64,
    ends_at: impl Fn(usize) -> u64,
) -> impl ExactSizeIterator<Item = QuotaState> {
    let uses = uses.iter().enumerate();
    uses.map(move |(index, quota_use)| quota_use.state(now, || ends_at(index)))
}

/// The shortest window, in microseconds.
const MIN_WINDOW: u64 = 1_000;

impl<T: Counter> AlgorithmState for Counters<T> {
    fn reset(&mut self, now: u64) -> bool {
        let has_counted = self.kept.iter().any(|kept| kept.ends_at() > now);
        let quota = Quota::of_micros(0, MIN_WINDOW);
        *self = Self {
            kept: SmallVec::from_buf([KeptCounter {
                counter: T::new(&quota, 1),
                needed_until: now,
                refundable_since: now.saturating_add(1),
            }]),
            last_charge: now,
            ..Self::default()
        };
        has_counted
    }

    fn refund(&mut self, now: u64, receipt: &Receipt, units: u64) -> u64 {
        if self.last_charge > now || self.is_forgotten(now) {
            return 0;
        }
        if !self.knows_refunded() {
            self.refunded.clear();
        }
        let charged_since = self.serial.wrapping_sub(receipt.serial()) & MODULUS_MASK;
        let refund = CounterRefund {
            stamp: receipt.stamp(),
            charged: receipt.units(),
            units,
            later: charged_since.saturating_sub(self.refunded.from(receipt.serial())),
        };
        let counters = self.kept.iter_mut();
        let counters = counters.filter(|kept| kept.refundable_since <= receipt.stamp());
        let refunded = counters.map(|kept| kept.counter.refund(now, &refund));
        let refunded = refunded.max().unwrap_or(0);
        let first = receipt.serial().checked_sub(receipt.units());
        if let Some(first) = first
            && refunded > 0
            && T::MAX_RANGES > 0
            // Otherwise the serial numbers may run from zero again at that very instant.
            && self.refundable_since() <= self.last_charge
            && receipt.serial() <= self.serial
        {
            let kept = self.kept.iter();
            let held = kept
                .map(|kept| kept.counter.used(now, self.last_charge))
                .max();
            // No more units count than are held and were given back.
            let counts = held.unwrap_or(0).saturating_add(self.refunded.from(0));
            let counts_from = self.serial.saturating_sub(counts);
            self.refunded
                .add(first, refunded, counts_from, T::MAX_RANGES);
            self.refunded.set_since(self.refundable_since());
            if self.refunded.end() > self.serial {
                // A receipt was given back twice.
                self.refunded.clear();
            }
        }
        refunded
    }

    fn forgotten_at(&self) -> u64 {
        let ends = self.kept.iter().map(KeptCounter::ends_at);
        match ends.max() {
            None => 0,
            // Where nothing is held, after a reset or since all was given back, a new state would
            // give a take of the same instant the same serial number.
            Some(0) => self
                .refundable_since()
                .max(self.last_charge.saturating_add(1)),
            Some(ends_at) => ends_at.max(self.last_charge.saturating_add(1)),
        }
    }

    fn write(&self, writer: &mut ByteWriter) {
        writer.number(self.serial);
        writer.number(self.last_charge);
        writer.number(self.kept.len() as u64);
        for kept in &self.kept {
            kept.write(writer, self.last_charge);
        }
    }

    fn read(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CountError> {
        let serial = reader.number_up_to(MODULUS_MASK, "the serial number")?;
        let last_charge = reader.number()?;
        let length = reader.length(MAX_CHARGED + MAX_EARLIER_READ, "the number of counters")?;
        let kept = (0..length).map(|_| KeptCounter::read(reader, last_charge));
        *self = Self {
            kept: kept.collect::<Result<_, _>>()?,
            serial,
            last_charge,
            refunded: RefundedRanges::default(),
        };
        Ok(())
    }

    fn refunded(&self) -> Option<(&RefundedRanges, u64)> {
        // Units of before a restart of the serial numbers are never known again.
        let since = self.kept.iter().map(|kept| kept.refundable_since).min()?;
        let is_known = !self.refunded.is_empty() && since <= self.refunded.since();
        is_known.then_some((&self.refunded, 0))
    }

    fn read_refunded(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CountError> {
        self.refunded = RefundedRanges::read(reader, self.serial)?;
        Ok(())
    }
}

/// One of the counters that are kept for a key.
#[derive(Debug, Clone)]
struct KeptCounter<T> {
    counter: T,
    /// Until when it is needed for what was charged while its quota was the rule's.
    needed_until: u64,
    /// Takes that were charged before this instant are not told apart in it, or before a reset, and
    /// so not given back.
    refundable_since: u64,
}

impl<T: Counter> KeptCounter<T> {
    /// The instant from which on it is of no use.
    fn ends_at(&self) -> u64 {
        self.counter.ends_at().min(self.needed_until)
    }

    fn write(&self, writer: &mut ByteWriter, last_charge: u64) {
        self.counter.write(writer, last_charge);
        writer.number_near(self.needed_until, last_charge);
        writer.number_near(self.refundable_since, last_charge);
    }

    fn read(reader: &mut ByteReader<'_>, last_charge: u64) -> Result<Self, CountError> {
        let counter = T::read(reader, last_charge)?;
        let needed_until = reader.number_near(last_charge)?;
        let refundable_since = reader.number_near(last_charge)?;
        // As the scripts do: no charge counts for longer than two of the longest windows.
        let latest = last_charge.saturating_add(2 * TEN_YEARS);
        check(needed_until <= latest, "the end of a counter")?;
        Ok(Self {
            counter,
            needed_until,
            refundable_since,
        })
    }
}
