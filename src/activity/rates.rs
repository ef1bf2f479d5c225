//! What the busiest rules have counted in each of the last seconds and minutes.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::iter::repeat_n;
use std::time::Duration;

use crate::metrics::{DecisionOutcome, RuleCounters, RuleSnapshot};

type Number = fn(&RuleSnapshot) -> u64;

/// The numbers of a rule, by their names in the JSON of the page. The first ones are shown second
/// by second, too.
pub(crate) const NUMBERS: [(&str, Number); 13] = [
    ("allowed", |it| it.decisions(DecisionOutcome::Allowed)),
    ("denied", RuleSnapshot::denied),
    ("shadow", |it| it.decisions(DecisionOutcome::ShadowDenied)),
    ("errors", errors),
    ("near", |it| it.near_limit),
    ("let_through", |it| it.let_through),
    ("units", |it| it.units),
    ("refunded", |it| it.refunded_units),
    ("proceeded", |it| it.proceeded),
    ("waiting", |it| it.waiting),
    ("longest_wait_ms", |it| it.longest_wait_ms),
    ("waited", |it| it.waited),
    ("blocked", |it| it.blocked),
];

/// How many of the [`NUMBERS`] are shown second by second.
const RATED: usize = 6;

/// What is known of each second beside them: the mean time of the store's answers, and the bound of
/// the bucket with the slowest answer of a hundred. Both are 0 without answers.
const LATENCIES: [&str; 2] = ["mean_us", "p99_us"];

/// What a rule has counted in a second or a minute, in the order of [`series`].
type Rates = [u32; RATED + LATENCIES.len()];

/// The names of the [`Rates`] in the JSON of the page.
pub(crate) fn series() -> impl Iterator<Item = &'static str> {
    let rated = NUMBERS[..RATED].iter().map(|(name, _)| *name);
    rated.chain(LATENCIES)
}

fn errors(counted: &RuleSnapshot) -> u64 {
    counted.errors().map(|(_, number)| number).sum()
}

fn requests(counted: &RuleSnapshot) -> u64 {
    let allowed = counted.decisions(DecisionOutcome::Allowed);
    allowed + counted.denied() + errors(counted) + counted.let_through
}

/// What the busiest rules have counted in each of the last seconds and minutes.
#[derive(Debug, Default)]
pub(crate) struct RateHistory {
    /// The last whole second.
    tick: u64,
    /// All paths that were counted, as many as a process may have.
    known: HashMap<Box<str>, Known>,
    /// How many rules have no history.
    others: usize,
}

/// How busy a rule is; it is known of each rule.
#[derive(Debug, Default)]
struct Known {
    /// Its requests up to the last second.
    requests: u64,
    /// Its requests, of which the earlier ones count by half after about 20 seconds.
    busy: u64,
    /// By the steps.
    history: Option<Box<[History; 2]>>,
}

/// The history of one rule in one [step](Step).
#[derive(Debug, Clone)]
struct History {
    /// What was counted up to the last step.
    before: RuleSnapshot,
    /// The latest last.
    rates: VecDeque<Rates>,
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

    /// The maximum number of them that is kept.
    pub(crate) const fn max(self) -> usize {
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

    /// Begins at this second: of what all rules have counted before, nothing is shown. The numbers
    /// of a path come with whether there is a rule: only then they are shown.
    pub(crate) fn begin(&mut self, tick: u64, counted: &[(RuleSnapshot, bool)]) {
        *self = Self {
            tick,
            ..Self::default()
        };
        self.count(counted);
        self.choose(counted, |_| false);
    }

    /// Takes what all rules have counted by this second. Of seconds in which nobody asked, all of
    /// it belongs to the last one.
    pub(crate) fn add(&mut self, tick: u64, counted: &[(RuleSnapshot, bool)]) {
        let new = self.count(counted);
        self.choose(counted, |path| new.contains(path));
        for (now, _) in counted {
            let known = self.known.get_mut(&*now.path);
            let Some(history) = known.and_then(|it| it.history.as_mut()) else {
                continue;
            };
            for step in [Step::Second, Step::Minute] {
                let steps = tick / step.seconds() - self.tick / step.seconds();
                history[step as usize].add(now, step, steps as usize);
            }
        }
        self.tick = tick;
    }

    /// Notes how busy each rule is. Returns the paths that are new.
    fn count<'a>(&mut self, counted: &'a [(RuleSnapshot, bool)]) -> HashSet<&'a str> {
        let mut new = HashSet::new();
        for (now, has_rule) in counted {
            if !self.known.contains_key(&*now.path) {
                self.known.insert((&*now.path).into(), Known::default());
                new.insert(&*now.path);
            }
            let Some(known) = self.known.get_mut(&*now.path) else {
                continue;
            };
            let requests = requests(now);
            let grown = requests.saturating_sub(known.requests);
            known.requests = requests;
            // A part of few requests would be nothing, so each counts 256.
            known.busy = known.busy - known.busy.div_ceil(FADES_IN) + grown.min(1 << 40) * 256;
            if !has_rule {
                known.history = None;
            }
        }
        new
    }

    /// Tracks rules as long as there is room, and then busier ones in place of the least busy. What
    /// a new rule has counted is shown, and nothing of what another has counted before.
    fn choose(&mut self, counted: &[(RuleSnapshot, bool)], is_new: impl Fn(&str) -> bool) {
        let (mut tracked, mut others) = (Vec::new(), Vec::new());
        for (now, _) in counted.iter().filter(|(_, has_rule)| *has_rule) {
            match self.known.get(&*now.path) {
                Some(known) if known.history.is_some() => tracked.push((known.busy, &*now.path)),
                known => others.push((known.map_or(0, |it| it.busy), now)),
            }
        }
        tracked.sort_by_key(|(busy, _)| *busy);
        others.sort_by_key(|(busy, _)| Reverse(*busy));
        let room = MAX_TRACKED - tracked.len();
        self.others = others.len().saturating_sub(room);
        let places = repeat_n(None, room).chain(tracked.into_iter().map(Some));
        for ((busy, now), place) in others.into_iter().zip(places) {
            if let Some((least, path)) = place {
                // Busier by a quarter, or two rules would take turns.
                if busy == 0 || busy / 5 <= least / 4 {
                    break;
                }
                if let Some(old) = self.known.get_mut(path) {
                    old.history = None;
                }
            }
            if let Some(known) = self.known.get_mut(&*now.path) {
                let before = if is_new(&now.path) {
                    RuleCounters::default().numbers(&now.path)
                } else {
                    now.clone()
                };
                let rates = VecDeque::new();
                let begun = History { before, rates };
                known.history = Some(Box::new([begun.clone(), begun]));
            }
        }
    }

    /// How many rules have no history.
    pub(crate) const fn number_of_others(&self) -> usize {
        self.others
    }

    /// The paths that have a history, in alphabetical order.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let tracked = self.known.iter().filter(|(_, it)| it.history.is_some());
        let mut paths: Vec<_> = tracked.map(|(path, _)| &**path).collect();
        paths.sort_unstable();
        paths
    }

    /// The last `number` rates of a path, nothing where there are none.
    pub(crate) fn last(&self, path: &str, step: Step, number: usize) -> Vec<Rates> {
        let mut last = vec![Rates::default(); number];
        if let Some(history) = self.known.get(path).and_then(|it| it.history.as_ref()) {
            let rates = &history[step as usize].rates;
            for (place, rates) in last.iter_mut().rev().zip(rates.iter().rev()) {
                *place = *rates;
            }
        }
        last
    }
}

impl History {
    /// So many steps have ended since the last time.
    fn add(&mut self, now: &RuleSnapshot, step: Step, steps: usize) {
        let Some(missed) = steps.checked_sub(1) else {
            return;
        };
        let missed = repeat_n(Rates::default(), missed.min(step.max()));
        for rates in missed.chain([rates(&self.before, now)]) {
            if self.rates.len() == step.max() {
                self.rates.pop_front();
            }
            self.rates.push_back(rates);
        }
        self.before.clone_from(now);
    }
}

/// What was counted between two snapshots.
fn rates(before: &RuleSnapshot, now: &RuleSnapshot) -> Rates {
    let answers = now.latency.count().saturating_sub(before.latency.count());
    let time = now.latency.sum().saturating_sub(before.latency.sum());
    let mean = time.as_micros().checked_div(answers.into()).unwrap_or(0);
    let rank = answers - answers / 100;
    let (mut so_far, mut p99) = (0, Duration::ZERO);
    for (before, now) in before.latency.buckets().iter().zip(now.latency.buckets()) {
        if so_far < rank {
            // The last bucket has no bound.
            p99 = now.at_most.unwrap_or(p99);
            so_far += now.count.saturating_sub(before.count);
        }
    }
    let rated = NUMBERS[..RATED].iter();
    let grown = rated.map(|(_, number)| number(now).saturating_sub(number(before)).into());
    let mut all = grown.chain([mean, p99.as_micros()]);
    std::array::from_fn(|_| u32::try_from(all.next().unwrap_or(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Source;

    /// A path with a rule that has let so many requests through.
    fn counted(path: &str, number: u64) -> (RuleSnapshot, bool) {
        let mut counted = RuleCounters::default().numbers(path);
        counted.let_through = number;
        (counted, true)
    }

    fn let_through(rates: &Rates) -> u32 {
        let at = series().position(|name| name == "let_through");
        rates[at.expect("a series")]
    }

    /// What was let through in each of the last seconds.
    fn last(history: &RateHistory, path: &str, number: usize) -> Vec<u32> {
        let last = history.last(path, Step::Second, number);
        last.iter().map(let_through).collect()
    }

    /// A number that nothing shows is one that nobody sees.
    #[test]
    fn the_page_shows_each_number() {
        let (series_js, now_js) = (
            include_str!("../page/assets/series.js"),
            include_str!("../page/assets/now.js"),
        );
        let is_series = |name: &str| series_js.contains(&format!("[\"{name}\", "));
        assert!(series().all(is_series));
        let is_total = |name: &str| now_js.contains(&format!("total.{name},"));
        let totals = NUMBERS[RATED..].iter();
        let missing: Vec<_> = totals.filter(|(name, _)| !is_total(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// Each outcome is shown once, and each denial as one.
    #[test]
    fn each_outcome_is_shown() {
        let shown = |counters: &RuleCounters, name: &str| {
            let number = NUMBERS.iter().find(|(known, _)| *known == name);
            number.expect("a number").1(&counters.numbers("a"))
        };
        for outcome in DecisionOutcome::ALL {
            let counters = RuleCounters::default();
            counters.count(outcome, Source::Local);
            let [allowed, denied, shadow] =
                ["allowed", "denied", "shadow"].map(|name| shown(&counters, name));
            assert_eq!(allowed + denied + shadow, 1, "{outcome:?}");
            assert_eq!(denied == 1, outcome.is_denial(), "{outcome:?}");
        }
    }

    #[test]
    fn seconds_that_were_missed_are_empty() {
        let mut history = RateHistory::default();
        history.begin(0, &[counted("a", 3)]);
        history.add(1, &[counted("a", 8)]);
        history.add(4, &[counted("a", 15)]);
        assert_eq!(last(&history, "a", 5), [0, 5, 0, 0, 7]);
    }

    #[test]
    fn a_rule_that_comes_later_is_counted_from_its_first_request() {
        let mut history = RateHistory::default();
        history.begin(70, &[counted("a", 3)]);
        history.add(71, &[counted("a", 3), counted("b", 2)]);
        assert_eq!(last(&history, "a", 2), [0, 0]);
        assert_eq!(last(&history, "b", 2), [0, 2]);
    }

    #[test]
    fn a_rule_that_comes_back_is_not_shown_with_all_that_it_ever_counted() {
        let removed = (counted("a", 9).0, false);
        let mut history = RateHistory::default();
        history.begin(0, &[counted("a", 0)]);
        history.add(1, &[counted("a", 9)]);
        history.add(2, &[removed]);
        assert_eq!((history.paths().len(), history.number_of_others()), (0, 0));
        history.add(3, &[counted("a", 9)]);
        history.add(4, &[counted("a", 11)]);
        assert_eq!(last(&history, "a", 4), [0, 0, 0, 2]);
    }

    #[test]
    fn a_rule_that_becomes_busy_is_not_shown_with_all_that_it_ever_counted() {
        let others: Vec<_> = (0..MAX_TRACKED)
            .map(|number| format!("rule {number}"))
            .collect();
        let all = |number: u64| {
            let others = others.iter().map(|path| counted(path, 10_000));
            others.chain([counted("late", number)]).collect::<Vec<_>>()
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
            history.add(tick, &[counted("a", tick * 3)]);
        }
        let last = history.last("a", Step::Minute, 2);
        assert_eq!([&last[0], &last[1]].map(let_through), [180, 180]);
    }

    #[test]
    fn the_busiest_rules_are_shown_and_the_rest_is_bounded() {
        let paths: Vec<_> = (0..10_000).map(|number| format!("rule {number}")).collect();
        let mut history = RateHistory::default();
        for tick in 0..=60 {
            let all = paths.iter().enumerate().map(|(number, path)| {
                let is_busy = number >= 10_000 - MAX_TRACKED;
                counted(path, if is_busy { tick * 100 } else { tick })
            });
            history.add(tick, &all.collect::<Vec<_>>());
        }
        assert_eq!(history.number_of_others(), 10_000 - MAX_TRACKED);
        let busy = paths.iter().rev().take(MAX_TRACKED);
        let shown = history.paths();
        let missing: Vec<_> = busy.filter(|path| !shown.contains(&&***path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let known = size_of::<(Box<str>, Known)>() * history.known.capacity();
        let rates = (Step::Second.max() + Step::Minute.max()) * size_of::<Rates>();
        let all = known + MAX_TRACKED * rates;
        assert!(all < 4_000_000, "{all} bytes");
    }
}
