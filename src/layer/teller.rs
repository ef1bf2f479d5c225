use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use crate::callback::guarded;
use crate::in_flight_counter::{InFlight, InFlightCounter};
use crate::trace;

/// Tells code of an application what has happened, in tasks outside of the requests.
pub(super) struct Teller<T> {
    /// Names the code in the log.
    who: &'static str,
    callback: Box<dyn Fn(T) -> BoxFuture<'static, ()> + Send + Sync>,
    under_way: InFlightCounter,
    lost: AtomicU64,
}

/// How many calls of the code may be under way.
const MAX_UNDER_WAY: usize = 1_024;

impl<T: Send + 'static> Teller<T> {
    pub(super) fn new<F: Future<Output = ()> + Send + 'static>(
        who: &'static str,
        callback: impl Fn(T) -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            who,
            callback: Box::new(move |it| Box::pin(callback(it))),
            under_way: InFlightCounter::default(),
            lost: AtomicU64::new(0),
        }
    }

    /// The place of one more call, unless too many are under way.
    pub(super) fn place(&self) -> Option<InFlight> {
        self.under_way.try_acquire(MAX_UNDER_WAY)
    }

    /// Does this in a task, with its place.
    pub(super) fn spawn(
        &self,
        path: &str,
        place: InFlight,
        telling: impl Future<Output = ()> + Send + 'static,
    ) {
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                let _place = place;
                telling.await;
            })),
            Err(_) => self.is_lost(path),
        }
    }

    /// Calls the code. Its panic is logged.
    pub(super) async fn tell(&self, path: &str, what: T) {
        let _ = guarded(self.who, path, || (self.callback)(what)).await;
    }

    /// The code is not told.
    pub(super) fn is_lost(&self, path: &str) {
        let (who, lost) = (self.who, self.lost.fetch_add(1, Ordering::Relaxed) + 1);
        // A line for each would flood the log.
        if lost.is_power_of_two() {
            trace::event!(warn: path, who, lost, "a callback could not be called");
        }
    }
}
