//! A count and its ledger, and the laws that hold for them after every step.

use kit::ensure;
use kit::oracle::{Ledger, Terms, limit, span_of_memory, window};
use kit::steps::{Broken, Seen, Way, micros};
use kit::windows::{Spent, too_fast, too_full};
use tidegate::store::Ask;

use crate::*;

/// A charge by the time that passed, and by the stamp.
#[derive(Debug, Clone, Copy)]
struct Traced {
    number: usize,
    truth: u64,
    stamp: u64,
    units: u64,
    back: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Counted {
    count: Count,
    ledger: Ledger,
    /// Asked only for what is charged: a denied take leaves no trace.
    quiet: Count,
    /// Written and read again behind every step, so that whatever is lost is lost for good.
    read: Count,
    /// The same, dropped when it may be.
    stored: Count,
    /// Some takes on it were given back at once.
    undone: Option<Undone>,
    /// As of when each quota was charged last, nobody asked for another one. `None` once anything
    /// but takes happened.
    alone: Option<Vec<(Way, Quota, Count)>>,
    way: Way,
    /// Under what it was charged last.
    last: Option<Terms>,
    /// When.
    charged_at: Option<u64>,
    trace: Vec<Traced>,
    /// How often the clock went back or ahead.
    jumps: u32,
    jumps_ahead: u32,
    /// There is no law of windows for it: its rule has changed, or it owes.
    is_untraced: bool,
    has_laws: bool,
}

#[derive(Debug, Clone)]
struct Undone {
    count: Count,
    /// Takes that were charged later have other receipts.
    receipts: Vec<(usize, Receipt)>,
    last: Option<Receipt>,
}

/// What a client may see of a decision; how a store tells takes apart is its own affair.
fn visible(decision: &Decision) -> (Verdict, Vec<QuotaState>) {
    (decision.verdict(), decision.quotas().to_vec())
}

impl Counted {
    pub(crate) fn new(way: Way) -> Self {
        Self {
            count: Count::default(),
            ledger: Ledger::default(),
            quiet: Count::default(),
            read: Count::default(),
            stored: Count::default(),
            undone: None,
            alone: Some(Vec::new()),
            way,
            last: None,
            charged_at: None,
            trace: Vec::new(),
            jumps: 0,
            jumps_ahead: 0,
            is_untraced: false,
            has_laws: true,
        }
    }

    /// Whether laws are checked.
    pub(crate) const fn with_laws(mut self, has_laws: bool) -> Self {
        self.has_laws = has_laws;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.count.to_bytes()
    }

    pub(crate) const fn algorithm(&self) -> Algorithm {
        self.way.algorithm
    }

    /// What a copy answers at another instant, or at another cost.
    pub(crate) fn would(&self, now: u64, take: &Ask, cost: u64) -> Decision {
        let config = take.algorithm().expect("no permits");
        self.count.clone().take(config, now, take.quotas(), cost)
    }

    /// Takes. Returns the number of what was charged.
    pub(crate) fn take(
        &mut self,
        now: u64,
        truth: u64,
        terms: &Terms,
        take: &Ask,
        seen: &Seen,
    ) -> Result<(Decision, Option<usize>), Broken> {
        let (config, quotas, cost) = (
            take.algorithm().expect("no permits"),
            take.quotas(),
            take.cost(),
        );
        if !self.has_laws {
            let decision = self.count.take(config, now, quotas, cost);
            return Ok((decision, Some(0)));
        }
        self.is_untraced |= self.last.as_ref().is_some_and(|last| last != terms);
        self.afresh(now, take, cost, seen)?;
        self.goes_on_counting(now, take, seen)?;
        let before = self.would(now, take, 0);
        let decision = self.count.take(config, now, quotas, cost);
        for (before, after) in before.quotas().iter().zip(decision.quotas()) {
            let expected = match decision.is_allowed() {
                true => before.remaining().checked_sub(cost),
                false => Some(before.remaining()),
            };
            let after = after.remaining();
            ensure!(
                expected == Some(after),
                "{after} remain, not {expected:?}: {decision:?}"
            );
        }
        let verdict = self.ledger.check_verdict(now, terms, cost, &decision);
        verdict.map_err(|broken| format!("{broken}: {decision:?}"))?;
        let counted = terms
            .own
            .iter()
            .map(|it| self.ledger.counted(now, terms, it));
        let is_over = counted
            .zip(terms.limits())
            .any(|(range, limit)| range.least > limit);
        seen.note_if(is_over, "above a limit");
        let is_counted = decision.quotas().iter().zip(terms.limits());
        let is_counted = is_counted
            .into_iter()
            .any(|(it, limit)| it.remaining() < limit);
        let was_changed = self.ledger.was_changed(terms);
        seen.note_if(was_changed && is_counted, "counted after a change");

        let read = self.read.take(config, now, quotas, cost);
        ensure!(
            read == decision,
            "{read:?} of what was read, not {decision:?}"
        );
        let stored = self.stored.take(config, now, quotas, cost);
        let alike = visible(&stored) == visible(&decision);
        ensure!(alike, "{stored:?} of what is stored, not {decision:?}");
        if let Some(undone) = &mut self.undone {
            let got = undone.count.take(config, now, quotas, cost);
            let alike = visible(&got) == visible(&decision);
            ensure!(alike, "{got:?} after what was undone, not {decision:?}");
            undone.last = got.receipt();
        }
        let number = match charged(&decision) {
            None => {
                seen.note_if(decision.is_allowed(), "admitted at no cost");
                seen.note_if(!decision.is_allowed(), "denied");
                seen.note_if(cost == 0 && !decision.is_allowed(), "denied at no cost");
                None
            }
            Some(receipt) => {
                seen.note_if(true, "admitted");
                let quiet = self.quiet.take(config, now, quotas, cost);
                let alike = quiet == decision;
                ensure!(alike, "{quiet:?}, had nobody asked, not {decision:?}");
                (self.last, self.charged_at) = (Some(terms.clone()), Some(now));
                let number = self.ledger.admit(now, terms, cost, false);
                self.trace.push(Traced {
                    number,
                    truth,
                    stamp: receipt.stamp(),
                    units: cost,
                    back: 0,
                });
                if let Some(undone) = &mut self.undone {
                    undone
                        .receipts
                        .extend(undone.last.take().map(|it| (number, it)));
                }
                Some(number)
            }
        };
        // What is told is how it stands then.
        let look = self.would(now, take, 0);
        for (told, found) in decision.quotas().iter().zip(look.quotas()) {
            let [told, found] = [told, found].map(|it| (it.remaining(), it.reset_after()));
            ensure!(told == found, "{told:?} are told, but it is {found:?}");
        }
        let remaining = self.ledger.check_remaining(now, terms, &decision);
        remaining.map_err(|broken| format!("{broken}: {decision:?}"))?;
        self.nobody_refills(now, terms, take, number.is_some(), seen)?;
        self.answers(now, terms, take, &decision, seen)?;
        self.is_remembered_as_long(now, take, &decision)?;
        self.store(now)?;
        if self.jumps > 0 && number.is_some() {
            self.check_clock(now, truth, terms, take, seen)?;
        }
        Ok((decision, number))
    }

    /// While the clock is behind the last charge, all that counted then counts, and a bucket is as
    /// full as it was.
    fn goes_on_counting(&self, now: u64, take: &Ask, seen: &Seen) -> Result<(), Broken> {
        let Some(charged_at) = self.charged_at.filter(|it| now < *it) else {
            return Ok(());
        };
        let [behind, then] = [now, charged_at].map(|instant| self.would(instant, take, 0));
        let is_bucket = self.way.algorithm == Algorithm::Gcra;
        for (behind, then) in behind.quotas().iter().zip(then.quotas()) {
            let (left, had) = (behind.remaining(), then.remaining());
            ensure!(
                left == had || left < had && !is_bucket,
                "{left} remain behind the last charge, and {had} at it"
            );
        }
        seen.note_if(true, "asked behind the last charge");
        Ok(())
    }

    /// Only what another algorithm is charged replaces a state, and then it is as if there had been
    /// none.
    fn afresh(&self, now: u64, take: &Ask, cost: u64, seen: &Seen) -> Result<(), Broken> {
        let at = now as usize % 3;
        let mut others = Algorithm::ALL
            .into_iter()
            .filter(|it| *it != self.way.algorithm);
        let other = others.nth(at).expect("three others");
        let mut count = self.count.clone();
        let got = count.take(other, now, take.quotas(), cost);
        let expected = Count::default().take(other, now, take.quotas(), cost);
        ensure!(got == expected, "{got:?} by {other:?}, afresh {expected:?}");
        if charged(&got).is_none() {
            let is_same = format!("{:?}", self.count) == format!("{count:?}");
            ensure!(is_same, "{:?} became {count:?}", self.count);
            seen.note_if(true, "left alone");
        }
        Ok(())
    }

    /// A store keeps bytes, and drops what is forgotten.
    fn store(&mut self, now: u64) -> Result<(), Broken> {
        let bytes = self.count.to_bytes();
        let [forgotten, expected] = [&self.read, &self.count].map(Count::forgotten_at);
        ensure!(forgotten == expected, "{forgotten} for {expected}");
        ensure!(bytes == self.read.to_bytes(), "other bytes: {bytes:?}");
        self.read = match Count::from_bytes(&bytes) {
            Ok(read) => read,
            Err(error) => return Err(format!("{error}: {bytes:?}")),
        };
        self.stored = match self.stored.forgotten_at() <= now && self.jumps == 0 {
            true => Count::default(),
            false => Count::from_bytes(&self.stored.to_bytes()).expect("its own bytes"),
        };
        Ok(())
    }

    /// What remains, when to come back, when all is whole again: put to the test on copies, at the
    /// instant it speaks of and a microsecond before.
    fn answers(
        &self,
        now: u64,
        terms: &Terms,
        take: &Ask,
        decision: &Decision,
        seen: &Seen,
    ) -> Result<(), Broken> {
        let (remaining, cost) = (decision.remaining(), take.cost());
        // Until the new rule is charged a wait may be longer than need be.
        let is_exact = !self.ledger.was_changed(terms);
        let fits = self.would(now, take, remaining);
        // What is owed, or a quota of no units, denies also what costs nothing.
        let is_none = remaining == 0 && !fits.is_allowed();
        ensure!(
            is_none || fits.is_allowed(),
            "{remaining} do not fit: {fits:?}"
        );
        let more = self.would(now, take, remaining + 1);
        ensure!(!more.is_allowed(), "{} fit: {more:?}", remaining + 1);
        if let Some(wait) = decision.retry_after() {
            let wait = micros(Some(wait));
            ensure!(wait > 0, "denied, but not for any time");
            let then = self.would(now + wait, take, cost);
            ensure!(then.is_allowed(), "denied after the wait: {then:?}");
            let before = self.would(now + wait - 1, take, cost);
            let is_early = is_exact && before.is_allowed();
            ensure!(!is_early, "allowed before the wait ends: {before:?}");
            let is_forgotten = is_exact && self.count.forgotten_at() < now + wait;
            ensure!(!is_forgotten, "forgotten while it still denies");
            seen.note_if(cost > 1, "denied more than one unit");
            seen.note_if(!is_exact, "denied after a change");
        }
        let limits: Vec<_> = terms.limits().collect();
        for (index, (state, limit)) in decision.quotas().iter().zip(limits).enumerate() {
            let wait = micros(Some(state.reset_after()));
            let is_whole = |now| self.would(now, take, 0).quotas()[index].remaining() == limit;
            ensure!(is_whole(now + wait), "quota {index} is not whole again");
            let is_early = is_exact && wait > 0 && is_whole(now + wait - 1);
            ensure!(!is_early, "quota {index} was whole earlier");
            seen.note_if(wait > 0, "not whole");
        }
        Ok(())
    }

    /// When nothing counts any more, a count is as good as new, and it is so no later than need be.
    fn is_remembered_as_long(
        &self,
        now: u64,
        take: &Ask,
        decision: &Decision,
    ) -> Result<(), Broken> {
        let forgotten_at = self.count.forgotten_at();
        let then = now.max(forgotten_at);
        for cost in [take.cost(), decision.remaining(), 0] {
            let got = self.would(then, take, cost);
            let config = take.algorithm().expect("no permits");
            let new = Count::default().take(config, then, take.quotas(), cost);
            let alike = visible(&got) == visible(&new);
            ensure!(alike, "{got:?} of what is forgotten, not {new:?}");
        }
        let latest = self.ledger.forgotten_at().max(now.saturating_add(1_000));
        let is_vague = self.ledger.is_vague();
        let is_late = forgotten_at > latest && !is_vague;
        ensure!(!is_late, "remembered until {forgotten_at}, not {latest}");
        Ok(())
    }

    /// Compared with a copy that was left alone since this quota was charged last.
    fn nobody_refills(
        &mut self,
        now: u64,
        terms: &Terms,
        take: &Ask,
        is_charged: bool,
        seen: &Seen,
    ) -> Result<(), Broken> {
        // A bucket that another max has charged drains by that.
        if terms.way.algorithm != Algorithm::FixedWindow {
            return Ok(());
        }
        let actual = self.would(now, take, 0);
        let Some(charged) = &mut self.alone else {
            return Ok(());
        };
        for (index, quota) in terms.own.iter().enumerate() {
            let alike = |it: &&(Way, Quota, Count)| it.0 == terms.way && it.1 == *quota;
            let Some((.., alone)) = charged.iter().find(alike) else {
                continue;
            };
            let config = take.algorithm().expect("no permits");
            let alone = alone.clone().take(config, now, take.quotas(), 0);
            let (remaining, most) = (
                actual.quotas()[index].remaining(),
                alone.quotas()[index].remaining(),
            );
            ensure!(
                remaining <= most,
                "{remaining} remain of {quota:?}, but {most} had nobody asked"
            );
            seen.note_if(
                most < limit(terms.way, quota),
                "not whole, had nobody asked",
            );
        }
        if is_charged {
            charged.retain(|(_, quota, _)| !terms.own.contains(quota));
            let own = terms.own.iter();
            charged.extend(own.map(|quota| (terms.way, *quota, self.count.clone())));
        }
        Ok(())
    }

    /// At the instant of a change a quota has no more left than it had.
    pub(crate) fn switch(
        &self,
        now: u64,
        old: &Terms,
        new: &Terms,
        seen: &Seen,
    ) -> Result<(), Broken> {
        let is_steady = self.last.as_ref() == Some(old) && self.jumps == 0;
        let is_bucket = old.way.algorithm == Algorithm::Gcra;
        if !is_steady || is_bucket {
            return Ok(());
        }
        let peek = |terms: &Terms| {
            let quotas = &terms.own;
            self.count.clone().take(terms.way, now, quotas, 0)
        };
        let (before, after) = (peek(old), peek(new));
        for (quota, state) in new.own.iter().zip(after.quotas()) {
            let Some(index) = old.own.iter().position(|other| other == quota) else {
                continue;
            };
            let has_left = before.quotas()[index].remaining();
            let counted = self.ledger.counted(now, old, quota);
            let left = counted.left_of(limit(old.way, quota)).most.max(has_left);
            let remaining = state.remaining();
            ensure!(
                remaining <= left,
                "{remaining} remain of {quota:?} after a switch, not {left}"
            );
            seen.note_if(counted.least > 0, "counted at a switch");
        }
        Ok(())
    }

    /// Gives back, and returns how many units. What remains under the take that is looked at may
    /// only become more, and by no more than that.
    pub(crate) fn refund(
        &mut self,
        now: u64,
        quotas: &[Quota],
        (receipt, number, units): (&Receipt, usize, u64),
        look: Option<(&Ask, &Terms)>,
        seen: &Seen,
    ) -> Result<u64, Broken> {
        let before = look.map(|(take, _)| self.would(now, take, 0));
        let back = self.count.refund(now, quotas, receipt, units);
        if !self.has_laws {
            return Ok(back);
        }
        self.ledger.check_refund(now, number, (units, back))?;
        let read = self.read.refund(now, quotas, receipt, units);
        ensure!(
            read == back,
            "{read} given back of what was read, not {back}"
        );
        let quiet = self.quiet.refund(now, quotas, receipt, units);
        ensure!(
            quiet == back,
            "{quiet} given back, had nobody asked, not {back}"
        );
        let stored = self.stored.refund(now, quotas, receipt, units);
        let may_differ = self.count.forgotten_at() <= now || stored == back;
        ensure!(
            may_differ,
            "{stored} given back of what is stored, not {back}"
        );
        self.store(now)?;
        // It may have been given other numbers: what is charged later differs by them.
        self.stored = self.count.clone();
        if let Some(undone) = &mut self.undone {
            let mut others = undone.receipts.iter();
            let other = others.find(|(other, _)| *other == number);
            let receipt = other.map_or(receipt, |(_, receipt)| receipt);
            let got = undone.count.refund(now, quotas, receipt, units);
            ensure!(
                got == back,
                "{got} given back after what was undone, not {back}"
            );
        }
        self.alone = None;
        if let Some((before, (take, terms))) = before.zip(look) {
            let after = self.would(now, take, 0);
            let pairs = before
                .quotas()
                .iter()
                .zip(after.quotas())
                .zip(terms.limits());
            for ((before, after), limit) in pairs {
                let (before, after) = (before.remaining(), after.remaining());
                ensure!(
                    before <= after && after <= limit,
                    "{before} remained, then {after}"
                );
                let is_more = after > before.saturating_add(back);
                let is_known = self.ledger.is_known(now, terms) && self.jumps == 0;
                ensure!(!is_more || !is_known, "{before} remained, then {after}");
            }
        }
        let mut traced = self.trace.iter_mut();
        match traced.find(|it| it.number == number) {
            Some(traced) => traced.back += back,
            // A receipt from before a reset, stamped later by a clock that has gone back.
            None => self.is_untraced |= back > 0,
        }
        seen.note_if(back > 0, "refunds");
        seen.note_if(back > 0 && back < receipt.units(), "refunds of a part");
        seen.note_if(back == 0, "refunds of what has ceased to count");
        Ok(back)
    }

    pub(crate) fn owe(
        &mut self,
        now: u64,
        terms: &Terms,
        take: &Ask,
        (units, at_most): (u64, Option<u64>),
        seen: &Seen,
    ) -> Result<u64, Broken> {
        let (config, quotas) = (take.algorithm().expect("no permits"), take.quotas());
        let charged = self.count.owe(config, now, quotas, units, at_most);
        if !self.has_laws {
            return Ok(charged);
        }
        self.ledger
            .check_owed(now, terms, (units, at_most), charged)?;
        for copy in [&mut self.quiet, &mut self.read, &mut self.stored] {
            let got = copy.owe(config, now, quotas, units, at_most);
            ensure!(got == charged, "{got} charged of a copy, not {charged}");
        }
        self.store(now)?;
        (self.alone, self.undone) = (None, None);
        self.is_untraced = true;
        if charged > 0 {
            (self.last, self.charged_at) = (Some(terms.clone()), Some(now));
        }
        let look = self.would(now, take, 0);
        self.ledger.check_remaining(now, terms, &look)?;
        self.answers(now, terms, &take.clone().with_cost(0), &look, seen)?;
        let one = self.would(now, take, 1);
        if !one.is_allowed() {
            self.answers(now, terms, &take.clone().with_cost(1), &one, seen)?;
        }
        seen.note_if(charged > 0, "charged as owed");
        seen.note_if(charged < units, "forgiven");
        Ok(charged)
    }

    /// Returns whether anything counted.
    pub(crate) fn reset(&mut self, now: u64) -> Result<bool, Broken> {
        if self.count.forgotten_at() == 0 {
            return Ok(false);
        }
        let has_counted = self.count.reset(now);
        self.quiet.reset(now);
        self.read.reset(now);
        self.stored = self.count.clone();
        self.ledger.reset(now);
        let forgotten_at = self.count.forgotten_at();
        let latest = now.saturating_add(1_000);
        ensure!(forgotten_at <= latest, "remembered until {forgotten_at}");
        let bytes = self.count.to_bytes().len();
        ensure!(bytes <= 64, "{bytes} bytes are left");
        (self.alone, self.undone) = (None, None);
        self.trace.clear();
        (self.jumps, self.jumps_ahead) = (0, 0);
        (self.last, self.charged_at) = (None, None);
        Ok(has_counted)
    }

    pub(crate) fn undo(
        &mut self,
        now: u64,
        terms: &Terms,
        take: &Ask,
        costs: &[u64],
        order: u16,
        seen: &Seen,
    ) -> Result<(), Broken> {
        // An entry that was there keeps the stamp of the last take it was shared by, even if that
        // one is undone: its units come back late, as sharing allows.
        if self.undone.is_some() || self.ledger.would_share(now, terms) || self.jumps > 0 {
            return Ok(());
        }
        let (config, quotas) = (take.algorithm().expect("no permits"), take.quotas());
        let mut count = self.count.clone();
        let receipts = costs
            .iter()
            .map(|cost| count.take(config, now, quotas, *cost).receipt());
        let mut receipts: Vec<_> = receipts.collect::<Vec<_>>().into_iter().flatten().collect();
        seen.note_if(!receipts.is_empty(), "undone");
        while !receipts.is_empty() {
            let receipt = receipts.remove(usize::from(order) % receipts.len());
            let (units, back) = (
                receipt.units(),
                count.refund(now, quotas, &receipt, receipt.units()),
            );
            ensure!(back == units, "{back} of {units} given back at once");
        }
        self.undone = Some(Undone {
            count,
            receipts: Vec::new(),
            last: None,
        });
        Ok(())
    }

    pub(crate) fn clock_steps(&mut self, is_ahead: bool) {
        self.ledger.clock_steps();
        self.jumps += 1;
        self.jumps_ahead += u32::from(is_ahead);
        (self.alone, self.undone) = (None, None);
        // A store whose clock went back has not dropped it.
        self.stored = self.count.clone();
    }

    /// In windows of the time that passed, and of stamps, nothing is above its quota but by what a
    /// step of the clock may add.
    fn check_clock(
        &self,
        now: u64,
        truth: u64,
        terms: &Terms,
        take: &Ask,
        seen: &Seen,
    ) -> Result<(), Broken> {
        if self.is_untraced {
            return Ok(());
        }
        for (quota, limit) in terms.own.iter().zip(terms.limits()) {
            let most = |span: u64| -> Option<u128> {
                let limit = u128::from(limit);
                if terms.way.algorithm == Algorithm::Gcra {
                    let drained = u128::from(span) * u128::from(quota.max());
                    return Some(limit + drained / u128::from(window(quota)));
                }
                let edges = u128::from(terms.way.algorithm == Algorithm::FixedWindow);
                (span < window(quota)).then_some(limit * (1 + edges))
            };
            for first in &self.trace {
                let since = self.trace.iter().filter(|it| it.truth >= first.truth);
                let units: u128 = since.map(|it| u128::from(it.units - it.back)).sum();
                let Some(most) = most(truth - first.truth) else {
                    continue;
                };
                // Only a step ahead lets something leave too early: each a quota once more, at most.
                let more = u128::from(limit) * u128::from(self.jumps_ahead);
                let span = truth - first.truth;
                ensure!(units <= most + more, "{units} units of {quota:?} in {span}");
                seen.note_if(units > most, "above a quota after a step ahead");
            }
            let mut stamps: Vec<_> = self.trace.clone();
            stamps.sort_unstable_by_key(|it| it.stamp);
            for (at, first) in stamps.iter().enumerate() {
                let mut units = 0;
                for last in &stamps[at..] {
                    units += u128::from(last.units - last.back);
                    let span = last.stamp - first.stamp;
                    let Some(most) = most(span) else { break };
                    let jumps = u128::from(self.jumps);
                    ensure!(
                        units <= most * (1 + jumps),
                        "{units} units of {quota:?} stamped in {span}, after {jumps} steps"
                    );
                    seen.note_if(units > most, "above a quota by the stamps");
                }
            }
        }
        // Admissions resume within a window.
        let spans = terms.own.iter();
        let spans = spans.map(|quota| span_of_memory(terms.way, quota).max(window(quota)));
        let then = self.would(now + spans.max().unwrap_or(0), take, 0);
        for (state, limit) in then.quotas().iter().zip(terms.limits()) {
            ensure!(state.remaining() == limit, "a window later: {then:?}");
        }
        seen.note_if(true, "asked after a step");
        Ok(())
    }

    /// Once more over the whole history, in the words of the law, where the rule stayed as it is.
    pub(crate) fn check_traces(&self) -> Result<(), Broken> {
        if !self.has_laws {
            return Ok(());
        }
        let [quiet, forgotten] = [&self.quiet, &self.count].map(Count::forgotten_at);
        ensure!(
            quiet == forgotten,
            "forgotten at {forgotten}, had nobody asked at {quiet}"
        );
        let Some(terms) = self
            .last
            .as_ref()
            .filter(|_| !self.is_untraced && self.jumps == 0)
        else {
            return Ok(());
        };
        for (quota, limit) in terms.own.iter().zip(terms.limits()) {
            let spent = self.trace.iter().map(|it| Spent {
                units: it.units - it.back,
                from: it.stamp,
                until: it.stamp,
                bound: limit,
            });
            let spent: Vec<_> = spent.collect();
            let excess = match terms.way.algorithm {
                Algorithm::Gcra => too_fast(&spent, quota.max(), window(quota)),
                Algorithm::FixedWindow => None,
                _ => too_full(&spent, window(quota)),
            };
            ensure!(excess.is_none(), "{excess:?} of {quota:?}");
        }
        Ok(())
    }
}
