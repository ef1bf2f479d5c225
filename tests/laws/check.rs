//! Runs a law over many histories, and tells the story of the one that breaks it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;

use kit::random::config;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRunner};

use crate::history::Event;

/// For every law and algorithm, unless `TIDEGATE_HISTORIES` says otherwise.
const HISTORIES: u32 = 3_000;

pub(crate) fn histories() -> u32 {
    let set = std::env::var("TIDEGATE_HISTORIES").ok();
    set.map_or(HISTORIES, |number| {
        number.parse().expect("TIDEGATE_HISTORIES is a number")
    })
}

/// What a run met. A law that was never put to the test holds for nothing.
#[derive(Debug, Default)]
pub(crate) struct Seen(RefCell<BTreeMap<&'static str, u64>>);

impl Seen {
    pub(crate) fn note(&self, what: &'static str) {
        *self.0.borrow_mut().entry(what).or_default() += 1;
    }

    pub(crate) fn note_if(&self, condition: bool, what: &'static str) {
        if condition {
            self.note(what);
        }
    }

    /// At least once, which few histories need not manage.
    pub(crate) fn expect_some(&self, what: &'static str) {
        let met = self.0.borrow().contains_key(what);
        assert!(met || histories() < 1_000, "no {what}: {self:?}");
    }

    /// On average at least so many in a hundred histories.
    pub(crate) fn expect(&self, what: &'static str, in_a_hundred: u64) {
        let met = self.0.borrow().get(what).copied().unwrap_or(0);
        let floor = u64::from(histories()) * in_a_hundred / 100;
        // Few histories may well be less alike.
        let floor = if histories() < 4_000 {
            floor / 2
        } else {
            floor
        };
        assert!(met >= floor, "only {met} of {floor} {what}: {self:?}");
    }
}

/// A law that does not hold here.
pub(crate) type Broken = String;

/// Checks the law for as many histories as asked for.
pub(crate) fn check<S: Strategy>(
    strategy: S,
    law: impl Fn(S::Value, &Seen) -> Result<(), Broken>,
) -> Seen {
    check_some(histories(), strategy, law)
}

/// The same for so many histories.
pub(crate) fn check_some<S: Strategy>(
    histories: u32,
    strategy: S,
    law: impl Fn(S::Value, &Seen) -> Result<(), Broken>,
) -> Seen {
    let config = Config {
        max_shrink_iters: 50_000,
        // The default spends more time than all that it is drawn for, when nothing is optimised.
        rng_algorithm: RngAlgorithm::XorShift,
        ..config(histories)
    };
    let seen = Seen::default();
    let result = TestRunner::new(config).run(&strategy, |history| {
        law(history, &seen).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => panic!("{reason}from {history:?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
    seen
}

/// The law is broken unless this is so.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// What happened until then, line by line.
pub(crate) fn story(events: &[Event]) -> String {
    let mut story = String::from("\n");
    for event in events {
        let line = match event {
            Event::Took(now, cost, decision) => {
                writeln!(story, "  {now}: take {cost}: {decision:?}")
            }
            Event::Refunded(now, receipt, units, back) => {
                writeln!(story, "  {now}: refund {units} of {receipt:?}: {back}")
            }
        };
        line.expect("a string takes all");
    }
    story
}

/// A test of each of these laws for everything in the list: `name argument`.
macro_rules! for_each {
    ($law:ident { $($name:ident $argument:expr,)+ }) => {
        mod $law {
            #[allow(unused_imports, reason = "as the arguments need them")]
            use tidegate::Algorithm::{self, *};

            $(
                #[test]
                fn $name() {
                    super::$law($argument);
                }
            )+
        }
    };
    ($($law:ident),+ of $list:tt) => {
        $(crate::check::for_each!($law $list);)+
    };
}
pub(crate) use for_each;

macro_rules! for_each_algorithm {
    ($($law:ident),+ $(,)?) => {
        crate::check::for_each!($($law),+ of {
            sliding_log SlidingLog,
            sliding_window SlidingWindow,
            gcra Gcra,
            fixed_window FixedWindow,
        });
    };
}
pub(crate) use for_each_algorithm;

/// For all that keep a tally for each quota, instead of one log.
macro_rules! for_each_tally {
    ($($law:ident),+ $(,)?) => {
        crate::check::for_each!($($law),+ of {
            sliding_window SlidingWindow,
            gcra Gcra,
            fixed_window FixedWindow,
        });
    };
}
pub(crate) use for_each_tally;
