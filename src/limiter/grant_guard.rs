use std::sync::Arc;

use super::give_back_queue::GiveBackQueue;
use super::limiters::Grant;

/// Gives a grant back when it is dropped, unless it was disarmed.
///
/// The grant may also be one that the caller has not heard of, or its place in the fair queue.
pub(super) struct GrantGuard {
    give_back: Arc<GiveBackQueue>,
    grant: Grant,
    is_armed: bool,
}

impl GrantGuard {
    pub(super) fn new(give_back: &Arc<GiveBackQueue>, grant: Grant, is_armed: bool) -> Self {
        Self {
            give_back: Arc::clone(give_back),
            grant,
            is_armed,
        }
    }

    /// The grant is used, or was never made: dropping the guard does nothing.
    pub(super) fn disarm(&mut self) -> Grant {
        self.is_armed = false;
        self.grant
    }
}

impl Drop for GrantGuard {
    fn drop(&mut self) {
        if self.is_armed {
            self.give_back.add(self.grant);
        }
    }
}
