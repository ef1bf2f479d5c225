use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::MemoryStore;
use crate::algorithm::calendar::Calendar;
use crate::algorithm::share::Share;
use crate::decision::Decision;
use crate::question::{Ask, CountAsk};
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// Remembers what the store inside said last, by the names of counts.
#[derive(Debug, Default)]
pub(super) struct Remainders {
    /// How much of a period is used: of each count of the calendar of which less than a fallback's
    /// share is left.
    periods: Mutex<SweptMap<String, Remainder>>,
    /// Until when a key is locked out.
    holds: Mutex<SweptMap<String, Instant>>,
    /// How many of them there are: while there is none, an admitted take waits for no lock.
    number_of_holds: AtomicUsize,
}

#[derive(Debug)]
struct Remainder {
    used_inside: u64,
    /// What the fallback had admitted by then: the store inside does not know of that.
    used_here: u64,
    /// The end of the period.
    until: Instant,
}

/// How many are remembered. Of those beyond, a fallback admits its share.
const MAX_KEYS: usize = 100_000;
/// How many holds are remembered. Beyond that, the one that ends first is forgotten.
const MAX_HOLDS: usize = 10_000;

impl Remainders {
    /// Notes what the store inside said.
    pub(super) fn note(&self, ask: &Ask, decision: &Decision, share: Share, here: &MemoryStore) {
        if decision.is_locked_out() {
            self.hold(ask, decision.retry_after());
        } else if decision.is_allowed() && self.number_of_holds.load(Ordering::Relaxed) > 0 {
            self.hold(ask, None);
        }
        for (count, of) in ask.of_calendar() {
            let Some(state) = ask.state_of(count, decision) else {
                continue;
            };
            let (mut known, now) = (lock(&self.periods), Instant::now());
            let until = now.checked_add(state.reset_after());
            let is_less = state.remaining() < share.at_least_one_of(of.max());
            match until.filter(|until| is_less && *until > now) {
                Some(until) => {
                    known.sweep(|it| it.until > now);
                    let name = count.name("");
                    if known.len() < MAX_KEYS || known.contains_key(&name) {
                        let remainder = Remainder {
                            used_inside: of.max().saturating_sub(state.remaining()),
                            used_here: here.used_in_period(ask, count),
                            until,
                        };
                        known.insert(name, remainder);
                    }
                }
                None if known.is_empty() => {}
                None => {
                    known.remove(&count.name(""));
                }
            }
        }
    }

    /// Notes that the key is locked out for so long, at most its longest hold; or no more.
    pub(super) fn hold(&self, ask: &Ask, time: Option<Duration>) {
        let Some((count, spec)) = ask.lockout_count().zip(ask.lockout()) else {
            return;
        };
        let longest = spec.holds.iter().copied().map(Duration::from_micros).max();
        let (mut holds, now) = (lock(&self.holds), Instant::now());
        holds.sweep(|end| *end > now);
        match time.min(longest) {
            None => holds.remove(&count.name("")),
            Some(time) => holds.insert(count.name(""), now + time),
        };
        if holds.len() > MAX_HOLDS {
            let first = holds.iter().min_by_key(|it| it.1).map(|it| it.0.clone());
            first.and_then(|name| holds.remove(&name));
        }
        self.number_of_holds.store(holds.len(), Ordering::Relaxed);
    }

    /// For how much longer the key is locked out.
    pub(super) fn held_for(&self, ask: &Ask) -> Option<Duration> {
        let end = *lock(&self.holds).get(&ask.lockout_count()?.name(""))?;
        Some(end.saturating_duration_since(Instant::now())).filter(|it| !it.is_zero())
    }

    pub(super) fn forget(&self, ask: &Ask) {
        self.hold(ask, None);
        for (count, _) in ask.of_calendar() {
            lock(&self.periods).remove(&count.name(""));
        }
    }

    /// How much of a share of a count is used inside: the share without what is left there.
    pub(super) fn used_elsewhere(&self, count: &CountAsk, share: &Calendar) -> u64 {
        let known = lock(&self.periods);
        let remainder = known.get(&count.name(""));
        let remainder = remainder.filter(|it| it.until > Instant::now());
        let max = count.spec().calendar().map_or(0, Calendar::max);
        let left = |it: &Remainder| max.saturating_sub(it.used_inside) + it.used_here;
        remainder.map_or(0, |it| share.max().saturating_sub(left(it)))
    }
}
