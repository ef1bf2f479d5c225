//! A store that takes units ahead.

mod key_leases;
mod moment;

use std::fmt;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use self::key_leases::{KeyLeases, Served, WantedLease};
use self::moment::{Clocks, Moment};
use super::fleet::{LetThrough, News, Report, Reported};
use super::{Store, StoreFuture, Take};
use crate::decision::{Decision, Receipt};
use crate::error::StoreError;
use crate::sync::lock;
use crate::warning::Warning;

/// Takes units ahead for rules with a [lease](crate::Rule::with_lease), and hands them out without
/// asking the store: for a hot key with a large quota.
///
/// A process leases a share of the quota for a short time. The store charges the whole share at
/// once; takes of this process are answered from it immediately, with
/// [`Source::Lease`](crate::decision::Source::Lease). What is left when the lease ends is given
/// back. The share follows the demand of the last lease and what remained of the quota. Near the
/// limit, for costs that are larger than what is left of a lease, and where a lease would be
/// shorter than two round trips, takes go to the store. No take waits for a lease.
///
/// # Never more than the quota
///
/// A key that a rule with a lease `L` charges says so in its count. From then on, every taker
/// counts the key's units for the window `W` and the lease, also a taker whose rule has no lease or
/// a shorter one, until no unit that was charged under a lease counts any more. The proof:
///
/// - A unit that is charged at `t` is used at `t + L` at the latest, because a lease begins before
///   the store is asked, and ends by the clock that has advanced more.
/// - So the units that are used in any window `(u - W, u]` were charged in `(u - W - L, u]`: the
///   leased ones there, and the others in the window itself.
/// - When the last of them was charged, all others still counted, so they are at most max together.
///
/// In a fixed window, a lease ends with the window that its units were charged to.
///
/// A unit counts as used when the process read its clocks. Were both of them stopped, as those of a
/// virtual machine that is paused, one lease may be handed out late: no more than its units. A
/// [`reset`](Store::reset) forgets the leases of its own process. What others hold then, they hand
/// out until their leases end, beside what the store admits anew.
///
/// # What it costs
///
/// - At most the part `W / (W + L)` of a quota can be used, 98 % or more.
/// - Above the quota, leases take no load off the store: a lease that is denied is followed by
///   plain takes. A fleet that starts at once under its full load may keep a store busy with plain
///   takes. `docs/evidence/scale.md` has the figures.
/// - A process that crashes loses what is left of its leases for `W + L`: others are denied these
///   units.
/// - The response fields say what is left of the lease, which is less than the store has.
/// - A lease is a task that ends with it. When the runtime ends, its rest is lost in the same way.
///   In a runtime without timers, and outside of a runtime, all takes go to the store.
///
/// # Introducing it in a running fleet
///
/// Processes that lease and processes that do not may share a key, in any order: first update all
/// of them to a version of this crate that has leases, because an earlier one takes the count of a
/// leased key for damaged and starts afresh. Then give the rule its lease and put `UnitLeases`
/// around the store, process by process. To end it, take the steps back in any order; for one
/// window, units still count for `W + L`.
///
/// ```
/// use std::time::Duration;
/// use tidegate::store::UnitLeases;
/// use tidegate::{MemoryStore, Quota, RateLimitLayer, Rule};
///
/// let rule = Rule::new("feed", [Quota::new(Duration::from_secs(10), 1_000_000)?])?
///     .with_lease(Duration::from_millis(50))?;
/// let layer = RateLimitLayer::from_rule(rule).store(UnitLeases::new(MemoryStore::new()));
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UnitLeases<S> {
    inner: Arc<S>,
    table: LeaseTable,
}

impl<S: Store> UnitLeases<S> {
    /// Leases units of this store.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self {
            inner: Arc::new(inner),
            table: LeaseTable {
                places: (0..PLACES).map(|_| Mutex::default()).collect(),
                clocks: Clocks::both(),
            },
        }
    }

    /// Leases end by tokio's clock alone, for tests and simulations that pause time. Default: by
    /// the monotonic clock or the wall clock, whichever has advanced more.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn tokio_clock(mut self) -> Self {
        self.table.clocks = Clocks::tokio();
        self
    }

    /// Asks the store for this take. What it grants is demand for the next lease.
    fn take_plainly(&self, take: &Take) -> StoreFuture<Decision> {
        let pending = match self.inner.take(take).now() {
            Ok(answer) => {
                self.table.count_demand(take, &answer);
                return StoreFuture::ready(answer);
            }
            Err(pending) => pending,
        };
        let (table, take) = (self.table.clone(), take.clone());
        StoreFuture::boxed(async move {
            let answer = pending.await;
            table.count_demand(&take, &answer);
            answer
        })
    }

    /// Asks the store for a lease. A task waits for the answer, holds the lease and ends it.
    #[cold]
    fn lease(&self, take: &Take, wanted: WantedLease) {
        let take = take.anew(wanted.units);
        let mut asking = Asking {
            table: self.table.clone(),
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
            asking.leases(KeyLeases::stay_plain);
            return;
        };
        let answer = self.inner.take(&take);
        let inner = Arc::clone(&self.inner);
        runtime.spawn(async move {
            let answer = answer.await;
            if let Some(unused) = asking.hold(answer, timer).await {
                let take = take.with_cost(unused.units());
                // Where this fails, the units count until their window has passed.
                inner.refund(&take, &unused).await.ok();
            }
        });
    }
}

/// A question about a lease, and then the lease. When it is dropped, as with a runtime that ends,
/// another lease may be asked for.
struct Asking {
    table: LeaseTable,
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
        // What a fallback admits is not the fleet's: it is not held.
        let held = decision
            .as_ref()
            .filter(|decision| decision.failure().is_none());
        let held = held.and_then(|decision| self.wanted.held(self.take.rule(), decision));
        self.is_answered = true;
        let term =
            self.leases(|leases, now| leases.answered(held, decision.as_ref(), &self.wanted, now));
        match term.flatten() {
            None => receipt,
            Some((began, length)) => {
                self.held = receipt;
                timer.as_mut().reset(self.table.clocks.after(began, length));
                timer.await;
                self.end()
            }
        }
    }

    fn leases<T>(&self, act: impl FnOnce(&mut KeyLeases, Moment) -> T) -> Option<T> {
        self.table.leases(&self.take, act)
    }

    /// Ends the lease that is held, and returns the receipt of what is left of it.
    fn end(&mut self) -> Option<Receipt> {
        let held = self.held.take()?;
        self.leases(|leases, _| leases.end(held)).flatten()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_answered {
            self.leases(|leases, _| leases.gave_up());
        }
        self.end();
    }
}

impl<S: Store> Store for UnitLeases<S> {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        if take.rule().lease().is_none() || take.cost() == 0 {
            return self.inner.take(take);
        }
        let Some(Served { decision, wanted }) = self.table.serve(take) else {
            return self.inner.take(take);
        };
        // The take comes first: it does not wait behind the lease.
        let answer = match decision {
            Some(decision) => StoreFuture::ready(Ok(decision)),
            None => self.take_plainly(take),
        };
        if let Some(wanted) = wanted {
            self.lease(take, wanted);
        }
        answer
    }

    /// Units of a lease are given back to the store.
    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.inner.refund(take, receipt)
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        self.table.leases(take, |leases, _| leases.reset());
        self.inner.reset(take)
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn has_fallback(&self) -> bool {
        self.inner.has_fallback()
    }

    fn has_leases(&self) -> bool {
        true
    }

    fn answers_within(&self) -> Option<Duration> {
        self.inner.answers_within()
    }

    fn warnings(&self) -> Vec<Warning> {
        self.inner.warnings()
    }

    fn is_breaker_open(&self) -> Option<bool> {
        self.inner.is_breaker_open()
    }

    fn report(&self, report: &Report) -> StoreFuture<Option<News>> {
        self.inner.report(report)
    }

    fn reports(&self) -> StoreFuture<Vec<Reported>> {
        self.inner.reports()
    }

    fn let_through(&self, key: &LetThrough) -> StoreFuture<Option<bool>> {
        self.inner.let_through(key)
    }
}

impl<S> Clone for UnitLeases<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            table: self.table.clone(),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for UnitLeases<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnitLeases")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Keys that may have leases at a time. Others are asked about one by one, until one of these is
/// not in demand any more.
const PLACES: usize = 1_024;

/// The leases of all keys. Each key has one place, which it shares with others.
#[derive(Clone)]
struct LeaseTable {
    places: Arc<[Mutex<Option<KeyLeases>>]>,
    clocks: Clocks,
}

impl LeaseTable {
    fn place(&self, take: &Take) -> MutexGuard<'_, Option<KeyLeases>> {
        let place = take.count_name().hash() % self.places.len() as u64;
        lock(&self.places[place as usize])
    }

    /// What it does with the leases of this take's key; `None` if the place is another key's.
    fn leases<T>(&self, take: &Take, act: impl FnOnce(&mut KeyLeases, Moment) -> T) -> Option<T> {
        let mut leases = self.place(take);
        let own = leases.as_mut().filter(|it| it.is_of(take.count_name()));
        own.map(|leases| act(leases, self.clocks.now()))
    }

    /// Hands out leased units, or says what to ask. `None` if the place is another key's.
    fn serve(&self, take: &Take) -> Option<Served> {
        let (name, now) = (take.count_name(), self.clocks.now());
        let mut leases = self.place(take);
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
            self.leases(take, |leases, now| {
                leases.granted(take.rule(), now, take.cost())
            });
        }
    }
}
