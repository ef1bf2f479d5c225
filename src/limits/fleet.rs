//! Watches the limits of this process, and tells the other processes of the service.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep, timeout};

use super::Limits;
use crate::fleet::process::{Process, short_name};
use crate::metrics::RuleSnapshot;
use crate::store::{FleetState, OperatorKey, Report, Store};
use crate::sync::lock;
use crate::trace;

const SECOND: Duration = Duration::from_secs(1);

/// How long telling the fleet and hearing from it may take.
const MAX_EXCHANGE: Duration = Duration::from_secs(3);

impl Limits {
    /// Lets this process take part in the fleet that a [page](Self::page) of another process shows,
    /// and obey when an operator [lets a key through, blocks it](crate::page) or
    /// [raises it](Self::raise) anywhere. A process
    /// with a page of its own takes part anyway.
    ///
    /// With a store on Redis, a task tells Redis once a second how this process fares, under the
    /// store's prefix. It ends within two seconds after the last layer and the last clone of these
    /// limits. Calling this again, also on a clone, changes nothing.
    ///
    /// Outside of a tokio runtime with a timer it does nothing, and says so in the log.
    ///
    /// ```
    /// use tidegate::{Limits, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Limits::new([Rule::new("login", [Quota::per_minute(5)])?]);
    /// limits.join_fleet();
    /// # Ok(())
    /// # }
    /// ```
    pub fn join_fleet(&self) {
        if !self.watch_process() {
            trace::event!(warn: "join_fleet was called outside of a tokio runtime: it does nothing");
        }
    }

    /// What pages call this process, beside its number: of these limits and all their clones, also
    /// of those that were made before. Blanks around it are left out, and at most 64 characters are
    /// kept. An empty name is none. Default: the name of the host, which for a container is that of
    /// its pod: the environment variable `HOSTNAME`, else the text of `/etc/hostname`.
    ///
    /// ```
    /// use tidegate::{Limits, Rules};
    ///
    /// let limits = Limits::new(Rules::default()).process_name("checkout-2");
    /// # let _ = limits;
    /// ```
    pub fn process_name(self, name: impl AsRef<str>) -> Self {
        let mut state = self.monitor().state();
        state.name = short_name(name.as_ref());
        state.changes += 1;
        drop(state);
        self
    }

    /// Begins to keep what a page shows.
    pub(crate) fn watch_for_page(&self) {
        if !self.monitor().state().has_page {
            let counted = self.counted();
            let mut state = self.monitor().state();
            if !replace(&mut state.has_page, true) {
                let tick = state.second.tick;
                state.rates.begin(tick, &counted);
            }
        }
        // A browser asks each second, and each search for a timer in vain prints a panic.
        if !self.monitor().state().lacks_timer {
            self.watch_process();
        }
    }

    /// Begins to watch this process. Returns whether a task does, in this runtime or another one.
    pub(crate) fn watch_process(&self) -> bool {
        if self.monitor().state().has_started {
            return true;
        }
        if !has_timer() {
            self.monitor().state().lacks_timer = Handle::try_current().is_ok();
            return false;
        }
        if !replace(&mut self.monitor().state().has_started, true) {
            // Without the checks, which own counters as layers do.
            let limits = self.for_watcher();
            limits.paths.add_watcher();
            limits
                .paths
                .limited
                .set_now(limits.monitor().state().second.tick);
            let counted = limits.counted();
            limits.monitor().state().second.begin(&counted);
            tokio::spawn(Watcher(limits).run());
        }
        true
    }

    async fn sample_each_second(&self) {
        // The task before this one may have ended with its runtime.
        let before = self.monitor().state().second.tick;
        let began = Instant::now();
        let mut seconds = interval_at(began + SECOND, SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.paths.are_unused() {
            seconds.tick().await;
            self.sample(before.saturating_add(began.elapsed().as_secs()));
        }
    }

    async fn exchange_each_second(&self) {
        let mut seconds = interval(SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.paths.are_unused() {
            seconds.tick().await;
            // A store of somebody else may hang, or panic.
            let exchange = timeout(MAX_EXCHANGE, self.exchange());
            let is_over = AssertUnwindSafe(exchange).catch_unwind().await;
            if !matches!(is_over, Ok(Ok(()))) {
                self.hear_nothing("the store did not come back");
            }
        }
    }

    /// What the layers of each path have counted, and whether there is a rule.
    fn counted(&self) -> Vec<(RuleSnapshot, bool)> {
        let (rules, paths) = (self.rules().guard(), lock(&self.paths.counters));
        let counted = paths.iter();
        let counted = counted.map(|(path, it)| (it.numbers(path), rules.contains(path)));
        counted.collect()
    }

    /// Notes what was counted in the last second.
    fn sample(&self, tick: u64) {
        self.paths.limited.set_now(tick);
        let counted = self.counted();
        let mut state = self.monitor().state();
        state.second.add(tick, &counted);
        if state.has_page {
            state.rates.add(tick, &counted);
        }
    }

    /// Tells the fleet how this process fares, and hears from it.
    async fn exchange(&self) {
        let Some(fleet) = self.shared_store().fleet() else {
            return;
        };
        let monitor = self.monitor();
        let text = Process::own(self).text().into();
        let (report, own_changes) = {
            let state = monitor.state();
            let report = Report {
                process: Arc::clone(&monitor.process),
                text,
                known_version: state.version,
                random: state.secret,
            };
            (report, state.own_changes)
        };
        match fleet.report(&report).await {
            Ok(state) => self.hear(state, own_changes),
            Err(error) => return self.hear_nothing(&error.to_string()),
        }
        // While nobody looks, nothing is known of the others.
        let mut processes = None;
        if monitor.is_fleet_wanted()
            && let Ok(reports) = fleet.reports().await
        {
            processes = Some(Arc::new(reports.iter().filter_map(Process::read).collect()));
        }
        monitor.state().processes = processes;
    }

    /// Obeys what all processes of the service share. The store was asked when this process had
    /// made so many changes of its own.
    fn hear(&self, shared: FleetState, own_changes: u64) {
        let mut state = self.monitor().state();
        state.is_accepted = Some(true);
        state.secret = shared.secret;
        // A list that may be older than the last change is left: the next report brings another.
        if let Some(list) = shared.keys
            && state.own_changes == own_changes
        {
            state.version = shared.version;
            let rules = self.rules().guard();
            if let Some(OperatorKey { path, .. }) = list.iter().find(|it| !rules.contains(&it.path))
            {
                let path = &**path;
                trace::event!(warn: path, "an operator's key is of a rule that is not there");
            }
            self.operator_keys.replace(list);
            state.changes += 1;
        }
    }

    /// The fleet was not told how this process fares. Nothing is known of the others.
    fn hear_nothing(&self, error: &str) {
        let mut state = self.monitor().state();
        state.processes = None;
        if state.is_accepted != Some(false) {
            trace::event!(warn: error, "the fleet is not told how this process fares");
        }
        state.is_accepted = Some(false);
    }
}

/// Whether there is a runtime with a timer. Only a panic, which is printed, tells that it has none.
pub(crate) fn has_timer() -> bool {
    Handle::try_current().is_ok() && catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok()
}

/// A task that ends with the last layer. It has ended also if it was aborted or never ran.
struct Watcher(Limits);

impl Watcher {
    async fn run(self) {
        tokio::join!(self.0.sample_each_second(), self.0.exchange_each_second());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.paths.remove_watcher();
        self.0.monitor().state().has_started = false;
    }
}
