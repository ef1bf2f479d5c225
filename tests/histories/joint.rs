//! Takes over several counts, as one who knows nothing of them: each count is asked by itself, on a
//! copy, and all are charged, or none.

use std::rc::Rc;

use kit::oracle::limit;
use kit::steps::{Broken, Limit, SUBJECTS};
use tidegate::store::Ask;

use crate::counted::Counted;
use crate::reference::{Act, Charge, Fact, Reference, State, held, states};
use crate::*;

/// How long a permit is held without a renewal, in milliseconds.
const LEASE: u64 = 15_000;

/// Of each count of permits: the numbers of their holders, and the milliseconds at which their
/// leases end.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    held: HashMap<String, Vec<(u64, u64)>>,
    last_holder: u64,
}

impl Permits {
    /// How many are held.
    fn held(&mut self, now: u64, name: &str) -> u64 {
        let holders = self.held.entry(name.to_owned()).or_default();
        holders.retain(|(_, until)| *until > now / 1_000);
        holders.len() as u64
    }

    fn grant(&mut self, now: u64, name: &str) -> Receipt {
        self.last_holder += 1;
        self.hold(now, name, self.last_holder);
        Receipt::new(0, self.last_holder, 1)
    }

    fn hold(&mut self, now: u64, name: &str, holder: u64) {
        let holders = self.held.entry(name.to_owned()).or_default();
        holders.push((holder, now / 1_000 + 1 + LEASE));
    }

    /// Returns 1 if it was held.
    fn release(&mut self, name: &str, holder: &Receipt) -> u64 {
        let holders = self.held.entry(name.to_owned()).or_default();
        let before = holders.len();
        holders.retain(|(number, _)| *number != holder.serial());
        (before - holders.len()) as u64
    }
}

/// Whether it counts the requests in progress.
pub(crate) fn is_of_permits(count: &Ask) -> bool {
    count.name("").ends_with("~permits")
}

/// What asks for each count alone.
pub(crate) fn alone(take: &Take) -> Vec<Ask> {
    (0..take.counts().len()).map(|at| take.only(at)).collect()
}

/// Of which subject a count is, and whether requests cost 1 there.
fn kind_of(count: &Ask) -> (&'static str, bool) {
    let name = count.name("");
    let (_, of) = name.split_once("}:").expect("of a subject");
    let of = of
        .split(':')
        .next()
        .expect("a part")
        .trim_end_matches('}')
        .trim_end_matches("~permits");
    let has_own_cost = of.ends_with("~1");
    let of = of.trim_end_matches("~1").to_owned();
    let mut subjects = SUBJECTS.into_iter();
    let subject = subjects.find(|name| of == *name);
    (subject.expect("one of them"), has_own_cost)
}

const fn wait(verdict: Verdict) -> Duration {
    match verdict {
        Verdict::Denied { retry_after } | Verdict::OnHold { retry_after } => retry_after,
        _ => Duration::ZERO,
    }
}

const fn is_hold(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::OnHold { .. })
}

/// What several counts say together.
const fn both(one: Verdict, other: Verdict) -> Verdict {
    match (one, other) {
        (Verdict::Never, _) | (_, Verdict::Never) => Verdict::Never,
        (Verdict::Allowed, Verdict::Allowed) => Verdict::Allowed,
        _ => {
            let is_held = is_hold(one);
            let (first, second) = (wait(one).as_micros(), wait(other).as_micros());
            let is_other = second > first || second == first && !is_held;
            let (longer, retry_after) = match is_other {
                true => (other, wait(other)),
                false => (one, wait(one)),
            };
            match longer {
                Verdict::OnHold { .. } => longer,
                _ => Verdict::Denied { retry_after },
            }
        }
    }
}

impl Reference<'_> {
    pub(crate) fn joint_take(&mut self, take: &Take) -> Result<Fact, Broken> {
        let (now, truth) = (self.now, self.truth);
        let mut after: Vec<(String, Counted, Decision, Option<usize>)> = Vec::new();
        let (mut verdict, mut is_busy) = (Verdict::Allowed, false);
        for count in &alone(take) {
            let name = count.name("");
            if is_of_permits(count) {
                let held = self.permits.held(now, &name);
                is_busy |= count.cost() > 0 && held >= count.quotas()[0].max();
                continue;
            }
            let terms = self.terms(&self.spec, self.plan, Some(kind_of(count)));
            let counted = self.counts.get(&name).cloned();
            let mut counted = counted.unwrap_or_else(|| Counted::new(terms.way));
            let (decision, number) = counted.take(now, truth, &terms, count, self.seen)?;
            let says = held(decision.verdict(), self.held_for(take, &name));
            self.seen.note_if(is_hold(says), "held beside others");
            verdict = both(verdict, says);
            after.push((name, counted, decision, number));
        }
        let all_fit = verdict == Verdict::Allowed && !is_busy;
        let limits = self.spec.under(self.plan);
        let full = |it: &Limit| {
            it.quota
                .map_or(it.permits, |quota| limit(self.spec.way, &quota))
        };
        let mut told: Vec<State> = limits
            .iter()
            .map(|it| (full(it), Duration::ZERO, false))
            .collect();
        let mut after = after.into_iter();
        let mut receipts = Vec::new();
        for count in &alone(take) {
            if is_of_permits(count) {
                let receipt = self.permit(count, all_fit, &mut verdict, &limits, &mut told);
                receipts.extend(receipt.map(|receipt| (receipt, 0)));
                continue;
            }
            let (name, counted, decision, number) = after.next().expect("one for each");
            let of_count = match (all_fit, decision.is_allowed()) {
                // It would have been charged: how it stands without that.
                (false, true) => match self.counts.get(&name) {
                    Some(before) => before.would(now, count, 0),
                    None => Counted::new(self.spec.way).would(now, count, 0),
                },
                _ => decision.clone(),
            };
            let (subject, has_own_cost) = kind_of(count);
            let mut of_count = states(&of_count);
            let says = held(decision.verdict(), self.held_for(take, &name));
            if count.cost() == 0 && is_hold(says) {
                of_count.iter_mut().for_each(|state| state.2 = false);
            }
            let mut of_count = of_count.into_iter();
            for (limit, told) in limits.iter().zip(&mut told) {
                let is_of_count = limit.subject == Some(subject)
                    && limit.quota.is_some()
                    && limit.has_own_cost == has_own_cost;
                if is_of_count {
                    *told = of_count.next().expect("one for each");
                }
            }
            if all_fit {
                let receipt = decision.receipt().unwrap_or(Receipt::new(0, 0, 0));
                receipts.push((receipt, number.unwrap_or(0)));
                self.counts.insert(name, counted);
            }
        }
        self.seen
            .note_if(verdict == Verdict::Allowed, "joint takes");
        self.seen
            .note_if(matches!(verdict, Verdict::Busy { .. }), "busy");
        if all_fit && receipts.iter().any(|(receipt, _)| receipt.units() > 0) {
            self.charges.push(Charge {
                take: take.clone(),
                spec: Rc::clone(&self.spec),
                cost: take.cost(),
                receipts,
                is_back: false,
            });
        }
        Ok(Fact::Decided(verdict, told, None))
    }

    /// Asks for one of the permits, and holds it if all else fits.
    fn permit(
        &mut self,
        count: &Ask,
        all_fit: bool,
        verdict: &mut Verdict,
        limits: &[Limit],
        told: &mut [State],
    ) -> Option<Receipt> {
        let (name, max) = (count.name(""), count.quotas()[0].max());
        let is_exceeded = count.cost() > 0 && self.permits.held(self.now, &name) >= max;
        let is_granted = all_fit && count.cost() > 0;
        let receipt = is_granted.then(|| self.permits.grant(self.now, &name));
        let subject = kind_of(count).0;
        let is_own = |it: &Limit| it.quota.is_none() && it.subject == Some(subject);
        let at = limits.iter().position(is_own).expect("its limit");
        let held = self.permits.held(self.now, &name);
        told[at] = (max.saturating_sub(held), Duration::ZERO, is_exceeded);
        *verdict = match *verdict {
            _ if is_exceeded && max == 0 => Verdict::Never,
            Verdict::Allowed if is_exceeded => Verdict::Busy {
                retry_after: Duration::from_secs(1),
            },
            verdict => verdict,
        };
        all_fit.then(|| receipt.unwrap_or(Receipt::new(0, 0, 0)))
    }

    /// Returns how many units of the request's cost are given back. Where nothing counts by that
    /// cost, these are all that were charged, as far as they are asked for, or none.
    pub(crate) fn joint_refund(
        &mut self,
        take: &Take,
        charged: u64,
        receipts: &[(Receipt, usize)],
    ) -> Result<u64, Broken> {
        let mut most = [None, None];
        for (count, (receipt, number)) in alone(take).iter().zip(receipts) {
            if is_of_permits(count) {
                continue;
            }
            let counted = self.counts.get_mut(&count.name(""));
            let counted = counted.expect("it was charged");
            let units = match receipt.units() {
                0 => 0,
                units => {
                    let of = (receipt, *number, count.cost().min(units));
                    counted.refund(self.now, count.quotas(), of, None, self.seen)?
                }
            };
            let of_kind = &mut most[usize::from(kind_of(count).1)];
            *of_kind = Some(units.max(of_kind.unwrap_or(0)));
        }
        Ok(most[0].unwrap_or(match most[1] {
            None | Some(0) => 0,
            Some(_) => take.cost().min(charged),
        }))
    }

    /// Charges each count by the request's cost, and returns the fewest units that were.
    pub(crate) fn joint_owe(&mut self, take: &Take) -> Result<u64, Broken> {
        let mut fewest = None;
        for count in &alone(take) {
            if is_of_permits(count) || kind_of(count).1 || count.cost() == 0 {
                continue;
            }
            let terms = self.terms(&self.spec, self.plan, Some(kind_of(count)));
            let counted = self.counts.entry(count.name(""));
            let counted = counted.or_insert_with(|| Counted::new(terms.way));
            let charged = counted.owe(self.now, &terms, count, (take.cost(), None), self.seen)?;
            fewest = Some(charged.min(fewest.unwrap_or(u64::MAX)));
        }
        Ok(fewest.unwrap_or(0))
    }

    /// A permit goes back, or is renewed.
    pub(crate) fn end_permit(&mut self, number: usize, is_over: bool) -> Result<(), Broken> {
        let charge = &self.charges[number];
        let (take, receipts) = (charge.take.clone(), charge.receipts.clone());
        let counts = alone(&take);
        let counts = counts.iter().zip(receipts);
        let last = counts.last().expect("a count");
        let (count, (receipt, _)) = last;
        if !is_of_permits(count) || receipt.units() == 0 {
            return Ok(());
        }
        let (now, name) = (self.now, count.name(""));
        self.permits.held(now, &name);
        let was_held = self.permits.release(&name, &receipt);
        self.seen.note_if(was_held > 0, "permits that ended");
        if is_over {
            self.note(&take, Act::Release(number), vec![Fact::Units(was_held)]);
        } else {
            self.permits.hold(now, &name, receipt.serial());
            self.note(&take, Act::Renew(number), Vec::new());
        }
        Ok(())
    }
}
