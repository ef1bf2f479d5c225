//! Permits that a server keeps for requests in progress: those whose takes have no answer, and the
//! messages of those that come back.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use super::RedisStore;
use crate::connection::{Channels, Connection, QueuedWaiter, ReplyFuture, WaiterInfo, listen};
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::store::{Store, Take};

/// A take of permits that is not answered. Dropped without an answer, it gives back what it may have
/// been granted.
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
    /// Releases twice: behind the take on its connection, and once the server refuses the take, which
    /// may be held up on a connection that was replaced.
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.is_answered {
            return;
        }
        let deadline = self.store.deadline(&self.take);
        let late = Duration::from_millis(10);
        let refused_at = deadline.map_or_else(
            || tokio::time::Instant::now() + self.store.connection.timeout() + late,
            |deadline| deadline.at + deadline.timeout + late,
        );
        let counts = self.take.counts().iter();
        for count in counts.filter(|count| count.rule().is_permits()) {
            let (store, count, holder) = (self.store.clone(), count.anew(1), self.holder.clone());
            let first = store.refund(&count, &holder);
            runtime.spawn(async move {
                if !first.await.is_ok_and(|released| released > 0) {
                    sleep_until(refused_at).await;
                    store.refund(&count, &holder).await.ok();
                }
            });
        }
    }
}

/// Listens to the channels of permits for which requests wait, over the connection of the store.
#[derive(Default)]
pub(super) struct PermitSubscriber(OnceLock<(Arc<Channels>, AbortHandle)>);

impl PermitSubscriber {
    /// Calls `changed` at each message of this channel, and at least once a second.
    pub(super) fn listen(
        &self,
        connection: &Connection,
        channel: String,
        changed: Box<dyn Fn() + Send + Sync>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (channels, _) = self.0.get_or_init(|| {
            let channels = Arc::<Channels>::default();
            let listens = listen(connection.clone(), Arc::clone(&channels));
            let task = connection.runtime().spawn(listens);
            (channels, task.abort_handle())
        });
        let info = WaiterInfo {
            owner: None,
            timeout: connection.timeout(),
        };
        let queued = QueuedWaiter::join(channels, &channel, info);
        async move {
            loop {
                queued.denied(None);
                queued.woken(None).await?;
                changed();
            }
        }
    }
}

impl Drop for PermitSubscriber {
    fn drop(&mut self) {
        if let Some((_, task)) = self.0.get() {
            task.abort();
        }
    }
}
