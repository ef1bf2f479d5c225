use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::Ask;
use crate::algorithm::share::Share;
use crate::decision::Decision;
use crate::swept_map::SweptMap;
use crate::sync::lock;

/// Until when counts of the calendar have nothing left, as the store inside said last, by their
/// names. A fallback admits nothing of them.
#[derive(Debug, Default)]
pub(super) struct UsedUp(Mutex<SweptMap<String, Instant>>);

/// How many are remembered. Of those beyond, a fallback admits its share.
const MAX_KEYS: usize = 100_000;
const HOUR: Duration = Duration::from_secs(3_600);

impl UsedUp {
    /// Notes what the store inside said.
    pub(super) fn note(&self, ask: &Ask, decision: &Decision) {
        for (count, _) in ask.of_calendar() {
            let Some(state) = ask.state_of(count, decision) else {
                continue;
            };
            let (mut ends, now) = (lock(&self.0), Instant::now());
            let until = now.checked_add(state.reset_after());
            match until.filter(|until| state.remaining() == 0 && *until > now) {
                Some(until) => {
                    ends.sweep(|until| *until > now);
                    let name = count.name("");
                    if ends.len() < MAX_KEYS || ends.contains_key(&name) {
                        ends.insert(name, until);
                    }
                }
                None if ends.is_empty() => {}
                None => {
                    ends.remove(&count.name(""));
                }
            }
        }
    }

    pub(super) fn forget(&self, ask: &Ask) {
        for (count, _) in ask.of_calendar() {
            lock(&self.0).remove(&count.name(""));
        }
    }

    /// The denial of a take by what the store inside said, or since it costs more than the fallback
    /// admits in an hour.
    pub(super) fn denial(&self, ask: &Ask, share: Share) -> Option<Decision> {
        let now = Instant::now();
        let denials = ask.of_calendar().filter_map(|(count, of)| {
            let until = lock(&self.0).get(&count.name("")).copied();
            let left = until.and_then(|until| until.checked_duration_since(now));
            let is_too_much = || count.cost() > of.part(share, of.max());
            let wait = left.filter(|left| !left.is_zero());
            let wait = wait.or_else(|| is_too_much().then_some(HOUR))?;
            Some(ask.denied_by(count, wait))
        });
        denials.max_by_key(Decision::retry_after)
    }
}
