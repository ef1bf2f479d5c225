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
        let refunded = self.was_refunded_since(take);
        let free_at = if is_first && refunded {
            at
        } else {
            let free_at = at.checked_add(retry_after.max(MIN_SLEEP));
            free_at.unwrap_or_else(|| at + Duration::from_secs(u32::MAX.into()))
        };
        let may_return = self.may_return(take, decision);
        // What a fallback says is capped.
        let is_told = decision.source() != Source::Fallback;
        let (Queue { id, lead, others }, count, left) = lacking(take, decision, behind, at)?;
        // A look does not say when it fits: it keeps its place among those that are overdue.
        let overdue_at = match behind {
            Some(_) => Some(at),
            None => at.checked_add(retry_after),
        };
        let lacking = Lacking {
            queue: id,
            refunded,
            others,
            count,
            lane: lane_in(take),
            weight: take.rule().fair_weight(),
            cost: lead.cost(),
            left,
            free_at: behind.is_none().then_some(free_at),
            asked_at: at,
            overdue_at: overdue_at.filter(|_| is_told),
            refill: left.refill.filter(|_| is_told),
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
        // Calls may have lanes of their own.
        let queues = take.counts().iter();
        let queues = queues.flat_map(|it| [false, true].map(|turns| queue_of(take, it, turns).id));
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

/// Returns what is left of the counts of the queue with this hash, by the answer to a question of this
/// instant. A take without such a count has nothing left of it.
pub(super) fn left_of(take: &Take, decision: &Decision, hash: u64, asked_at: Instant) -> Left {
    left_in(take, decision, (hash, take.lane.is_some()), asked_at)
}

/// The same, where those of the queue wait in turns or not.
fn left_in(
    take: &Take,
    decision: &Decision,
    (hash, in_turns): (u64, bool),
    asked_at: Instant,
) -> Left {
    let mut left: Option<Left> = None;
    let mut others = (u64::MAX, false);
    for (count, mut states) in take.states(decision) {
        if lead_of(take, count, in_turns).hash() != hash {
            continue;
        }
        let of_count = left_of_count(count, &mut states, asked_at);
        if count.hash() == hash {
            left = left.into_iter().chain([of_count]).min_by_key(|it| it.units);
        } else {
            let starts = of_count.units / count.cost().max(1);
            others = others.min((starts, count.spec().is_permits()));
        }
    }
    let mut left = left.unwrap_or_default();
    left.starts = others.0;
    if left.starts == 0 {
        (left.only_return, left.refill) = (others.1, None);
    }
    left
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
    let windows = count.spec().windows();
    let windows = windows.filter(|of| !of.algorithm().drains_evenly());
    let window = windows.and_then(|of| of.quotas.iter().map(|it| it.window_micros()).min());
    Left {
        units: left.unwrap_or_default(),
        starts: u64::MAX,
        only_return: count.spec().is_permits(),
        refill,
        window,
    }
}

/// The lane in which this take waits: without lanes all share one.
fn lane_in(take: &Take) -> u16 {
    take.lane.unwrap_or_else(|| lane_of(None))
}

/// The count in whose queue those wait whom this one denies: itself, or of all counts of its subject
/// the one that charges what the request costs, where those that wait take turns for all of them.
/// A period is not among these: nobody waits until it ends.
fn lead_of<'a>(take: &'a Take, count: &'a CountAsk, in_turns: bool) -> &'a CountAsk {
    let of = &take.rule().counts().list;
    let is_period = |it: &CountAsk| it.spec().calendar().is_some();
    if !in_turns || is_period(count) {
        return count;
    }
    let is_of_subject = |it: &&CountAsk| of[it.place()].subject == of[count.place()].subject;
    let of_subject = || take.counts().iter().filter(is_of_subject);
    let mut shared = of_subject().filter(|it| !is_period(it));
    let lead = shared.clone().find(|it| !it.has_own_cost);
    lead.or(shared.next()).unwrap_or(count)
}

/// The queue of those whom a count has denied.
struct Queue<'a> {
    id: QueueId,
    lead: &'a CountAsk,
    /// The hashes of the other counts that they wait for, too.
    others: SmallVec<[u64; 1]>,
}

fn queue_of<'a>(take: &'a Take, count: &'a CountAsk, in_turns: bool) -> Queue<'a> {
    let lead = lead_of(take, count, in_turns);
    let (mut quotas, mut others) = (DefaultHasher::new(), SmallVec::new());
    for count in take.counts() {
        if lead_of(take, count, in_turns).hash() == lead.hash() {
            count.quotas().hash(&mut quotas);
            others.extend((count.hash() != lead.hash()).then_some(count.hash()));
        }
    }
    let (count, quotas) = (lead.hash(), quotas.finish());
    let id = QueueId { count, quotas };
    Queue { id, lead, others }
}

/// Whether this take waits in turns for all counts of a subject: in the way of those whom it is
/// behind, since calls may have lanes where others have none.
fn waits_in_turns(take: &Take, behind: Option<QueueId>) -> bool {
    let own = take.lane.is_some();
    let has = |turns| {
        let mut queues = take.counts().iter().map(|it| queue_of(take, it, turns).id);
        behind.is_some_and(|behind| queues.any(|it| it == behind))
    };
    own != (has(!own) && !has(own))
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
    let in_turns = waits_in_turns(take, Some(queue));
    let mut states = look.quotas().to_vec();
    for (count, mut of_count) in take.states(look) {
        is_never |= count.spec().limits().any(|limit| limit < count.cost());
        let refill = left_of_count(count, &mut of_count, asked_at).refill;
        let of = queue_of(take, count, in_turns);
        let is_behind = of.id == queue && of.lead.hash() == count.hash();
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

/// What a denied take waits for: its queue, the count that denies it, and what is left for a lower
/// cost. Of the counts that deny it this is the one that is replenished last, and for a permit once
/// nothing else denies it; for one that has only looked it is that of those before it.
fn lacking<'a>(
    take: &'a Take,
    decision: &'a Decision,
    behind: Option<QueueId>,
    asked_at: Instant,
) -> Option<(Queue<'a>, u64, Left)> {
    let in_turns = waits_in_turns(take, behind);
    let of_counts = take.states(decision).map(|(count, states)| {
        let exceeded = states.filter(|it| it.is_exceeded());
        let reset_after = exceeded.map(QuotaState::reset_after).max();
        let queue = queue_of(take, count, in_turns);
        let is_behind = behind == Some(queue.id);
        let is_quota = !count.spec().is_permits();
        let order = (is_behind, reset_after.is_some(), is_quota, reset_after);
        (order, queue, count.hash())
    });
    let (_, queue, count) = of_counts.max_by_key(|(order, ..)| *order)?;
    let mut left = left_in(take, decision, (queue.id.count, in_turns), asked_at);
    left.units = match decision.is_on_hold() {
        true => 0,
        false => left.units.min(queue.lead.cost().saturating_sub(1)),
    };
    Some((queue, count, left))
}
