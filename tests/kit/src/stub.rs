//! A store around another one, of which a test replaces what it wants to.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::decision::{Receipt, Source, Verdict};
use tidegate::store::{
    Ask, Capabilities, Change, Condition, Fleet, ServerId, StoreErrorKind, StoreFuture,
};
use tidegate::{Decision, MemoryStore, Store, StoreError};
use tokio::time::sleep;

type TakeFn = dyn Fn(&dyn Store, &Ask) -> StoreFuture<Decision> + Send + Sync;
type RefundFn = dyn Fn(&dyn Store, &Ask, &Receipt) -> StoreFuture<u64> + Send + Sync;
type RenewFn = dyn Fn(&dyn Store, &Ask, &Receipt) -> StoreFuture<()> + Send + Sync;
type ResetFn = dyn Fn(&dyn Store, &Ask) -> StoreFuture<bool> + Send + Sync;
type ChangeFn = dyn Fn(&dyn Store, &Ask, &Change) -> StoreFuture<u64> + Send + Sync;
type CapabilitiesFn = dyn Fn(&dyn Store) -> Capabilities + Send + Sync;
type ConditionFn = dyn Fn(&dyn Store) -> Condition + Send + Sync;

/// Answers as the store within, except where the test says otherwise.
#[derive(Clone)]
pub struct Stub {
    inner: Arc<dyn Store>,
    take: Arc<TakeFn>,
    refund: Arc<RefundFn>,
    owe: Arc<RefundFn>,
    renew: Arc<RenewFn>,
    reset: Arc<ResetFn>,
    change: Arc<ChangeFn>,
    capabilities: Arc<CapabilitiesFn>,
    condition: Arc<ConditionFn>,
    fleet: Option<Arc<dyn Fleet>>,
    name: Option<&'static str>,
    /// `None`: it does not remember its takes.
    asked: Option<Arc<Mutex<Vec<Ask>>>>,
}

impl Stub {
    pub fn around(inner: impl Store) -> Self {
        Self {
            inner: Arc::new(inner),
            take: Arc::new(|inner, take| inner.take(take)),
            refund: Arc::new(|inner, take, receipt| inner.refund(take, receipt)),
            owe: Arc::new(|inner, take, receipt| inner.owe(take, receipt)),
            renew: Arc::new(|inner, take, holder| inner.renew(take, holder)),
            reset: Arc::new(|inner, take| inner.reset(take)),
            change: Arc::new(|inner, ask, change| inner.change(ask, change)),
            capabilities: Arc::new(|_| Capabilities::default()),
            condition: Arc::new(|_| Condition::default()),
            fleet: None,
            name: None,
            asked: None,
        }
    }

    /// Remembers its takes.
    pub fn listening(inner: impl Store) -> Self {
        Self::around(inner).recording()
    }

    /// Remembers its takes, and answers some of them by itself. `None` leaves the answer to the
    /// store within.
    pub fn answering(
        inner: impl Store,
        answer: impl Fn(&Ask) -> Option<StoreFuture<Decision>> + Send + Sync + 'static,
    ) -> Self {
        Self::listening(inner)
            .take_fn(move |inner, take| answer(take).unwrap_or_else(|| inner.take(take)))
    }

    /// Every question takes these ways, there and back; they are asked for at each question.
    pub fn delayed(
        inner: Arc<dyn Store>,
        ways: impl Fn() -> (Duration, Duration) + Clone + Send + Sync + 'static,
    ) -> Self {
        let [for_refunds, for_resets] = [ways.clone(), ways.clone()];
        let [refunded, reset] = [Arc::clone(&inner), Arc::clone(&inner)];
        Self::around(Arc::clone(&inner))
            .take_fn(move |_, take| {
                let take = take.clone();
                travel(&inner, ways(), move |inner| inner.take(&take))
            })
            .refund_fn(move |_, take, receipt| {
                let (take, receipt) = (take.clone(), receipt.clone());
                let refund = move |inner: &dyn Store| inner.refund(&take, &receipt);
                travel(&refunded, for_refunds(), refund)
            })
            .reset_fn(move |_, take| {
                let take = take.clone();
                travel(&reset, for_resets(), move |inner| inner.reset(&take))
            })
    }

    /// In memory, and it charges nothing beyond a reservation.
    pub fn that_cannot_owe() -> Self {
        /// A store with the default of what stores of others may lack.
        #[derive(Debug)]
        struct Lacking(MemoryStore);

        /// A store that knows no change.
        #[derive(Debug)]
        struct Without;

        impl Store for Without {
            fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
                MemoryStore::new().take(ask)
            }

            fn name(&self) -> String {
                "memory".to_owned()
            }
        }

        impl Store for Lacking {
            fn take(&self, take: &Ask) -> StoreFuture<Decision> {
                self.0.take(take)
            }

            fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
                match change {
                    Change::Refund(_) | Change::Forget => self.0.change(ask, change),
                    _ => Without.change(ask, change),
                }
            }

            fn name(&self) -> String {
                self.0.name()
            }
        }

        Self::around(Lacking(MemoryStore::new()))
    }

    /// Around a memory store of its own.
    pub fn in_memory() -> Self {
        Self::around(MemoryStore::new())
    }

    /// Decides nothing.
    pub fn down() -> Self {
        let error = || StoreError::new(StoreErrorKind::Unavailable, "down");
        Self::in_memory()
            .take_fn(move |_, _| StoreFuture::ready(Err(error())))
            .refund_fn(move |_, _, _| StoreFuture::ready(Err(error())))
            .owe_fn(move |_, _, _| StoreFuture::ready(Err(error())))
    }

    /// Remembers its takes, and refuses all of them: the server's answer is an error of this kind.
    pub fn failing(kind: StoreErrorKind) -> Self {
        Self::answering(MemoryStore::new(), move |_| {
            let error = StoreError::new(kind, "the test's store fails");
            Some(StoreFuture::boxed(async { Err(error) }))
        })
    }

    /// Remembers its takes, and answers none of them.
    pub fn hanging() -> Self {
        Self::answering(MemoryStore::new(), |_| {
            Some(StoreFuture::boxed(std::future::pending()))
        })
    }

    pub fn take_fn(
        self,
        take: impl Fn(&dyn Store, &Ask) -> StoreFuture<Decision> + Send + Sync + 'static,
    ) -> Self {
        let take = Arc::new(take);
        Self { take, ..self }
    }

    pub fn refund_fn(
        self,
        refund: impl Fn(&dyn Store, &Ask, &Receipt) -> StoreFuture<u64> + Send + Sync + 'static,
    ) -> Self {
        let refund = Arc::new(refund);
        Self { refund, ..self }
    }

    pub fn owe_fn(
        self,
        owe: impl Fn(&dyn Store, &Ask, &Receipt) -> StoreFuture<u64> + Send + Sync + 'static,
    ) -> Self {
        let owe = Arc::new(owe);
        Self { owe, ..self }
    }

    pub fn renew_fn(
        self,
        renew: impl Fn(&dyn Store, &Ask, &Receipt) -> StoreFuture<()> + Send + Sync + 'static,
    ) -> Self {
        let renew = Arc::new(renew);
        Self { renew, ..self }
    }

    pub fn reset_fn(
        self,
        reset: impl Fn(&dyn Store, &Ask) -> StoreFuture<bool> + Send + Sync + 'static,
    ) -> Self {
        let reset = Arc::new(reset);
        Self { reset, ..self }
    }

    /// All changes but refunds, what is owed, renewals and resets.
    pub fn change_fn(
        self,
        change: impl Fn(&dyn Store, &Ask, &Change) -> StoreFuture<u64> + Send + Sync + 'static,
    ) -> Self {
        let change = Arc::new(change);
        Self { change, ..self }
    }

    /// Default: it can nothing but count.
    pub fn capabilities_fn(
        self,
        capabilities: impl Fn(&dyn Store) -> Capabilities + Send + Sync + 'static,
    ) -> Self {
        let capabilities = Arc::new(capabilities);
        Self {
            capabilities,
            ..self
        }
    }

    /// Default: in good health.
    pub fn condition_fn(
        self,
        condition: impl Fn(&dyn Store) -> Condition + Send + Sync + 'static,
    ) -> Self {
        let condition = Arc::new(condition);
        Self { condition, ..self }
    }

    /// Default: the processes share nothing.
    pub fn with_fleet(self, fleet: impl Fleet) -> Self {
        let fleet: Option<Arc<dyn Fleet>> = Some(Arc::new(fleet));
        Self { fleet, ..self }
    }

    /// Default: it does not remember its takes.
    pub fn recording(self) -> Self {
        let asked = Some(Arc::default());
        Self { asked, ..self }
    }

    /// The takes so far, also those of clones.
    ///
    /// # Panics
    ///
    /// If it does not remember them.
    pub fn takes(&self) -> Vec<Ask> {
        let asked = self.asked.as_ref().expect("it is recording");
        asked.lock().expect("no panic").clone()
    }

    /// How many takes of this kind it was asked.
    pub fn asked(&self, is_meant: impl Fn(&Ask) -> bool) -> usize {
        self.takes().iter().filter(|take| is_meant(take)).count()
    }

    /// Default: the name of the store within.
    pub fn named(self, name: &'static str) -> Self {
        let name = Some(name);
        Self { name, ..self }
    }
}

impl fmt::Debug for Stub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stub")
    }
}

impl Store for Stub {
    fn take(&self, take: &Ask) -> StoreFuture<Decision> {
        if let Some(asked) = &self.asked {
            asked.lock().expect("no panic").push(take.clone());
        }
        (self.take)(&*self.inner, take)
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        match change {
            Change::Refund(receipt) => (self.refund)(&*self.inner, ask, receipt),
            Change::Owe(receipt) => (self.owe)(&*self.inner, ask, receipt),
            Change::Renew(holder) => mapped((self.renew)(&*self.inner, ask, holder), |()| 1),
            Change::Forget => mapped((self.reset)(&*self.inner, ask), u64::from),
            _ => (self.change)(&*self.inner, ask, change),
        }
    }

    fn name(&self) -> String {
        self.name
            .map_or_else(|| self.inner.name(), ToOwned::to_owned)
    }

    fn capabilities(&self) -> Capabilities {
        (self.capabilities)(&*self.inner)
    }

    fn condition(&self) -> Condition {
        (self.condition)(&*self.inner)
    }

    fn fleet(&self) -> Option<Arc<dyn Fleet>> {
        self.fleet.clone()
    }
}

fn mapped<T: Send + 'static>(
    mut answer: StoreFuture<T>,
    number: impl FnOnce(T) -> u64 + Send + 'static,
) -> StoreFuture<u64> {
    match answer.poll_now() {
        Some(answer) => StoreFuture::ready(answer.map(number)),
        None => StoreFuture::boxed(async move { answer.await.map(number) }),
    }
}

/// A question that takes these ways, there and back.
pub fn travel<T: Send + 'static>(
    inner: &Arc<dyn Store>,
    (there, back): (Duration, Duration),
    ask: impl FnOnce(&dyn Store) -> StoreFuture<T> + Send + 'static,
) -> StoreFuture<T> {
    let inner = Arc::clone(inner);
    StoreFuture::boxed(async move {
        sleep(there).await;
        let answer = ask(&*inner).await;
        sleep(back).await;
        answer
    })
}

/// A memory store on tokio's clock, a round trip away. It remembers its takes.
pub fn far(round_trip: Duration) -> Stub {
    const NAME: &str = "redis at far";
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
    let (one_way, inner) = (round_trip / 2, Arc::clone(&memory));
    Stub::listening(memory)
        .named(NAME)
        .capabilities_fn(|_| {
            let mut capabilities = Capabilities::default();
            capabilities.server = Some(ServerId::of(NAME));
            capabilities
        })
        .take_fn(move |_, take| {
            let take = take.clone();
            travel(&inner, (one_way, one_way), move |memory| memory.take(&take))
        })
}

/// Gives this verdict to all takes, and says nothing about the quotas.
pub fn always(verdict: Verdict) -> Stub {
    Stub::in_memory().take_fn(move |_, _| {
        let decision = Decision::new(verdict, Source::Local, 1, std::iter::empty());
        StoreFuture::ready(Ok(decision))
    })
}
