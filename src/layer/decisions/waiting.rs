//! Which takes may wait, and what their answers mean for those that wait: see `src/waiting/`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::decider::Decider;
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::question::CountAsk;
use crate::rule::Rule;
use crate::take::Take;
use crate::waiting::{Lacking, Left, QueueId, Refill, Wait, Waiter, lane_of};

/// The shortest pause before a request asks again, for stores whose retry-after is too short.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// When the store was asked, and under which rule of the path.
#[derive(Debug)]
pub(super) struct AskedAt {
    pub(super) at: Instant,
    pub(super) rule: Option<Arc<Rule>>,
}

impl Decider {
    /// Notes when a question is asked, and the rule of its path.
    pub(super) fn asked(&self) -> AskedAt {
        AskedAt {
            at: Instant::now(),
            rule: self.rule(),
        }
    }

    /// The waiter of a take that was denied: it waits from now on, or goes on waiting. `None` if it
    /// stays denied: it may not wait, it lacks what nobody can give back in time, or too many wait.
    pub(super) fn waits_after_denial(
        &self,
        wait: Wait,
        asked: Option<&AskedAt>,
        take: &Take,
        decision: &Decision,
        behind: Option<QueueId>,
    ) -> Option<Box<Waiter>> {
        // It would be asked again by whoever guesses.
        let asked = asked.filter(|_| !decision.is_locked_out());
        let (asked, retry_after) = (asked?, decision.retry_after()?);
        let at = asked.at;
        let is_first = matches!(wait, Wait::May(_));
        let free_at = if is_first && self.was_refunded_since(take) {
            at
        } else {
            let free_at = at.checked_add(retry_after.max(MIN_SLEEP));
            free_at.unwrap_or_else(|| at + Duration::from_secs(u32::MAX.into()))
        };
        let may_return = self.may_return(take, decision);
        // What a fallback says is capped.
        let is_told = decision.source() != Source::Fallback;
        let (queue, cost, left) = lacking(take, decision, behind);
        // A look does not say when it fits: it keeps its place among those that are overdue.
        let overdue_at = match behind {
            Some(_) => Some(at),
            None => at.checked_add(retry_after),
        };
        let refill = left_of(take, decision, queue.count, at).refill;
        let lacking = Lacking {
            queue,
            lane: lane_in(take),
            weight: take.rule().fair_weight(),
            cost,
            left,
            free_at: behind.is_none().then_some(free_at),
            asked_at: at,
            overdue_at: overdue_at.filter(|_| is_told),
            refill: refill.filter(|_| is_told),
        };
        if let Wait::May(since) = wait
            && let Some(until) = since.unwrap_or(at).checked_add(self.waiting.up_to)
            && !may_return
            && self.path.open.queues().are_late(&lacking, until)
        {
            return None;
        }
        let mut waiter = self.waiter(wait, asked, take)?;
        if !waiter.denied(lacking, may_return) {
            return None;
        }
        if decision.is_busy() {
            self.listen(take, decision);
        }
        Some(waiter)
    }

    /// The queue in which others are before a take that may wait, or has waited.
    pub(super) fn behind(&self, take: &Take, wait: &Wait) -> Option<QueueId> {
        let queues = take.counts().iter().map(|count| queue_of(Some(count)));
        wait.behind(self.path.open.queues(), queues, take.lane.is_some())
    }

    /// What becomes of a take that an overloaded store did not decide: it asks again soon.
    pub(super) fn waits_after_overload(
        &self,
        wait: Wait,
        asked: Option<&AskedAt>,
        take: &Take,
    ) -> Option<Box<Waiter>> {
        let mut waiter = self.waiter(wait, asked?, take)?;
        waiter.was_overloaded = true;
        Some(waiter)
    }

    /// The waiter of a take that was asked then, if it has patience and there is a place. The time
    /// counts since it was asked about first in a layer that lets it wait.
    fn waiter(&self, wait: Wait, asked: &AskedAt, take: &Take) -> Option<Box<Waiter>> {
        let mut waiter = match wait {
            Wait::Did(waiter) => waiter,
            Wait::May(since) => {
                // Everybody's count is that of no key which could take all places.
                let is_bounded = |it: &&CountAsk| !take.is_joint() || it.name_in_store().has_key();
                let bounded_by = take.counts().iter().filter(is_bounded);
                let bounded_by = bounded_by.map(CountAsk::hash);
                let (queues, lane) = (self.path.open.queues(), lane_in(take));
                let since = since.unwrap_or(asked.at);
                let key = take.lane_key.as_ref().map(|key| key.as_str().into());
                self.waiting.enter(queues, bounded_by, (lane, key), since)?
            }
        };
        if !waiter.has_time_at(asked.at) {
            return None;
        }
        waiter.was_overloaded = false;
        Some(waiter)
    }

    /// Whether units of its counts came back since this take was asked about.
    fn was_refunded_since(&self, take: &Take) -> bool {
        let mut hashes = take.counts().iter().map(CountAsk::hash);
        hashes.any(|hash| self.path.open.refunded_since(take.refunds_before, hash))
    }

    /// Whether units of what a denied take lacks may come back before they leave their window.
    fn may_return(&self, take: &Take, decision: &Decision) -> bool {
        let rule = take.rule();
        if decision.is_busy() {
            return true;
        }
        if decision.is_on_hold() {
            return false;
        }
        // Settlements leave quotas with a cost of their own as they are.
        let mut denied_by = decision.denied_by(rule.policies());
        self.refunds_by_response(rule)
            || denied_by.any(|it| it.is_concurrent() || rule.settles() && it.cost().is_none())
    }

    /// Hears of the permits that come back, of the counts that have denied this take.
    fn listen(&self, take: &Take, decision: &Decision) {
        let counts = take.counts().iter().enumerate().zip(take.denials(decision));
        let busy = counts.filter(|((_, count), is_denied)| *is_denied && count.spec().is_permits());
        for ((at, count), _) in busy {
            let (open, hash) = (&self.path.open, count.hash());
            open.queues().listen(hash, || {
                let open = open.clone();
                let changed = Box::new(move || open.refunded(hash));
                let listening = self.store().listen(&take.only(at), changed)?;
                let runtime = Handle::try_current().ok()?;
                let listens = async { drop(listening.await) };
                Some(runtime.spawn(listens).abort_handle())
            });
        }
    }

    /// Whether a take that waits has to ask: an operator lets its key through or blocks it, or the
    /// path has another rule than this, of its last question.
    pub(super) fn must_ask(&self, take: &Take, rule: Option<&Arc<Rule>>) -> bool {
        let has_other_rule = || match (self.rule(), rule) {
            (Some(now), Some(rule)) => !Arc::ptr_eq(&now, rule),
            (now, rule) => now.is_some() != rule.is_some(),
        };
        self.operator_keys.ends_wait(take) || has_other_rule()
    }
}

impl Decider {
    /// What becomes of a take whose patience is over, or that lacks what comes too late. It is told
    /// when its cost fits, by what others have heard since its own answer.
    pub(super) fn denied_for_good(
        &self,
        answer: &Decision,
        age: Duration,
        waiter: &Waiter,
    ) -> Decision {
        if answer.is_busy() {
            return answer.clone();
        }
        let denial = answer.aged_by(age, answer.source());
        let Verdict::Denied { retry_after } = denial.verdict() else {
            return denial;
        };
        let is_told = denial.source() != Source::Fallback;
        let fits_at = waiter.fits_at().filter(|_| is_told);
        let now = Instant::now();
        let retry_after = fits_at.map_or(retry_after, |it| it.saturating_duration_since(now));
        denial.with_retry_after(retry_after.max(MIN_SLEEP))
    }
}

/// Returns what is left of the count with this hash, by the answer to a question of this instant. A
/// take without such a count has nothing left of it.
pub(super) fn left_of(take: &Take, decision: &Decision, hash: u64, asked_at: Instant) -> Left {
    let of_counts = take
        .states(decision)
        .filter(|(count, _)| count.hash() == hash);
    let of_counts =
        of_counts.map(|(count, mut states)| left_of_count(count, &mut states, asked_at));
    let of_none = Left {
        units: 0,
        only_return: false,
        refill: None,
    };
    of_counts.min_by_key(|it| it.units).unwrap_or(of_none)
}

fn left_of_count(
    count: &CountAsk,
    states: &mut dyn Iterator<Item = &QuotaState>,
    asked_at: Instant,
) -> Left {
    let states: SmallVec<[&QuotaState; 1]> = states.collect();
    let refill = match (count.spec().windows(), &*states) {
        (Some(of), [state]) if of.algorithm().drains_evenly() => {
            let (algorithm, quota) = (of.algorithm(), &of.quotas[0]);
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
        only_return: count.spec().is_permits(),
        refill,
    }
}

/// The lane in which this take waits: without lanes all share one.
fn lane_in(take: &Take) -> u16 {
    take.lane.unwrap_or_else(|| lane_of(None))
}

/// The queue of those whom this count has denied.
fn queue_of(count: Option<&CountAsk>) -> QueueId {
    let mut quotas = DefaultHasher::new();
    count.map(|it| it.quotas()).hash(&mut quotas);
    QueueId {
        count: count.map_or(0, CountAsk::hash),
        quotas: quotas.finish(),
    }
}

/// The denial of a take that has only looked at this instant, since others are before it in this
/// queue. `fits_at` returns when a cost fits there beside the questions that are under way.
pub(super) fn denied_behind(
    take: &Take,
    look: &Decision,
    queue: QueueId,
    asked_at: Instant,
    fits_at: impl Fn(u64, Option<Refill>) -> Option<Instant>,
) -> Decision {
    let (mut retry_after, mut is_never) = (MIN_SLEEP, false);
    let mut states = look.quotas().to_vec();
    for count in take.counts() {
        is_never |= count.spec().limits().any(|limit| limit < count.cost());
        let refill = left_of(take, look, count.hash(), asked_at).refill;
        let is_behind = queue_of(Some(count)) == queue;
        let fits_at = match is_behind {
            true => fits_at(count.cost(), refill),
            false => refill.map(|it| it.at(count.cost())),
        };
        let fits_after = fits_at.map(|it| it.saturating_duration_since(asked_at));
        retry_after = retry_after.max(fits_after.unwrap_or_default());
        for at in count.places(take.rule().counts()) {
            let Some(state) = states.get_mut(*at) else {
                continue;
            };
            let lacks = state.remaining() < count.cost();
            if lacks && fits_at.is_none() {
                retry_after = retry_after.max(state.reset_after());
            }
            *state = state.exceeded(lacks || is_behind);
        }
    }
    let verdict = match is_never {
        true => Verdict::Never,
        false => Verdict::Denied { retry_after },
    };
    Decision::of_states(verdict, look.source(), states.into())
}

/// What a denied take waits for: its queue, its cost there, and what is left for a lower cost. Of
/// the counts that deny it this is the one that is replenished last, and for a permit once nothing
/// else denies it; for one that has only looked it is that of those before it.
fn lacking(take: &Take, decision: &Decision, behind: Option<QueueId>) -> (QueueId, u64, u64) {
    let of_counts = take.states(decision).map(|(count, states)| {
        let (mut left, mut reset_after, mut denies) = (u64::MAX, Duration::ZERO, false);
        for state in states {
            left = left.min(state.remaining());
            if state.is_exceeded() {
                denies = true;
                reset_after = reset_after.max(state.reset_after());
            }
        }
        let is_behind = behind.is_some_and(|it| it == queue_of(Some(count)));
        let is_quota = !count.spec().is_permits();
        ((is_behind, denies, is_quota, reset_after), count, left)
    });
    let last = of_counts.max_by_key(|(order, ..)| *order);
    let (count, left) = last.map_or((None, 0), |(_, count, left)| (Some(count), left));
    let left = if decision.is_on_hold() { 0 } else { left };
    let cost = count.map_or(0, CountAsk::cost);
    (queue_of(count), cost, left.min(cost.saturating_sub(1)))
}
