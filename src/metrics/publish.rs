//! When metrics are published, and those of rules that are read from a file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

#[cfg(feature = "config")]
use super::publisher::{Metric, Publisher};

pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Calls `publish` immediately and then once per second, and a last time after `is_unused`.
pub(crate) fn publish_until(is_unused: impl Fn() -> bool, publish: impl Fn()) {
    loop {
        // Before the last publication, so that it misses nothing.
        let is_last = is_unused();
        // The recorder is user code, and its panic was printed.
        let _ = catch_unwind(AssertUnwindSafe(&publish));
        if is_last {
            return;
        }
        thread::sleep(INTERVAL);
    }
}

/// Publishes which rules are in force, whether reloading them fails, and how often it did both.
#[cfg(feature = "config")]
pub(crate) fn publish_reloads(publisher: &Publisher, numbers: [u64; 4]) {
    const VERSION: Metric = Metric::Gauge(
        "tidegate_config_version",
        "The version of the rules in force: 1 at the start, one more for each change.",
    );
    const FAILING: Metric = Metric::Gauge(
        "tidegate_config_reload_failing",
        "1 while the file is refused and the old rules stay in force, else 0.",
    );
    const RELOADS: Metric = Metric::Counter(
        "tidegate_config_reloads_total",
        "How often a file's new rules were applied.",
    );
    const ERRORS: Metric = Metric::Counter(
        "tidegate_config_reload_errors_total",
        "How often a file was refused.",
    );

    for (metric, number) in [VERSION, FAILING, RELOADS, ERRORS].iter().zip(numbers) {
        metric.describe();
        publisher.set(metric, Vec::new(), number);
    }
}
