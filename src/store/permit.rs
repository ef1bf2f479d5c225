//! The permits of requests in progress.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::refund_queue::{QueuePlace, RefundQueue};
use super::{Store, StoreFuture, Take};
use crate::decision::{Decision, QuotaState, Receipt, Source, Verdict};
use crate::error::StoreError;
use crate::metrics::RuleCounters;
use crate::sync::lock;

/// How often a permit is renewed before it would end: whenever a third of its lease has passed.
const RENEWALS_PER_LEASE: u32 = 3;
/// After a renewal that failed, the store is asked again when this part of a lease has passed.
const ATTEMPTS_PER_LEASE: u32 = 12;
/// A store without a time-out of its own may never answer.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// From a release that failed to the next one, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The right to run now, of at most as many as a rule lets run [at a
/// time](crate::Rule::with_max_concurrent). It goes back when all clones are dropped.
///
/// The store keeps it for a [lease](crate::Rule::with_permit_lease), which a task renews.
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
pub struct Permit(#[allow(dead_code, reason = "its drop gives the permit back")] Arc<Held>);

/// All permits that the layers of a store hold. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldPermits(Arc<Mutex<Holders>>);

#[derive(Debug, Default)]
struct Holders {
    permits: BTreeMap<u64, Lease>,
    /// The number of the last one.
    last: u64,
    /// The task that renews. It looks a third of a lease after its start.
    renewals: Option<JoinHandle<()>>,
}

/// A permit among those that are held.
#[derive(Debug)]
struct Held {
    number: u64,
    refunds: RefundQueue,
    /// Tells that it was not kept.
    watch: Option<DropWatch>,
}

/// Since when a caller has a permit, and what tells that it was dropped at once.
struct DropWatch(std::time::Instant, Box<dyn Fn() + Send + Sync>);

/// A drop in the same statement takes about a microsecond. Work that takes less than this needs no
/// permit.
const AT_ONCE: Duration = Duration::from_micros(10);

impl fmt::Debug for DropWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DropWatch").field(&self.0).finish()
    }
}

/// What is held of the permits of one take.
#[derive(Debug, Clone)]
struct Lease {
    store: Arc<dyn Store>,
    /// A count of permits for each of the take's, with the holder as a receipt.
    counts: SmallVec<[(Take, Receipt); 1]>,
    counters: Arc<RuleCounters>,
    /// When the store was asked for it, or to renew it, and did so.
    renewed: Instant,
    /// How long the store keeps it from then on.
    time: Duration,
    is_renewing: bool,
}

impl RefundQueue {
    /// Holds the permits of an allowed take. `None` if it has none.
    pub(crate) fn hold(
        &self,
        store: &Arc<dyn Store>,
        take: &Take,
        decision: &Decision,
        counters: &Arc<RuleCounters>,
    ) -> Option<Permit> {
        let joint = take.as_joint().filter(|_| decision.is_allowed())?;
        let receipt = decision.receipt_or_none();
        let receipts = receipt.counts();
        let counts = joint.takes.iter().zip(receipts);
        let counts =
            counts.filter(|(count, receipt)| count.rule().is_permits() && receipt.units() > 0);
        let counts = counts.map(|(count, receipt)| {
            let receipt = receipt.clone();
            let receipt = match decision.source() {
                Source::Fallback => receipt.of_fallback(),
                _ => receipt,
            };
            (count.clone(), receipt)
        });
        let counts: SmallVec<[_; 1]> = counts.collect();
        if counts.is_empty() {
            return None;
        }
        let lease = Lease {
            store: Arc::clone(store),
            counts,
            counters: Arc::clone(counters),
            renewed: Instant::now(),
            time: take.rule().permit_lease(),
            is_renewing: false,
        };
        let refunds = self.clone();
        let number = self.permits().add(lease);
        Some(Permit(Arc::new(Held {
            number,
            refunds,
            watch: None,
        })))
    }
}

impl Permit {
    /// The same, which tells if its caller drops it where it got it.
    pub(crate) fn watched(mut self, tell: impl Fn() + Send + Sync + 'static) -> Self {
        if let Some(held) = Arc::get_mut(&mut self.0) {
            held.watch = Some(DropWatch(std::time::Instant::now(), Box::new(tell)));
        }
        self
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(DropWatch(since, tell)) = &self.watch
            && since.elapsed() < AT_ONCE
        {
            tell();
        }
        let held = lock(&self.refunds.permits().0).permits.remove(&self.number);
        held.iter().for_each(|lease| lease.release(&self.refunds));
    }
}

impl HeldPermits {
    fn add(&self, lease: Lease) -> u64 {
        let first_look = lease.renewed + lease.time / RENEWALS_PER_LEASE;
        let mut holders = lock(&self.0);
        holders.last += 1;
        let number = holders.last;
        holders.permits.insert(number, lease);
        // A task ends with its runtime.
        let is_over = holders
            .renewals
            .as_ref()
            .is_none_or(JoinHandle::is_finished);
        if is_over && let Ok(runtime) = Handle::try_current() {
            holders.renewals = Some(runtime.spawn(self.clone().renew_all(first_look)));
        }
        number
    }

    /// Renews those that are older than a third of their leases, as long as there are some.
    async fn renew_all(self, mut look_at: Instant) {
        loop {
            sleep_until(look_at).await;
            let mut holders = lock(&self.0);
            let now = Instant::now();
            for (number, lease) in &mut holders.permits {
                if lease.due() <= now && !lease.is_renewing {
                    lease.is_renewing = true;
                    tokio::spawn(self.clone().renew(*number, lease.clone()));
                }
            }
            let next = holders
                .permits
                .values()
                .map(|lease| match lease.is_renewing {
                    true => now + lease.time / ATTEMPTS_PER_LEASE,
                    false => lease.due(),
                });
            let Some(next) = next.min() else {
                holders.renewals = None;
                return;
            };
            look_at = next;
        }
    }

    async fn renew(self, number: u64, lease: Lease) {
        let sent = Instant::now();
        let answers = lease.counts.iter().map(|(take, holder)| {
            let ask = || lease.store.renew(take, holder);
            catch_unwind(AssertUnwindSafe(ask)).ok()
        });
        let mut is_renewed = true;
        for answer in answers.collect::<Vec<_>>() {
            let answered = match answer {
                Some(answer) => timeout(lease.time / RENEWALS_PER_LEASE, answer).await,
                None => return,
            };
            is_renewed &= matches!(answered, Ok(Ok(())));
        }
        if let Some(held) = lock(&self.0).permits.get_mut(&number) {
            held.is_renewing = false;
            held.renewed = match is_renewed {
                true => sent,
                // So that it is due after a part of the lease.
                false => sent + lease.time / ATTEMPTS_PER_LEASE - lease.time / RENEWALS_PER_LEASE,
            };
            return;
        }
        // It was released meanwhile, and the renewal may have come behind the release.
        for (take, holder) in &lease.counts {
            lease.store.refund(&take.unawaited(1), holder).await.ok();
        }
    }
}

impl Lease {
    fn due(&self) -> Instant {
        self.renewed + self.time / RENEWALS_PER_LEASE
    }

    /// Gives the permits back, which is asked for immediately, and wakes requests that wait for
    /// them: what they ask is executed behind it.
    fn release(&self, refunds: &RefundQueue) {
        for (take, holder) in &self.counts {
            let asked = refunds.place().map(|place| (place, self.ask(take, holder)));
            match asked {
                None => self.counters.refund_lost(),
                Some((_, Answer::Ready(Ok(_)))) => {}
                Some((place, answer)) => {
                    if let Ok(runtime) = Handle::try_current() {
                        let lease = self.clone();
                        let (take, holder) = (take.clone(), holder.clone());
                        runtime.spawn(lease.released(take, holder, answer, place));
                    }
                }
            }
            self.counters.open.released(take.count_name().hash());
        }
    }

    fn ask(&self, take: &Take, holder: &Receipt) -> Answer {
        let ask = || self.store.refund(&take.unawaited(1), holder);
        match catch_unwind(AssertUnwindSafe(ask)) {
            Ok(mut answer) => match answer.poll_now() {
                Some(answer) => Answer::Ready(answer),
                None => Answer::Pending(answer),
            },
            // As good as an answer: a store that panics is not asked again.
            Err(_) => Answer::Ready(Ok(0)),
        }
    }

    /// Asks until the store has answered, or does not keep the permit any more.
    async fn released(self, take: Take, holder: Receipt, first: Answer, place: QueuePlace) {
        let until = self.renewed + self.time;
        let [mut pause, max_pause] = PAUSES;
        let mut answer = first;
        loop {
            let answered = match answer {
                Answer::Ready(answer) => answer.is_ok(),
                Answer::Pending(answer) => matches!(timeout(MAX_WAIT, answer).await, Ok(Ok(_))),
            };
            if answered || Instant::now() + pause >= until {
                drop(place);
                return;
            }
            sleep(pause).await;
            pause = max_pause.min(2 * pause);
            answer = self.ask(&take, &holder);
        }
    }
}

enum Answer {
    Ready(Result<u64, StoreError>),
    Pending(StoreFuture<u64>),
}

/// A store's decision about a take of one permit, when so many are held: with a holder, that among
/// them. Under a shadow rule there may be more than its max.
pub(super) fn of_permits(
    take: &Take,
    source: Source,
    held: u64,
    holder: Option<Receipt>,
) -> Decision {
    let (rule, only_looks) = (take.rule(), take.cost() == 0);
    let max = rule.max_permits();
    let verdict = match () {
        () if only_looks || holder.is_some() => Verdict::Allowed,
        () if max == 0 => Verdict::Never,
        () if held >= max => Verdict::Busy {
            retry_after: rule.busy_retry(),
        },
        // Another count denies the take.
        () => Verdict::Denied {
            retry_after: Duration::ZERO,
        },
    };
    let is_exceeded = match verdict {
        Verdict::Allowed => !only_looks && held > max,
        _ => held >= max,
    };
    let state = QuotaState::from_micros(max.saturating_sub(held), 0).exceeded(is_exceeded);
    Decision::of_state(verdict, source, state, holder)
}

/// The permit of a take for which no request waits: that of a shadow rule. Its request may have
/// ended before the store has answered. Clones are the same; the permit goes back with the last one.
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
