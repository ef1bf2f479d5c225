//! Requests that ask again later instead of being denied.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::gate::Gate;
use crate::decision::{Decision, QuotaState};
use crate::in_flight_counter::{InFlightCounter, Permit};
use crate::jitter;
use crate::metrics::{Hope, RuleCounters, WaitedCount, WaitingPlace};
use crate::store::Take;

/// The shortest pause before a request asks again, for stores whose retry-after is too short.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// How long requests may wait, and how many. Clones share the count.
///
/// Every request asks when it arrives: only a request that was denied waits.
#[derive(Debug, Clone)]
pub(super) struct WaitLimits {
    pub(super) up_to: Duration,
    pub(super) max: usize,
    waiting: InFlightCounter,
}

/// When a request began to wait, in its extensions: the time counts in inner layers, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingSince(pub(super) Instant);

/// A request that waits, until this is dropped.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) since: Instant,
    /// `None` for a request that waits without a limit.
    deadline: Option<Instant>,
    hope: Hope,
    place: WaitingPlace,
    counters: Arc<RuleCounters>,
    _permit: Permit,
}

impl WaitLimits {
    const DEFAULT_MAX: usize = 1_024;

    /// Whether a request may wait.
    pub(super) fn is_on(&self) -> bool {
        !self.up_to.is_zero()
    }

    /// The instant at which a question is asked. `None` where no request may wait: reading the
    /// clock costs time.
    pub(super) fn now(&self) -> Option<Instant> {
        self.is_on().then(Instant::now)
    }

    /// Since when this request waits in outer layers.
    #[inline]
    pub(super) fn since(&self, request: &Extensions) -> Option<Instant> {
        let WaitingSince(since) = self.is_on().then(|| request.get())??;
        Some(*since)
    }
}

impl Gate {
    /// A request that was denied at `at` for the first time, and waits from now on: the time counts
    /// since it was asked about first in a layer that lets it wait. `None` if it stays denied: it
    /// may not wait, no unit can reach it in time, or too many requests wait.
    pub(super) fn waiter(
        &self,
        at: Option<Instant>,
        since: Option<Instant>,
        take: &Take,
        decision: &Decision,
    ) -> Option<Box<Waiter>> {
        let at = at?;
        let (limits, counters) = (&self.waiting, &self.counters);
        let since = since.unwrap_or(at);
        let deadline = since.checked_add(limits.up_to);
        let denials = take.denials(decision);
        let hash = |count: &Take| count.count_name().hash();
        let denying = || {
            let counts = take.counts().iter().zip(&denials);
            counts.filter_map(|(count, is_denied)| is_denied.then_some(count))
        };
        // Whether charges of its rule are usually given back, here or in another process.
        let hope = match self.refunds_by_response(take.rule()) || take.rule().settles() {
            true => Hope::Refunds,
            false => Hope::OpenCharges,
        };
        let has_open = || denying().any(|count| counters.open.units(hash(count)) > 0);
        let was_refunded =
            || denying().any(|count| counters.open.refunds(hash(count)) != count.refunds);
        let may_be_refunded =
            || decision.is_busy() || hope == Hope::Refunds || has_open() || was_refunded();
        if is_after(at, decision.retry_after()?, deadline) && !may_be_refunded() {
            return None;
        }
        if deadline.is_some_and(|deadline| deadline <= at) {
            return None;
        }
        let permit = limits.waiting.try_acquire(limits.max)?;
        let max_of_key = (limits.max / 4).max(1);
        // Everybody's count is that of no key which could take all places.
        let is_bounded = |count: &Take| take.as_joint().is_none() || !count.key().is_empty();
        let counts = take.counts().iter().zip(&denials);
        let counts = counts.map(|(count, is_denied)| WaitedCount {
            hash: hash(count),
            cost: count.cost(),
            is_denied: *is_denied,
            is_bounded: is_bounded(count),
            permits: match count.rule().is_permits() {
                true => count.rule().max_permits(),
                false => 0,
            },
        });
        let counts: SmallVec<[_; 1]> = counts.collect();
        let place = counters.open.wait(&counts, max_of_key)?;
        if was_refunded() {
            place.wake();
        }
        counters.begins_to_wait();
        Some(Box::new(Waiter {
            since,
            deadline,
            hope,
            place,
            counters: Arc::clone(counters),
            _permit: permit,
        }))
    }
}

impl Gate {
    /// Hears of the permits that come back, of the counts that have denied this take.
    pub(super) fn listen(&self, take: &Take, decision: &Decision) {
        let counts = take.counts().iter().zip(take.denials(decision));
        let busy = counts.filter(|(count, is_denied)| *is_denied && count.rule().is_permits());
        for (count, _) in busy {
            let (open, hash) = (&self.counters.open, count.count_name().hash());
            open.listen(hash, || {
                let heard = open.clone();
                let changed = Box::new(move || heard.given_back(hash, 1));
                let listening = self.store().listen(count, changed)?;
                let runtime = Handle::try_current().ok()?;
                let listens = async { drop(listening.await) };
                Some(runtime.spawn(listens).abort_handle())
            });
        }
    }
}

/// Whether a take that was denied at this instant is allowed after the deadline only.
fn is_after(at: Instant, retry_after: Duration, deadline: Option<Instant>) -> bool {
    let retry_at = at.checked_add(retry_after.max(MIN_SLEEP));
    deadline.is_some_and(|deadline| retry_at.is_none_or(|retry_at| retry_at > deadline))
}

impl Waiter {
    /// Sleeps after a denial at this instant: until its retry-after, or until units of a count that
    /// denied it are given back, or there is another reason to ask. Returns whether to ask again.
    pub(super) async fn may_ask(
        &self,
        at: Instant,
        take: &Take,
        decision: &Decision,
        has_reason: impl Fn() -> bool,
    ) -> bool {
        let Some(retry_after) = decision.retry_after() else {
            return false;
        };
        // An operator may let a key through meanwhile: then there are fewer counts than before.
        let counts = take.counts().iter().zip(take.denials(decision));
        let denying = counts.filter_map(|(count, is_denied)| is_denied.then_some(count));
        let hashes: SmallVec<[u64; 1]> = denying.map(|it| it.count_name().hash()).collect();
        self.place.denied(&hashes);
        let is_busy = decision.is_busy();
        if is_busy || is_after(at, retry_after, self.deadline) {
            let hope = if is_busy { Hope::Permit } else { self.hope };
            return self.place.refunded(self.deadline, hope, has_reason).await;
        }
        let wake = at + jitter::pause_before_repeat(retry_after, MIN_SLEEP);
        let wake = self.deadline.map_or(wake, |deadline| wake.min(deadline));
        self.place.sleep_until(wake).await;
        true
    }

    /// It was allowed. As many as still find a permit ask next: one message may tell of several
    /// that came back.
    pub(super) fn granted(&self, take: &Take, decision: &Decision) {
        self.place.granted();
        let joint = take.as_joint().into_iter();
        let counts = joint.flat_map(|joint| joint.states(take.rule(), decision));
        for (count, mut states) in counts.filter(|(count, _)| count.rule().is_permits()) {
            let left = states.next().map_or(0, QuotaState::remaining);
            if left > 0 {
                let hash = count.count_name().hash();
                self.counters.open.given_back(hash, left);
            }
        }
    }
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self {
            up_to: Duration::ZERO,
            max: Self::DEFAULT_MAX,
            waiting: InFlightCounter::default(),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.counters.ends_waiting();
    }
}
