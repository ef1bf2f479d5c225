//! A store that fails in every way that a store may, and counts what it is asked.

use tidegate::store::{Ask, Change};
use tokio::sync::Semaphore;

use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Answers at once.
    Memory,
    /// Answers when it is polled twice.
    Works,
    /// The same after a while.
    Slow(Duration),
    /// Fails when it is polled twice.
    Fails(StoreErrorKind),
    /// Fails at once.
    FailsAtOnce(StoreErrorKind),
    /// Fails at takes that cost something; looks are answered.
    Writes(StoreErrorKind),
    /// Fails for the rule `dead`, and answers for all others.
    IsDeadFor(StoreErrorKind),
    /// Never answers.
    Hangs,
    /// Answers looks; takes that cost something are held until they are let go, and then are
    /// answered.
    Holds,
    /// The same, and then they fail.
    HoldsAndFails(StoreErrorKind),
    /// Panics when it is looked at.
    Panics,
}

/// Clones are the same store.
#[derive(Debug, Clone)]
pub(crate) struct FlakyStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    memory: MemoryStore,
    mode: Mutex<Mode>,
    asked: AtomicUsize,
    looked: AtomicUsize,
    under_way: AtomicUsize,
    held: Semaphore,
}

/// A question that is under way, until this is dropped.
struct Question {
    flaky: FlakyStore,
    mode: Mode,
    is_look: bool,
}

impl FlakyStore {
    pub(crate) fn new(mode: Mode) -> Self {
        Self::around(MemoryStore::new().tokio_clock(), mode)
    }

    pub(crate) fn around(memory: MemoryStore, mode: Mode) -> Self {
        Self(Arc::new(Shared {
            memory,
            mode: Mutex::new(mode),
            asked: AtomicUsize::new(0),
            looked: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            held: Semaphore::new(0),
        }))
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.0.mode.lock().expect("no panic") = mode;
    }

    fn mode(&self) -> Mode {
        *self.0.mode.lock().expect("no panic")
    }

    /// Lets so many go of those that are held.
    pub(crate) fn let_go(&self, number: usize) {
        self.0.held.add_permits(number);
    }

    /// How many takes that cost something, and refunds, have come since it was asked last.
    pub(crate) fn asked(&self) -> usize {
        self.0.asked.swap(0, Ordering::Relaxed)
    }

    /// How many looks have come since it was asked last.
    pub(crate) fn looked(&self) -> usize {
        self.0.looked.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn under_way(&self) -> usize {
        self.0.under_way.load(Ordering::Relaxed)
    }

    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    /// Counts a question from the call on, before its future is polled.
    fn question(&self, is_look: bool) -> Question {
        let shared = &*self.0;
        shared.under_way.fetch_add(1, Ordering::Relaxed);
        let counter = match is_look {
            true => &shared.looked,
            false => &shared.asked,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Question {
            flaky: self.clone(),
            mode: self.mode(),
            is_look,
        }
    }
}

impl Question {
    /// Does what the mode was when the question came.
    async fn comes_through(&self) -> Result<(), StoreError> {
        let is_look = self.is_look;
        match self.mode {
            Mode::Slow(time) => sleep(time).await,
            Mode::Hangs => std::future::pending().await,
            Mode::Holds | Mode::HoldsAndFails(_) if !is_look => {
                let held = self.flaky.0.held.acquire();
                held.await.expect("open").forget();
            }
            Mode::Panics if is_look => panic!("looked at"),
            _ => tokio::task::yield_now().await,
        }
        match self.mode {
            Mode::Fails(kind) | Mode::FailsAtOnce(kind) => Err(error(kind)),
            Mode::Writes(kind) | Mode::HoldsAndFails(kind) if !is_look => Err(error(kind)),
            _ => Ok(()),
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.flaky.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

fn error(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "the store is broken")
}

impl Store for FlakyStore {
    fn take(&self, take: &Ask) -> StoreFuture<Decision> {
        let is_look = take.only_looks();
        match self.mode() {
            Mode::Memory => self.0.memory.take(take),
            Mode::FailsAtOnce(kind) => {
                drop(self.question(is_look));
                StoreFuture::ready(Err(error(kind)))
            }
            Mode::IsDeadFor(kind) if take.name("").starts_with("dead") => {
                StoreFuture::boxed(async move { Err(error(kind)) })
            }
            _ => {
                let (question, take) = (self.question(is_look), take.clone());
                StoreFuture::boxed(async move {
                    question.comes_through().await?;
                    question.flaky.0.memory.take(&take).await
                })
            }
        }
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let (question, ask, change) = (self.question(false), ask.clone(), change.clone());
        StoreFuture::boxed(async move {
            question.comes_through().await?;
            question.flaky.0.memory.change(&ask, &change).await
        })
    }

    fn name(&self) -> String {
        "flaky".to_owned()
    }
}
