//! Random histories: a rule, and steps that are made definite as they are played.
//!
//! A step says "to the edge of some window" or "as much as is left", since numbers drawn blindly
//! rarely meet an edge. Everything is drawn from small numbers, which shrink towards the plainest
//! step.

use std::time::Duration;

use proptest::prelude::*;
use tidegate::algorithm::{AlgorithmConfig, Count};
use tidegate::decision::Receipt;
use tidegate::{Algorithm, Decision, Quota};

use crate::oracle::{self, Book};

/// An algorithm with its setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) algorithm: Algorithm,
    pub(crate) sub_windows: u16,
}

impl From<Way> for AlgorithmConfig {
    fn from(way: Way) -> Self {
        Self::from(way.algorithm).sub_windows(way.sub_windows)
    }
}

/// One rule and a clock.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) way: Way,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) start: u64,
}

/// What happens, as drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) wait: u16,
    pub(crate) act: u16,
    pub(crate) size: u16,
}

/// What happens, made definite.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    Take(u64),
    Refund { index: usize, units: u64 },
}

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Took(u64, u64, Decision),
    Refunded(u64, Receipt, u64, u64),
}

pub(crate) fn way(algorithm: Algorithm) -> impl Strategy<Value = Way> {
    let sub_windows = prop_oneof![4 => 1..6_u16, 1 => Just(16), 2 => Just(64), 1 => Just(1_024)];
    sub_windows.prop_map(move |sub_windows| Way {
        algorithm,
        sub_windows,
    })
}

pub(crate) fn quota() -> impl Strategy<Value = Quota> {
    let max = prop_oneof![
        6 => 1..4_u64,
        6 => 1..9_u64,
        2 => 9..120_u64,
        1 => Just(0),
        1 => prop::sample::select(vec![997, 1_000, 1_500, 65_537, 1_000_003]),
        1 => prop::sample::select(vec![1_000_000_000_039, Quota::MAX_UNITS - 1, Quota::MAX_UNITS]),
    ];
    let millis = prop_oneof![
        6 => 1..8_u64,
        4 => 8..64_u64,
        1 => prop::sample::select(vec![97, 1_000, 1_009, 60_000]),
        1 => prop::sample::select(vec![86_400_000, 3_650 * 86_400_000]),
    ];
    let burst = prop_oneof![
        6 => Just(None),
        5 => (1..9_u64).prop_map(Some),
        1 => (9..2_000_u64).prop_map(Some),
    ];
    (max, millis, burst).prop_map(|(max, millis, burst)| {
        let quota = Quota::new(Duration::from_millis(millis), max).expect("within bounds");
        // A burst that takes more than ten years to drain cannot be.
        burst.map_or(quota, |burst| quota.with_burst(burst).unwrap_or(quota))
    })
}

pub(crate) fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    prop_oneof![
        5 => prop::collection::vec(quota(), 1),
        3 => prop::collection::vec(quota(), 2),
        1 => prop::collection::vec(quota(), 3),
    ]
}

/// An instant at which a clock may stand.
pub(crate) fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        3 => 0..3_000_u64,
        3 => 1_760_000_000_000_000..1_760_000_000_010_000_u64,
        1 => Just(u64::MAX / 4),
    ]
}

pub(crate) fn setup(algorithm: Algorithm) -> impl Strategy<Value = Setup> {
    (way(algorithm), quotas(), start()).prop_map(|(way, quotas, start)| Setup {
        way,
        quotas,
        start,
    })
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = any::<(u16, u16, u16)>().prop_map(|(wait, act, size)| Step { wait, act, size });
    prop::collection::vec(step, 1..=most)
}

pub(crate) fn history(algorithm: Algorithm) -> impl Strategy<Value = (Setup, Vec<Step>)> {
    (setup(algorithm), steps(24))
}

/// A take that was charged.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) receipt: Receipt,
    /// It was given back, or part of it.
    pub(crate) is_refunded: bool,
}

/// Plays a history on a count, and keeps the oracle's books.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    pub(crate) way: Way,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) now: u64,
    pub(crate) count: Count,
    /// One for each quota.
    pub(crate) books: Vec<Book>,
    /// Every take that was charged, in order.
    pub(crate) taken: Vec<Taken>,
    pub(crate) events: Vec<Event>,
    last: Option<Decision>,
}

impl Player {
    pub(crate) fn new(setup: &Setup) -> Self {
        let book = |quota: &Quota| Book::new(setup.way, *quota);
        Self {
            way: setup.way,
            quotas: setup.quotas.clone(),
            now: setup.start,
            count: Count::default(),
            books: setup.quotas.iter().map(book).collect(),
            taken: Vec::new(),
            events: Vec::new(),
            last: None,
        }
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, wait: u16) {
        let quota = self.quotas[usize::from(wait / 16) % self.quotas.len()];
        self.now = instant(wait, self.now, &quota, self.way, &self.past());
    }

    fn past(&self) -> Past {
        let last = self.last.as_ref();
        Past {
            stamps: self
                .taken
                .iter()
                .map(|taken| taken.receipt.stamp())
                .collect(),
            retry: last.and_then(Decision::retry_after),
            reset: last.map(Decision::reset_after),
        }
    }

    /// What this step does now.
    pub(crate) fn act(&self, step: Step) -> Act {
        match step.act % 16 {
            13.. => {
                let refund = self.refund_of(step);
                refund.unwrap_or_else(|| Act::Take(self.cost(step.size)))
            }
            12 => Act::Take(0),
            _ => Act::Take(self.cost(step.size)),
        }
    }

    /// The same, but nothing is given back.
    pub(crate) fn act_without_refunds(&self, step: Step) -> Act {
        match self.act(step) {
            Act::Refund { .. } => Act::Take(self.cost(step.size)),
            take @ Act::Take(_) => take,
        }
    }

    fn cost(&self, size: u16) -> u64 {
        let left = self.last.as_ref().map_or(1, Decision::remaining);
        cost(size, self.least_limit(), left)
    }

    /// A take is given back once.
    fn refund_of(&self, step: Step) -> Option<Act> {
        let taken = self.taken.iter().enumerate();
        let charged: Vec<_> = taken.filter(|(_, taken)| !taken.is_refunded).collect();
        let back = usize::from(step.act / 16) % charged.len().clamp(1, 6);
        let (index, taken) = charged.iter().rev().nth(back)?;
        let units = part_of(taken.receipt.units(), step.size);
        Some(Act::Refund {
            index: *index,
            units,
        })
    }

    pub(crate) fn least_limit(&self) -> u64 {
        let limits = self.books.iter().map(Book::limit);
        limits.min().expect("a rule has a quota")
    }

    /// Takes, and writes it down.
    pub(crate) fn take(&mut self, cost: u64) -> Decision {
        let decision = self.count.take(self.way, self.now, &self.quotas, cost);
        if let Some(receipt) = decision.receipt() {
            let is_refunded = false;
            self.taken.push(Taken {
                receipt,
                is_refunded,
            });
            for book in &mut self.books {
                book.admit(self.now, cost);
            }
        }
        self.last = Some(decision.clone());
        let event = Event::Took(self.now, cost, decision.clone());
        self.events.push(event);
        decision
    }

    /// Refunds, and writes it down.
    pub(crate) fn refund(&mut self, index: usize, units: u64) -> u64 {
        let receipt = self.taken[index].receipt.clone();
        let back = self.count.refund(self.now, &receipt, units);
        self.taken[index].is_refunded = true;
        for book in &mut self.books {
            book.give_back(self.now, index, back);
        }
        let event = Event::Refunded(self.now, receipt, units, back);
        self.events.push(event);
        back
    }

    /// Takes while the clock may go anywhere: the books, which know of right clocks alone, are left
    /// out.
    pub(crate) fn take_blindly(&mut self, cost: u64) -> Decision {
        let decision = self.count.take(self.way, self.now, &self.quotas, cost);
        if let Some(receipt) = decision.receipt() {
            let is_refunded = false;
            self.taken.push(Taken {
                receipt,
                is_refunded,
            });
        }
        self.last = Some(decision.clone());
        let event = Event::Took(self.now, cost, decision.clone());
        self.events.push(event);
        decision
    }

    /// Refunds while the clock may go anywhere.
    pub(crate) fn refund_blindly(&mut self, index: usize, units: u64) -> u64 {
        let receipt = self.taken[index].receipt.clone();
        let back = self.count.refund(self.now, &receipt, units);
        self.taken[index].is_refunded = true;
        let event = Event::Refunded(self.now, receipt, units, back);
        self.events.push(event);
        back
    }

    /// What a clone answers at another instant.
    pub(crate) fn would(&self, now: u64, cost: u64) -> Decision {
        self.count.clone().take(self.way, now, &self.quotas, cost)
    }
}

/// What there is to aim at.
pub(crate) struct Past {
    pub(crate) stamps: Vec<u64>,
    pub(crate) retry: Option<Duration>,
    pub(crate) reset: Option<Duration>,
}

/// The instant to which a wait leads; never back.
pub(crate) fn instant(wait: u16, now: u64, quota: &Quota, way: Way, past: &Past) -> u64 {
    let size = u64::from(wait / 16);
    let window = oracle::window(quota);
    let beside = |instant: u64| (instant + size % 3).saturating_sub(1);
    let edge = || {
        let stamp = past
            .stamps
            .get(size as usize / 3 % past.stamps.len().max(1));
        stamp.map_or(now, |stamp| beside(stamp + window))
    };
    let later = match wait % 16 {
        0..=2 => now,
        3 => now + 1,
        4 => now + size % 1_000,
        5 => beside(now + 1_000),
        6 | 7 => beside(now + window / 16 * (size / 3 % 18)),
        8 => beside(now + window / quota.max().max(1) * (1 + size / 3 % 4)),
        9 => beside(now + window / u64::from(way.sub_windows)),
        10..=12 => edge(),
        13 => now + micros(past.retry),
        14 => (now + micros(past.retry)).saturating_sub(1),
        _ => (now + micros(past.reset)).saturating_sub(size % 2),
    };
    later.max(now)
}

/// How much is asked for: mostly little, and often just about what fits.
pub(crate) fn cost(size: u16, limit: u64, left: u64) -> u64 {
    let part = u64::from(size / 16);
    match size % 16 {
        0..=5 => 1,
        6 | 7 => 2,
        8 => 3,
        9 => 1 + part % limit.max(1),
        10 => limit / 2 + 1,
        11 => limit.max(1),
        12 if part.is_multiple_of(64) => u64::MAX,
        12 => limit + 1,
        13 | 14 => left.max(1),
        _ => left.saturating_add(1),
    }
}

/// Some or all of what was charged, or more.
pub(crate) fn part_of(units: u64, size: u16) -> u64 {
    match size % 8 {
        0..=3 => units,
        4 => 1,
        5 => units / 2 + 1,
        6 => units + 1,
        _ => u64::MAX,
    }
}

pub(crate) fn micros(duration: Option<Duration>) -> u64 {
    let micros = duration.unwrap_or_default().as_micros();
    u64::try_from(micros).expect("a wait fits")
}
