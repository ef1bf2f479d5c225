//! Watches the limits of this process for the page, and tells the other processes of the service.

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::fleet::{LastSecond, Process};
use super::limits::Limits;
use super::rates::RateHistory;
use crate::store::{Report, Store};
use crate::sync::lock;
use crate::trace;

/// What is known of this process and of its fleet, for pages. Clones of [`Limits`] share it.
#[derive(Debug)]
pub(crate) struct Monitor {
    /// This process: 16 hexadecimal digits.
    pub(crate) process: Arc<str>,
    has_started: AtomicBool,
    /// Whether a page is there: without one, nothing is kept but what the fleet is told.
    has_page: AtomicBool,
    state: Mutex<State>,
    /// Rises with whatever a view shows beside the seconds.
    pub(crate) changes: AtomicU64,
    /// When a page asked for the fleet last, in seconds.
    fleet_wanted_at: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    rates: RateHistory,
    second: LastSecond,
    secret: [u8; 16],
    /// The version of the list of keys that are let through.
    version: u64,
    /// Whether the last report was kept. `None` before the first one, and without a fleet.
    is_kept: Option<bool>,
    processes: Arc<Vec<Process>>,
}

const SECOND: Duration = Duration::from_secs(1);

/// How long telling the fleet and hearing from it may take.
const MAX_EXCHANGE: Duration = Duration::from_secs(3);

/// A view of the fleet is kept up to date for so many seconds after somebody looked.
const FLEET_WANTED_FOR: u64 = 10;

impl Default for Monitor {
    fn default() -> Self {
        Self {
            process: hex(&random()[..8]).into(),
            has_started: AtomicBool::new(false),
            has_page: AtomicBool::new(false),
            state: Mutex::new(State {
                secret: random(),
                ..State::default()
            }),
            changes: AtomicU64::new(0),
            fleet_wanted_at: AtomicU64::new(u64::MAX / 2),
        }
    }
}

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
        self.monitor.has_page.store(true, Ordering::Relaxed);
        self.watch_process()
    }

    fn watch_process(&self) -> bool {
        if self.monitor.has_started.load(Ordering::Relaxed) {
            return true;
        }
        let Ok(runtime) = Handle::try_current() else {
            return false;
        };
        // Nothing else tells whether there is a timer.
        if catch_unwind(|| drop(sleep(Duration::ZERO))).is_err() {
            return false;
        }
        if !self.monitor.has_started.swap(true, Ordering::Relaxed) {
            // Without the checks, which own counters as layers do.
            let limits = self.for_watcher();
            limits.paths.add_watcher();
            runtime.spawn(limits.watch_until_unused());
        }
        true
    }

    async fn watch_until_unused(self) {
        let _watcher = Watcher(&self);
        tokio::join!(self.sample_each_second(), self.exchange_each_second());
    }

    async fn sample_each_second(&self) {
        let began = Instant::now();
        let mut seconds = interval(SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while !self.paths.are_unused() {
            seconds.tick().await;
            self.sample(began.elapsed().as_secs());
        }
    }

    async fn exchange_each_second(&self) {
        let mut seconds = interval(SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.paths.are_unused() {
            seconds.tick().await;
            // A store of somebody else may hang, or panic.
            let exchange = timeout(MAX_EXCHANGE, self.exchange());
            let _ = AssertUnwindSafe(exchange).catch_unwind().await;
        }
    }

    /// Notes what was counted in the last second.
    fn sample(&self, tick: u64) {
        let has_page = self.monitor.has_page.load(Ordering::Relaxed);
        if has_page {
            self.paths.limited.set_now(tick);
        }
        let mut paths = Vec::new();
        self.paths.totals(&self.rules().peek(), |path, totals| {
            paths.push((Box::<str>::from(path), totals));
        });
        let paths: Vec<_> = paths.iter().map(|(path, all)| (&**path, *all)).collect();
        let mut state = lock(&self.monitor.state);
        state
            .second
            .add(tick, paths.iter().map(|(_, totals)| totals));
        if has_page {
            state.rates.add(tick, &paths);
        }
    }

    /// Tells the fleet how this process fares, and hears from it.
    async fn exchange(&self) {
        let store = Arc::clone(self.shared_store());
        let monitor = &*self.monitor;
        let (random, known_version) = {
            let state = lock(&monitor.state);
            (state.secret, state.version)
        };
        let report = Report {
            process: Arc::clone(&monitor.process),
            text: self.own_process().text().into(),
            known_version,
            random,
        };
        let news = store.report(&report).await;
        let is_wanted = monitor.is_fleet_wanted();
        let processes = match &news {
            Ok(Some(_)) if is_wanted => store.reports().await.ok(),
            _ => None,
        };
        let mut state = lock(&monitor.state);
        match news {
            // The store has no fleet.
            Ok(None) => {}
            Ok(Some(news)) => {
                state.is_kept = Some(true);
                state.secret = news.secret;
                state.version = news.version;
                if let Some(list) = news.let_through {
                    self.let_through().replace(list);
                    monitor.changed();
                }
            }
            Err(error) => {
                if state.is_kept != Some(false) {
                    let error = error.to_string();
                    trace::event!(warn: error, "the fleet is not told how this process fares");
                }
                state.is_kept = Some(false);
            }
        }
        let processes = processes.map(|all| all.iter().filter_map(Process::read).collect());
        // While nobody looks or Redis is gone, nothing is known of the others.
        state.processes = Arc::new(processes.unwrap_or_default());
    }

    /// How this process fares, for the fleet and for its own page.
    pub(crate) fn own_process(&self) -> Process {
        let second = lock(&self.monitor.state).second.clone();
        Process::own(self, &self.monitor.process, &second)
    }
}

/// Ends the watch also if its task is aborted or panics.
struct Watcher<'a>(&'a Limits);

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        self.0.paths.remove_watcher();
        self.0.monitor.has_started.store(false, Ordering::Relaxed);
    }
}

impl Monitor {
    /// The seconds since this process began to watch.
    pub(crate) fn tick(&self) -> u64 {
        lock(&self.state).second.tick
    }

    /// Something that a view shows has changed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the store kept the last report; `None` without a fleet.
    pub(crate) fn is_kept(&self) -> Option<bool> {
        lock(&self.state).is_kept
    }

    pub(crate) fn with_rates<R>(&self, read: impl FnOnce(&RateHistory) -> R) -> R {
        read(&lock(&self.state).rates)
    }

    /// The processes of the fleet, as of the last second. Nothing at first: they are asked for while
    /// somebody looks.
    pub(crate) fn processes(&self) -> Arc<Vec<Process>> {
        let state = lock(&self.state);
        self.fleet_wanted_at
            .store(state.second.tick, Ordering::Relaxed);
        Arc::clone(&state.processes)
    }

    fn is_fleet_wanted(&self) -> bool {
        let wanted_at = self.fleet_wanted_at.load(Ordering::Relaxed);
        let now = self.tick();
        (wanted_at..=wanted_at.saturating_add(FLEET_WANTED_FOR)).contains(&now)
    }

    /// What pages call a key of a rule: 32 hexadecimal digits, the same in all processes. Without
    /// the secret they tell nothing of the key.
    pub(crate) fn row(&self, path: &str, key: &str) -> String {
        let secret = lock(&self.state).secret;
        let mut hash = Sha256::new();
        hash.update(secret);
        hash.update(path.len().to_be_bytes());
        hash.update(path);
        hash.update(key);
        hex(&hash.finalize()[..16])
    }
}

/// Random bits of the operating system, which seeds the maps of the standard library.
fn random() -> [u8; 16] {
    let (one, other) = (RandomState::new(), RandomState::new());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&one.hash_one(0_u8).to_be_bytes());
    bytes[8..].copy_from_slice(&other.hash_one(1_u8).to_be_bytes());
    bytes
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
