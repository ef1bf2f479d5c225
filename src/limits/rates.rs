use std::collections::{HashMap, VecDeque};

use crate::metrics::{Rates, Totals};

/// What the busiest rules have counted in each of the last seconds and minutes.
#[derive(Debug, Default)]
pub(crate) struct RateHistory {
    /// The last whole second.
    tick: u64,
    known: HashMap<Box<str>, Known>,
    tracked: Vec<Tracked>,
}

/// How busy a rule is; it is known of each rule.
#[derive(Debug, Default)]
struct Known {
    /// Its requests up to the last second.
    requests: u64,
    /// The same, of which the earlier ones count by half after about 20 seconds.
    busy: u64,
    is_tracked: bool,
}

/// The history of one rule, the latest rates last.
#[derive(Debug)]
struct Tracked {
    path: Box<str>,
    /// What was counted up to the last second, and up to the last minute.
    before: Totals,
    before_minute: Totals,
    seconds: VecDeque<Rates>,
    minutes: VecDeque<Rates>,
}

/// The spans of which rates are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Second,
    Minute,
}

impl Step {
    pub(crate) const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
        }
    }

    /// How many are kept.
    pub(crate) const fn most(self) -> usize {
        match self {
            Self::Second => 300,
            Self::Minute => 60,
        }
    }
}

/// The rules with a history; more are not shown.
const MAX_TRACKED: usize = 64;
/// A request that is so many seconds old counts a little less: `busy` loses this part each second.
const FADES_IN: u64 = 32;

impl RateHistory {
    /// The last whole second, and the last whole minute.
    pub(crate) const fn tick(&self, step: Step) -> u64 {
        self.tick / step.seconds()
    }

    /// Begins at this second: of what all rules have counted before, nothing is shown.
    pub(crate) fn begin(&mut self, tick: u64, totals: &[(impl AsRef<str>, Totals)]) {
        *self = Self {
            tick,
            ..Self::default()
        };
        for (path, now) in totals {
            let path = path.as_ref();
            self.count(path, now);
            self.choose(path, *now);
        }
    }

    /// Takes what all rules have counted by this second. Of seconds in which nobody asked, all of it
    /// belongs to the last one.
    pub(crate) fn add(&mut self, tick: u64, totals: &[(impl AsRef<str>, Totals)]) {
        let missed = tick
            .saturating_sub(self.tick + 1)
            .min(Step::Second.most() as u64);
        let minutes = tick / 60 - self.tick / 60;
        self.tick = tick;
        let now: HashMap<_, _> = totals
            .iter()
            .map(|(path, now)| (path.as_ref(), now))
            .collect();
        self.tracked.retain(|one| now.contains_key(&*one.path));
        self.known.retain(|path, _| now.contains_key(&**path));
        for (path, now) in totals {
            let path = path.as_ref();
            self.count(path, now);
            self.choose(path, Totals::default());
        }
        for one in &mut self.tracked {
            let Some(now) = now.get(&*one.path) else {
                continue;
            };
            for _ in 0..missed {
                push(&mut one.seconds, Rates::default(), Step::Second);
            }
            push(&mut one.seconds, now.since(&one.before), Step::Second);
            one.before = **now;
            if minutes > 0 {
                for _ in 1..minutes.min(Step::Minute.most() as u64) {
                    push(&mut one.minutes, Rates::default(), Step::Minute);
                }
                push(
                    &mut one.minutes,
                    now.since(&one.before_minute),
                    Step::Minute,
                );
                one.before_minute = **now;
            }
        }
    }

    /// Notes how busy a rule is.
    fn count(&mut self, path: &str, now: &Totals) {
        if !self.known.contains_key(path) {
            self.known.insert(path.into(), Known::default());
        }
        if let Some(known) = self.known.get_mut(path) {
            let new = now.requests().saturating_sub(known.requests);
            known.requests = now.requests();
            // A part of few requests would be nothing, so each counts 256.
            known.busy = known.busy - known.busy.div_ceil(FADES_IN) + new.min(1 << 40) * 256;
        }
    }

    /// Tracks a rule as long as there is room, and then a busier one in place of the least busy.
    fn choose(&mut self, path: &str, before: Totals) {
        let Some(known) = self.known.get(path).filter(|it| !it.is_tracked) else {
            return;
        };
        if self.tracked.len() >= MAX_TRACKED {
            if known.busy == 0 {
                return;
            }
            let busy_of = |one: &Tracked| self.known.get(&one.path).map_or(0, |it| it.busy);
            let all = self.tracked.iter().map(busy_of).enumerate();
            let Some((at, least)) = all.min_by_key(|(_, busy)| *busy) else {
                return;
            };
            // Busier by a quarter, or two rules would take turns.
            if known.busy / 5 <= least / 4 {
                return;
            }
            let old = self.tracked.swap_remove(at);
            if let Some(old) = self.known.get_mut(&old.path) {
                old.is_tracked = false;
            }
        }
        if let Some(known) = self.known.get_mut(path) {
            known.is_tracked = true;
        }
        self.tracked.push(Tracked {
            path: path.into(),
            before,
            before_minute: before,
            seconds: VecDeque::new(),
            minutes: VecDeque::new(),
        });
    }

    /// How many rules have no history.
    pub(crate) fn number_of_others(&self) -> usize {
        self.known.len() - self.tracked.len()
    }

    /// The paths that have a history, in alphabetical order.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<_> = self.tracked.iter().map(|one| &*one.path).collect();
        paths.sort_unstable();
        paths
    }

    /// The last `number` rates of a path, nothing where there are none.
    pub(crate) fn last(&self, path: &str, step: Step, number: usize) -> Vec<Rates> {
        let mut last = vec![Rates::default(); number];
        if let Some(one) = self.tracked.iter().find(|one| &*one.path == path) {
            let kept = match step {
                Step::Second => &one.seconds,
                Step::Minute => &one.minutes,
            };
            for (place, rates) in last.iter_mut().rev().zip(kept.iter().rev()) {
                *place = *rates;
            }
        }
        last
    }
}

fn push(kept: &mut VecDeque<Rates>, rates: Rates, step: Step) {
    if kept.len() == step.most() {
        kept.pop_front();
    }
    kept.push_back(rates);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(number: u64) -> Totals {
        Totals {
            allowed: number,
            ..Totals::default()
        }
    }

    #[test]
    fn seconds_that_were_missed_are_empty() {
        let mut history = RateHistory::default();
        history.begin(0, &[("a", allowed(3))]);
        history.add(1, &[("a", allowed(8))]);
        history.add(4, &[("a", allowed(15))]);
        let last = history.last("a", Step::Second, 5);
        let last: Vec<_> = last.iter().map(|rates| rates.allowed).collect();
        assert_eq!(last, [0, 5, 0, 0, 7]);
    }

    #[test]
    fn a_rule_that_comes_later_is_counted_from_its_first_request() {
        let mut history = RateHistory::default();
        history.begin(70, &[("a", allowed(3))]);
        history.add(71, &[("a", allowed(3)), ("b", allowed(2))]);
        let last = ["a", "b"].map(|path| history.last(path, Step::Second, 2));
        let last = last.map(|of_path| [of_path[0].allowed, of_path[1].allowed]);
        assert_eq!(last, [[0, 0], [0, 2]]);
    }

    #[test]
    fn a_minute_is_the_sum_of_its_seconds() {
        let mut history = RateHistory::default();
        for tick in 0..=120 {
            history.add(tick, &[("a", allowed(tick * 3))]);
        }
        let last = history.last("a", Step::Minute, 2);
        assert_eq!([last[0].allowed, last[1].allowed], [180, 180]);
    }

    #[test]
    fn the_busiest_rules_are_shown_and_the_rest_is_bounded() {
        let paths: Vec<_> = (0..10_000).map(|number| format!("rule {number}")).collect();
        let mut history = RateHistory::default();
        for tick in 0..=60 {
            let totals = paths.iter().enumerate().map(|(number, path)| {
                let is_busy = number >= 10_000 - MAX_TRACKED;
                (&**path, allowed(if is_busy { tick * 100 } else { tick }))
            });
            history.add(tick, &totals.collect::<Vec<_>>());
        }
        assert_eq!(history.number_of_others(), 10_000 - MAX_TRACKED);
        let busy = paths.iter().rev().take(MAX_TRACKED);
        let shown = history.paths();
        let missing: Vec<_> = busy.filter(|path| !shown.contains(&&***path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let known = size_of::<(Box<str>, Known)>() * history.known.capacity();
        let rates = (Step::Second.most() + Step::Minute.most()) * size_of::<Rates>();
        let all = known + MAX_TRACKED * rates;
        assert!(all < 4_000_000, "{all} bytes");
    }
}
