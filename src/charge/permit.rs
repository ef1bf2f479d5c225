//! The permits of requests in progress.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::path_state::PathState;
use super::refund_queue::{RefundQueue, spawn};
use crate::deadline::Deadline;
use crate::decision::{Decision, Receipt, Source};
use crate::jitter;
use crate::question::Ask;
use crate::store::{Store, StoreFuture};
use crate::sync::lock;
use crate::take::Take;
use crate::trace;
use crate::unawaited::UnawaitedCall;

/// How often a permit is renewed before it would end: whenever a third of its lease has passed.
const RENEWALS_PER_LEASE: u32 = 3;
/// After a renewal that failed, the store is asked again when this part of a lease has passed.
const ATTEMPTS_PER_LEASE: u32 = 12;
/// From a release that failed to the next one, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The right to run now, of at most as many as a rule lets run [at a
/// time](crate::Rule::with_max_concurrent). It goes back when all clones are dropped, in the
/// background: at the end of a process [`Limits::flush`](crate::Limits::flush) waits for that.
///
/// The store keeps it for a [lease](crate::Rule::with_permit_lease). One task renews the permits of
/// a store or of `Limits`, in the runtime of the first request: when that runtime ends, the next
/// request that gets a permit begins another one. Outside of a tokio runtime nothing renews a
/// permit, which the log then says once.
///
/// ```
/// use tidegate::store::Permit;
/// use tidegate::{Limits, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::new("export", [Quota::per_minute(60)])?.with_max_concurrent(1)?;
/// let limits = Limits::new([rule]);
/// let admitted = limits.check("export", "alice").await?;
/// let permit: Option<Permit> = admitted.permit;
/// assert!(limits.check("export", "alice").await.is_err());
/// drop(permit);
/// assert!(limits.check("export", "alice").await.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a permit goes back when it is dropped"]
pub struct Permit(#[allow(dead_code, reason = "its drop gives the permit back")] Arc<HeldPermit>);

/// All permits that the layers of a store hold. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldPermits(Arc<Mutex<Holders>>);

#[derive(Debug, Default)]
struct Holders {
    permits: BTreeMap<u64, TakenPermits>,
    /// The number of the last one.
    last: u64,
    /// The task that renews, and when it looks next.
    renewals: Option<(JoinHandle<()>, Instant)>,
    /// Whether it was logged that nothing renews.
    has_warned: bool,
}

/// A permit among those that are held.
#[derive(Debug)]
struct HeldPermit {
    number: u64,
    refunds: RefundQueue,
    /// Reports that the caller did not keep it.
    watch: Option<DropWatch>,
}

/// When a caller got its permit, and the callback for a permit that is dropped at once.
struct DropWatch {
    since: std::time::Instant,
    tell: Box<dyn Fn() + Send + Sync>,
}

/// A drop in the same statement takes about a microsecond. Work that takes less than this needs no
/// permit.
const AT_ONCE: Duration = Duration::from_micros(50);

impl fmt::Debug for DropWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DropWatch").field(&self.since).finish()
    }
}

/// The permits that one take was granted: a request holds them.
#[derive(Debug, Clone)]
struct TakenPermits {
    store: Arc<dyn Store>,
    /// A count of permits for each of the take's, with the holder as a receipt.
    counts: SmallVec<[(Ask, Receipt); 1]>,
    path: Arc<PathState>,
    /// The runtime of the request.
    runtime: Option<Handle>,
    /// How long the store keeps it from when it was asked.
    time: Duration,
    /// When the lease ends, by the last renewal that was answered.
    until: Instant,
    renew_at: Instant,
    is_renewing: bool,
}

impl RefundQueue {
    /// The permits of an allowed take, which are kept until the result is dropped. `None` if it has
    /// none.
    pub(crate) fn permit_of(
        &self,
        store: &Arc<dyn Store>,
        take: &Take,
        decision: &Decision,
        path: &Arc<PathState>,
    ) -> Option<Permit> {
        let leases = take.counts().iter().filter_map(|it| it.spec().permits());
        let time = leases.map(|permits| permits.lease).min()?;
        let (receipt, now) = (decision.receipt()?, Instant::now());
        let mut counts = SmallVec::<[_; 1]>::new();
        for (at, (count, holder)) in take.parts(&receipt).enumerate() {
            if count.spec().is_permits() && holder.units() > 0 {
                let holder = match decision.source() {
                    Source::Fallback => holder.clone().marked_as_fallback(),
                    _ => holder.clone(),
                };
                counts.push((take.only(at), holder));
            }
        }
        if counts.is_empty() {
            return None;
        }
        let taken = TakenPermits {
            store: Arc::clone(store),
            counts,
            path: Arc::clone(path),
            runtime: Handle::try_current().ok(),
            time,
            until: now + time,
            renew_at: now + time / RENEWALS_PER_LEASE,
            is_renewing: false,
        };
        let refunds = self.clone();
        let number = self.permits().add(taken, take.rule().path());
        Some(Permit(Arc::new(HeldPermit {
            number,
            refunds,
            watch: None,
        })))
    }
}

impl Permit {
    /// This permit, which calls `tell` if its caller drops it in the statement that got it.
    pub(crate) fn watched(mut self, tell: impl Fn() + Send + Sync + 'static) -> Self {
        if let Some(held) = Arc::get_mut(&mut self.0) {
            held.watch = Some(DropWatch {
                since: std::time::Instant::now(),
                tell: Box::new(tell),
            });
        }
        self
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        if let Some(DropWatch { since, tell }) = &self.watch
            && since.elapsed() < AT_ONCE
        {
            tell();
        }
        let held = lock(&self.refunds.permits().0).permits.remove(&self.number);
        if let Some(taken) = held {
            // The thread that drops it may be in no runtime.
            let runtime = taken.runtime.as_ref();
            let runtime = runtime.filter(|_| Handle::try_current().is_err());
            let _entered = runtime.map(Handle::enter);
            taken.release(&self.refunds);
        }
    }
}

impl HeldPermits {
    fn add(&self, taken: TakenPermits, path: &str) -> u64 {
        let look_at = taken.renew_at;
        let mut holders = lock(&self.0);
        holders.last += 1;
        let number = holders.last;
        holders.permits.insert(number, taken);
        // A task ends with its runtime, and a shorter lease needs an earlier look.
        let looks = holders.renewals.as_ref();
        let looks = looks.is_some_and(|(task, at)| !task.is_finished() && *at <= look_at);
        match Handle::try_current() {
            _ if looks => {}
            Ok(runtime) => {
                let task = runtime.spawn(self.clone().renew_all(look_at));
                if let Some((old, _)) = holders.renewals.replace((task, look_at)) {
                    old.abort();
                }
            }
            Err(_) if replace(&mut holders.has_warned, true) => {}
            Err(_) => trace::event!(
                warn: path,
                "a permit was granted outside of a tokio runtime: nothing renews it, so it is free \
                 again after permit-lease"
            ),
        }
        number
    }

    /// Renews the permits of which a third of the lease has passed, for as long as there are
    /// permits.
    async fn renew_all(self, mut look_at: Instant) {
        loop {
            sleep_until(look_at).await;
            let due = self.due(Instant::now());
            for (number, taken) in due {
                let permits = self.clone();
                let renewing = Renewing { permits, number };
                tokio::spawn(self.clone().renew(renewing, taken));
            }
            let mut holders = lock(&self.0);
            let next = holders.permits.values().map(|taken| taken.renew_at).min();
            match (next, &mut holders.renewals) {
                (Some(next), Some((_, at))) => (look_at, *at) = (next, next),
                _ => {
                    holders.renewals = None;
                    return;
                }
            }
        }
    }

    /// The permits that have to be renewed now and have no renewal in progress.
    fn due(&self, now: Instant) -> Vec<(u64, TakenPermits)> {
        let mut holders = lock(&self.0);
        let due = holders.permits.iter_mut().filter_map(|(number, taken)| {
            if taken.renew_at > now {
                return None;
            }
            taken.renew_at = now + taken.time / ATTEMPTS_PER_LEASE;
            let renews = replace(&mut taken.is_renewing, true);
            (!renews).then(|| (*number, taken.clone()))
        });
        due.collect()
    }

    async fn renew(self, renewing: Renewing, taken: TakenPermits) {
        let (sent, bound) = (Instant::now(), taken.time / RENEWALS_PER_LEASE);
        let asked = taken.counts.iter().map(|(ask, holder)| {
            let renewal = ask.first_question(1).unawaited(bound);
            let ask = || taken.store.renew(&renewal, holder);
            catch_unwind(AssertUnwindSafe(ask)).ok()
        });
        let (mut is_renewed, deadline) = (true, Deadline::after(bound));
        for asked in asked.collect::<Vec<_>>() {
            is_renewed &= match asked {
                Some(answer) => matches!(deadline.wait_for(answer).await, Some(Ok(()))),
                None => false,
            };
        }
        if let Some(held) = lock(&self.0).permits.get_mut(&renewing.number) {
            if is_renewed {
                held.until = sent + taken.time;
                held.renew_at = sent + taken.time / RENEWALS_PER_LEASE;
            }
            return;
        }
        // The permit was released meanwhile, and the renewal may have arrived after the release.
        loop {
            for (ask, holder) in &taken.counts {
                taken.send(ask, holder).await.ok();
            }
            if replace(&mut is_renewed, true) {
                return;
            }
            // A renewal without an answer may still arrive, until its deadline, which was extended
            // once.
            sleep_until(sent + 2 * bound).await;
        }
    }
}

/// A renewal in progress: it also ends with its runtime.
struct Renewing {
    permits: HeldPermits,
    number: u64,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        if let Some(held) = lock(&self.permits.0).permits.get_mut(&self.number) {
            held.is_renewing = false;
        }
    }
}

impl TakenPermits {
    /// Sends the release of the permits immediately, and wakes the requests that wait for them: the
    /// store executes their questions after it.
    fn release(&self, refunds: &RefundQueue) {
        for (ask, holder) in &self.counts {
            match (refunds.place(), Handle::try_current()) {
                (Some(place), _) => self.release_one(ask, holder, place),
                (None, Ok(runtime)) => {
                    let (taken, refunds) = (self.clone(), refunds.clone());
                    let (ask, holder, waiting) = (ask.clone(), holder.clone(), refunds.waiting());
                    let later = taken.release_later(ask, holder, refunds);
                    runtime.spawn(waiting.until(later));
                }
                (None, Err(_)) => self.path.counters.numbers.refunds_lost.add(1),
            }
            let (open, hash) = (&self.path.open, ask.hash());
            match holder.as_fallback() {
                // A store does not announce the release of a permit that its fallback granted.
                Some(_) => open.refunded(hash),
                None => open.released(hash),
            }
        }
    }

    fn release_one(&self, ask: &Ask, holder: &Receipt, place: UnawaitedCall) {
        let mut answer = self.send(ask, holder);
        let answer = match answer.poll_now() {
            Some(Ok(_)) => return,
            Some(error) => StoreFuture::ready(error),
            None => answer,
        };
        let (ask, holder) = (ask.clone(), holder.clone());
        spawn(place.until(self.clone().resend(ask, holder, answer)));
    }

    /// Waits for a place: as many calls as are allowed are in progress.
    async fn release_later(self, ask: Ask, holder: Receipt, refunds: RefundQueue) {
        let [_, pause] = PAUSES;
        while Instant::now() < self.until {
            if let Some(place) = refunds.place() {
                let answer = self.send(&ask, &holder);
                return place.until(self.resend(ask, holder, answer)).await;
            }
            sleep(pause / 2 + jitter::up_to(pause / 2)).await;
        }
    }

    /// Sends the release until the store has answered, or the lease has ended.
    async fn resend(self, ask: Ask, holder: Receipt, mut answer: StoreFuture<u64>) {
        let [mut pause, max_pause] = PAUSES;
        let wait = || Deadline::after(Ask::PATIENCE);
        while !matches!(wait().wait_for(answer).await, Some(Ok(_))) {
            if Instant::now() + pause >= self.until {
                return;
            }
            sleep(pause).await;
            pause = max_pause.min(2 * pause);
            answer = self.send(&ask, &holder);
        }
    }

    fn send(&self, ask: &Ask, holder: &Receipt) -> StoreFuture<u64> {
        let send = || self.store.refund(&ask.for_refund(1), holder);
        let sent = catch_unwind(AssertUnwindSafe(send));
        // A store that panics is not asked again.
        sent.unwrap_or_else(|_| StoreFuture::ready(Ok(0)))
    }
}

/// The permit of a take for which no request waits: that of a shadow rule. Its request may have
/// ended before the store has answered. Clones are the same; the permit goes back with the last
/// one.
#[derive(Debug, Clone, Default)]
pub(crate) struct LatePermit(Arc<OnceLock<Permit>>);

impl LatePermit {
    /// The store has answered.
    pub(crate) fn answered(&self, permit: Option<Permit>) {
        if let Some(permit) = permit {
            _ = self.0.set(permit);
        }
    }
}
