use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate::decision::Receipt;
use tidegate::store::{StoreErrorKind, StoreFuture};
use tidegate::{Decision, Store, StoreError, Take};

use super::network::Network;
use super::server::{Answer, Question};

pub(super) type SharedNetwork = Arc<Mutex<Network>>;

/// The server as a process sees it.
pub(super) struct Remote {
    network: SharedNetwork,
    link: usize,
}

impl Remote {
    pub(super) const fn new(network: SharedNetwork, link: usize) -> Self {
        Self { network, link }
    }

    fn ask<T: Send + 'static>(
        &self,
        question: Question,
        answer: fn(Answer) -> Option<T>,
    ) -> StoreFuture<T> {
        let reply = lock(&self.network).ask(self.link, question);
        StoreFuture::boxed(async move {
            let timed_out = || StoreError::new(StoreErrorKind::Timeout, "no answer");
            let reply = reply.await.ok().flatten();
            reply.and_then(answer).ok_or_else(timed_out)
        })
    }
}

/// Nothing panics while it is locked.
pub(super) fn lock(network: &SharedNetwork) -> MutexGuard<'_, Network> {
    network.lock().expect("not poisoned")
}

impl Store for Remote {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.ask(Question::Take(take.clone()), |answer| match answer {
            Answer::Taken(decision) => Some(decision),
            Answer::Refunded(_) => None,
        })
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        let question = Question::Refund(take.clone(), receipt.clone());
        self.ask(question, |answer| match answer {
            Answer::Refunded(units) => Some(units),
            Answer::Taken(_) => None,
        })
    }

    fn reset(&self, _: &Take) -> StoreFuture<bool> {
        StoreFuture::ready(Ok(false))
    }

    fn name(&self) -> String {
        "simulated".to_owned()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
