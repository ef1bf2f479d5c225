use std::sync::Mutex;

use tokio::time::Instant;

use super::MemoryStore;
use crate::algorithm::calendar::Calendar;
use crate::algorithm::share::Share;
use crate::decision::Decision;
use crate::question::{Ask, CountAsk};
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// Remembers how much of a period is used, as the store inside said last: of each count of the
/// calendar of which less than a fallback's share is left, by its name.
#[derive(Debug, Default)]
pub(super) struct Remainders(Mutex<SweptMap<String, Remainder>>);

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

impl Remainders {
    /// Notes what the store inside said.
    pub(super) fn note(&self, ask: &Ask, decision: &Decision, share: Share, here: &MemoryStore) {
        for (count, of) in ask.of_calendar() {
            let Some(state) = ask.state_of(count, decision) else {
                continue;
            };
            let (mut known, now) = (lock(&self.0), Instant::now());
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

    pub(super) fn forget(&self, ask: &Ask) {
        for (count, _) in ask.of_calendar() {
            lock(&self.0).remove(&count.name(""));
        }
    }

    /// How much of a share of a count is used inside: the share without what is left there.
    pub(super) fn used_elsewhere(&self, count: &CountAsk, share: &Calendar) -> u64 {
        let known = lock(&self.0);
        let remainder = known.get(&count.name(""));
        let remainder = remainder.filter(|it| it.until > Instant::now());
        let max = count.spec().calendar().map_or(0, Calendar::max);
        let left = |it: &Remainder| max.saturating_sub(it.used_inside) + it.used_here;
        remainder.map_or(0, |it| share.max().saturating_sub(left(it)))
    }
}
