mod refund;

use smallvec::SmallVec;

use super::entries::MODULUS_MASK;
use super::ruling::{Ask, ruling};
use super::tally::{Look, Tally};
use crate::decision::{Decision, QuotaState, Receipt, Ruling, Source};
use crate::quota::{MAX_QUOTAS, Quota};

/// The most tallies of earlier quotas that are kept beside those of the rule.
const MAX_EARLIER: usize = 16;

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
    /// When something was charged last.
    newest: u64,
}

#[derive(Debug, Clone)]
struct Kept<T> {
    tally: T,
    /// Until when it is needed for what was charged while its quota was the rule's.
    until: u64,
    /// Takes that were charged before this are not told apart in it, and not given back from it.
    begun: u64,
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
            newest: 0,
        }
    }
}

impl<T: Tally> Tallies<T> {
    pub(super) fn charged_once(now: u64, quota: &Quota, sub_windows: u64, cost: u64) -> Self {
        let tally = T::charged(quota, sub_windows, now, cost);
        let until = now.saturating_add(tally.life());
        Self {
            kept: SmallVec::from_buf([Kept {
                tally,
                until,
                begun: now,
            }]),
            serial: cost & MODULUS_MASK,
            newest: now,
        }
    }

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
            let look = only.tally.look(now, self.newest);
            if look.used == 0 || only.until > now {
                return self.take_from_only(now, quota, cost, look);
            }
        }
        self.take_from_any(now, quotas, sub_windows, cost)
    }

    /// What is asked nearly always, without a list: one quota, and its tally alone.
    fn take_from_only(&mut self, now: u64, quota: &Quota, cost: u64, look: Look) -> Decision {
        let Kept { tally, until, .. } = &mut self.kept[0];
        let mut ask = Ask {
            limit: T::limit(quota),
            used: look.used,
        };
        let ruling = ruling(cost, &[ask], |_| tally.wait(now, ask.limit, cost));
        let mut receipt = None;
        if ruling == Ruling::Allowed && cost > 0 {
            tally.goes_on(quota);
            tally.charge(now, look, cost);
            *until = now.saturating_add(tally.life());
            ask.used += cost;
            if look.used == 0 {
                self.kept[0].begun = self.begin_anew(now);
            }
            self.serial = self.serial.wrapping_add(cost) & MODULUS_MASK;
            self.newest = now;
            receipt = Some(Receipt::new(now, self.serial, cost));
        }
        let state = ask.state(now, || self.kept[0].tally.over_at());
        Decision::of_one(ruling, Source::Local, state, receipt)
    }

    fn take_from_any(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u64,
        cost: u64,
    ) -> Decision {
        let quotas = &quotas[..quotas.len().min(MAX_QUOTAS)];
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
                Some((at, tally)) => (at, tally.used(now, self.newest)),
                None => {
                    let tally = begin(known, now, self.newest, quota, sub_windows);
                    let used = tally.used(now, self.newest);
                    fresh.push(tally);
                    (known.len() + fresh.len() - 1, used)
                }
            };
        }
        let at = |place: usize| match place.checked_sub(known.len()) {
            None => &known[place].tally,
            Some(place) => &fresh[place],
        };
        let ruling = ruling(cost, asks, |ask| {
            at(places[ask]).wait(now, asks[ask].limit, cost)
        });
        if ruling != Ruling::Allowed || cost == 0 {
            let states = states(asks, now, |ask| at(places[ask]).over_at());
            return Decision::of_many(ruling, Source::Local, states, None);
        }
        if now < self.newest {
            // Only a charge may change anything. It is allowed then, too: the same counts.
            self.follow_clock_back(now);
            return self.take_from_any(now, quotas, sub_windows, cost);
        }

        self.charge(now, quotas, &mut places[..quotas.len()], fresh, cost);
        asks.iter_mut().for_each(|ask| ask.used += cost);
        let over_at = |ask: usize| self.kept[places[ask]].tally.over_at();
        let states = states(asks, now, over_at);
        let receipt = Some(Receipt::new(now, self.serial, cost));
        Decision::of_many(ruling, Source::Local, states, receipt)
    }

    fn charge(
        &mut self,
        now: u64,
        quotas: &[Quota],
        places: &mut [usize],
        fresh: SmallVec<[T; 1]>,
        cost: u64,
    ) {
        let begun = match self.is_forgotten(now) {
            false => self.latest_begun().max(now),
            true => {
                let begun = self.begin_anew(now);
                self.kept.clear();
                begun
            }
        };
        let kept = |tally| Kept {
            tally,
            until: 0,
            begun,
        };
        self.kept.extend(fresh.into_iter().map(kept));
        for (place, quota) in places.iter().zip(quotas) {
            let kept = &mut self.kept[*place];
            kept.tally.goes_on(quota);
            kept.until = now.saturating_add(kept.tally.life());
        }
        if self.kept.len() > 1 {
            self.drop_earlier(now, places);
        }
        for Kept { tally, begun, .. } in &mut self.kept {
            let lost = tally.charge(now, tally.look(now, now), cost);
            if lost > 0 {
                *begun = (*begun).max(now.saturating_add(1));
            }
        }
        self.serial = self.serial.wrapping_add(cost) & MODULUS_MASK;
        self.newest = now;
    }

    /// The serial numbers run from zero again, unless a take with such a number may have the same stamp: one of
    /// this very instant, or one from before the clock went back. Tells since when a new tally can say which
    /// take is which.
    fn begin_anew(&mut self, now: u64) -> u64 {
        let begun = self.latest_begun();
        if begun <= now && self.newest != now {
            self.serial = 0;
        }
        begun.max(now)
    }

    fn latest_begun(&self) -> u64 {
        self.kept.iter().map(|kept| kept.begun).max().unwrap_or(0)
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
        let kept = earlier.iter().take(MAX_EARLIER).take_while(needed).count();
        let mut dropped = earlier.split_off(kept);
        dropped.sort_unstable();
        for at in dropped.into_iter().rev() {
            self.kept.remove(at);
            let behind = places.iter_mut().filter(|place| **place > at);
            behind.for_each(|place| *place -= 1);
        }
    }

    fn is_forgotten(&self, now: u64) -> bool {
        let counts = |kept: &Kept<T>| kept.until > now && kept.tally.used(now, self.newest) > 0;
        !self.kept.iter().any(counts)
    }

    /// What was charged in the future counts as charged now.
    fn follow_clock_back(&mut self, now: u64) {
        for kept in &mut self.kept {
            kept.tally.follow_clock_back(now, self.newest);
            kept.until = kept.until.min(now.saturating_add(kept.tally.life()));
            kept.begun = kept.begun.max(self.newest.saturating_add(1));
        }
        self.newest = now;
    }
}

/// A tally for a quota that has none: what counts under any other counts here, too.
fn begin<T: Tally>(known: &[Kept<T>], now: u64, newest: u64, quota: &Quota, sub_windows: u64) -> T {
    let needed = known.iter().filter(|kept| kept.until > now);
    let counts = needed.map(|kept| kept.tally.counts(now, newest)).max();
    match counts {
        None | Some(0) => T::new(quota, sub_windows),
        Some(units) => T::charged(quota, sub_windows, newest, units),
    }
}

/// How each quota stands; `over_at` is asked for the tally at its place.
fn states(
    asks: &[Ask],
    now: u64,
    over_at: impl Fn(usize) -> u64,
) -> impl ExactSizeIterator<Item = QuotaState> {
    let asks = asks.iter().enumerate();
    asks.map(move |(at, ask)| ask.state(now, || over_at(at)))
}
