//! A store that is far away from its caller: messages take time, and are lost if the test says so.
//! It counts what it is asked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::store::{Ask, Change, StoreErrorKind, StoreFuture};
use tidegate::{Decision, Store, StoreError};
use tokio::time::sleep;

use crate::millis;

/// What becomes of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Answered,
    /// It never arrives; the caller hears of it after the two ways.
    QuestionLost,
    /// The answer is lost.
    ReplyLost,
    /// Nobody ever hears of it.
    Silence,
}

#[derive(Debug, Clone)]
pub struct Distant {
    inner: Arc<dyn Store>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Milliseconds there, and back.
    ways: (AtomicU64, AtomicU64),
    takes: Mutex<Fate>,
    refunds: Mutex<Fate>,
    asked: AtomicUsize,
}

impl Distant {
    pub fn new(inner: impl Store) -> Self {
        Self {
            inner: Arc::new(inner),
            shared: Arc::new(Shared {
                ways: Default::default(),
                takes: Mutex::new(Fate::Answered),
                refunds: Mutex::new(Fate::Answered),
                asked: Default::default(),
            }),
        }
    }

    /// The ways there and back, in milliseconds.
    pub fn ways(self, there: u64, back: u64) -> Self {
        self.set_ways(there, back);
        self
    }

    pub fn set_ways(&self, there: u64, back: u64) {
        self.shared.ways.0.store(there, Ordering::Relaxed);
        self.shared.ways.1.store(back, Ordering::Relaxed);
    }

    pub fn takes_are(&self, fate: Fate) {
        *self.shared.takes.lock().expect("no panic") = fate;
    }

    pub fn refunds_are(&self, fate: Fate) {
        *self.shared.refunds.lock().expect("no panic") = fate;
    }

    /// Calls of `take` so far.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    fn send<T: Send + 'static>(
        &self,
        fate: Fate,
        ask: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let load = |way: &AtomicU64| millis(way.load(Ordering::Relaxed));
        let (there, back) = (load(&self.shared.ways.0), load(&self.shared.ways.1));
        let inner = Arc::clone(&self.inner);
        if there + back == Duration::ZERO && fate == Fate::Answered {
            return ask(&*inner);
        }
        StoreFuture::boxed(async move {
            sleep(there).await;
            let lost = || StoreError::new(StoreErrorKind::Timeout, "lost");
            let answer = match fate {
                Fate::Answered => ask(&*inner).await,
                Fate::QuestionLost => Err(lost()),
                Fate::ReplyLost => ask(&*inner).await.and(Err(lost())),
                Fate::Silence => std::future::pending().await,
            };
            sleep(back).await;
            answer
        })
    }
}

impl Store for Distant {
    fn take(&self, take: &Ask) -> StoreFuture<Decision> {
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        let (take, fate) = (take.clone(), *self.shared.takes.lock().expect("no panic"));
        self.send(fate, move |inner| inner.take(&take))
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let fate = match change {
            Change::Refund(_) => *self.shared.refunds.lock().expect("no panic"),
            _ => Fate::Answered,
        };
        let (ask, change) = (ask.clone(), change.clone());
        self.send(fate, move |inner| inner.change(&ask, &change))
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}
