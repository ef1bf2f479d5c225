//! Permits that a server keeps for requests in progress, and whose takes have no answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::RedisStore;
use crate::connection::ReplyFuture;
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::question::Ask;
use crate::store::Store;
use crate::unawaited::UnawaitedCall;

/// A take of permits that is not answered. Dropped without an answer, it gives back what it may
/// have been granted.
pub(super) struct AskedPermits {
    store: RedisStore,
    ask: Ask,
    holder: Receipt,
    /// Until its future is polled, nobody knows.
    may_be_held: bool,
}

impl AskedPermits {
    pub(super) const fn new(store: RedisStore, ask: Ask, holder: Receipt) -> Self {
        Self {
            store,
            ask,
            holder,
            may_be_held: true,
        }
    }

    pub(super) async fn answered(
        mut self,
        reply: ReplyFuture<Decision>,
    ) -> Result<Decision, StoreError> {
        self.may_be_held = false;
        let withdrawal = reply.withdrawal(&mut self.may_be_held);
        let decision = reply.await;
        drop(withdrawal);
        self.may_be_held &= decision.is_err();
        decision
    }
}

impl Drop for AskedPermits {
    /// Releases behind the take on its connection, and again once the server refuses the take,
    /// which may be held up on a connection that was replaced.
    fn drop(&mut self) {
        if !self.may_be_held {
            return;
        }
        // A time-out may have no end. Beyond a lease the server has forgotten the permit.
        let (deadline, now) = (self.store.deadline(&self.ask), Instant::now());
        let bound = deadline.at.saturating_duration_since(now) + deadline.timeout;
        for (at, count) in self.ask.counts().iter().enumerate() {
            let Some(lease) = count.spec().permits().map(|it| it.lease) else {
                continue;
            };
            let refused_at = now + bound.min(lease) + LATE;
            let (store, count, holder) = (
                self.store.clone(),
                self.ask.only(at).first_question(1),
                self.holder.clone(),
            );
            let release = |call| release(store, count, holder, refused_at, lease, call);
            self.store.connection.run_unawaited(release);
        }
    }
}

/// By how much a server's clock may differ.
const LATE: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(500);

/// Asks until there is an answer, behind the take, and once more when the server refuses the take, if
/// it had none before.
async fn release(
    store: RedisStore,
    count: Ask,
    holder: Receipt,
    refused_at: Instant,
    lease: Duration,
    call: UnawaitedCall,
) {
    let was_held = AtomicBool::new(false);
    let ask = async || {
        // It does not keep the permit for longer.
        let until = refused_at + lease;
        loop {
            match store.refund(&count.for_refund(1), &holder).await {
                Ok(released) => return was_held.store(released > 0, Ordering::Relaxed),
                Err(_) if Instant::now() >= until => return,
                Err(_) => sleep(PAUSE).await,
            }
        }
    };
    call.until(ask()).await;
    if !was_held.load(Ordering::Relaxed) {
        sleep_until(refused_at).await;
        ask().await;
    }
}
