//! Requests and calls that ask again later instead of being denied.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::gate::Gate;
use crate::decision::{Decision, QuotaState};
use crate::in_flight_counter::{InFlightCounter, Permit};
use crate::jitter;
use crate::metrics::RuleCounters;
use crate::rule::Rule;
use crate::store::Take;
use crate::wait_queue::{ASK_EVERY, Lacking, Left, Place, QueueId, Refill, WaitQueues};

/// The shortest pause before a request asks again, for stores whose retry-after is too short.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// How long whoever may wait leaves a store alone that is overloaded once more, at least and at most.
const OVERLOADED: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(50)];

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

/// When the store was asked, and under which rule of the path.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) at: Instant,
    rule: Option<Arc<Rule>>,
}

/// Whether a take may wait, or has waited already.
pub(super) enum Wait {
    /// It may, and has waited in an outer layer since this instant.
    May(Option<Instant>),
    Did(Box<Waiter>),
}

/// A request or call that waits, until this is dropped.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) since: Instant,
    /// `None` for one that waits without a limit.
    deadline: Option<Instant>,
    /// The path's rule when the store was asked last.
    rule: Option<Arc<Rule>>,
    /// Whether units of what it lacks may come back.
    may_return: bool,
    /// Whether the store was overloaded when it asked last, and its slot to ask again.
    pub(super) was_overloaded: bool,
    slot: Option<OwnedSemaphorePermit>,
    place: Option<Place>,
    counters: Arc<RuleCounters>,
    _permit: Permit,
}

impl WaitLimits {
    const DEFAULT_MAX: usize = 1_024;

    /// Whether a request may wait.
    pub(super) fn is_on(&self) -> bool {
        !self.up_to.is_zero()
    }

    /// Since when this request waits in outer layers.
    #[inline]
    pub(super) fn since(&self, request: &Extensions) -> Option<Instant> {
        let WaitingSince(since) = self.is_on().then(|| request.get())??;
        Some(*since)
    }
}

impl Gate {
    /// Notes when a question is asked, and the rule of its path. Returns `None` where no request may
    /// wait, since reading the clock costs time.
    pub(super) fn asked(&self) -> Option<Asked> {
        let note = || Asked {
            at: Instant::now(),
            rule: self.rule(),
        };
        self.waiting.is_on().then(note)
    }

    /// The waiter of a take that was denied: it waits from now on, or goes on waiting. `None` if it
    /// stays denied: it may not wait, it lacks what nobody can give back in time, or too many wait.
    pub(super) fn waits_after_denial(
        &self,
        wait: Wait,
        asked: Option<Asked>,
        take: &Take,
        decision: &Decision,
    ) -> Option<Box<Waiter>> {
        let (asked, retry_after) = (asked?, decision.retry_after()?);
        let at = asked.at;
        let refunds = |count: &Take| self.counters.open.refunds(count.count_name().hash());
        // Units may have come back after its question was answered.
        let has_crossed = || take.counts().iter().any(|it| refunds(it) != it.refunds);
        let has_crossed = matches!(wait, Wait::May(_)) && has_crossed();
        let free_at = match has_crossed {
            true => Some(at),
            false => at.checked_add(retry_after.max(MIN_SLEEP)),
        };
        let may_return = self.may_return(take, decision);
        let mut waiter = self.waiter(wait, asked, take)?;
        let deadline = waiter.deadline;
        let is_late = deadline.is_some_and(|until| free_at.is_none_or(|free_at| free_at > until));
        if is_late && !may_return {
            return None;
        }
        (waiter.may_return, waiter.slot) = (may_return, None);
        let free_at = free_at.unwrap_or_else(|| at + Duration::from_secs(u32::MAX.into()));
        waiter
            .place
            .as_mut()?
            .denied(lacking(take, decision, free_at));
        if decision.is_busy() {
            self.listen(take, decision);
        }
        Some(waiter)
    }

    /// What becomes of a take that an overloaded store did not decide: it asks again soon.
    pub(super) fn waits_after_overload(
        &self,
        wait: Wait,
        asked: Option<Asked>,
        take: &Take,
    ) -> Option<Box<Waiter>> {
        let mut waiter = self.waiter(wait, asked?, take)?;
        waiter.was_overloaded = true;
        Some(waiter)
    }

    /// The waiter of a take that was asked then, if it has patience and there is a place. The time
    /// counts since it was asked about first in a layer that lets it wait.
    fn waiter(&self, wait: Wait, asked: Asked, take: &Take) -> Option<Box<Waiter>> {
        let limits = &self.waiting;
        let mut waiter = match wait {
            Wait::Did(waiter) => waiter,
            Wait::May(since) => {
                let since = since.unwrap_or(asked.at);
                let permit = limits.waiting.try_acquire(limits.max)?;
                let max_of_key = (limits.max / 4).max(1);
                // Everybody's count is that of no key which could take all places.
                let is_bounded = |it: &&Take| take.as_joint().is_none() || !it.key().is_empty();
                let bounded_by = take.counts().iter().filter(is_bounded);
                let bounded_by = bounded_by.map(|count| count.count_name().hash());
                let place = self.counters.open.queues().enter(bounded_by, max_of_key)?;
                self.counters.numbers.waiting.add(1);
                self.counters.numbers.waited.add(1);
                Box::new(Waiter {
                    since,
                    deadline: since.checked_add(limits.up_to),
                    rule: None,
                    may_return: false,
                    was_overloaded: false,
                    slot: None,
                    place: Some(place),
                    counters: Arc::clone(&self.counters),
                    _permit: permit,
                })
            }
        };
        if waiter.deadline.is_some_and(|deadline| deadline <= asked.at) {
            return None;
        }
        (waiter.rule, waiter.was_overloaded) = (asked.rule, false);
        Some(waiter)
    }

    /// Whether units of what a denied take lacks may come back before they leave their window.
    fn may_return(&self, take: &Take, decision: &Decision) -> bool {
        let rule = take.rule();
        match () {
            () if decision.is_busy() => true,
            () if decision.is_on_hold() => false,
            () if self.refunds_by_response(rule) => true,
            () if !rule.settles() && !rule.has_permits() => false,
            () => {
                // Settlements leave quotas with a cost of their own as they are.
                let mut denied_by = decision.denied_by(rule.policies());
                denied_by.any(|it| it.is_concurrent() || rule.settles() && it.cost().is_none())
            }
        }
    }

    /// Hears of the permits that come back, of the counts that have denied this take.
    fn listen(&self, take: &Take, decision: &Decision) {
        let counts = take.counts().iter().zip(take.denials(decision));
        let busy = counts.filter(|(count, is_denied)| *is_denied && count.rule().is_permits());
        for (count, _) in busy {
            let (open, hash) = (&self.counters.open, count.count_name().hash());
            open.queues().listen(hash, || {
                let heard = open.clone();
                let changed = Box::new(move || heard.given_back(hash));
                let listening = self.store().listen(count, changed)?;
                let runtime = Handle::try_current().ok()?;
                let listens = async { drop(listening.await) };
                Some(runtime.spawn(listens).abort_handle())
            });
        }
    }

    /// Whether the path has another rule than this.
    fn has_other_rule(&self, rule: Option<&Arc<Rule>>) -> bool {
        match (self.rule(), rule) {
            (Some(now), Some(rule)) => !Arc::ptr_eq(&now, rule),
            (now, rule) => now.is_some() != rule.is_some(),
        }
    }
}

impl Waiter {
    /// Sleeps until it has to ask. False if it gives up. An operator who lets its key through or
    /// blocks it, and new rules, are a reason to ask as well.
    pub(super) async fn turn(&mut self, gate: &Gate, take: &Take) -> bool {
        if self.was_overloaded {
            self.slot(gate.counters.open.queues()).await;
            return self.deadline.is_none_or(|until| Instant::now() < until);
        }
        let Some(place) = &self.place else {
            return true;
        };
        let must_ask = || gate.ends_wait(take) || gate.has_other_rule(self.rule.as_ref());
        place.turn(self.deadline, self.may_return, must_ask).await
    }

    /// Waits for its slot to ask an overloaded store again, at most a second. In a slot it leaves the
    /// store alone for a moment.
    async fn slot(&mut self, queues: &WaitQueues) {
        let until = |time| {
            let end = Instant::now() + time;
            self.deadline.map_or(end, |until| until.min(end))
        };
        if self.slot.is_some() {
            let [least, most] = OVERLOADED;
            sleep_until(until(least + jitter::up_to(most - least))).await;
        } else {
            self.slot = queues.slot(until(ASK_EVERY)).await;
        }
    }

    /// It was allowed: those behind it may find units, too.
    pub(super) fn allowed(mut self, asked: Option<Asked>, take: &Take, decision: &Decision) {
        if let (Some(place), Some(asked)) = (self.place.take(), asked) {
            place.allowed(|count| left_of(take, decision, count, asked.at));
        }
    }
}

/// The counts of a take, each with the states of its quotas.
fn of_counts<'a, T>(
    take: &'a Take,
    decision: &'a Decision,
    of_count: impl Fn(&'a Take, &mut dyn Iterator<Item = &'a QuotaState>) -> T,
) -> Vec<T> {
    match take.as_joint() {
        None => vec![of_count(take, &mut decision.quotas().iter())],
        Some(joint) => {
            let states = joint.states(take.rule(), decision);
            states
                .map(|(count, mut states)| of_count(count, &mut states))
                .collect()
        }
    }
}

/// Returns what is left of the count with this hash, by the answer to a question of this instant. A
/// take without such a count has nothing left of it.
fn left_of(take: &Take, decision: &Decision, hash: u64, asked_at: Instant) -> Left {
    let of_counts = of_counts(take, decision, |count, states| {
        let is_it = count.count_name().hash() == hash;
        is_it.then(|| left_of_count(count.rule(), states, asked_at))
    });
    let of_counts = of_counts.into_iter().flatten();
    let of_none = Left {
        units: 0,
        only_return: false,
        refill: None,
    };
    of_counts.min_by_key(|it| it.units).unwrap_or(of_none)
}

fn left_of_count(
    rule: &Rule,
    states: &mut dyn Iterator<Item = &QuotaState>,
    asked_at: Instant,
) -> Left {
    let states: SmallVec<[&QuotaState; 1]> = states.collect();
    let algorithm = rule.algorithm().algorithm();
    let refill = match (rule.quotas(), &*states) {
        ([quota], [state]) if algorithm.has_burst() => {
            let full_at = asked_at.checked_add(state.reset_after());
            full_at.map(|full_at| Refill {
                limit: algorithm.limit(quota),
                full_at,
                units: quota.max().max(1),
                micros: quota.window_micros(),
            })
        }
        _ => None,
    };
    let left = states.iter().map(|it| it.remaining()).min();
    Left {
        units: left.unwrap_or_default(),
        only_return: rule.is_permits(),
        refill,
    }
}

/// What a denied take waits for: of the counts that deny it the one that is replenished last, and
/// for a permit once nothing else denies it.
fn lacking(take: &Take, decision: &Decision, free_at: Instant) -> Lacking {
    let of_counts = of_counts(take, decision, |count, states| {
        let (mut left, mut reset_after, mut denies) = (u64::MAX, Duration::ZERO, false);
        for state in states {
            left = left.min(state.remaining());
            if state.is_exceeded() {
                denies = true;
                reset_after = reset_after.max(state.reset_after());
            }
        }
        let order = (denies, !count.rule().is_permits(), reset_after);
        (order, count, left)
    });
    let last = of_counts.into_iter().max_by_key(|(order, ..)| *order);
    let (_, count, left) = last.unwrap_or(((true, true, Duration::ZERO), take, 0));
    let mut quotas = DefaultHasher::new();
    count.rule().quotas().hash(&mut quotas);
    Lacking {
        queue: QueueId {
            count: count.count_name().hash(),
            quotas: quotas.finish(),
        },
        cost: count.cost(),
        left: match decision.is_on_hold() {
            true => 0,
            false => left.min(count.cost().saturating_sub(1)),
        },
        free_at,
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
        self.counters.numbers.waiting.subtract(1);
    }
}
