use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Limits;
#[cfg(feature = "config")]
use super::reload_metrics::publish_reloads;

const INTERVAL: Duration = Duration::from_secs(1);

impl Limits {
    /// Publishes what the layers have counted to the recorder of the
    /// [`metrics`](https://docs.rs/metrics) facade: at once, and then once per second. The recorder
    /// may be installed later. It then gets the whole counts, and the durations from then on.
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
    /// let limits = Limits::new([rule].into_iter().collect());
    /// limits.publish_metrics_every_second();
    /// # Ok::<(), tidegate::rule::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the system starts no thread, as [`std::thread::spawn`] does.
    pub fn publish_metrics_every_second(&self) {
        if self.publisher.set_periodic() {
            let limits = Self {
                // The thread keeps no connection to a store.
                store: Arc::default(),
                ..self.clone()
            };
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
                return;
            }
            thread::sleep(INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::rule::Rules;

    #[test]
    fn the_thread_ends_with_the_last_layer() {
        let limits = Limits::new(Rules::default());
        limits.publish_metrics_every_second();
        // Most services make their layers later.
        thread::sleep(INTERVAL / 10);
        let (clone, layer) = (limits.clone(), limits.layer("a"));
        clone.publish_metrics_every_second();
        let (paths, store) = (Arc::downgrade(&limits.paths), Arc::downgrade(&limits.store));
        assert_eq!(paths.strong_count(), 3, "one thread");

        drop((limits, clone));
        assert_eq!(store.strong_count(), 0, "the thread has no store");
        thread::sleep(INTERVAL * 2);
        assert_eq!(paths.strong_count(), 1, "a layer is there");
        drop(layer);
        let dropped = Instant::now();
        while paths.strong_count() > 0 {
            assert!(dropped.elapsed() < INTERVAL * 20, "the thread never ends");
            thread::sleep(INTERVAL / 10);
        }
    }
}
