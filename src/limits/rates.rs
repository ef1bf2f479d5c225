use std::collections::{HashMap, HashSet, VecDeque};

use crate::metrics::{Rates, Totals};

/// What the busiest rules have counted in each of the last seconds and minutes.
#[derive(Debug, Default)]
pub(crate) struct RateHistory {
    /// The last whole second.
    tick: u64,
    /// All paths that were counted, as many as a process may have.
    known: HashMap<Box<str>, Known>,
    tracked: Vec<Tracked>,
    /// How many rules have no history.
    others: usize,
}

/// What the layers of a path have counted so far.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) path: Box<str>,
    pub(crate) totals: Totals,
    /// Whether there is a rule: only then it is shown.
    pub(crate) has_rule: bool,
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
    pub(crate) fn begin(&mut self, tick: u64, counted: &[Counted]) {
        *self = Self {
            tick,
            ..Self::default()
        };
        for one in counted {
            self.count(one);
        }
        self.choose(counted, |_| false);
    }

    /// Takes what all rules have counted by this second. Of seconds in which nobody asked, all of it
    /// belongs to the last one.
    pub(crate) fn add(&mut self, tick: u64, counted: &[Counted]) {
        let missed = tick
            .saturating_sub(self.tick + 1)
            .min(Step::Second.most() as u64);
        let minutes = tick / 60 - self.tick / 60;
        self.tick = tick;
        let now: HashMap<_, _> = counted
            .iter()
            .filter(|one| one.has_rule)
            .map(|one| (&*one.path, &one.totals))
            .collect();
        for one in self
            .tracked
            .extract_if(.., |one| !now.contains_key(&*one.path))
        {
            if let Some(known) = self.known.get_mut(&one.path) {
                known.is_tracked = false;
            }
        }
        let new: HashSet<_> = counted.iter().filter_map(|one| self.count(one)).collect();
        self.choose(counted, |path| new.contains(path));
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

    /// Notes how busy a rule is. Returns its path if it is new.
    fn count<'a>(&mut self, one: &'a Counted) -> Option<&'a str> {
        let is_new = !self.known.contains_key(&one.path);
        if is_new {
            self.known.insert(one.path.clone(), Known::default());
        }
        if let Some(known) = self.known.get_mut(&one.path) {
            let requests = one.totals.requests();
            let new = requests.saturating_sub(known.requests);
            known.requests = requests;
            // A part of few requests would be nothing, so each counts 256.
            known.busy = known.busy - known.busy.div_ceil(FADES_IN) + new.min(1 << 40) * 256;
        }
        is_new.then_some(&*one.path)
    }

    /// Tracks rules as long as there is room, and then busier ones in place of the least busy. What
    /// a new rule has counted is shown, and nothing of what another has counted before.
    fn choose(&mut self, counted: &[Counted], is_new: impl Fn(&str) -> bool) {
        let rules = counted.iter().filter(|one| one.has_rule);
        self.others = rules.clone().count();
        for one in rules {
            if self.make_room(&one.path) {
                let before = match is_new(&one.path) {
                    true => Totals::default(),
                    false => one.totals,
                };
                self.tracked.push(Tracked {
                    path: one.path.clone(),
                    before,
                    before_minute: before,
                    seconds: VecDeque::new(),
                    minutes: VecDeque::new(),
                });
            }
        }
        self.others -= self.tracked.len();
    }

    /// Whether a rule is to be tracked from now on. Then it is marked so.
    fn make_room(&mut self, path: &str) -> bool {
        let Some(busy) = self.known.get(path).filter(|it| !it.is_tracked) else {
            return false;
        };
        let busy = busy.busy;
        if self.tracked.len() >= MAX_TRACKED {
            let busy_of = |one: &Tracked| self.known.get(&one.path).map_or(0, |it| it.busy);
            let all = self.tracked.iter().map(busy_of).enumerate();
            let Some((at, least)) = all.min_by_key(|(_, busy)| *busy) else {
                return false;
            };
            // Busier by a quarter, or two rules would take turns.
            if busy == 0 || busy / 5 <= least / 4 {
                return false;
            }
            let old = self.tracked.swap_remove(at);
            if let Some(old) = self.known.get_mut(&old.path) {
                old.is_tracked = false;
            }
        }
        if let Some(known) = self.known.get_mut(path) {
            known.is_tracked = true;
        }
        true
    }

    /// How many rules have no history.
    pub(crate) const fn number_of_others(&self) -> usize {
        self.others
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

    fn allowed(path: &str, number: u64) -> Counted {
        let totals = Totals {
            allowed: number,
            ..Totals::default()
        };
        Counted {
            path: path.into(),
            totals,
            has_rule: true,
        }
    }

    /// What was allowed in each of the last seconds.
    fn last(history: &RateHistory, path: &str, number: usize) -> Vec<u32> {
        let last = history.last(path, Step::Second, number);
        last.iter().map(|rates| rates.allowed).collect()
    }

    #[test]
    fn seconds_that_were_missed_are_empty() {
        let mut history = RateHistory::default();
        history.begin(0, &[allowed("a", 3)]);
        history.add(1, &[allowed("a", 8)]);
        history.add(4, &[allowed("a", 15)]);
        assert_eq!(last(&history, "a", 5), [0, 5, 0, 0, 7]);
    }

    #[test]
    fn a_rule_that_comes_later_is_counted_from_its_first_request() {
        let mut history = RateHistory::default();
        history.begin(70, &[allowed("a", 3)]);
        history.add(71, &[allowed("a", 3), allowed("b", 2)]);
        assert_eq!(last(&history, "a", 2), [0, 0]);
        assert_eq!(last(&history, "b", 2), [0, 2]);
    }

    #[test]
    fn a_rule_that_comes_back_is_not_shown_with_all_that_it_ever_counted() {
        let removed = Counted {
            has_rule: false,
            ..allowed("a", 9)
        };
        let mut history = RateHistory::default();
        history.begin(0, &[allowed("a", 0)]);
        history.add(1, &[allowed("a", 9)]);
        history.add(2, &[removed]);
        assert_eq!((history.paths().len(), history.number_of_others()), (0, 0));
        history.add(3, &[allowed("a", 9)]);
        history.add(4, &[allowed("a", 11)]);
        assert_eq!(last(&history, "a", 4), [0, 0, 0, 2]);
    }

    #[test]
    fn a_rule_that_becomes_busy_is_not_shown_with_all_that_it_ever_counted() {
        let others: Vec<_> = (0..MAX_TRACKED)
            .map(|number| format!("rule {number}"))
            .collect();
        let all = |number: u64| {
            let others = others.iter().map(|path| allowed(path, 10_000));
            others.chain([allowed("late", number)]).collect::<Vec<_>>()
        };
        let mut history = RateHistory::default();
        history.begin(0, &all(1_000));
        for tick in 1..=200 {
            history.add(tick, &all(1_000 + tick * 10));
        }
        assert!(history.paths().contains(&"late"));
        let last = last(&history, "late", 300);
        assert!(last.iter().all(|rate| *rate <= 10), "{last:?}");
        assert_eq!(last.last(), Some(&10));
    }

    #[test]
    fn a_minute_is_the_sum_of_its_seconds() {
        let mut history = RateHistory::default();
        for tick in 0..=120 {
            history.add(tick, &[allowed("a", tick * 3)]);
        }
        let last = history.last("a", Step::Minute, 2);
        assert_eq!([last[0].allowed, last[1].allowed], [180, 180]);
    }

    #[test]
    fn the_busiest_rules_are_shown_and_the_rest_is_bounded() {
        let paths: Vec<_> = (0..10_000).map(|number| format!("rule {number}")).collect();
        let mut history = RateHistory::default();
        for tick in 0..=60 {
            let counted = paths.iter().enumerate().map(|(number, path)| {
                let is_busy = number >= 10_000 - MAX_TRACKED;
                allowed(path, if is_busy { tick * 100 } else { tick })
            });
            history.add(tick, &counted.collect::<Vec<_>>());
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
