//! What the targets are compared with: the pure functions, one count for each name, and the oracle
//! beside each. Laws that speak of what would be are put to the test on copies of a count.

use std::fmt::{self, Debug};
use std::rc::Rc;

use kit::oracle::{Terms, limit};
use kit::steps::{
    Aim, BEGINNING, Broken, History, Kind, Limit, RAISED, Seen, Setup, Spec, Step, Theme, micros,
    part_of,
};

use crate::counted::Counted;
use crate::joint::Permits;
use crate::*;

/// What is asked, made definite.
#[derive(Clone)]
pub(crate) enum Act {
    /// At these costs, in one call.
    Take(Vec<u64>),
    /// Up to so many units of the charge with this number.
    Refund(usize, u64),
    Owe(u64, Option<u64>),
    Reset,
    Hold(Duration),
    /// The permit of a charge goes back.
    Release(usize),
    Renew(usize),
    /// The server loses these keys.
    Evict(Vec<String>),
}

/// Of a quota what remains, when it is whole, and whether it denied the take.
pub(crate) type State = (u64, Duration, bool);

pub(crate) fn states(decision: &Decision) -> Vec<State> {
    let states = decision.quotas().iter();
    states
        .map(|it| (it.remaining(), it.reset_after(), it.is_exceeded()))
        .collect()
}

/// What is answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    /// With the receipt where it is one that all give alike.
    Decided(Verdict, Vec<State>, Option<Receipt>),
    Units(u64),
    /// Whether something was forgotten for sure.
    Reset(bool),
    Held(Duration),
}

/// One step of a history as it is played.
#[derive(Clone)]
pub(crate) struct Played {
    pub(crate) now: u64,
    pub(crate) spec: Rc<Spec>,
    pub(crate) plan: usize,
    /// Which keys of several subjects are asked about.
    pub(crate) keys: u16,
    /// Of the rule now, or the one under which a charge was taken.
    pub(crate) take: Take,
    pub(crate) act: Act,
    pub(crate) facts: Vec<Fact>,
}

impl Debug for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}, plan {}: ", self.now, self.plan)?;
        match &self.act {
            Act::Take(costs) => write!(f, "take {costs:?}")?,
            Act::Refund(charge, units) => write!(f, "give back {units} of charge {charge}")?,
            Act::Owe(units, at_most) => write!(f, "owe {units}, at most {at_most:?}")?,
            Act::Reset => write!(f, "reset")?,
            Act::Hold(time) => write!(f, "hold {time:?}")?,
            Act::Evict(names) => write!(f, "lose {names:?}")?,
            Act::Release(charge) => write!(f, "end charge {charge}")?,
            Act::Renew(charge) => write!(f, "renew charge {charge}")?,
        }
        for fact in &self.facts {
            match fact {
                Fact::Decided(verdict, quotas, _) => {
                    let left = quotas
                        .iter()
                        .map(|(left, whole, _)| format!("{left} {whole:?}"));
                    write!(f, "; {verdict:?} {:?}", left.collect::<Vec<_>>())?;
                }
                other => write!(f, "; {other:?}")?,
            }
        }
        Ok(())
    }
}

/// The story until then, line by line.
pub(crate) fn story(setup: &Setup, played: &[Played]) -> String {
    let mut told = format!("\n  {:?}, from {}", setup.theme, setup.start);
    let mut spec = None;
    for one in played {
        if spec.as_ref() != Some(&one.spec) {
            told += &format!("\n  rule {:?}", one.spec);
            spec = Some(Rc::clone(&one.spec));
        }
        told += &format!("\n  {one:?}");
    }
    told
}

/// A take that was charged.
pub(crate) struct Charge {
    pub(crate) take: Take,
    pub(crate) spec: Rc<Spec>,
    pub(crate) cost: u64,
    /// Of each count, and its number in the ledger.
    pub(crate) receipts: Vec<(Receipt, usize)>,
    pub(crate) is_back: bool,
}

/// Plays a history.
pub(crate) struct Reference<'a> {
    setup: &'a Setup,
    pub(crate) seen: &'a Seen,
    path: String,
    pub(crate) spec: Rc<Spec>,
    rule: Arc<Rule>,
    pub(crate) plan: usize,
    keys: u16,
    pub(crate) now: u64,
    /// The time that passed, whatever the clock says.
    pub(crate) truth: u64,
    pub(crate) counts: HashMap<String, Counted>,
    pub(crate) permits: Permits,
    /// By the name of the count that may be held.
    held_until: HashMap<String, u64>,
    /// Whether the laws are checked; of thousands of steps that takes long.
    pub(crate) has_laws: bool,
    pub(crate) charges: Vec<Charge>,
    last: Option<(Decision, Vec<Quota>)>,
    pub(crate) played: Vec<Played>,
}

/// The outcome of a history: what was played until it broke a law, if it did.
pub(crate) struct Outcome {
    pub(crate) played: Vec<Played>,
    pub(crate) result: Result<(), Broken>,
}

pub(crate) fn play(history: &History, seen: &Seen) -> Outcome {
    let mut reference = Reference::new(&history.setup, seen);
    let mut steps = history.steps.iter();
    let result = steps.try_for_each(|step| reference.step(*step));
    reference.end(result)
}

/// The bytes of the counts that such a history leaves behind.
pub(crate) fn bytes_of(history: &History) -> Vec<Vec<u8>> {
    let seen = Seen::default();
    let mut reference = Reference::new(&history.setup, &seen);
    reference.has_laws = false;
    let mut steps = history.steps.iter();
    let result = steps.try_for_each(|step| reference.step(*step));
    result.expect("there is no law to break");
    reference.counts.values().map(Counted::bytes).collect()
}

impl<'a> Reference<'a> {
    pub(crate) fn new(setup: &'a Setup, seen: &'a Seen) -> Self {
        static PATHS: AtomicUsize = AtomicUsize::new(0);
        let path = format!("h{}", PATHS.fetch_add(1, Ordering::Relaxed));
        let spec = Rc::new(setup.specs[0].clone());
        Self {
            setup,
            seen,
            rule: spec.rule(&path),
            path,
            spec,
            plan: 0,
            keys: 0,
            now: setup.start,
            truth: setup.start,
            counts: HashMap::new(),
            permits: Permits::default(),
            held_until: HashMap::new(),
            has_laws: true,
            charges: Vec::new(),
            last: None,
            played: Vec::new(),
        }
    }

    pub(crate) fn end(self, result: Result<(), Broken>) -> Outcome {
        let mut counts = self.counts.values();
        let result = result.and_then(|()| counts.try_for_each(Counted::check_traces));
        let told = |broken| format!("{broken}{}", story(self.setup, &self.played));
        Outcome {
            result: result.map_err(told),
            played: self.played,
        }
    }
}

/// What a count says whose key is held for so much longer: quotas that deny for longer say so.
pub(crate) fn held(verdict: Verdict, left: Duration) -> Verdict {
    match verdict {
        Verdict::Denied { retry_after } if retry_after >= left => verdict,
        Verdict::Never => verdict,
        _ if left.is_zero() => verdict,
        _ => Verdict::OnHold { retry_after: left },
    }
}

impl Reference<'_> {
    fn aim(&self) -> Aim {
        let last = self.last.as_ref().map(|(last, _)| last);
        let quotas = self.spec.under(self.plan).into_iter();
        let quotas: Vec<Quota> = quotas.filter_map(|limit| limit.quota).collect();
        let way = self.spec.way;
        let stamps = self
            .charges
            .iter()
            .filter_map(|charge| charge.receipts.first());
        Aim {
            now: self.now,
            stamps: stamps
                .map(|(receipt, _)| receipt.stamp())
                .filter(|it| *it > 0)
                .collect(),
            retry: last.and_then(Decision::retry_after),
            reset: last.map(Decision::reset_after),
            left: last.map_or(1, Decision::remaining),
            limit: quotas.iter().map(|it| limit(way, it)).min().unwrap_or(0),
            quotas,
            sub_windows: way.sub_windows,
        }
    }

    fn wait_until(&mut self, instant: u64) {
        self.truth += instant - self.now;
        self.now = instant;
    }

    fn step(&mut self, step: Step) -> Result<(), Broken> {
        let theme = self.setup.theme;
        let kind = theme.kind(step);
        self.keys = step.other / 64;
        self.wait_until(self.aim().instant(step.wait));
        let plan = theme.plan(step, self.plan, &self.spec);
        self.seen.note_if(plan != self.plan, "changes of the plan");
        self.seen.note_if(plan >= RAISED, "raised");
        self.plan = plan;
        if kind == Kind::Reload {
            self.reload(step)?;
        }
        if kind == Kind::Clock {
            self.clock(step);
        }
        let aim = self.aim();
        match kind {
            Kind::Refund => match self.charge_of(step) {
                Some(number) => {
                    let units = part_of(self.charges[number].cost, step.size);
                    self.refund(number, units)
                }
                None => self.take(&[aim.cost(step.size)]),
            },
            Kind::Release => match self.charge_of(step) {
                Some(number) => self.end_permit(number, !step.size.is_multiple_of(4)),
                None => self.take(&[aim.cost(step.size)]),
            },
            Kind::Owe => self.owe(aim.owed(step)),
            Kind::Reset => self.reset(),
            Kind::Hold => self.hold(step),
            Kind::Batch => self.take(&aim.costs(step)),
            Kind::Peek => self.take(&[0]),
            Kind::Evict => self.evict(),
            Kind::Undo => self.undo(step),
            Kind::Take | Kind::Reload | Kind::Clock => self.take(&[aim.cost(step.size)]),
        }
    }

    fn reload(&mut self, step: Step) -> Result<(), Broken> {
        let specs = &self.setup.specs;
        self.change(&specs[usize::from(step.other % 64) % specs.len()])
    }

    /// From now on this rule.
    pub(crate) fn change(&mut self, next: &Spec) -> Result<(), Broken> {
        if *next == *self.spec {
            return Ok(());
        }
        self.seen.note_if(true, "reloads");
        let before = Rc::clone(&self.spec);
        self.spec = Rc::new(next.clone());
        self.rule = self.spec.rule(&self.path);
        if self.spec.way == before.way && !self.spec.is_joint() {
            let [old, new] = [&before, &self.spec].map(|spec| self.terms(spec, self.plan, None));
            let counts = self.counts.values();
            for counted in counts.filter(|it| it.algorithm() == self.spec.way.algorithm) {
                let broken = counted.switch(self.now, &old, &new, self.seen);
                broken.map_err(|broken| format!("{broken}, now {:?}", self.spec))?;
            }
        }
        Ok(())
    }

    /// The clock steps, which is no time that passes.
    fn clock(&mut self, step: Step) {
        let by = self.aim().clock_step(step);
        let is_ahead = self.setup.theme == Theme::Clock && step.size.is_multiple_of(2);
        self.now = match is_ahead {
            true => self.now.saturating_add_signed(by),
            false => self.now.saturating_add_signed(-by),
        };
        self.clock_steps(is_ahead);
    }

    /// The clock was set.
    pub(crate) fn clock_steps(&mut self, is_ahead: bool) {
        self.seen.note_if(is_ahead, "clocks ahead");
        self.seen.note_if(!is_ahead, "clocks that went back");
        self.counts
            .values_mut()
            .for_each(|it| it.clock_steps(is_ahead));
    }

    /// One of the latest takes that were charged and not given back.
    fn charge_of(&self, step: Step) -> Option<usize> {
        let charged = self.charges.iter().filter(|charge| !charge.is_back);
        let is_longer = self.setup.theme == Theme::Longer;
        let most = if is_longer { 20 } else { 6 };
        let back = usize::from(step.other / 8) % charged.count().clamp(1, most);
        self.charge_before(back)
    }

    /// The charge that was not given back, before so many others.
    pub(crate) fn charge_before(&self, others: usize) -> Option<usize> {
        let charges = self.charges.iter().enumerate().rev();
        let mut charged = charges.filter(|(_, charge)| !charge.is_back);
        charged.nth(others).map(|(at, _)| at)
    }

    /// Under what one of its counts is asked: of a subject and perhaps of requests instead of
    /// units.
    pub(crate) fn terms(&self, spec: &Spec, plan: usize, count: Option<(&str, bool)>) -> Terms {
        let is_of_count = |limit: &&Limit| match count {
            None => true,
            Some((subject, has_own_cost)) => {
                limit.subject == Some(subject) && limit.has_own_cost == has_own_cost
            }
        };
        let limits = spec.under(plan);
        let own = limits.iter().filter(is_of_count);
        Terms {
            way: spec.way,
            own: own.filter_map(|it| it.quota).collect(),
        }
    }

    fn current(&self) -> Option<Take> {
        self.spec.take(&self.rule, self.plan, self.keys)
    }

    pub(crate) fn note(&mut self, take: &Take, act: Act, facts: Vec<Fact>) {
        self.played.push(Played {
            now: self.now,
            spec: Rc::clone(&self.spec),
            plan: self.plan,
            keys: self.keys,
            take: take.clone(),
            act,
            facts,
        });
    }

    pub(crate) fn take(&mut self, costs: &[u64]) -> Result<(), Broken> {
        let Some(take) = self.current() else {
            return Ok(());
        };
        self.note(&take, Act::Take(costs.to_vec()), Vec::new());
        for cost in costs {
            let take = take.clone().with_cost(*cost);
            let fact = match self.spec.is_joint() {
                true => self.joint_take(&take)?,
                false => self.single_take(&take)?,
            };
            self.played
                .last_mut()
                .expect("it is there")
                .facts
                .push(fact);
        }
        self.seen.note_if(costs.len() > 1, "batches");
        Ok(())
    }

    /// For how much longer the count of this name is held, if it is the first one of a take.
    pub(crate) fn held_for(&self, take: &Take, name: &str) -> Duration {
        let until = self.held_until.get(name).filter(|_| take.name("") == name);
        Duration::from_micros(until.map_or(0, |until| until.saturating_sub(self.now)))
    }

    fn single_take(&mut self, take: &Take) -> Result<Fact, Broken> {
        let (now, cost) = (self.now, take.cost());
        let terms = self.terms(&self.spec, self.plan, None);
        let left = self.held_for(take, &take.name(""));
        let new = || Counted::new(terms.way).with_laws(self.has_laws);
        let counted = self.counts.entry(take.name("")).or_insert_with(new);
        if !left.is_zero() {
            // Nothing is charged, and quotas that deny for longer say so.
            let verdict = counted.would(now, take, cost).verdict();
            let told = match verdict {
                Verdict::Allowed => 0,
                _ => cost,
            };
            let mut told = states(&counted.would(now, take, told));
            let verdict = held(verdict, left);
            if cost == 0 && matches!(verdict, Verdict::OnHold { .. }) {
                told.iter_mut()
                    .for_each(|(.., is_exceeded)| *is_exceeded = false);
            }
            self.seen.note_if(true, "held");
            return Ok(Fact::Decided(verdict, told, None));
        }
        let (decision, number) = counted.take(now, self.truth, &terms, take, self.seen)?;
        if let (Some(receipt), Some(number)) = (charged(&decision), number) {
            self.charges.push(Charge {
                take: take.clone(),
                spec: Rc::clone(&self.spec),
                cost,
                receipts: vec![(receipt, number)],
                is_back: false,
            });
        }
        let fact = Fact::Decided(decision.verdict(), states(&decision), charged(&decision));
        self.last = Some((decision, terms.own));
        Ok(fact)
    }

    pub(crate) fn refund(&mut self, number: usize, units: u64) -> Result<(), Broken> {
        let charge = &mut self.charges[number];
        charge.is_back = true;
        let (take, spec, cost) = (charge.take.clone(), Rc::clone(&charge.spec), charge.cost);
        let receipts = charge.receipts.clone();
        let take = take.with_cost(units);
        self.note(&take, Act::Refund(number, units), Vec::new());
        let back = match spec.is_joint() {
            true => self.joint_refund(&take, cost, &receipts)?,
            false => {
                let terms = self.terms(&self.spec, self.plan, None);
                let peek = self.current();
                let peek = peek.filter(|_| self.spec.way.algorithm == spec.way.algorithm);
                let counted = self.counts.get_mut(&take.name("")).expect("it was charged");
                let (receipt, of_ledger) = &receipts[0];
                let of = (receipt, *of_ledger, units);
                counted.refund(
                    self.now,
                    take.quotas(),
                    of,
                    peek.as_ref().map(|it| (&**it, &terms)),
                    self.seen,
                )?
            }
        };
        self.played.last_mut().expect("it is there").facts = vec![Fact::Units(back)];
        Ok(())
    }

    fn owe(&mut self, (units, at_most): (u64, Option<u64>)) -> Result<(), Broken> {
        let Some(take) = self.current() else {
            return Ok(());
        };
        let at_most = if self.spec.is_joint() { None } else { at_most };
        let units = match self.spec.is_joint() {
            true => units % 1_000,
            false => units,
        };
        let take = take.with_cost(units);
        self.note(&take, Act::Owe(units, at_most), Vec::new());
        let charged = match self.spec.is_joint() {
            true => self.joint_owe(&take)?,
            false => {
                let terms = self.terms(&self.spec, self.plan, None);
                let new = || Counted::new(terms.way).with_laws(self.has_laws);
                let counted = self.counts.entry(take.name("")).or_insert_with(new);
                counted.owe(self.now, &terms, &take, (units, at_most), self.seen)?
            }
        };
        self.played.last_mut().expect("it is there").facts = vec![Fact::Units(charged)];
        Ok(())
    }

    /// Stores have no count of what was never charged. A microsecond passes where there are stores,
    /// since the memory store has none either of what was forgotten, as Redis and the pure algorithm
    /// do.
    fn reset(&mut self) -> Result<(), Broken> {
        let Some(take) = self.current() else {
            return Ok(());
        };
        let mut has_counted = false;
        for count in take.counts() {
            if let Some(counted) = self.counts.get_mut(&count.name("")) {
                has_counted |= counted.reset(self.now)?;
            }
        }
        let until = self.held_until.remove(&take.name(""));
        has_counted |= until.is_some_and(|until| until > self.now);
        let has_counted = has_counted && !self.spec.is_joint();
        self.note(&take, Act::Reset, vec![Fact::Reset(has_counted)]);
        self.seen.note_if(true, "resets");
        if self.setup.start == BEGINNING {
            self.wait_until(self.now + 1);
        }
        Ok(())
    }

    /// Nothing is known any more of what was charged, and nothing of it is given back.
    fn evict(&mut self) -> Result<(), Broken> {
        let Some(take) = self.current() else {
            return Ok(());
        };
        let of_rule = |charge: &&mut Charge| charge.spec.way.algorithm == self.spec.way.algorithm;
        let lost = self.charges.iter_mut().filter(of_rule);
        lost.for_each(|charge| charge.is_back = true);
        self.counts.remove(&take.name(""));
        let name = take.name("CurrentLimiter:");
        // Where GCRA keeps what was given back.
        let names = vec![format!("{{{name}}}:back"), name];
        self.note(&take, Act::Evict(names), Vec::new());
        self.seen.note_if(true, "evictions");
        Ok(())
    }

    fn hold(&mut self, step: Step) -> Result<(), Broken> {
        let Some(take) = self.current() else {
            return Ok(());
        };
        // No time only asks.
        let times = [700, 0, 1, 90_000, 2_000_000, 70_000_000];
        let time = Duration::from_micros(times[usize::from(step.size % 6)]);
        let until = self.held_until.entry(take.name("")).or_default();
        *until = (*until).max(self.now + micros(Some(time)));
        let left = self.held_for(&take, &take.name(""));
        self.note(&take, Act::Hold(time), vec![Fact::Held(left)]);
        Ok(())
    }

    /// Takes at this instant that are given back at once, on a copy that is asked all that comes:
    /// they leave no trace.
    fn undo(&mut self, step: Step) -> Result<(), Broken> {
        let Some(take) = self.current() else {
            return Ok(());
        };
        let costs = self.aim().costs(step);
        let terms = self.terms(&self.spec, self.plan, None);
        if let Some(counted) = self.counts.get_mut(&take.name("")) {
            counted.undo(
                self.now,
                &terms,
                &take,
                &costs[..costs.len().min(4)],
                step.size,
                self.seen,
            )?;
        }
        Ok(())
    }
}
