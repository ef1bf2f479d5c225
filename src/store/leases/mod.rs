//! Units that a process takes ahead, for rules with a lease: see [`Resilient`](super::Resilient).

mod key_leases;
mod moment;

use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use self::key_leases::{KeyLeases, Served, WantedLease};
use self::moment::Moment;
use super::guarded::Guarded;
use super::{Store, StoreFuture, Take};
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::sync::lock;

pub(super) use moment::Clocks;

/// Keys that may have leases at a time. Others are asked about one by one, until one of these is
/// not in demand any more.
const PLACES: usize = 1_024;

/// The leases of all keys. Each key has one place, which it shares with others.
#[derive(Clone)]
pub(super) struct Leases {
    /// Made by the first take of a rule with a lease.
    places: Arc<OnceLock<Box<[Place]>>>,
    clocks: Clocks,
}

type Place = Mutex<Option<KeyLeases>>;

impl Leases {
    pub(super) fn new(clocks: Clocks) -> Self {
        let places = Arc::default();
        Self { places, clocks }
    }

    /// Answers a take with leased units, or asks the store.
    pub(super) fn take<S: Store>(
        &self,
        take: &Take,
        store: &Arc<Guarded<S>>,
    ) -> StoreFuture<Decision> {
        let is_led = || take.cost() > 0 && take.as_joint().is_none();
        if take.rule().lease().is_none() || !is_led() {
            return store.take(take);
        }
        let Some(Served { decision, wanted }) = self.serve(take) else {
            return store.take(take);
        };
        // The take comes first: it does not wait behind the lease.
        let answer = match decision {
            Some(decision) => StoreFuture::ready(Ok(decision)),
            None => self.take_plainly(take, store),
        };
        if let Some(wanted) = wanted {
            self.lease(take, wanted, store);
        }
        answer
    }

    /// Nothing that is held for this take's key, or asked for, counts any more.
    pub(super) fn reset(&self, take: &Take) {
        self.of(take, |leases, _| leases.reset());
    }

    /// Gives back what is held for this take's key, and holds nothing that was asked for.
    pub(super) fn give_back<S: Store>(&self, take: &Take, store: &Arc<Guarded<S>>) {
        let held = self.of(take, |leases, _| leases.take_back());
        for rest in held.into_iter().flatten() {
            let mut asked = store.refund(&take.for_refund(rest.units()), &rest);
            if asked.poll_now().is_none()
                && let Ok(runtime) = Handle::try_current()
            {
                runtime.spawn(asked);
            }
        }
    }

    /// Asks the store for this take. What it grants is demand for the next lease.
    fn take_plainly<S: Store>(&self, take: &Take, store: &Guarded<S>) -> StoreFuture<Decision> {
        let mut pending = store.take(take);
        if let Some(answer) = pending.poll_now() {
            self.count_demand(take, &answer);
            return StoreFuture::ready(answer);
        }
        let (leases, take) = (self.clone(), take.clone());
        StoreFuture::boxed(async move {
            let answer = pending.await;
            leases.count_demand(&take, &answer);
            answer
        })
    }

    /// Asks the store for a lease. A task waits for the answer, holds the lease and ends it.
    #[cold]
    fn lease<S: Store>(&self, take: &Take, wanted: WantedLease, store: &Arc<Guarded<S>>) {
        let take = take.first_question(wanted.units);
        let mut asking = Asking {
            leases: self.clone(),
            take: take.clone(),
            wanted,
            is_answered: false,
            held: None,
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let Ok(timer) = catch_unwind(|| Box::pin(sleep(Duration::ZERO))) else {
            // This runtime has no timers: a lease would never end.
            asking.with(KeyLeases::stay_plain);
            return;
        };
        let answer = store.take(&take);
        let store = Arc::clone(store);
        runtime.spawn(async move {
            let answer = answer.await;
            if let Some(unused) = asking.hold(answer, timer).await {
                let take = take.for_refund(unused.units());
                // Where this fails, the units count until their window has passed.
                store.refund(&take, &unused).await.ok();
            }
        });
    }

    /// The place of this take's key among these.
    fn place<'a>(places: &'a [Place], take: &Take) -> MutexGuard<'a, Option<KeyLeases>> {
        let place = take.count_name().hash() % places.len() as u64;
        lock(&places[place as usize])
    }

    /// What it does with the leases of this take's key; `None` if the place is another key's.
    fn of<T>(&self, take: &Take, act: impl FnOnce(&mut KeyLeases, Moment) -> T) -> Option<T> {
        let mut leases = Self::place(self.places.get()?, take);
        let own = leases.as_mut().filter(|it| it.is_of(take.count_name()));
        own.map(|leases| act(leases, self.clocks.now()))
    }

    /// Hands out leased units, or says what to ask. `None` if the place is another key's.
    fn serve(&self, take: &Take) -> Option<Served> {
        let (name, now) = (take.count_name(), self.clocks.now());
        let make = || (0..PLACES).map(|_| Mutex::default()).collect();
        let mut leases = Self::place(self.places.get_or_init(make), take);
        match &mut *leases {
            Some(known) if known.is_of(name) => {}
            Some(other) if !other.is_idle(now) => return None,
            free => *free = Some(KeyLeases::new(name, now)),
        }
        let known = leases.as_mut()?;
        Some(known.take(take.rule(), now, take.cost()))
    }

    /// The store has answered the take. Only what the fleet's store grants is demand: to hold units
    /// for takes that are denied would keep these units from other processes.
    fn count_demand(&self, take: &Take, answer: &Result<Decision, StoreError>) {
        let granted = answer
            .as_ref()
            .is_ok_and(|decision| decision.is_allowed() && decision.failure().is_none());
        if granted {
            self.of(take, |leases, now| {
                leases.granted(take.rule(), now, take.cost())
            });
        }
    }
}

/// A question about a lease, and then the lease. When it is dropped, as with a runtime that ends,
/// another lease may be asked for.
struct Asking {
    leases: Leases,
    take: Take,
    wanted: WantedLease,
    is_answered: bool,
    held: Option<Receipt>,
}

impl Asking {
    /// Holds the lease until it ends, and returns the receipt of what has to be given back.
    async fn hold(
        &mut self,
        answer: Result<Decision, StoreError>,
        mut timer: Pin<Box<Sleep>>,
    ) -> Option<Receipt> {
        let decision = answer.ok();
        let receipt = decision.as_ref().and_then(Decision::receipt);
        self.is_answered = true;
        let term = self.with(|leases, now| {
            leases.answered(self.take.rule(), decision.as_ref(), &self.wanted, now)
        });
        match term.flatten() {
            None => receipt,
            Some((began, length)) => {
                self.held = receipt;
                timer
                    .as_mut()
                    .reset(self.leases.clocks.after(began, length));
                timer.await;
                self.end()
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut KeyLeases, Moment) -> T) -> Option<T> {
        self.leases.of(&self.take, act)
    }

    /// Ends the lease that is held, and returns the receipt of what is left of it.
    fn end(&mut self) -> Option<Receipt> {
        let held = self.held.take()?;
        self.with(|leases, _| leases.end(held)).flatten()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_answered {
            self.with(|leases, _| leases.gave_up());
        }
        self.end();
    }
}
