use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

use crate::callback::guarded;
use crate::charge::{PathState, Telling};
use crate::in_flight_counter::{InFlight, InFlightCounter};
use crate::trace;

/// Tells code of an application what has happened, in tasks outside of the requests.
#[derive(Default)]
pub(super) struct Teller {
    under_way: InFlightCounter,
    lost: AtomicU64,
}

/// A place among the tasks that are under way, and among those that a flush waits for.
pub(super) type Place = (InFlight, Telling);

/// How many tasks may be under way.
const MAX_UNDER_WAY: usize = 1_024;

impl Teller {
    /// The place of one more task about this path, unless too many are under way.
    pub(super) fn place(&self, path: &PathState) -> Option<Place> {
        let place = self.under_way.try_acquire(MAX_UNDER_WAY)?;
        Some((place, path.telling()))
    }

    /// Does this in a task. It is lost without a place, or outside of a runtime; a panic is logged.
    pub(super) fn tell<F: Future<Output = ()> + Send + 'static>(
        &self,
        path: &str,
        place: Option<Place>,
        telling: impl FnOnce() -> F + Send + 'static,
    ) {
        let (Some(place), Ok(runtime)) = (place, Handle::try_current()) else {
            return self.is_lost(path);
        };
        let path = path.to_owned();
        runtime.spawn(async move {
            let _place = place;
            let _ = guarded("callback of crossings or lock-outs", &path, telling).await;
        });
    }

    pub(super) fn is_lost(&self, path: &str) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        // A line for each would flood the log.
        if lost.is_power_of_two() {
            trace::event!(warn: path, lost, "crossings or lock-outs could not be told");
        }
    }
}
