//! Watches the limits of this process, and tells the other processes of the service.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::Limits;
use crate::store::{FleetState, OperatorKey, ProcessReport, Store};
use crate::trace;
use crate::warning::{Warning, WarningKind};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// How long telling the fleet and hearing from it may take.
const MAX_EXCHANGE: Duration = Duration::from_secs(3);
/// For so many reports, ten minutes, a deployment may double the processes.
const DEPLOYMENT: u64 = 600;

impl Limits {
    /// Lets this process take part in the fleet of its service: it obeys when an operator
    /// [blocks](Self::block) a key, [lets it through](Self::let_through) or [raises](Self::raise)
    /// it anywhere, and if it has the feature `page`, the pages of others show it. A process with a
    /// page of its own takes part anyway.
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

    /// Begins to watch this process. Returns whether a task does, in this runtime or another one.
    pub(crate) fn watch_process(&self) -> bool {
        if self.member.state().has_started {
            return true;
        }
        if !has_timer() {
            return false;
        }
        if !replace(&mut self.member.state().has_started, true) {
            // Without the checks, which own counters as layers do.
            let limits = self.for_watcher();
            limits.paths.add_watcher();
            limits.begin_reports();
            tokio::spawn(Watcher(limits).run());
        }
        true
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
                self.note_failure("the store did not come back");
            }
        }
    }

    /// Reports the status of this process to the fleet, and applies the answer.
    async fn exchange(&self) {
        let Some(fleet) = self.shared_store().fleet() else {
            return;
        };
        let text = self.report().into();
        let (report, own_changes) = {
            let state = self.member.state();
            let report = ProcessReport {
                process: Arc::clone(&self.member.process),
                text,
                known_version: state.version,
                random: state.secret,
                decides: self.warnings.has_started(),
            };
            (report, state.own_changes)
        };
        match fleet.report(&report).await {
            Ok(state) => self.apply_state(state, own_changes),
            Err(error) => return self.note_failure(&error.to_string()),
        }
        self.reports.ask_others(&*fleet).await;
    }

    /// Obeys what all processes of the service share. The store was asked when this process had
    /// made so many changes of its own.
    fn apply_state(&self, shared: FleetState, own_changes: u64) {
        let said = self.shared_store().capabilities().processes;
        let is_crowded = said.is_some_and(|said| shared.deciding > u64::from(said));
        let mut state = self.member.state();
        state.crowded = u64::from(is_crowded) * (state.crowded + 1);
        if state.crowded >= DEPLOYMENT {
            let warning = Warning::with_name(WarningKind::MoreProcesses, shared.deciding);
            self.warnings.add(warning);
        }
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
                let path = crate::unseen::blanked(path);
                trace::event!(warn: path, "an operator's key is of a rule that is not there");
            }
            self.operator_keys.replace(list);
            state.changes += 1;
        }
    }

    /// The report failed: nothing is known of the other processes.
    fn note_failure(&self, error: &str) {
        self.reports.forget_others();
        let mut state = self.member.state();
        if state.is_accepted.replace(false) != Some(false) {
            trace::event!(warn: error, "the fleet is not told how this process fares");
        }
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
        self.0.member.state().has_started = false;
    }
}
