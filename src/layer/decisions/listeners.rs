use std::sync::Arc;

use super::crossing::Crossings;
use crate::charge::OnLockout;

/// The code of an application that is told of crossings and lock-outs.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    pub(crate) crossings: Option<Arc<Crossings>>,
    pub(crate) on_lockout: Option<OnLockout>,
}

impl Listeners {
    /// These listeners for the takes of a path; `None` if there are none.
    pub(crate) fn shared(&self) -> Option<Arc<Self>> {
        let are_some = self.crossings.is_some() || self.on_lockout.is_some();
        are_some.then(|| Arc::new(self.clone()))
    }
}
