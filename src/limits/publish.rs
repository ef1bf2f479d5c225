//! Publishes what the layers count to the `metrics` facade.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use super::limits::Limits;

impl Limits {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Publishes what the layers have counted to the recorder of the
    /// [`metrics`](https://docs.rs/metrics) facade: immediately, and then once per second. The
    /// recorder may be installed later. It then gets the whole counts, and the durations from then
    /// on.
    ///
    /// A thread publishes, so this needs no runtime, and no request waits for a recorder. The
    /// thread ends within a second after all clones of these limits and all layers that they made
    /// were dropped; it publishes their last counts. A panic of the recorder does not end it.
    /// Calling this again, also on a clone, changes nothing.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// let rule = Rule::new("getId", [Quota::per_second(5)])?;
    /// let limits = Limits::new([rule]);
    /// limits.publish_metrics_every_second();
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the system starts no thread, as [`std::thread::spawn`] does.
    pub fn publish_metrics_every_second(&self) {
        if self.publisher.set_periodic() {
            // The thread keeps no connection to a store.
            let limits = self.without_store();
            limits.paths.add_watcher();
            let thread = thread::Builder::new().name("tidegate-metrics".to_owned());
            let started = thread.spawn(move || limits.publish_until_unused());
            started.expect("a thread for metrics");
        }
    }

    /// Publishes what the layers have counted so far to the recorder of the
    /// [`metrics`](https://docs.rs/metrics) facade. A handler that shows metrics may call it,
    /// instead of or beside [`publish_metrics_every_second`](Limits::publish_metrics_every_second):
    /// nothing is counted twice.
    pub fn publish_metrics(&self) {
        self.publisher.publish(|| self.snapshot());
        #[cfg(feature = "config")]
        publish_reloads(&self.status());
    }

    fn publish_until_unused(self) {
        loop {
            // Before the last publication, so that it misses nothing.
            let is_unused = self.paths.are_unused();
            // The recorder is user code, and its panic was printed.
            let _ = catch_unwind(AssertUnwindSafe(|| self.publish_metrics()));
            if is_unused {
                self.paths.remove_watcher();
                return;
            }
            thread::sleep(Self::INTERVAL);
        }
    }
}

/// Publishes which rules are in force, and whether reloading them fails.
#[cfg(feature = "config")]
fn publish_reloads(status: &crate::live::ReloadStatus) {
    use crate::metrics::Metric;

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

    let numbers = [
        (VERSION, status.version),
        (FAILING, u64::from(status.error.is_some())),
        (RELOADS, status.reloads),
        (ERRORS, status.failures),
    ];
    for (metric, number) in numbers {
        metric.describe();
        metric.publish(Vec::new(), number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rule::Rules;

    #[test]
    fn the_thread_ends_with_the_last_layer() {
        const INTERVAL: Duration = Limits::INTERVAL;
        let limits = Limits::new(Rules::default());
        limits.publish_metrics_every_second();
        // Most services make their layers later.
        thread::sleep(INTERVAL / 10);
        let (clone, layer) = (limits.clone(), limits.layer("a"));
        clone.publish_metrics_every_second();
        let (paths, store) = (Arc::downgrade(&limits.paths), Arc::downgrade(&limits.store));
        assert_eq!(paths.strong_count(), 3, "one thread");

        drop((limits, clone));
        assert_eq!(store.strong_count(), 1, "the layer alone has the store");
        thread::sleep(INTERVAL * 2);
        assert_eq!(paths.strong_count(), 1, "a layer is there");
        drop(layer);
        let dropped = std::time::Instant::now();
        while paths.strong_count() > 0 {
            assert!(dropped.elapsed() < INTERVAL * 20, "the thread never ends");
            thread::sleep(INTERVAL / 10);
        }
    }
}
