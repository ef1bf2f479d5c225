use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::subject::Subject;
use super::{Context, decisions, leases, refunds};
use crate::algorithm::Algorithm;

/// Runs these laws, each on a store of its own.
macro_rules! run {
    ($algorithm:expr, $make:expr => $($module:ident :: $law:ident),+ $(,)?) => {
        {$({
            let context = $make().await;
            let subject = Subject::new(&context, $algorithm);
            let law = AssertUnwindSafe($module::$law(&subject)).catch_unwind();
            if let Err(panic) = law.await {
                eprintln!("{}: the store breaks the law {}", $algorithm.name(), stringify!($law));
                std::panic::resume_unwind(panic);
            }
        })+}
    };
}

/// Checks all laws of an algorithm, each on a new store. It needs a tokio runtime; with one of
/// several threads, takes come from several threads at once.
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
    use Algorithm::{FixedWindow, Gcra, SlidingLog, SlidingWindow};
    if matches!(algorithm, SlidingLog | SlidingWindow | FixedWindow) {
        run!(algorithm, new =>
            decisions::never_more_than_max,
            decisions::denied_means_untouched,
            decisions::quotas_are_charged_together,
        );
    }
    if matches!(algorithm, SlidingLog | SlidingWindow) {
        run!(algorithm, new =>
            decisions::every_window_holds,
            decisions::a_longer_window_is_not_forgotten,
            leases::units_count_longer_for_every_taker,
            leases::units_count_no_longer_without_a_lease,
        );
    }
    if algorithm == SlidingLog {
        run!(algorithm, new =>
            decisions::reset_after_is_the_truth,
            decisions::a_changed_rule_keeps_the_count,
        );
    }
    if algorithm == Gcra {
        run!(algorithm, new => decisions::a_burst_and_then_the_rate);
    }
    if algorithm == FixedWindow {
        run!(algorithm, new => decisions::an_edge_admits_twice);
    }
}
