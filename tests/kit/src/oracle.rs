//! What should be: all that was admitted under a key, looked at by brute force.
//!
//! Nothing here knows how the crate counts. It is a list of stamps, costs, refunds and quotas, and
//! sums over it; instants are microseconds, and sums are wide enough for whatever fits into a
//! quota. Where rules change, laws promise bounds, so an expectation is a range.

use std::rc::Rc;

use tidegate::decision::{Receipt, Verdict};
use tidegate::{Algorithm, Decision, Quota};

use crate::steps::{Broken, Way};

/// The law is broken unless this is so.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

const TEN_YEARS: u128 = Quota::MAX_WINDOW.as_micros();

/// A take that was admitted, as one quota sees it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    stamp: u64,
    cost: u64,
    back: u64,
    /// It was charged above the limit, as far as need be.
    is_owed: bool,
}

impl Entry {
    fn net(&self) -> i128 {
        i128::from(self.cost) - i128::from(self.back)
    }

    /// Whether it is inside of `(now - window, now]`.
    fn is_inside(&self, now: u64, window: u64) -> bool {
        i128::from(self.stamp) + i128::from(window) > i128::from(now)
    }
}

/// A range of units: what has to be, and what may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub least: u64,
    pub most: u64,
}

/// The receipt of a take that was charged something.
pub fn charged(decision: &Decision) -> Option<Receipt> {
    let has_units = |it: &Receipt| it.counts().iter().any(|count| count.units() > 0);
    decision.receipt().filter(has_units)
}

impl Range {
    const ANY: Self = Self {
        least: 0,
        most: u64::MAX,
    };

    const fn exactly(units: u64) -> Self {
        Self {
            least: units,
            most: units,
        }
    }

    /// What is left of the limit.
    pub fn left_of(self, limit: u64) -> Self {
        Self {
            least: limit.saturating_sub(self.most),
            most: limit.saturating_sub(self.least),
        }
    }

    pub const fn contains(self, units: u64) -> bool {
        self.least <= units && units <= self.most
    }
}

/// All that one quota admitted since it was in use, in the order in which it did. Clocks do not go
/// back here.
#[derive(Debug, Clone)]
struct Book {
    way: Way,
    quota: Quota,
    /// The number of the first entry.
    first: usize,
    entries: Vec<Entry>,
    /// When the fixed window began, if one did.
    start: Option<u64>,
    /// It is not exactly known any more what was given back, since a bucket flowed over or after
    /// many refunds.
    is_blurred: bool,
}

impl Book {
    const fn new(way: Way, quota: Quota, first: usize) -> Self {
        Self {
            way,
            quota,
            first,
            entries: Vec::new(),
            start: None,
            is_blurred: false,
        }
    }

    fn window(&self) -> u64 {
        window(&self.quota)
    }

    fn scale(&self) -> i128 {
        i128::from(self.window())
    }

    /// Whether a counter of this quota is one of that quota.
    fn serves(&self, way: Way, quota: &Quota) -> bool {
        let is_alike = window(quota) == self.window();
        match self.way.algorithm {
            Algorithm::Gcra => {
                let capacity = |quota: &Quota| quota.max().max(quota.burst());
                is_alike
                    && quota.max() == self.quota.max()
                    && capacity(quota) == capacity(&self.quota)
            }
            Algorithm::SlidingWindow => is_alike && way.sub_windows == self.way.sub_windows,
            _ => is_alike,
        }
    }

    fn admit(&mut self, entry: Entry) {
        if self.running(entry.stamp).is_none() {
            self.start = Some(entry.stamp);
        }
        self.entries.push(entry);
        let capacity = i128::from(self.quota.max().max(self.quota.burst())) * self.scale();
        self.is_blurred |= !entry.is_owed && self.level(entry.stamp, i128::MAX, true) > capacity;
    }

    /// So many units of a take were given back, of which this quota takes what it still counts.
    fn give_back(&mut self, now: u64, number: usize, units: u64) {
        let Some(index) = number.checked_sub(self.first) else {
            return;
        };
        let most = self.counted_of(now, number).most;
        self.entries[index].back += units.min(most);
        // A window in which nothing was admitted has not begun.
        let running = self.running(now);
        if running.is_some_and(|start| self.since(start) == 0) {
            self.start = None;
        }
    }

    /// How many units count now.
    fn counted(&self, now: u64) -> Range {
        match self.way.algorithm {
            Algorithm::SlidingLog if self.entries.iter().all(|entry| entry.back == 0) => {
                Range::exactly(self.inside_as_shared(now))
            }
            Algorithm::SlidingLog if self.is_blurred => Range {
                least: self.inside(now),
                most: units(
                    self.entries
                        .iter()
                        .map(|entry| i128::from(entry.cost))
                        .sum(),
                ),
            },
            // Refunds may or may not undo what sharing did to an entry's stamp.
            Algorithm::SlidingLog | Algorithm::SlidingWindow => Range {
                least: self.inside(now),
                most: self.inside_as_shared(now),
            },
            Algorithm::Gcra => {
                let capacity = i128::from(self.quota.max().max(self.quota.burst()));
                let level = |with_refunds| {
                    let level = self.level(now, capacity * self.scale(), with_refunds);
                    units(div_ceil(level, self.scale()))
                };
                Range {
                    least: level(true),
                    most: level(!self.is_blurred),
                }
            }
            Algorithm::FixedWindow => {
                Range::exactly(self.running(now).map_or(0, |start| self.since(start)))
            }
            other => panic!("no law for {other:?}"),
        }
    }

    /// How many units of a take count now.
    fn counted_of(&self, now: u64, number: usize) -> Range {
        let Some(entry) = number.checked_sub(self.first).map(|at| &self.entries[at]) else {
            return Range::exactly(0);
        };
        let net = units(entry.net());
        let if_counted = |counts: bool| if counts { net } else { 0 };
        let range = match self.way.algorithm {
            Algorithm::SlidingLog | Algorithm::SlidingWindow => Range {
                least: if_counted(entry.is_inside(now, self.window())),
                most: if_counted(self.last_shared(entry).is_inside(now, self.window())),
            },
            Algorithm::Gcra => {
                // First in, first out. A unit that has drained by a part does not count.
                let later = &self.entries[number - self.first + 1..];
                let after: i128 = later.iter().map(Entry::net).sum();
                let full = self.level(now, i128::MAX, true) / self.scale();
                Range::exactly(units((full - after).clamp(0, entry.net())))
            }
            Algorithm::FixedWindow => Range::exactly(if_counted(
                self.running(now).is_some_and(|start| entry.stamp >= start),
            )),
            other => panic!("no law for {other:?}"),
        };
        match self.is_blurred {
            true => Range {
                least: 0,
                most: net,
            },
            false => range,
        }
    }

    /// Units stamped inside of `(now - window, now]`.
    fn inside(&self, now: u64) -> u64 {
        let inside = |entry: &&Entry| entry.is_inside(now, self.window());
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }

    /// The same, but takes that share a place count as of the last of them.
    fn inside_as_shared(&self, now: u64) -> u64 {
        let inside = |entry: &&Entry| self.last_shared(entry).is_inside(now, self.window());
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }

    /// The last take that may share a place with this one.
    fn last_shared(&self, first: &Entry) -> Entry {
        let shares = |last: &&Entry| self.may_share(first.stamp, last.stamp);
        let shared = self.entries.iter().filter(shares);
        *shared.max_by_key(|entry| entry.stamp).unwrap_or(first)
    }

    /// Whether a take of this instant would move the stamp of an earlier one.
    fn would_share(&self, now: u64) -> bool {
        let earlier = |entry: &&Entry| entry.stamp < now;
        let mut earlier = self.entries.iter().filter(earlier);
        earlier.any(|entry| self.may_share(entry.stamp, now))
    }

    /// Whether two takes may share a place.
    fn may_share(&self, first: u64, last: u64) -> bool {
        let apart = u128::from(last.saturating_sub(first));
        match self.way.algorithm {
            Algorithm::SlidingLog => first / 1_000 == last / 1_000,
            // Less than a sub-window apart.
            Algorithm::SlidingWindow => {
                first <= last
                    && apart * u128::from(self.way.sub_windows) < u128::from(self.window())
            }
            _ => false,
        }
    }

    /// GCRA: how full the bucket is, in units times the window. What other plans pour in beyond the
    /// capacity flows over; what is owed stays.
    fn level(&self, now: u64, capacity: i128, with_refunds: bool) -> i128 {
        let rate = i128::from(self.quota.max());
        let (mut level, mut at) = (0, 0);
        for entry in &self.entries {
            let units = if with_refunds {
                entry.net()
            } else {
                entry.cost.into()
            };
            level = 0.max(level - i128::from(entry.stamp - at) * rate);
            at = entry.stamp;
            let poured = level + units * self.scale();
            level = match entry.is_owed {
                true => poured,
                false => poured.min(capacity.max(level)),
            };
        }
        0.max(level - i128::from(now - at) * rate)
    }

    /// Whether a bucket is above what it holds.
    fn is_in_debt(&self, now: u64) -> bool {
        let capacity = i128::from(self.quota.max().max(self.quota.burst())) * self.scale();
        self.way.algorithm == Algorithm::Gcra && self.level(now, i128::MAX, true) > capacity
    }

    /// The start of the fixed window that runs.
    fn running(&self, now: u64) -> Option<u64> {
        let runs = |start: &u64| i128::from(*start) + i128::from(self.window()) > i128::from(now);
        self.start.filter(runs)
    }

    /// Units stamped at `start` or later.
    fn since(&self, start: u64) -> u64 {
        let inside = |entry: &&Entry| entry.stamp >= start;
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }
}

/// Under what a count is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    pub way: Way,
    /// The quotas that have to have room.
    pub own: Vec<Quota>,
    /// All under which a charge has to count: those and those of other plans.
    pub counted: Rc<[Quota]>,
    /// Code gives the quotas: one that is new for the key may find less.
    pub is_given: bool,
}

impl Terms {
    pub fn limits(&self) -> impl Iterator<Item = u64> {
        self.own.iter().map(|quota| limit(self.way, quota))
    }

    /// A quota of no units is never charged, so that its plan counts nothing.
    fn in_use(&self) -> impl Iterator<Item = &Quota> {
        self.counted.iter().filter(|it| limit(self.way, it) > 0)
    }

    fn slides(&self) -> bool {
        matches!(
            self.way.algorithm,
            Algorithm::SlidingLog | Algorithm::SlidingWindow
        )
    }
}

/// A charge, with the quotas that were in use.
#[derive(Debug, Clone)]
struct Charge {
    entry: Entry,
    counted: Rc<[Quota]>,
    way: Way,
    is_given: bool,
}

impl Charge {
    /// The quotas under which it counts.
    fn in_use(&self) -> impl Iterator<Item = &Quota> {
        self.counted.iter().filter(|it| limit(self.way, it) > 0)
    }

    /// How long a window is in use after it.
    fn life(&self) -> u64 {
        self.in_use().map(window).max().unwrap_or(0)
    }
}

/// All that was charged to one count, whatever its rule was at the time.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Since nothing counted.
    charges: Vec<Charge>,
    /// How many were forgotten before these.
    first: usize,
    /// Of the quotas that have been in use all the time.
    books: Vec<Book>,
    /// The longest window that has been in use all the time.
    horizon: u64,
    /// After how long nothing counts any more.
    span: u64,
    is_given: bool,
    refunds: usize,
    was_reset: Option<u64>,
    /// The clock went back: nothing is known until a reset.
    is_astray: bool,
    has_stepped: bool,
}

impl Ledger {
    /// How many units count of this quota.
    pub fn counted(&self, now: u64, terms: &Terms, quota: &Quota) -> Range {
        if self.is_astray {
            return Range::ANY;
        }
        if self.is_forgotten(now) {
            return Range::exactly(0);
        }
        if let Some(book) = self.book(terms, quota)
            && !self.is_given
            && !terms.is_given
        {
            return book.counted(now);
        }
        let admitted = self.admitted(now, terms, quota);
        let least = match terms.slides() {
            true => admitted.max(self.kept(now, quota)),
            false => admitted,
        };
        // A counter that was new when a take was charged gives nothing of it back.
        let all = self
            .charges
            .iter()
            .map(|charge| i128::from(charge.entry.cost));
        let most = match self.is_given || terms.is_given {
            true => u64::MAX,
            false => units(all.sum()).max(least),
        };
        Range { least, most }
    }

    /// The same of a quota that has been in use all the time, if it was exactly known what was given
    /// back.
    ///
    /// # Panics
    ///
    /// If it was not in use all the time.
    pub fn exactly_counted(&self, now: u64, terms: &Terms, quota: &Quota) -> Range {
        let mut book = self.book(terms, quota).expect("it is in use");
        book.is_blurred = false;
        book.counted(now)
    }

    /// Notes what was given back, whether or not it should have been.
    pub fn give_back(&mut self, now: u64, number: usize, back: u64) {
        if let Some(index) = number.checked_sub(self.first) {
            self.charges[index].entry.back += back;
            let books = self.books.iter_mut();
            books.for_each(|book| book.give_back(now, number, back));
        }
    }

    /// Whether all that is known of this quota is exact.
    pub fn is_known(&self, now: u64, terms: &Terms) -> bool {
        let has_book = |quota| self.book(terms, quota).is_some();
        let is_known = terms.own.iter().all(has_book) && !self.is_given;
        !self.is_astray && (self.is_forgotten(now) || is_known)
    }

    fn book(&self, terms: &Terms, quota: &Quota) -> Option<Book> {
        let mut books = self.books.iter();
        if let Some(book) = books.find(|book| book.serves(terms.way, quota)) {
            return Some(book.clone());
        }
        let is_log = terms.way.algorithm == Algorithm::SlidingLog;
        (is_log && window(quota) <= self.horizon).then(|| {
            let mut book = Book::new(terms.way, *quota, self.first);
            book.entries = self.charges.iter().map(|charge| charge.entry).collect();
            book.is_blurred = self.refunds > 32;
            book
        })
    }

    /// Units that were admitted while this quota was in use, and have to count for it.
    fn admitted(&self, now: u64, terms: &Terms, quota: &Quota) -> u64 {
        let is_bucket = terms.way.algorithm == Algorithm::Gcra;
        let mut given = self.charges.iter().map(|charge| charge.is_given);
        let is_mixed = is_bucket && self.is_given && !given.all(|it| it && terms.is_given);
        if terms.way.algorithm == Algorithm::FixedWindow || is_mixed {
            return 0;
        }
        let mut book = Book::new(terms.way, *quota, 0);
        // Where takes slide, a window goes on with another max.
        let is_in_use = |charge: &&Charge| match terms.slides() {
            true => charge.in_use().any(|it| window(it) == window(quota)),
            false => charge.counted.contains(quota),
        };
        let charges = self.charges.iter().filter(is_in_use);
        // What one plan owes may be forgotten once others are charged.
        let entries = charges.map(|charge| Entry {
            is_owed: false,
            ..charge.entry
        });
        book.entries = entries.collect();
        match terms.slides() {
            true => book.inside(now),
            false => book.counted(now).least,
        }
    }

    /// Units inside of the window that have to count for any quota of this window, whether or not a
    /// rule had it before: those that have been inside of a window in use ever since. A window is
    /// in use until it has passed once since it was charged last.
    fn kept(&self, now: u64, quota: &Quota) -> u64 {
        let has_left = |stamp: u64, window, now| stamp.saturating_add(window) <= now;
        // What was given back may be as if it had never been charged.
        let is_in_use = |stamp, charges: &[Charge], now| {
            let charges = charges.iter().filter(|charge| charge.entry.net() > 0);
            let mut lives = charges.map(|charge| (charge.entry.stamp, charge.life()));
            lives.any(|(at, life)| !has_left(at, life, now) && !has_left(stamp, life, now))
        };
        let charges = &self.charges;
        let is_kept = |at: &usize| {
            let stamp = charges[*at].entry.stamp;
            !has_left(stamp, window(quota), now)
                && is_in_use(stamp, charges, now)
                && (at + 1..charges.len())
                    .all(|at| is_in_use(stamp, &charges[..at], charges[at].entry.stamp))
        };
        let kept = (0..charges.len()).filter(is_kept);
        units(kept.map(|at| charges[at].entry.net()).sum())
    }

    /// Whether nothing of it can count any more.
    pub fn is_forgotten(&self, now: u64) -> bool {
        let last = self.charges.last();
        !self.is_astray && last.is_none_or(|last| last.entry.stamp.saturating_add(self.span) <= now)
    }

    /// Until when something may count at most.
    pub fn forgotten_at(&self) -> u64 {
        let last = self.charges.last();
        last.map_or(0, |last| last.entry.stamp.saturating_add(self.span))
    }

    /// Whether the rule that asks is another than the one that was charged last.
    pub fn was_changed(&self, terms: &Terms) -> bool {
        let last = self.charges.last();
        let mut charges = self.charges.iter();
        let is_bucket = terms.way.algorithm == Algorithm::Gcra;
        let owes = is_bucket && charges.any(|charge| charge.entry.is_owed);
        if terms.counted.len() > terms.own.len() && (owes || self.has_stepped) {
            return true;
        }
        last.is_some_and(|last| last.counted != terms.counted || last.way != terms.way)
            || self.is_given
            || terms.is_given
    }

    /// Whether nobody knows for how long something counts: code gave the quotas under which it was
    /// charged, or the clock went back.
    pub const fn is_vague(&self) -> bool {
        self.is_given || self.has_stepped
    }

    /// Whether a take of this instant would move the stamp of an earlier one.
    pub fn would_share(&self, now: u64) -> bool {
        self.books.iter().any(|book| book.would_share(now))
    }

    /// What a take has to be answered: the verdict, before it is charged.
    pub fn check_verdict(
        &self,
        now: u64,
        terms: &Terms,
        cost: u64,
        decision: &Decision,
    ) -> Result<(), Broken> {
        let ranges = terms
            .own
            .iter()
            .map(|quota| self.counted(now, terms, quota));
        let counted: Vec<_> = ranges.zip(terms.limits()).collect();
        // Not even what costs nothing passes a quota of no units.
        let never = counted.iter().any(|(_, limit)| cost.max(1) > *limit);
        // As few as may count, and as many.
        let fits = |units: fn(&Range) -> u64| {
            let mut counted = counted.iter();
            counted.all(|(range, limit)| units(range).saturating_add(cost) <= *limit)
        };
        match decision.verdict() {
            Verdict::Allowed => {
                ensure!(!never, "allowed by a quota of no units");
                ensure!(fits(|range| range.least), "one unit too many, {counted:?}");
            }
            Verdict::Denied { .. } => {
                ensure!(!never, "there is no use in waiting");
                let has_reason = !fits(|range| range.most);
                ensure!(has_reason, "denied without a reason, {counted:?}");
            }
            Verdict::Never => ensure!(never, "there is use in waiting"),
            other => return Err(format!("no law for {other:?}")),
        }
        let receipt = decision.receipt();
        let is_told = receipt.is_some() == decision.is_allowed();
        ensure!(is_told, "{receipt:?} of {decision:?}");
        let charged = receipt.map_or(0, |receipt| receipt.units());
        let expected = if decision.is_allowed() { cost } else { 0 };
        ensure!(charged == expected, "charged {charged}");
        let told = decision.quotas().len();
        ensure!(told == terms.own.len(), "{told} quotas are told");
        Ok(())
    }

    /// What remains, after it was charged.
    pub fn check_remaining(
        &self,
        now: u64,
        terms: &Terms,
        decision: &Decision,
    ) -> Result<(), Broken> {
        for ((quota, limit), state) in terms.own.iter().zip(terms.limits()).zip(decision.quotas()) {
            // Of buckets of which code gives the quotas only what is admitted is promised.
            let is_vague = terms.is_given && terms.way.algorithm == Algorithm::Gcra;
            let left = match is_vague {
                true => Range::ANY,
                false => self.counted(now, terms, quota).left_of(limit),
            };
            let remaining = state.remaining();
            ensure!(
                left.contains(remaining),
                "{remaining} remain of {quota:?}, not {left:?}"
            );
            let whole = i128::from(now) + state.reset_after().as_micros() as i128;
            let last = self.charges.last().map_or(0, |last| last.entry.stamp);
            let span = span_of_memory(terms.way, quota);
            let latest = last.saturating_add(span);
            let latest = i128::from(latest.max(self.forgotten_at()).max(now));
            let is_held_too_long = !self.is_astray && limit > 0 && whole > latest;
            ensure!(
                !is_held_too_long,
                "{quota:?} is held until {whole}, not {latest}"
            );
        }
        Ok(())
    }

    /// Something was charged. Returns its number.
    pub fn admit(&mut self, now: u64, terms: &Terms, units: u64, is_owed: bool) -> usize {
        if self.is_forgotten(now) {
            self.first += self.charges.len();
            let (first, was_reset) = (self.first, self.was_reset);
            let has_stepped = self.has_stepped;
            *self = Self {
                first,
                was_reset,
                has_stepped,
                horizon: u64::MAX,
                ..Self::default()
            };
            for quota in terms.in_use() {
                let is_new = !self.books.iter().any(|it| it.serves(terms.way, quota));
                if is_new {
                    self.books.push(Book::new(terms.way, *quota, first));
                }
            }
        }
        let is_in_use = |book: &Book| {
            let is_used = terms.in_use().any(|quota| book.serves(terms.way, quota));
            // What one plan owes may be forgotten once others are charged.
            let is_own = terms.own.iter().any(|quota| book.serves(terms.way, quota));
            is_used && (is_own && is_owed || !book.is_in_debt(now))
        };
        let charge = Charge {
            entry: Entry {
                stamp: now,
                cost: units,
                back: 0,
                is_owed,
            },
            counted: Rc::clone(&terms.counted),
            way: terms.way,
            is_given: terms.is_given,
        };
        self.is_given |= terms.is_given;
        if self.is_astray {
            self.charges.push(charge);
            return self.first + self.charges.len() - 1;
        }
        let windows = terms.in_use().map(window);
        self.horizon = self.horizon.min(windows.max().unwrap_or(0));
        // A bucket above what it holds flows over, too, with all that is charged to it.
        let flows_over = self
            .books
            .iter()
            .any(|book| !is_in_use(book) && book.is_in_debt(now));
        self.books.retain(is_in_use);
        for book in &mut self.books {
            // Of what is owed, only the quotas that limit hold all.
            let is_own = terms.own.iter().any(|quota| book.serves(terms.way, quota));
            let is_owed = is_owed && is_own;
            book.admit(Entry {
                is_owed,
                ..charge.entry
            });
        }
        let is_blurred = flows_over || self.books.iter().any(|book| book.is_blurred);
        self.books
            .iter_mut()
            .for_each(|it| it.is_blurred |= is_blurred);
        let spans = terms.counted.iter();
        let spans = spans.map(|quota| span_of_memory(terms.way, quota).max(window(quota)));
        // A bucket that counts for all that code gives drains for up to twice as long.
        let is_doubled = self.is_given && terms.way.algorithm == Algorithm::Gcra;
        let times = if is_doubled { 2 } else { 1 };
        let span = times * spans.max().unwrap_or(0);
        self.span = self.span.max(span);
        if is_owed && terms.way.algorithm == Algorithm::Gcra {
            // What is owed drains after what fits.
            self.span = self
                .span
                .max(span + u64::try_from(2 * TEN_YEARS).expect("it fits"));
        }
        self.charges.push(charge);
        self.first + self.charges.len() - 1
    }

    /// Units of a take were given back.
    pub fn check_refund(
        &mut self,
        now: u64,
        number: usize,
        (units, back): (u64, u64),
    ) -> Result<(), Broken> {
        let Some(index) = number.checked_sub(self.first) else {
            return self.check_old_refund(now, back);
        };
        let entry = self.charges[index].entry;
        let units = units.min(entry.cost);
        ensure!(back <= units, "more than was charged");
        if self.is_astray {
            return Ok(());
        }
        // Takes of the very instant of a reset are not told from those before.
        if self.was_reset.is_some_and(|at| entry.stamp <= at) {
            ensure!(back == 0, "{back} given back of what was reset");
            return Ok(());
        }
        self.refunds += 1;
        let places = match self.books.first().map(|book| book.way.algorithm) {
            Some(Algorithm::Gcra) => 4,
            Some(Algorithm::SlidingLog) => 32,
            _ => usize::MAX,
        };
        let is_many = self.refunds > places;
        self.books
            .iter_mut()
            .for_each(|it| it.is_blurred |= is_many);
        let counted = self.books.iter();
        let counted: Vec<_> = counted.map(|book| book.counted_of(now, number)).collect();
        let all_known = self.books.len() == self.counters();
        // A counter of a bucket that is new to a key knows of no take before, and lets the others
        // know no more.
        let last = self.charges.last().expect("at least this one");
        let is_bucket = last.way.algorithm == Algorithm::Gcra;
        // Nothing holds more than 2^51.
        let mut costs = self.charges.iter().map(|it| it.entry.cost);
        let is_beyond = costs.try_fold(1 << 51, u64::checked_sub).is_none();
        let is_vague = self.is_given || is_bucket && !all_known || is_beyond;
        let least = counted.iter().map(|it| it.least).max().unwrap_or(0);
        let least = if is_vague { 0 } else { least.min(units) };
        ensure!(back >= least, "{back} given back, but {least} count");
        let most = counted.iter().map(|it| it.most).max();
        if let Some(most) = most.filter(|_| all_known && !self.is_given) {
            ensure!(back <= most, "{back} given back, but {most} count");
        }
        self.give_back(now, number, back);
        Ok(())
    }

    /// How many counters all that is charged has had.
    fn counters(&self) -> usize {
        let mut all: Vec<Book> = Vec::new();
        for charge in &self.charges {
            for quota in &*charge.counted {
                if !all.iter().any(|book| book.serves(charge.way, quota)) {
                    all.push(Book::new(charge.way, *quota, 0));
                }
            }
        }
        all.len()
    }

    /// What is forgotten is not given back. (A log tells takes of one millisecond apart only while
    /// it lives.)
    fn check_old_refund(&mut self, now: u64, back: u64) -> Result<(), Broken> {
        let begun = self.charges.first().map_or(now, |it| it.entry.stamp);
        let is_same = self.was_reset.is_none() && begun / 1_000 == now / 1_000;
        ensure!(
            back == 0 || is_same || self.has_stepped,
            "{back} given back of what is forgotten"
        );
        // Its stamp says that it is later than a reset: it may be given back to others.
        self.is_astray |= back > 0;
        Ok(())
    }

    /// So many of these units were charged as owed. Returns whether any limit is exceeded by them.
    pub fn check_owed(
        &mut self,
        now: u64,
        terms: &Terms,
        (asked, at_most): (u64, Option<u64>),
        charged: u64,
    ) -> Result<(), Broken> {
        let most = |quota: &Quota, limit: u64| {
            let owed = u128::from(at_most.unwrap_or(quota.max()).min(Quota::MAX_UNITS));
            let drains = TEN_YEARS * u128::from(quota.max()) / u128::from(window(quota));
            let owed = match terms.way.algorithm {
                Algorithm::Gcra => owed.min(drains),
                _ => owed,
            };
            if limit == 0 {
                0
            } else {
                u128::from(limit) + owed
            }
        };
        let (mut least, mut best) = (asked, asked);
        for (quota, limit) in terms.own.iter().zip(terms.limits()) {
            let range = self.counted(now, terms, quota);
            let room = |used: u64| {
                let room = most(quota, limit).saturating_sub(u128::from(used));
                u64::try_from(room).unwrap_or(u64::MAX)
            };
            (least, best) = (least.min(room(range.most)), best.min(room(range.least)));
        }
        ensure!(
            (least..=best).contains(&charged),
            "{charged} of {asked} charged, expected {least} to {best}"
        );
        if charged > 0 {
            self.admit(now, terms, charged, true);
        }
        Ok(())
    }

    /// All that was charged until now is forgotten.
    pub fn reset(&mut self, now: u64) {
        *self = Self {
            first: self.first + self.charges.len(),
            was_reset: Some(now),
            has_stepped: self.has_stepped,
            ..Self::default()
        };
    }

    /// The clock did not go on as time does.
    pub fn clock_steps(&mut self) {
        (self.is_astray, self.has_stepped) = (true, true);
    }
}

/// The window in microseconds.
pub fn window(quota: &Quota) -> u64 {
    u64::try_from(quota.window().as_micros()).expect("at most ten years")
}

/// What fits at once.
pub fn limit(way: Way, quota: &Quota) -> u64 {
    match way.algorithm {
        // Nothing drains, and so nothing fits.
        Algorithm::Gcra if quota.max() == 0 => 0,
        Algorithm::Gcra => quota.burst(),
        _ => quota.max(),
    }
}

/// After how long, at most, nothing of what was charged counts: a window, or until the fullest
/// bucket is empty.
pub fn span_of_memory(way: Way, quota: &Quota) -> u64 {
    let window = window(quota);
    match way.algorithm {
        Algorithm::SlidingLog => window + 999,
        Algorithm::SlidingWindow => window + window / u64::from(way.sub_windows),
        Algorithm::Gcra => {
            let capacity = i128::from(quota.max().max(quota.burst()));
            let drained = capacity * i128::from(window);
            units(div_ceil(drained, i128::from(quota.max().max(1))))
        }
        _ => window,
    }
}

fn div_ceil(number: i128, by: i128) -> i128 {
    (number + by - 1) / by
}

fn units(number: i128) -> u64 {
    u64::try_from(number).expect("no less than nothing, and no more than was charged")
}
