//! Watches the limits of this process, and tells the other processes of the service.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep, timeout};

use super::fleet::Process;
use super::limits::Limits;
use crate::store::{News, Report, Store};
use crate::sync::lock;
use crate::trace;

const SECOND: Duration = Duration::from_secs(1);

/// How long telling the fleet and hearing from it may take.
const MAX_EXCHANGE: Duration = Duration::from_secs(3);

impl Limits {
    /// Lets this process take part in the fleet that a [page](Self::page) of another process shows,
    /// and obey when an operator [lets a key through](crate::page) there. A process with a page of
    /// its own takes part anyway.
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

    /// Begins to keep what a page shows. Returns whether there is a runtime to do it.
    pub(crate) fn watch_for_page(&self) -> bool {
        if !self.monitor.has_page.load(Ordering::Relaxed) {
            let counted = self.paths.counted(&self.rules().peek());
            let mut state = lock(&self.monitor.state);
            if !self.monitor.has_page.swap(true, Ordering::Relaxed) {
                let tick = state.second.tick;
                state.rates.begin(tick, &counted);
            }
        }
        self.watch_process()
    }

    fn watch_process(&self) -> bool {
        if self.monitor.has_started.load(Ordering::Relaxed) {
            return true;
        }
        let Ok(runtime) = Handle::try_current() else {
            return false;
        };
        // Nothing else tells whether there is a timer. Each panic is printed, so it is tried once.
        if catch_unwind(|| drop(sleep(Duration::ZERO))).is_err() {
            self.monitor.has_started.store(true, Ordering::Relaxed);
            return false;
        }
        if !self.monitor.has_started.swap(true, Ordering::Relaxed) {
            // Without the checks, which own counters as layers do.
            let limits = self.for_watcher();
            limits.paths.add_watcher();
            limits.paths.limited.set_now(limits.monitor.tick());
            let counted = limits.paths.counted(&limits.rules().peek());
            lock(&limits.monitor.state).second.begin(&counted);
            runtime.spawn(Watcher(limits).run());
        }
        true
    }

    async fn sample_each_second(&self) {
        // The task before this one may have ended with its runtime.
        let before = self.monitor.tick();
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

    /// Notes what was counted in the last second.
    fn sample(&self, tick: u64) {
        self.paths.limited.set_now(tick);
        let counted = self.paths.counted(&self.rules().peek());
        let mut state = lock(&self.monitor.state);
        state.second.add(tick, &counted);
        if self.monitor.has_page.load(Ordering::Relaxed) {
            state.rates.add(tick, &counted);
        }
    }

    /// Tells the fleet how this process fares, and hears from it.
    async fn exchange(&self) {
        let store = Arc::clone(self.shared_store());
        let monitor = &*self.monitor;
        let (random, known_version, changes) = {
            let state = lock(&monitor.state);
            (state.secret, state.version, state.own_changes)
        };
        let report = Report {
            process: Arc::clone(&monitor.process),
            text: self.own_process().text().into(),
            known_version,
            random,
        };
        let news = store.report(&report).await;
        let has_fleet = matches!(news, Ok(Some(_)));
        match news {
            Ok(news) => self.hear(news, changes),
            Err(error) => self.hear_nothing(&error.to_string()),
        }
        // While nobody looks or Redis is gone, nothing is known of the others.
        let mut processes = None;
        if has_fleet
            && monitor.is_fleet_wanted()
            && let Ok(said) = store.reports().await
        {
            processes = Some(Arc::new(said.iter().filter_map(Process::read).collect()));
        }
        lock(&monitor.state).processes = processes;
    }

    /// Obeys what all processes of the service share. The store was asked when this process had made
    /// so many changes of its own.
    fn hear(&self, news: Option<News>, own_changes: u64) {
        // Otherwise the store has no fleet.
        let Some(news) = news else { return };
        let mut state = lock(&self.monitor.state);
        state.is_kept = Some(true);
        state.secret = news.secret;
        // A list that may be older than the last change is left: the next report brings another one.
        if let Some(list) = news.let_through
            && state.own_changes == own_changes
        {
            state.version = news.version;
            self.let_through().replace(list);
            self.monitor.changed();
        }
    }

    /// The fleet was not told how this process fares. Nothing is known of the others.
    fn hear_nothing(&self, error: &str) {
        let mut state = lock(&self.monitor.state);
        state.processes = None;
        if state.is_kept != Some(false) {
            trace::event!(warn: error, "the fleet is not told how this process fares");
        }
        state.is_kept = Some(false);
    }

    /// The same for a task that ends with the last layer. Checks own counters as layers do.
    pub(super) fn for_watcher(&self) -> Self {
        let mut limits = self.clone();
        limits.checks = Arc::default();
        limits
    }
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
        self.0.monitor.has_started.store(false, Ordering::Relaxed);
    }
}
