//! A store behind a line that may break in every way, counting what comes through.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{
    Decision, MemoryStore, Refunding, Store, StoreError, StoreErrorKind, Take, Taking, Token,
};
use tokio::sync::Semaphore;
use tokio::time::sleep;

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
    /// Answers looks; takes that cost something are held until they are let go, and then are answered.
    Holds,
    /// The same, and then they fail.
    HoldsAndFails(StoreErrorKind),
    /// Panics when it is looked at.
    Panics,
}

/// Clones are the same store.
#[derive(Debug, Clone)]
pub(crate) struct Line(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    memory: MemoryStore,
    mode: Mutex<Mode>,
    asked: AtomicUsize,
    looked: AtomicUsize,
    under_way: AtomicUsize,
    held: Semaphore,
    told: Mutex<Option<Duration>>,
}

/// A question that is under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Line {
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
            told: Mutex::new(None),
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

    /// How long it was told to work on an answer.
    pub(crate) fn told(&self) -> Option<Duration> {
        *self.0.told.lock().expect("no panic")
    }

    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    async fn comes(&self, is_look: bool) -> Result<(), StoreError> {
        let Shared {
            asked,
            looked,
            under_way,
            held,
            ..
        } = &*self.0;
        under_way.fetch_add(1, Ordering::Relaxed);
        let _under_way = UnderWay(under_way);
        let counter = if is_look { looked } else { asked };
        counter.fetch_add(1, Ordering::Relaxed);
        let mode = self.mode();
        match mode {
            Mode::Slow(time) => sleep(time).await,
            Mode::Hangs => std::future::pending().await,
            Mode::Holds | Mode::HoldsAndFails(_) if !is_look => {
                held.acquire().await.expect("open").forget();
            }
            Mode::Panics if is_look => panic!("looked at"),
            _ => tokio::task::yield_now().await,
        }
        match mode {
            Mode::Fails(kind) | Mode::FailsAtOnce(kind) => Err(error(kind)),
            Mode::Writes(kind) | Mode::HoldsAndFails(kind) if !is_look => Err(error(kind)),
            _ => Ok(()),
        }
    }
}

fn error(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "the line is broken")
}

impl Store for Line {
    fn take<'a>(&'a self, takes: &'a [Take]) -> Taking<'a> {
        let is_look = takes.iter().all(|take| take.units() == 0);
        match self.mode() {
            Mode::Memory => self.0.memory.take(takes),
            Mode::FailsAtOnce(kind) => Taking::ready(Err(error(kind))),
            Mode::IsDeadFor(kind) if takes.iter().any(|take| take.rule().path() == "dead") => {
                Taking::later(async move { Err(error(kind)) })
            }
            _ => Taking::later(async move {
                self.comes(is_look).await?;
                self.0.memory.take(takes).await
            }),
        }
    }

    fn try_take(&self, take: &Take) -> Option<Result<Decision, StoreError>> {
        match self.mode() {
            Mode::Memory => self.0.memory.try_take(take),
            Mode::FailsAtOnce(kind) => {
                self.0.asked.fetch_add(1, Ordering::Relaxed);
                Some(Err(error(kind)))
            }
            _ => None,
        }
    }

    fn refund<'a>(&'a self, take: &'a Take, token: &'a Token) -> Refunding<'a> {
        Refunding::later(async move {
            self.comes(false).await?;
            self.0.memory.refund(take, token).await
        })
    }

    fn name(&self) -> String {
        "line".to_owned()
    }

    fn give_up_after(self, timeout: Duration) -> Self {
        *self.0.told.lock().expect("no panic") = Some(timeout);
        self
    }
}
