//! What should be: all that was admitted under a key, looked at by brute force.
//!
//! Nothing here knows how the crate counts. It is a list of stamps, costs, refunds and quotas, and
//! sums over it; instants are microseconds, and sums are wide enough for whatever fits into a
//! quota. Where rules change, laws promise bounds, so an expectation is a range.

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

/// A take that was admitted, as one window sees it.
#[derive(Debug, Clone, Copy)]
struct Entry {
    number: usize,
    stamp: u64,
    cost: u64,
    back: u64,
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

/// All that was charged under one window, in the order in which it was. Clocks do not go back here.
#[derive(Debug, Clone)]
struct Book {
    algorithm: Algorithm,
    window: u64,
    /// The fewest sub-windows that it has had, and its last number of them.
    sub_windows: [u16; 2],
    entries: Vec<Entry>,
    /// From which instants on its bucket drains by how much in a window.
    paces: Vec<(u64, u64)>,
    /// When the fixed window began, if one did.
    start: Option<u64>,
    /// It is not exactly known any more what was given back.
    is_blurred: bool,
    /// Of charges before this one, and its instant, nothing is given back, or perhaps nothing if
    /// they are of that instant.
    mixed_until: (usize, u64),
}

/// In units times the window: how full a bucket is at least and at most.
type Levels = [i128; 2];

impl Book {
    const fn new(way: Way, window: u64) -> Self {
        Self {
            algorithm: way.algorithm,
            window,
            sub_windows: [way.sub_windows; 2],
            entries: Vec::new(),
            paces: Vec::new(),
            start: None,
            is_blurred: false,
            mixed_until: (0, 0),
        }
    }

    fn scale(&self) -> i128 {
        i128::from(self.window)
    }

    fn admit(&mut self, entry: Entry, way: Way, quota: &Quota) {
        if self.running(entry.stamp).is_none() {
            self.start = Some(entry.stamp);
        }
        let pace = quota.max();
        if self.paces.last().is_none_or(|(_, last)| *last != pace) {
            self.paces.push((entry.stamp, pace));
        }
        if way.algorithm == Algorithm::SlidingWindow && self.sub_windows[1] != way.sub_windows {
            self.mixed_until = (entry.number, entry.stamp);
            self.sub_windows = [self.sub_windows[0].min(way.sub_windows), way.sub_windows];
        }
        self.entries.push(entry);
    }

    fn at(&self, number: usize) -> Option<usize> {
        self.entries.iter().position(|entry| entry.number == number)
    }

    /// So many units of a take were given back, of which this window takes what it still counts.
    fn give_back(&mut self, now: u64, number: usize, units: u64) {
        let Some(at) = self.at(number) else {
            return;
        };
        let [least, most] = {
            let counted = self.counted_of(now, number);
            [counted.least, counted.most].map(|it| units.min(it))
        };
        // What a change of the max has rounded up may have been given back, or not.
        self.is_blurred |= self.algorithm == Algorithm::Gcra && least < most;
        self.entries[at].back += most;
        // A window in which nothing was admitted has not begun.
        let running = self.running(now);
        if running.is_some_and(|start| self.since(start) == 0) {
            self.start = None;
        }
    }

    /// How many units count now.
    fn counted(&self, now: u64) -> Range {
        match self.algorithm {
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
                let up = |level: i128| units(div_ceil(level, self.scale()));
                Range {
                    least: up(self.levels(now, true)[0]),
                    most: up(self.levels(now, !self.is_blurred)[1]),
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
        let Some(at) = self.at(number) else {
            return Range::exactly(0);
        };
        let entry = &self.entries[at];
        let net = units(entry.net());
        let if_counted = |counts: bool| if counts { net } else { 0 };
        let range = match self.algorithm {
            Algorithm::SlidingLog | Algorithm::SlidingWindow => Range {
                least: if_counted(entry.is_inside(now, self.window)),
                most: if_counted(self.last_shared(entry).is_inside(now, self.window)),
            },
            Algorithm::Gcra => {
                // First in, first out. A unit that has drained by a part does not count.
                let after: i128 = self.entries[at + 1..].iter().map(Entry::net).sum();
                let levels = self.levels(now, true);
                let [least, most] =
                    levels.map(|level| units((level / self.scale() - after).clamp(0, entry.net())));
                Range { least, most }
            }
            Algorithm::FixedWindow => Range::exactly(if_counted(
                self.running(now).is_some_and(|start| entry.stamp >= start),
            )),
            other => panic!("no law for {other:?}"),
        };
        let (until, since) = self.mixed_until;
        match self.is_blurred || number < until {
            true if number < until && entry.stamp < since => Range::exactly(0),
            true => Range {
                least: 0,
                most: net,
            },
            false => range,
        }
    }

    /// Units stamped inside of `(now - window, now]`.
    fn inside(&self, now: u64) -> u64 {
        let inside = |entry: &&Entry| entry.is_inside(now, self.window);
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }

    /// The same, but takes that share a place count as of the last of them.
    fn inside_as_shared(&self, now: u64) -> u64 {
        let inside = |entry: &&Entry| self.last_shared(entry).is_inside(now, self.window);
        units(self.entries.iter().filter(inside).map(Entry::net).sum())
    }

    /// The last take that may share a place with this one.
    fn last_shared(&self, first: &Entry) -> Entry {
        let shares = |last: &&Entry| self.may_share(first.stamp, last.stamp);
        let shared = self.entries.iter().filter(shares);
        let last = *shared.max_by_key(|entry| entry.stamp).unwrap_or(first);
        // Sub-windows of another length may move what was moved before.
        let is_mixed = self.sub_windows[0] != self.sub_windows[1] || self.mixed_until.0 > 0;
        match is_mixed && last.stamp > first.stamp {
            true => self.last_shared(&last),
            false => last,
        }
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
        match self.algorithm {
            Algorithm::SlidingLog => first / 1_000 == last / 1_000,
            // Less than a sub-window apart.
            Algorithm::SlidingWindow => {
                let sub_windows = u128::from(self.sub_windows[0]);
                first <= last && apart * sub_windows < u128::from(self.window)
            }
            _ => false,
        }
    }

    /// GCRA: how full the bucket is, exactly and with what each change of its max may have rounded
    /// up: a microsecond of its time under the new one.
    fn levels(&self, now: u64, with_refunds: bool) -> Levels {
        let (mut levels, mut at, mut paces) = ([0, 0], 0, self.paces.iter().peekable());
        let mut pace = 0;
        let drain = |levels: &mut Levels, micros: u64, pace: u64| {
            let drained = i128::from(micros) * i128::from(pace);
            levels.iter_mut().for_each(|it| *it = 0.max(*it - drained));
        };
        for entry in &self.entries {
            drain(&mut levels, entry.stamp - at, pace);
            at = entry.stamp;
            if let Some((_, next)) = paces.next_if(|(from, _)| *from <= at) {
                pace = *next;
                // No bucket became busy before the clock began.
                let is_early = u128::from(at) <= u128::from(self.window);
                if levels[1] > 0 {
                    levels[1] += if is_early { self.scale() } else { pace.into() };
                }
            }
            let units = match with_refunds {
                true => entry.net(),
                false => entry.cost.into(),
            };
            levels.iter_mut().for_each(|it| *it += units * self.scale());
        }
        drain(&mut levels, now - at, pace);
        levels
    }

    /// The start of the fixed window that runs.
    fn running(&self, now: u64) -> Option<u64> {
        let runs = |start: &u64| i128::from(*start) + i128::from(self.window) > i128::from(now);
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
    pub own: Vec<Quota>,
}

impl Terms {
    pub fn limits(&self) -> impl Iterator<Item = u64> {
        self.own.iter().map(|quota| limit(self.way, quota))
    }

    fn is_log(&self) -> bool {
        self.way.algorithm == Algorithm::SlidingLog
    }
}

/// A charge, with the windows that were charged.
#[derive(Debug, Clone)]
struct Charge {
    entry: Entry,
    windows: Vec<u64>,
    terms: Terms,
}

impl Charge {
    /// How long a window is in use after it.
    fn life(&self) -> u64 {
        self.windows.iter().copied().max().unwrap_or(0)
    }
}

/// All that was charged to one count, whatever its rule was at the time.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Since nothing counted.
    charges: Vec<Charge>,
    /// How many were forgotten before these.
    first: usize,
    /// One for each window that was charged. A log has none: all look at one list.
    books: Vec<Book>,
    /// Of a log: the longest window that has been in use all the time.
    horizon: u64,
    /// After how long nothing counts any more.
    span: u64,
    refunds: usize,
    was_reset: Option<u64>,
    /// The clock went back: nothing is known until a reset.
    is_astray: bool,
    has_stepped: bool,
}

/// A count has at most so many counters.
const MAX_COUNTERS: usize = 32;

impl Ledger {
    /// How many units count of this quota.
    pub fn counted(&self, now: u64, terms: &Terms, quota: &Quota) -> Range {
        if self.is_astray {
            return Range::ANY;
        }
        if self.is_forgotten(now) {
            return Range::exactly(0);
        }
        if terms.is_log() {
            return self.counted_in_log(now, terms, quota);
        }
        let mut books = self.books.iter();
        let book = books.find(|book| book.window == window(quota));
        let range = book.map_or(Range::exactly(0), |book| book.counted(now));
        match self.books.len() > MAX_COUNTERS {
            true => Range { least: 0, ..range },
            false => range,
        }
    }

    fn counted_in_log(&self, now: u64, terms: &Terms, quota: &Quota) -> Range {
        let book = self.log(terms, quota);
        if window(quota) <= self.horizon {
            return book.counted(now);
        }
        let charges = self.charges.iter();
        let all = charges.map(|charge| i128::from(charge.entry.cost)).sum();
        let charges = self.charges.iter();
        let under_it = charges.filter(|charge| charge.windows.contains(&window(quota)));
        let admitted = Book {
            entries: under_it.map(|charge| charge.entry).collect(),
            ..book
        };
        let least = admitted.inside(now).max(self.kept(now, quota));
        let most = units(all).max(least);
        Range { least, most }
    }

    /// All that was charged, as a quota of a log sees it.
    fn log(&self, terms: &Terms, quota: &Quota) -> Book {
        Book {
            entries: self.charges.iter().map(|charge| charge.entry).collect(),
            is_blurred: self.refunds > 32,
            ..Book::new(terms.way, window(quota))
        }
    }

    /// The same of a quota that has been in use all the time, if it was exactly known what was given
    /// back.
    ///
    /// # Panics
    ///
    /// If it was not in use all the time.
    pub fn exactly_counted(&self, now: u64, terms: &Terms, quota: &Quota) -> Range {
        let mut book = match terms.is_log() {
            true => self.log(terms, quota),
            false => {
                let mut books = self.books.iter();
                let book = books.find(|book| book.window == window(quota));
                book.expect("it is in use").clone()
            }
        };
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

    /// Whether all that is known of these quotas is exact.
    pub fn is_known(&self, now: u64, terms: &Terms) -> bool {
        let is_in_use = |quota| !terms.is_log() || window(quota) <= self.horizon;
        let is_known = terms.own.iter().all(is_in_use);
        !self.is_astray && (self.is_forgotten(now) || is_known)
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
        last.is_some_and(|last| last.terms != *terms)
    }

    /// Whether nobody knows for how long something counts: the clock went back.
    pub const fn is_vague(&self) -> bool {
        self.has_stepped
    }

    /// Whether a take of this instant would move the stamp of an earlier one.
    pub fn would_share(&self, now: u64, terms: &Terms) -> bool {
        let log = terms.own.first().map(|quota| self.log(terms, quota));
        let log = log.iter().filter(|_| terms.is_log());
        log.chain(&self.books).any(|book| book.would_share(now))
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
            let left = self.counted(now, terms, quota).left_of(limit);
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
        }
        let number = self.first + self.charges.len();
        let entry = Entry {
            number,
            stamp: now,
            cost: units,
            back: 0,
        };
        self.charges.push(Charge {
            entry,
            windows: terms.own.iter().map(window).collect(),
            terms: terms.clone(),
        });
        if self.is_astray {
            return number;
        }
        let longest = terms.own.iter().map(window).max();
        self.horizon = self.horizon.min(longest.unwrap_or(0));
        for quota in terms.own.iter().filter(|_| !terms.is_log()) {
            let mut books = self.books.iter_mut();
            match books.find(|book| book.window == window(quota)) {
                Some(book) => book.admit(entry, terms.way, quota),
                None => {
                    let mut book = Book::new(terms.way, window(quota));
                    book.admit(entry, terms.way, quota);
                    self.books.push(book);
                }
            }
        }
        let spans = terms.own.iter();
        let spans = spans.map(|quota| span_of_memory(terms.way, quota).max(window(quota)));
        let span = spans.max().unwrap_or(0);
        self.span = self.span.max(span);
        if is_owed && terms.way.algorithm == Algorithm::Gcra {
            // What is owed drains after what fits.
            let more = u64::try_from(2 * TEN_YEARS).expect("it fits");
            self.span = self.span.max(span + more);
        }
        number
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
        let is_bucket = self.charges[index].terms.way.algorithm == Algorithm::Gcra;
        let is_many = is_bucket && self.refunds > 4;
        self.books
            .iter_mut()
            .for_each(|it| it.is_blurred |= is_many);
        let range = match self.charges[index].terms.is_log() {
            true => self.counted_of_log(now, index),
            false => self.counted_of(now, number),
        };
        // All later charges of a bucket's key may be behind it, those of other windows, too.
        let has_others = |charge: &Charge| charge.windows != self.charges[index].windows;
        let is_mixed = is_bucket && self.charges[index + 1..].iter().any(has_others);
        // Nothing holds more than 2^51.
        let mut costs = self.charges.iter().map(|it| it.entry.cost);
        let is_beyond = costs.try_fold(1 << 51, u64::checked_sub).is_none();
        let is_vague = is_mixed || is_beyond || self.books.len() > MAX_COUNTERS;
        let least = if is_vague { 0 } else { range.least.min(units) };
        ensure!(back >= least, "{back} given back, but {least} count");
        let most = range.most;
        ensure!(back <= most, "{back} given back, but {most} count");
        self.give_back(now, number, back);
        if is_vague && self.charges[index].windows.len() > 1 {
            // How many the others have given back is not known.
            let books = self.books.iter_mut();
            let own = books.filter(|book| book.at(number).is_some());
            own.for_each(|book| book.is_blurred = true);
        }
        Ok(())
    }

    /// How many units of a take count now, in the window where most do.
    fn counted_of(&self, now: u64, number: usize) -> Range {
        let ranges = self.books.iter().map(|book| book.counted_of(now, number));
        let most = |one: Range, other: Range| Range {
            least: one.least.max(other.least),
            most: one.most.max(other.most),
        };
        ranges.reduce(most).unwrap_or(Range::exactly(0))
    }

    /// The same of a log, which gives back while the longest window needs it.
    fn counted_of_log(&self, now: u64, index: usize) -> Range {
        let Charge { entry, terms, .. } = &self.charges[index];
        let of = |window: u64| {
            let mut log = self.log(terms, &terms.own[0]);
            log.window = window;
            log.counted_of(now, entry.number)
        };
        let longest = self.charges.iter().map(Charge::life).max();
        Range {
            least: of(self.horizon).least,
            most: of(longest.unwrap_or(0)).most,
        }
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
