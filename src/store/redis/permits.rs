//! Permits that a server keeps for requests in progress, and whose takes have no answer.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

use super::RedisStore;
use crate::connection::ReplyFuture;
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::store::{Store, Take};

/// A take of permits that is not answered. Dropped without an answer, it gives back what it may
/// have been granted.
pub(super) struct AskedPermits {
    store: RedisStore,
    take: Take,
    holder: Receipt,
    is_answered: bool,
}

impl AskedPermits {
    pub(super) const fn new(store: RedisStore, take: Take, holder: Receipt) -> Self {
        Self {
            store,
            take,
            holder,
            is_answered: false,
        }
    }

    pub(super) async fn answered(
        mut self,
        reply: ReplyFuture<Decision>,
    ) -> Result<Decision, StoreError> {
        let decision = reply.await;
        self.is_answered = decision.is_ok();
        decision
    }
}

impl Drop for AskedPermits {
    /// Releases behind the take on its connection, and again once the server refuses the take,
    /// which may be held up on a connection that was replaced.
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.is_answered {
            return;
        }
        // A time-out may have no end. Beyond a lease the server has forgotten the permit.
        let bound = match self.store.deadline(&self.take) {
            Some(deadline) => {
                let left = deadline.at.saturating_duration_since(Instant::now());
                left.saturating_add(deadline.timeout)
            }
            None => self.store.connection.timeout(),
        };
        let bound = bound.min(self.take.rule().permit_lease());
        let refused_at = Instant::now() + bound + LATE;
        let counts = self.take.counts().iter();
        for count in counts.filter(|count| count.rule().is_permits()) {
            let (store, count, holder) = (
                self.store.clone(),
                count.first_question(1),
                self.holder.clone(),
            );
            runtime.spawn(release(store, count, holder, refused_at));
        }
    }
}

/// By how much a server's clock may differ.
const LATE: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(500);

/// Asks until the permit is released, or the server says that it has none and refuses the take; and
/// no longer than it would keep the permit.
async fn release(store: RedisStore, count: Take, holder: Receipt, refused_at: Instant) {
    let until = refused_at + count.rule().permit_lease();
    loop {
        let asked_at = Instant::now();
        let released = store.refund(&count.for_refund(1), &holder).await;
        match released {
            Ok(1..) => return,
            Ok(0) if asked_at >= refused_at => return,
            Ok(0) => sleep_until(refused_at).await,
            Err(_) if asked_at >= until => return,
            Err(_) => sleep(PAUSE).await,
        }
    }
}
