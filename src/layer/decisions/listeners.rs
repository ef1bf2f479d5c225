use std::sync::Arc;
use std::time::SystemTime;

use super::crossing::{CrossingWatch, Crossings};
use super::locked_out::OnLockout;
use crate::charge::{ChargeListener, PathState};
use crate::store::Store;
use crate::take::Take;

/// The code of an application that is told of crossings and lock-outs.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    pub(crate) crossings: Option<Arc<Crossings>>,
    pub(crate) on_lockout: Option<OnLockout>,
}

crate::named::debug_fields!(Listeners);

impl Listeners {
    /// These listeners for the takes of a path; `None` if there are none.
    pub(crate) fn shared(&self) -> Option<Arc<Self>> {
        let are_some = self.crossings.is_some() || self.on_lockout.is_some();
        are_some.then(|| Arc::new(self.clone()))
    }

    /// `None` if nobody is told of crossings, or the take has no calendar quota.
    pub(super) fn watch(
        &self,
        take: &Take,
        store: &Arc<dyn Store>,
        path: &Arc<PathState>,
    ) -> Option<CrossingWatch> {
        let crossings = self.crossings.clone()?;
        take.of_calendar().next()?;
        Some(CrossingWatch {
            crossings,
            store: Arc::clone(store),
            take: take.clone(),
            path: Arc::clone(path),
        })
    }
}

impl ChargeListener for Listeners {
    fn settled(&self, take: &Take, store: &Arc<dyn Store>, path: &Arc<PathState>) {
        self.watch(take, store, path)
            .iter()
            .for_each(CrossingWatch::again);
    }

    fn locked_out(&self, take: &Take, path: &PathState, step: u64, until: SystemTime) {
        self.on_lockout
            .iter()
            .for_each(|it| it(take, path, step, until));
    }
}
