//! The laws that every [`Store`] keeps, as a suite for custom stores.
//!
//! [`check`] runs all laws of an algorithm, each on a new store that reads a clock which the suite
//! moves. A store that takes its decisions from [`Count`](crate::algorithm::Count) passes if it
//! keeps its counts apart, whole and in order. What its [`Capabilities`](crate::store::Capabilities)
//! say besides is checked, too: permits, units owed, periods of the calendar, several counts.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidegate::test_util::{ManualClock, conformance};
//! use tidegate::{Algorithm, MemoryStore, Store};
//!
//! struct Memory {
//!     store: Arc<MemoryStore>,
//!     clock: ManualClock,
//! }
//!
//! impl conformance::Context for Memory {
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.store.clone()
//!     }
//!
//!     fn advance(&self, by: Duration) {
//!         self.clock.set(self.clock.now() + by.as_micros() as u64);
//!     }
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! for algorithm in Algorithm::ALL {
//!     conformance::check(algorithm, async || {
//!         let clock = ManualClock::default();
//!         clock.set(1_800_000_000_000_777);
//!         let store = Arc::new(MemoryStore::new().clock(clock.clone()));
//!         Memory { store, clock }
//!     })
//!     .await;
//! }
//! # }
//! ```

// A law stands in the file of its subject; what is not promised of every store is tested in
// `tests/store/`.

mod calendars;
mod decisions;
mod permits;
mod refunds;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;

use crate::algorithm::Algorithm;
use crate::decision::{Decision, Receipt};
use crate::key::Key;
use crate::question::Ask;
use crate::quota::Quota;
use crate::rule::Rule;
use crate::store::Store;
use crate::take::Take;

/// Runs these laws, each on a store of its own.
macro_rules! run {
    ($algorithm:expr, $make:expr => $($module:ident :: $law:ident),+ $(,)?) => {
        {$({
            let context = $make().await;
            let subject = StoreUnderTest::new(&context, $algorithm);
            let law = AssertUnwindSafe($module::$law(&subject)).catch_unwind();
            if let Err(panic) = law.await {
                eprintln!("{}: the store breaks the law {}", $algorithm.name(), stringify!($law));
                std::panic::resume_unwind(panic);
            }
        })+}
    };
}

/// Checks all laws of an algorithm, each on a new store. It needs a tokio runtime; with one of
/// several threads, takes come from several threads simultaneously.
///
/// # Panics
///
/// If the store breaks a law, after saying which on the standard error output.
pub async fn check<C: Context>(algorithm: Algorithm, new: impl AsyncFn() -> C) {
    run!(algorithm, new =>
        decisions::retry_after_is_the_truth,
        decisions::peeking_charges_nothing,
        decisions::peeking_is_never_denied,
        decisions::costs_are_weights,
        decisions::what_costs_nothing_is_decided,
        decisions::what_can_never_be_has_no_retry_after,
        decisions::keys_and_paths_are_counted_apart,
        decisions::takes_asked_at_once_are_all_decided,
        decisions::exact_under_concurrency,
        refunds::what_is_given_back_is_there_again,
        refunds::nothing_is_given_back_too_late,
        refunds::each_algorithm_has_a_count_of_its_own,
        refunds::a_reset_forgets_one_key,
        refunds::a_reset_ends_earlier_receipts,
    );
    let can = new().await.store().capabilities();
    if can.permits {
        run!(algorithm, new =>
            permits::permits_are_decided_with_quotas,
            permits::permits_are_leases,
            permits::what_costs_nothing_is_charged_elsewhere,
        );
    }
    if can.calendar {
        run!(algorithm, new =>
            calendars::a_period_is_refilled_at_its_end,
            calendars::periods_end_at_midnight,
            calendars::another_max_goes_on,
            calendars::charges_are_of_their_period,
            calendars::what_costs_nothing_uses_nothing,
        );
    }
    if can.joint {
        run!(algorithm, new => decisions::counts_are_charged_together);
    }
    if can.calendar && can.joint {
        run!(algorithm, new => calendars::periods_are_charged_with_windows);
    }
    if can.owes {
        run!(algorithm, new => refunds::units_owed_are_charged_above_max);
    }
    check_own(algorithm, &new).await;
}

/// What this algorithm promises beside the others.
async fn check_own<C: Context>(algorithm: Algorithm, new: &impl AsyncFn() -> C) {
    match algorithm {
        Algorithm::SlidingLog => run!(algorithm, new =>
            decisions::never_more_than_max,
            decisions::denied_means_untouched,
            decisions::quotas_are_charged_together,
            decisions::every_window_holds,
            decisions::a_longer_window_is_not_forgotten,
            decisions::reset_after_is_the_truth,
            decisions::a_changed_rule_keeps_the_count,
        ),
        Algorithm::SlidingWindow => run!(algorithm, new =>
            decisions::never_more_than_max,
            decisions::denied_means_untouched,
            decisions::quotas_are_charged_together,
            decisions::every_window_holds,
            decisions::a_longer_window_is_not_forgotten,
        ),
        Algorithm::Gcra => run!(algorithm, new => decisions::a_burst_and_then_the_rate),
        Algorithm::FixedWindow => run!(algorithm, new =>
            decisions::never_more_than_max,
            decisions::denied_means_untouched,
            decisions::quotas_are_charged_together,
            decisions::an_edge_admits_twice,
        ),
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MICROSECOND: Duration = Duration::from_micros(1);

/// An empty store, asked by one algorithm.
struct StoreUnderTest<'a> {
    store: Arc<dyn Store>,
    context: &'a dyn Context,
    algorithm: Algorithm,
    /// Since the beginning, in microseconds.
    elapsed: AtomicU64,
}

impl<'a> StoreUnderTest<'a> {
    fn new(context: &'a dyn Context, algorithm: Algorithm) -> Self {
        Self {
            store: context.store(),
            context,
            algorithm,
            elapsed: AtomicU64::new(0),
        }
    }

    fn rule(&self, path: &str, quotas: &[Quota]) -> Arc<Rule> {
        let rule = Rule::new(path, quotas.iter().copied()).expect("a valid rule");
        Arc::new(rule.with_algorithm(self.algorithm))
    }

    /// A take of 1 without a key.
    fn take(&self, path: &str, quotas: &[Quota]) -> Take {
        Take::new(self.rule(path, quotas), Key::default())
    }

    fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a short time");
        self.elapsed.fetch_add(micros, Ordering::Relaxed);
        self.context.advance(by);
    }

    fn elapsed(&self) -> u64 {
        self.elapsed.load(Ordering::Relaxed)
    }

    async fn decision(&self, take: &Take) -> Decision {
        self.store.take(take).await.expect("a decision")
    }

    /// The receipt of a take that has to be allowed.
    async fn receipt(&self, take: &Take) -> Receipt {
        let decision = self.decision(take).await;
        decision.receipt().expect("it was charged")
    }

    async fn refund(&self, ask: &Ask, receipt: &Receipt) -> u64 {
        let given_back = self.store.refund(ask, receipt).await;
        given_back.expect("an answer")
    }

    /// How many of these takes are allowed, asked one after the other.
    async fn allowed(&self, take: &Take, times: usize) -> usize {
        allowed(&*self.store, take, times).await
    }

    async fn peek(&self, take: &Take) -> Decision {
        self.store.peek(take).await.expect("a decision")
    }
}

async fn allowed(store: &dyn Store, take: &Take, times: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..times {
        let decision = store.take(take).await.expect("a decision");
        allowed += usize::from(decision.is_allowed());
    }
    allowed
}

fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(window, max).expect("a valid quota")
}

/// A store under test and its clock.
pub trait Context: Send + Sync {
    /// The store. It is empty when the context is new, and the same in every call.
    fn store(&self) -> Arc<dyn Store>;

    /// Moves the store's clock forward. Nothing else moves it, and all decisions read it.
    ///
    /// The suite moves it by some days altogether. It needs a resolution of one microsecond.
    fn advance(&self, by: Duration);
}
