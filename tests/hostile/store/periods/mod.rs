//! Calendar quotas on servers whose clocks are off, or step, or take over from one another, and for
//! processes whose clocks are off. What is promised, and checked here of whole histories:
//!
//! - A period is known by its end, which stands in the key. Whatever clock answers, what was charged
//!   for one key before one end, less what was given back, is never above max.
//! - The next period of a key begins where a clock that answers has reached the end that stands
//!   there, and not earlier. Ends never go back.
//! - What `retry_after` and `reset_after` tell is that end, by the clock that answered.
//! - A take has a decision or an error in time. Without an answer it may have been charged.
//!
//! Clocks are off where libfaketime is installed. `TIDEGATE_FLEET_SECONDS` makes them so much longer.

mod failover;
mod processes;
mod steps;

use tidegate::rule::Period;

use crate::prelude::*;

const MAX: u64 = 60;
const KEYS: u64 = 16;
/// How long a take may need here. What it may be late on a busy machine comes on top.
const LIMIT: Duration = kit::load::TIMEOUT;
/// The error of a measured instant: clocks are set in microseconds, and a process sees it later.
const SLACK: u64 = 2_000;
const MILLION: u64 = 1_000_000;
const HOUR_SECONDS: f64 = 3_600.0;

fn more_seconds() -> u64 {
    from_env("TIDEGATE_FLEET_SECONDS", 0)
}

/// How far ahead a clock has to be to show this instant, in microseconds, now.
fn ahead_of(instant: u64) -> f64 {
    (instant as f64 - kit::unix_micros() as f64) / MILLION as f64
}

/// What was asked, and what came of it. Instants are this machine's, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Answer {
    key: u64,
    asked: u64,
    answered: u64,
    what: What,
    /// Asked for, or given back.
    units: u64,
    /// Of the period, where it is told.
    end: u64,
    /// How long it lasts from the answer on.
    left: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Allowed,
    Denied,
    NoDecision,
    GivenBack,
    /// Nobody knows whether it was given back.
    Lost,
}

impl Answer {
    const WORD: &str = "answer";

    /// As a process prints it.
    fn line(&self) -> String {
        let (asked, answered, what) = (self.asked, self.answered, self.what as u64);
        let numbers = [
            self.key, asked, answered, what, self.units, self.end, self.left,
        ];
        format!(
            "{} {}",
            Self::WORD,
            numbers.map(|it| it.to_string()).join(" ")
        )
    }

    fn of(numbers: &[u64]) -> Self {
        use What::{Allowed, Denied, GivenBack, Lost, NoDecision};
        let &[key, asked, answered, what, units, end, left] = numbers else {
            panic!("{numbers:?}");
        };
        Self {
            key,
            asked,
            answered,
            what: [Allowed, Denied, NoDecision, GivenBack, Lost][what as usize],
            units,
            end,
            left,
        }
    }
}

/// A clock that may have answered between these instants of this machine.
#[derive(Debug, Clone, Copy)]
struct Clock {
    from: u64,
    until: u64,
    /// In microseconds.
    ahead: i64,
}

impl Clock {
    fn new(ahead: f64) -> Self {
        Self {
            from: 0,
            until: u64::MAX,
            ahead: (ahead * MILLION as f64) as i64,
        }
    }

    /// What it may have shown while it answered.
    fn during(&self, answer: &Answer) -> Option<(u64, u64)> {
        let from = answer.asked.max(self.from);
        let until = answer.answered.min(self.until);
        let at = |instant: u64| instant.saturating_add_signed(self.ahead);
        (from <= until + SLACK).then(|| (at(from) - SLACK, at(until) + SLACK))
    }
}

/// One caller of keys of a rule: takes, and refunds of some.
struct Caller {
    store: RedisStore,
    rule: Arc<Rule>,
    random: Random,
    charged: Vec<(u64, Take, Receipt)>,
    /// This machine's time, for a process whose clock is off.
    now: fn() -> u64,
}

impl Caller {
    /// One with each of these seeds asks until then.
    fn spawn_each(
        (store, rule): (&RedisStore, &Arc<Rule>),
        seeds: std::ops::Range<u64>,
        now: fn() -> u64,
        until: Instant,
    ) -> Vec<JoinHandle<Vec<Answer>>> {
        let callers = seeds.map(|seed| Self {
            store: store.clone().timeout(LIMIT),
            rule: Arc::clone(rule),
            random: Random::new(seed),
            charged: Vec::new(),
            now,
        });
        callers
            .map(|it| tokio::spawn(it.ask_until(until)))
            .collect()
    }

    /// Asks without many pauses until then.
    async fn ask_until(mut self, until: Instant) -> Vec<Answer> {
        let mut answers = Vec::new();
        while Instant::now() < until {
            let gives_back = !self.charged.is_empty() && self.random.is(8);
            answers.push(match gives_back {
                true => self.give_back().await,
                false => self.take().await,
            });
            sleep(millis(self.random.below(12))).await;
        }
        answers
    }

    async fn take(&mut self) -> Answer {
        // Some keys are used up at once, and some just before the end.
        let key = self.random.below(KEYS) * self.random.below(KEYS) / KEYS;
        let take = kit::take(&self.rule, key).with_cost(1 + self.random.below(4));
        let asked = (self.now)();
        let decision = self.store.take(&take).await;
        let mut answer = self.answer(key, asked, What::NoDecision, take.cost());
        match decision {
            Ok(decision) if decision.is_allowed() => {
                let receipt = decision.receipt().expect("charged");
                (answer.what, answer.end) = (What::Allowed, receipt.stamp());
                answer.left = micros(decision.reset_after());
                self.charged.push((key, take, receipt));
            }
            Ok(decision) => {
                answer.what = What::Denied;
                answer.left = micros(decision.retry_after().expect("it fits once"));
                assert_eq!(micros(decision.reset_after()), answer.left);
            }
            Err(error) => {
                use StoreErrorKind::{Timeout, Unavailable};
                assert!(matches!(error.kind(), Timeout | Unavailable), "{error}");
            }
        }
        answer
    }

    async fn give_back(&mut self) -> Answer {
        let one = self.random.below(self.charged.len() as u64) as usize;
        let (key, take, receipt) = self.charged.swap_remove(one);
        let asked = (self.now)();
        let given_back = self.store.refund(&take, &receipt).await;
        let (what, units) = match given_back {
            Ok(units) => (What::GivenBack, units),
            Err(_) => (What::Lost, take.cost()),
        };
        let mut answer = self.answer(key, asked, what, units);
        answer.end = receipt.stamp();
        answer
    }

    fn answer(&self, key: u64, asked: u64, what: What, units: u64) -> Answer {
        Answer {
            key,
            asked,
            answered: (self.now)(),
            what,
            units,
            end: 0,
            left: 0,
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a short time")
}

/// All answers, and the clocks that may have given them.
struct History {
    period: Period,
    clocks: Vec<Clock>,
    answers: Vec<Answer>,
}

impl History {
    fn of(&self, what: What) -> impl Iterator<Item = &Answer> {
        self.answers.iter().filter(move |it| it.what == what)
    }

    /// Whether one of the clocks may have shown what is asked for, in this span.
    fn may_show(&self, answer: &Answer, is_it: impl Fn((u64, u64)) -> bool) -> bool {
        let mut shown = self.clocks.iter().filter_map(|it| it.during(answer));
        shown.any(is_it)
    }

    /// Checks all that is promised, and what the server says at last.
    async fn check(&self, store: &RedisStore, rule: &Arc<Rule>, case: &str) {
        self.row(case);
        let bounds = self.charged();
        for ((key, end), (least, _)) in &bounds {
            assert!(
                *least <= MAX,
                "{case}: {least} of {MAX} for {key} before {end}"
            );
        }
        self.check_ends(case);
        self.check_refills(case);
        for answer in &self.answers {
            let took = Duration::from_micros(answer.answered.saturating_sub(answer.asked));
            assert!(took < LIMIT + kit::load::HICCUP, "{case}: {answer:?}");
        }
        self.check_counts(store, rule, case).await;
    }

    /// What is charged for each key before each end: at least, and what takes without an answer may
    /// add, whose ends nobody knows.
    fn charged(&self) -> BTreeMap<(u64, u64), (u64, u64)> {
        let mut bounds = BTreeMap::<_, (u64, u64)>::new();
        for it in self.of(What::Allowed) {
            let (least, most) = bounds.entry((it.key, it.end)).or_default();
            (*least, *most) = (*least + it.units, *most + it.units);
        }
        for it in self.of(What::GivenBack) {
            let (least, most) = bounds.entry((it.key, it.end)).or_default();
            (*least, *most) = (least.saturating_sub(it.units), *most - it.units);
        }
        for it in self.of(What::Lost) {
            let (least, _) = bounds.entry((it.key, it.end)).or_default();
            *least = least.saturating_sub(it.units);
        }
        for it in self.of(What::NoDecision) {
            for (_, (_, most)) in bounds.range_mut((it.key, 0)..(it.key + 1, 0)) {
                *most += it.units;
            }
        }
        bounds
    }

    /// What is told is an end of the calendar, by a clock that may have answered.
    fn check_ends(&self, case: &str) {
        let ends: BTreeSet<_> = self.of(What::Allowed).map(|it| (it.key, it.end)).collect();
        for it in self.of(What::Allowed) {
            assert_eq!(self.end_at_or_before(it.end), it.end, "{case}: {it:?}");
            let now = it.end - it.left;
            let is_right = self.may_show(it, |(from, until)| (from..=until).contains(&now));
            assert!(is_right, "{case}: {it:?} by {:?}", self.clocks);
        }
        for it in self.of(What::Denied) {
            let is_right = self.may_show(it, |(from, until)| {
                let end = self.end_at_or_before(until + it.left);
                end >= from + it.left && ends.contains(&(it.key, end))
            });
            assert!(is_right, "{case}: {it:?} by {:?}", self.clocks);
        }
        for it in self.of(What::GivenBack).filter(|it| it.units > 0) {
            let is_right = self.may_show(it, |(from, _)| from < it.end);
            assert!(is_right, "{case}: {it:?} by {:?}", self.clocks);
        }
    }

    fn end_at_or_before(&self, instant: u64) -> u64 {
        let instant = std::time::UNIX_EPOCH + Duration::from_micros(instant);
        let start = self.period.around(instant).start;
        micros(start.duration_since(std::time::UNIX_EPOCH).expect("later"))
    }

    /// No end is replaced before a clock that answers has reached it, or by an earlier one.
    fn check_refills(&self, case: &str) {
        for key in 0..KEYS {
            let of_key = || self.of(What::Allowed).filter(|it| it.key == key);
            let ends: BTreeSet<_> = of_key().map(|it| it.end).collect();
            let ends = Vec::from_iter(ends);
            for pair in ends.windows(2) {
                let begins = of_key().filter(|it| it.end == pair[1]);
                let first = begins.min_by_key(|it| it.answered).expect("it is one");
                let is_over = self.may_show(first, |(_, until)| until >= pair[0]);
                assert!(is_over, "{case}: {first:?}, and {} stood", pair[0]);
                let late = of_key().find(|it| it.end == pair[0] && it.asked > first.answered);
                assert!(late.is_none(), "{case}: {late:?} after {first:?}");
            }
        }
    }

    /// What a server says at last is what was charged.
    async fn check_counts(&self, store: &RedisStore, rule: &Arc<Rule>, case: &str) {
        let store = store.clone().timeout(PATIENT);
        for ((key, end), (least, most)) in self.charged() {
            let asked = kit::unix_micros();
            let state = decide(&store, &kit::take(rule, key).looking()).await;
            let mut looked = Answer::of(&[key, asked, kit::unix_micros(), 0, 0, end, 0]);
            looked.left = micros(state.reset_after());
            let now = end.saturating_sub(looked.left);
            let is_its = self.may_show(&looked, |(from, until)| (from..=until).contains(&now));
            let used = MAX - state.remaining();
            if used > 0 && is_its {
                let bounds = least..=most;
                assert!(
                    bounds.contains(&used),
                    "{case}: {used} for {key}, not {bounds:?}"
                );
            }
        }
    }

    /// What it was, in a line.
    fn row(&self, case: &str) {
        let number = |what| self.of(what).count();
        let ends: BTreeSet<_> = self.of(What::Allowed).map(|it| (it.key, it.end)).collect();
        let full = self.charged().values().filter(|it| it.0 == MAX).count();
        println!(
            "{case}: {} allowed in {} periods of {KEYS} keys, {full} of them full; {} denied, {} \
             without a decision, {} refunds",
            number(What::Allowed),
            ends.len(),
            number(What::Denied),
            number(What::NoDecision),
            number(What::GivenBack),
        );
    }
}

fn budget(period: &Period) -> Arc<Rule> {
    let policies = [Policy::calendar(period.clone(), MAX)];
    let rule = Rule::with_policies("budget", policies);
    rule.expect("valid").into()
}
