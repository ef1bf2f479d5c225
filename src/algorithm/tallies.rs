use std::fmt;

use smallvec::SmallVec;

use super::carried::{Carried, Exchange};
use super::entries::MODULUS_MASK;
use super::refunds::GivenBack;
use super::ruling::{Ask, rule};
use crate::decision::{Decision, QuotaState, Ruling, Source, Token};
use crate::quota::{MAX_QUOTAS, Quota};

/// The most tallies of earlier quotas that are kept beside those of the rule.
const MOST_EARLIER: usize = 16;

/// No tally holds more units: a rule that charges much may feed the tally of an earlier one.
pub(super) const MOST_UNITS: u64 = 1 << 51;

/// What an algorithm keeps for one quota, in constant memory.
pub(super) trait Tally: fmt::Debug + Clone {
    /// A tally of this quota, with nothing in it.
    fn new(quota: &Quota, sub_windows: u64) -> Self;
    /// The same with so many units as charged at `stamp`.
    fn charged(quota: &Quota, sub_windows: u64, stamp: u64, units: u64) -> Self {
        let mut tally = Self::new(quota, sub_windows);
        tally.charge(stamp, Look::default(), units);
        tally
    }
    /// Whether it can go on as the tally of this quota.
    fn is_of(&self, quota: &Quota, sub_windows: u64) -> bool;
    /// Goes on as the tally of this quota.
    fn goes_on(&mut self, quota: &Quota);
    /// The quota that it was charged under last.
    fn quota(&self) -> &Quota;

    /// The most units that may be used under this quota.
    fn limit(quota: &Quota) -> u64;
    /// How long a charge counts at most, in microseconds.
    fn life(&self) -> u64;
    /// Units that count at `now`.
    fn used(&self, now: u64) -> u64 {
        self.look(now).used
    }
    /// The same with what a charge of this instant needs to know besides.
    fn look(&self, now: u64) -> Look;
    /// Microseconds until so many units fit under the limit, where they do not.
    fn wait(&self, now: u64, limit: u64, cost: u64) -> u64;
    /// From when on nothing of it counts.
    fn over_at(&self) -> u64;
    /// Charges units, whether or not they fit, after a look at this instant.
    fn charge(&mut self, now: u64, look: Look, units: u64);
    /// Gives back up to so many units, and tells how many.
    fn refund(&mut self, now: u64, refund: &TallyRefund) -> u64;
    /// What was charged in the future counts as charged now.
    fn follow_clock_back(&mut self, now: u64, newest: u64);
}

/// How a tally stands at an instant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    /// Units that count.
    pub(super) used: u64,
    /// How many times a bucket has drained by its pace.
    pub(super) paces: u64,
}

/// What a tally has to know of the take that is given back.
pub(super) struct TallyRefund {
    pub(super) stamp: u64,
    pub(super) units: u64,
    /// Units that were charged after it and not given back since.
    pub(super) later: u64,
}

/// The tallies of one key: those of its rule's quotas, and those of earlier quotas for as long as what was
/// charged under them still counts.
///
/// Each take is charged to all of them. So two rules may take turns on one key, as they do during a
/// rolling deployment, and neither refills the other.
#[derive(Debug, Clone)]
pub(super) struct Tallies<T> {
    kept: SmallVec<[Kept<T>; 1]>,
    /// The number of units ever charged: tells takes of one instant apart, and their order.
    serial: u64,
    /// Since when the serial numbers run.
    since: u64,
    /// When something was charged last.
    newest: u64,
}

#[derive(Debug, Clone)]
struct Kept<T> {
    tally: T,
    /// Until when it is needed for what was charged while its quota was the rule's.
    until: u64,
}

impl<T: Tally> Kept<T> {
    fn ends(&self) -> u64 {
        self.tally.over_at().min(self.until)
    }
}

impl<T> Default for Tallies<T> {
    fn default() -> Self {
        Self {
            kept: SmallVec::new(),
            serial: 0,
            since: 0,
            newest: 0,
        }
    }
}

impl<T: Tally> Tallies<T> {
    pub(super) fn take(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u64,
        cost: u64,
    ) -> Decision {
        if let [quota] = quotas
            && let [only] = &mut self.kept[..]
            && only.tally.is_of(quota, sub_windows)
            && self.newest <= now
        {
            let look = only.tally.look(now);
            if look.used == 0 || only.until > now {
                return self.take_from_only(now, quota, cost, look);
            }
        }
        self.take_from_any(now, quotas, sub_windows, cost)
    }

    /// What is asked nearly always, without a list: one quota, and its tally alone.
    fn take_from_only(&mut self, now: u64, quota: &Quota, cost: u64, look: Look) -> Decision {
        let Kept { tally, until } = &mut self.kept[0];
        let mut ask = Ask {
            limit: T::limit(quota),
            used: look.used,
        };
        let ruling = rule(cost, &[ask], |_| tally.wait(now, ask.limit, cost));
        let mut token = None;
        if ruling == Ruling::Allowed && cost > 0 {
            tally.goes_on(quota);
            tally.charge(now, look, cost);
            *until = now.saturating_add(tally.life());
            ask.used += cost;
            if look.used == 0 {
                self.begin_anew(now);
            }
            self.serial = self.serial.wrapping_add(cost) & MODULUS_MASK;
            self.newest = now;
            token = Some(Token::new(now, self.serial, cost));
        }
        let reset = match ask.used {
            0 => 0,
            _ => self.kept[0].tally.over_at().saturating_sub(now),
        };
        let state = QuotaState::from_micros(ask.remaining(), reset);
        Decision::of_one(ruling, Source::Memory, state, token)
    }

    fn take_from_any(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u64,
        cost: u64,
    ) -> Decision {
        let quotas = &quotas[..quotas.len().min(MAX_QUOTAS)];
        self.follow_clock_back(now);
        let known = match self.is_forgotten(now) {
            true => &[][..],
            false => &self.kept[..],
        };

        let mut fresh = SmallVec::<[T; 1]>::new();
        let mut places = [0; MAX_QUOTAS];
        let mut asks = [Ask::default(); MAX_QUOTAS];
        let asks = &mut asks[..quotas.len()];
        for ((place, ask), quota) in places.iter_mut().zip(&mut *asks).zip(quotas) {
            let tallies = known.iter().map(|kept| &kept.tally).chain(&fresh);
            let mut tallies = tallies.enumerate();
            let found = tallies.find(|(_, tally)| tally.is_of(quota, sub_windows));
            ask.limit = T::limit(quota);
            (*place, ask.used) = match found {
                Some((at, tally)) => (at, tally.used(now)),
                None => {
                    let tally = begin(known, now, self.newest, quota, sub_windows);
                    let used = tally.used(now);
                    fresh.push(tally);
                    (known.len() + fresh.len() - 1, used)
                }
            };
        }
        let at = |place: usize| match place.checked_sub(known.len()) {
            None => &known[place].tally,
            Some(place) => &fresh[place],
        };
        let ruling = rule(cost, asks, |ask| {
            at(places[ask]).wait(now, asks[ask].limit, cost)
        });
        if ruling != Ruling::Allowed || cost == 0 {
            let states = states(asks, |ask| at(places[ask]).over_at(), now);
            return Decision::of_many(ruling, Source::Memory, states, None);
        }

        self.charge(now, quotas, &mut places[..quotas.len()], fresh, cost);
        asks.iter_mut().for_each(|ask| ask.used += cost);
        let over_at = |ask: usize| self.kept[places[ask]].tally.over_at();
        let states = states(asks, over_at, now);
        let token = Some(Token::new(now, self.serial, cost));
        Decision::of_many(ruling, Source::Memory, states, token)
    }

    fn charge(
        &mut self,
        now: u64,
        quotas: &[Quota],
        places: &mut [usize],
        fresh: SmallVec<[T; 1]>,
        cost: u64,
    ) {
        if self.is_forgotten(now) {
            self.kept.clear();
            self.begin_anew(now);
        }
        let new = fresh.into_iter().map(|tally| Kept { tally, until: 0 });
        self.kept.extend(new);
        for (place, quota) in places.iter().zip(quotas) {
            let kept = &mut self.kept[*place];
            kept.tally.goes_on(quota);
            kept.until = now.saturating_add(kept.tally.life());
        }
        if self.kept.len() > 1 {
            self.drop_earlier(now, places);
        }
        for Kept { tally, .. } in &mut self.kept {
            tally.charge(now, tally.look(now), cost);
        }
        self.serial = self.serial.wrapping_add(cost) & MODULUS_MASK;
        self.newest = now;
    }

    /// The serial numbers run from zero again, unless something was given back at this very instant: only
    /// its number tells it from what comes.
    fn begin_anew(&mut self, now: u64) {
        self.since = now;
        if self.newest != now {
            self.serial = 0;
        }
    }

    /// Drops those of earlier quotas that are needed no longer; above the most that are kept, also those
    /// that would be soonest.
    fn drop_earlier(&mut self, now: u64, places: &mut [usize]) {
        let is_earlier = |at: &usize| !places.contains(at);
        let mut earlier: Vec<_> = (0..self.kept.len()).filter(is_earlier).collect();
        earlier.sort_by_key(|at| {
            let kept = &self.kept[*at];
            let quota = kept.tally.quota();
            std::cmp::Reverse((kept.ends(), quota.window_micros(), quota.max()))
        });
        let needed = |at: &&usize| self.kept[**at].ends() > now;
        let kept = earlier.iter().take(MOST_EARLIER).take_while(needed).count();
        let mut dropped = earlier.split_off(kept);
        dropped.sort_unstable();
        for at in dropped.into_iter().rev() {
            self.kept.remove(at);
            let behind = places.iter_mut().filter(|place| **place > at);
            behind.for_each(|place| *place -= 1);
        }
    }

    fn is_forgotten(&self, now: u64) -> bool {
        self.kept.iter().all(|kept| kept.ends() <= now)
    }

    fn follow_clock_back(&mut self, now: u64) {
        if now < self.newest {
            for kept in &mut self.kept {
                kept.tally.follow_clock_back(now, self.newest);
                kept.until = kept.until.min(now.saturating_add(kept.tally.life()));
            }
            self.newest = now;
        }
    }
}

/// A tally for a quota that has none: whatever counts under another one counts here, too.
fn begin<T: Tally>(known: &[Kept<T>], now: u64, newest: u64, quota: &Quota, sub_windows: u64) -> T {
    let live = || known.iter().filter(|kept| kept.ends() > now);
    let same_window = |kept: &&Kept<T>| kept.tally.quota().window_micros() == quota.window_micros();
    let used = |kept: &Kept<T>| kept.tally.used(now);
    let of_same_window = live().filter(same_window).map(used).max();
    match of_same_window.or_else(|| live().map(used).max()) {
        None | Some(0) => T::new(quota, sub_windows),
        Some(used) => T::charged(quota, sub_windows, newest, used),
    }
}

fn states(
    asks: &[Ask],
    over_at: impl Fn(usize) -> u64,
    now: u64,
) -> impl ExactSizeIterator<Item = QuotaState> {
    asks.iter().enumerate().map(move |(at, ask)| {
        let reset = match ask.used {
            0 => 0,
            _ => over_at(at).saturating_sub(now),
        };
        QuotaState::from_micros(ask.remaining(), reset)
    })
}

impl<T: Tally> Exchange for Tallies<T> {
    fn newest(&self) -> u64 {
        self.newest
    }

    fn longest_life(&self) -> u64 {
        let lives = self.kept.iter().map(|kept| kept.tally.life());
        lives.max().unwrap_or(0)
    }

    fn hand_over(&self, now: u64) -> Carried {
        let mut tallies = self.clone();
        tallies.follow_clock_back(now);
        let live = tallies.kept.iter().filter(|kept| kept.ends() > now);
        let used = |kept: &Kept<T>| (*kept.tally.quota(), kept.tally.used(now));
        Carried {
            newest: tallies.newest,
            serial: tallies.serial,
            quotas: live.map(used).filter(|(_, used)| *used > 0).collect(),
        }
    }

    fn take_over(mut carried: Carried, sub_windows: u64) -> Self {
        let newest = carried.newest;
        // The fullest first: of several that go on as one tally it is what counts.
        let order = |(quota, used): &(Quota, u64)| (*used, quota.max(), quota.burst());
        carried
            .quotas
            .sort_by_key(|carried| std::cmp::Reverse(order(carried)));
        let mut kept = SmallVec::<[Kept<T>; 1]>::new();
        for (quota, used) in &carried.quotas {
            if !kept.iter().any(|kept| kept.tally.is_of(quota, sub_windows)) {
                let tally = T::charged(quota, sub_windows, newest, *used);
                let until = newest.saturating_add(tally.life());
                kept.push(Kept { tally, until });
            }
        }
        Self {
            kept,
            serial: carried.serial,
            since: newest,
            newest,
        }
    }

    /// Not before the instant of the last charge is over, whatever was given back of it: the next one of
    /// that instant needs another number.
    fn forgotten_at(&self) -> u64 {
        let ends = self.kept.iter().map(Kept::ends).max();
        ends.map_or(0, |ends| ends.max(self.newest + 1))
    }

    fn refund(&mut self, now: u64, token: &Token, units: u64, given_back: &GivenBack<'_>) -> u64 {
        if self.newest > now || self.is_forgotten(now) || token.stamp() < self.since {
            return 0;
        }
        let charged_since = |serial: u64| self.serial.wrapping_sub(serial) & MODULUS_MASK;
        let later = charged_since(token.serial());
        let refund = TallyRefund {
            stamp: token.stamp(),
            units,
            later: later.saturating_sub(given_back(&|serial| charged_since(serial) < later)),
        };
        let tallies = self.kept.iter_mut().map(|kept| &mut kept.tally);
        let refunds = tallies.map(|tally| tally.refund(now, &refund));
        refunds.max().unwrap_or(0)
    }
}
