//! Quotas that depend on who asks: a charge counts in every window of every quota of the rule's
//! plans, so that no plan admits more than its own quotas say, and an upgrade keeps what was used.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate::algorithm::Count;
use tidegate::decision::{Receipt, Verdict};
use tidegate::rule::{Policy, Quotas};
use tidegate::{Algorithm, Decision, Key, Quota, Rule, Take};

use crate::check::{Broken, Seen, check, ensure, for_each_algorithm, story};
use crate::history::{Event, Past, Step, Way, cost, instant, part_of, quotas, start, steps, way};
use crate::oracle::{Book, Range, limit, window};

for_each_algorithm!(
    plans_count_together,
    plans_and_refunds_count_together,
    quotas_from_code_are_never_exceeded,
);

/// The rule's own quotas, and those of its plans.
#[derive(Debug, Clone)]
struct Setup {
    way: Way,
    plans: Vec<Vec<Quota>>,
    start: u64,
}

fn setup(algorithm: Algorithm, plans: usize) -> impl Strategy<Value = Setup> {
    let plans = prop::collection::vec(quotas(), 2..=plans);
    (way(algorithm), plans, start()).prop_map(|(way, plans, start)| Setup { way, plans, start })
}

fn named(quotas: &[Quota]) -> Vec<Policy> {
    // Names of their own, since two quotas may have the same window here.
    let named = |(at, quota): (usize, &Quota)| Policy::new(&at.to_string(), *quota);
    quotas.iter().enumerate().map(named).collect()
}

fn base_rule(setup: &Setup) -> Rule {
    let rule = Rule::with_policies("plans", named(&setup.plans[0])).expect("valid");
    rule.with_algorithm(setup.way)
}

/// The take of each plan. Under one that the rule has lost, its own quotas apply.
fn takes(setup: &Setup, presence: &[Presence]) -> Vec<Take> {
    let plans = setup.plans.iter().enumerate().skip(1);
    let plans = plans.filter(|(at, _)| presence[*at].is_there());
    let rule = plans.fold(base_rule(setup), |rule, (at, plan)| {
        let quotas = Quotas::with_policies(named(plan)).expect("valid");
        rule.with_plan(&at.to_string(), quotas).expect("valid")
    });
    let rule = Arc::new(rule);
    let numbers = 0..setup.plans.len();
    let of_plan = |at: usize| rule.of_plan(&at.to_string()).unwrap_or(Arc::clone(&rule));
    numbers
        .map(|at| Take::new(of_plan(at), Key::default()))
        .collect()
}

/// What one quota counts, of what all plans admitted.
#[derive(Debug, Clone)]
enum Counted {
    Book(Book),
    /// Under GCRA other plans may pour in more than a bucket holds.
    Bucket {
        quota: Quota,
        capacity: i128,
        /// In units, times the window.
        level: i128,
        at: u64,
    },
}

impl Counted {
    fn new(way: Way, quota: Quota) -> Self {
        if way.algorithm != Algorithm::Gcra {
            return Self::Book(Book::new(way, quota));
        }
        Self::Bucket {
            quota,
            capacity: quota.max().max(quota.burst()).into(),
            level: 0,
            at: 0,
        }
    }

    fn counted(&self, now: u64) -> Range {
        match self {
            Self::Book(book) => book.counted(now),
            Self::Bucket { .. } => {
                let units = self.units(now);
                Range {
                    least: units,
                    most: units,
                }
            }
        }
    }

    /// Whole units in a bucket.
    fn units(&self, now: u64) -> u64 {
        let Self::Bucket {
            quota, level, at, ..
        } = self
        else {
            panic!("no bucket");
        };
        let scale = i128::from(window(quota));
        let drained = i128::from(now - at) * i128::from(quota.max());
        let left = (level - drained).max(0);
        u64::try_from((left + scale - 1) / scale).expect("no more than fits")
    }

    fn admit(&mut self, now: u64, cost: u64) {
        if let Self::Book(book) = self {
            return book.admit(now, cost);
        }
        let Self::Bucket {
            quota,
            capacity,
            level,
            at,
        } = self
        else {
            return;
        };
        let scale = i128::from(window(quota));
        let drained = i128::from(now - *at) * i128::from(quota.max());
        let poured = (*level - drained).max(0) + i128::from(cost) * scale;
        *level = poured.min(*capacity * scale);
        *at = now;
    }

    fn give_back(&mut self, now: u64, index: usize, units: u64) {
        if let Self::Book(book) = self {
            book.give_back(now, index, units);
        }
    }
}

/// Whether the rule has a plan, as of the last reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It has had it all the time.
    Always,
    Gone,
    /// It has it again. What was charged meanwhile may or may not count.
    Back,
}

impl Presence {
    fn is_there(self) -> bool {
        self != Self::Gone
    }
}

/// A key that is asked about under several plans.
struct Scene {
    setup: Setup,
    way: Way,
    takes: Vec<Take>,
    /// Of each plan. The rule's own quotas stay.
    presence: Vec<Presence>,
    plan: usize,
    now: u64,
    count: Count,
    /// Of each quota of each plan.
    counted: Vec<Vec<Counted>>,
    charges: Vec<(Receipt, bool)>,
    last: Option<Decision>,
    events: Vec<Event>,
}

impl Scene {
    fn new(setup: &Setup) -> Self {
        let counted = |plan: &Vec<Quota>| -> Vec<_> {
            plan.iter()
                .map(|quota| Counted::new(setup.way, *quota))
                .collect()
        };
        let presence = vec![Presence::Always; setup.plans.len()];
        Self {
            setup: setup.clone(),
            way: setup.way,
            takes: takes(setup, &presence),
            presence,
            plan: 0,
            now: setup.start,
            count: Count::default(),
            counted: setup.plans.iter().map(counted).collect(),
            charges: Vec::new(),
            last: None,
            events: Vec::new(),
        }
    }

    fn limits(&self) -> &[Quota] {
        self.takes[self.plan].rule().quotas()
    }

    /// Time passes, and perhaps the plan changes.
    fn go_on(&mut self, step: Step, seen: &Seen) {
        let quotas = self.limits();
        let quota = quotas[usize::from(step.wait / 16) % quotas.len()];
        let last = self.last.as_ref();
        let past = Past {
            stamps: self.charges.iter().map(|(it, _)| it.stamp()).collect(),
            retry: last.and_then(Decision::retry_after),
            reset: last.map(Decision::reset_after),
        };
        self.now = instant(step.wait, self.now, &quota, self.way, &past);
        let next = usize::from(step.act / 16) % (2 * self.takes.len());
        let is_there = |plan: usize| self.presence.get(plan).is_some_and(|it| it.is_there());
        if is_there(next) && next != self.plan {
            self.plan = next;
            seen.note("changes");
        }
    }

    /// The rule is loaded again, with a plan less or with one that comes back.
    fn reload(&mut self, step: Step, seen: &Seen) {
        let plan = 1 + usize::from(step.act / 16) % (self.takes.len() - 1);
        self.presence[plan] = match self.presence[plan].is_there() {
            true => Presence::Gone,
            false => Presence::Back,
        };
        self.takes = takes(&self.setup, &self.presence);
        if !self.presence[self.plan].is_there() {
            self.plan = 0;
        }
        seen.note("reloads");
    }

    fn cost(&self, step: Step) -> u64 {
        let limits = self.limits().iter().map(|quota| limit(self.way, quota));
        let left = self.last.as_ref().map_or(1, Decision::remaining);
        cost(step.size, limits.min().unwrap_or(0), left)
    }

    fn take(&mut self, cost: u64, seen: &Seen) -> Result<(), Broken> {
        let own = |scene: &Self| -> Vec<(Range, u64)> {
            let counted = scene.counted[scene.plan].iter().zip(scene.limits());
            counted
                .map(|(counted, quota)| (counted.counted(scene.now), limit(scene.way, quota)))
                .collect()
        };
        let counted = own(self);
        let quotas = self.takes[self.plan].quotas();
        let decision = self.count.take(self.way, self.now, quotas, cost);
        let event = Event::Took(self.now, cost, decision.clone());
        self.events.push(event);
        self.last = Some(decision.clone());
        ensure!(
            decision.quotas().len() == self.limits().len(),
            "{} quotas are told",
            decision.quotas().len()
        );
        let fits = |units: fn(&Range) -> u64| {
            let mut all = counted.iter();
            all.all(|(range, limit)| units(range).saturating_add(cost) <= *limit)
        };
        let is_certain = self.presence[self.plan] == Presence::Always;
        match decision.verdict() {
            _ if !is_certain => {}
            Verdict::Allowed if cost == 0 => {}
            Verdict::Allowed => {
                ensure!(fits(|range| range.least), "one too many, {counted:?}");
                seen.note("admitted");
            }
            Verdict::Denied { .. } => {
                ensure!(!fits(|range| range.most), "denied, {counted:?}");
                seen.note("denied");
            }
            _ => {
                let never = counted.iter().any(|(_, limit)| cost > *limit);
                ensure!(never, "there is use in waiting");
            }
        }
        if let Some(receipt) = decision.receipt() {
            self.charges.push((receipt, false));
            let all = self.counted.iter_mut().flatten();
            all.for_each(|counted| counted.admit(self.now, cost));
        }
        for ((range, limit), state) in own(self).into_iter().zip(decision.quotas()) {
            let left = range.left_of(limit);
            let remaining = state.remaining();
            let is_right = !is_certain || left.contains(remaining);
            ensure!(is_right, "{remaining} remain, not {left:?}");
        }
        Ok(())
    }

    fn refund(&mut self, step: Step, seen: &Seen) -> Result<(), Broken> {
        let taken = self.charges.iter_mut().enumerate().rev();
        let mut taken = taken.filter(|(_, (_, is_refunded))| !is_refunded);
        let Some((index, (receipt, is_refunded))) = taken.nth(usize::from(step.act / 16) % 4)
        else {
            return Ok(());
        };
        *is_refunded = true;
        let receipt = receipt.clone();
        let units = part_of(receipt.units(), step.size);
        let back = self.count.refund(self.now, &receipt, units);
        // No take is charged under a quota of no units.
        let certain = self.presence.iter().zip(&self.counted);
        let certain = certain.filter(|(presence, _)| **presence == Presence::Always);
        let books = certain.flat_map(|(_, counted)| counted);
        let books = books.filter_map(|counted| match counted {
            Counted::Book(book) if book.limit() > 0 => Some(book),
            _ => None,
        });
        let least = books.map(|book| book.counted_of(self.now, index).least);
        let least = least.max().unwrap_or(0).min(units);
        let all = self.counted.iter_mut().flatten();
        all.for_each(|counted| counted.give_back(self.now, index, back));
        self.events
            .push(Event::Refunded(self.now, receipt, units, back));
        seen.note_if(back > 0, "refunds");
        ensure!(back >= least, "{back} given back, but {least} count");
        Ok(())
    }

    fn tell(&self, broken: &str) -> Broken {
        let quotas: Vec<_> = self.takes.iter().map(Take::quotas).collect();
        format!("{broken}: {quotas:?}{}", story(&self.events))
    }
}

fn plans_count_together(algorithm: Algorithm) {
    let seen = check((setup(algorithm, 3), steps(24)), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            scene.go_on(step, seen);
            let cost = scene.cost(step);
            let taken = scene.take(cost, seen);
            taken.map_err(|broken| scene.tell(&broken))?;
        }
        Ok(())
    });
    seen.expect("changes", 300);
    seen.expect("admitted", 300);
    seen.expect("denied", 100);
}

/// Also while the rule loses plans and has them again.
fn plans_and_refunds_count_together(algorithm: Algorithm) {
    // What a bucket has left of an earlier take is another law's.
    if algorithm == Algorithm::Gcra {
        return;
    }
    let seen = check((setup(algorithm, 3), steps(24)), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            scene.go_on(step, seen);
            match step.act % 16 {
                12.. => {
                    let refunded = scene.refund(step, seen);
                    refunded.map_err(|broken| scene.tell(&broken))?;
                    continue;
                }
                11 => scene.reload(step, seen),
                _ => {}
            }
            let cost = scene.cost(step);
            let taken = scene.take(cost, seen);
            taken.map_err(|broken| scene.tell(&broken))?;
        }
        Ok(())
    });
    seen.expect("refunds", 30);
    seen.expect("reloads", 50);
    seen.expect("admitted", 200);
}

/// Of quotas that were in use when something was charged, none admits more than its max. (A fixed
/// window may, where its own window is new and the longest one has just begun anew.)
fn quotas_from_code_are_never_exceeded(algorithm: Algorithm) {
    if algorithm == Algorithm::FixedWindow {
        return;
    }
    let seen = check((setup(algorithm, 6), steps(40)), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        let base = Arc::new(base_rule(&setup));
        let given = |plan: &Vec<Quota>| Quotas::with_policies(named(plan)).expect("valid");
        let given: Vec<_> = setup.plans.iter().map(given).map(Arc::new).collect();
        // All are in use from the beginning.
        given
            .iter()
            .for_each(|quotas| drop(base.of_quotas(Arc::clone(quotas))));
        let of_quotas = |quotas: &Arc<Quotas>| base.of_quotas(Arc::clone(quotas));
        scene.takes = given
            .iter()
            .map(|quotas| Take::new(of_quotas(quotas), Key::default()))
            .collect();
        for step in steps {
            scene.go_on(step, seen);
            let (now, cost) = (scene.now, scene.cost(step));
            let take = &scene.takes[scene.plan];
            ensure!(take.quotas().len() <= scene.limits().len() + 1, "one more");
            let decision = scene.count.take(scene.way, now, take.quotas(), cost);
            scene.events.push(Event::Took(now, cost, decision.clone()));
            scene.last = Some(decision.clone());
            if let Some(receipt) = decision.receipt() {
                let own = scene.counted[scene.plan].iter().zip(scene.limits());
                for (counted, quota) in own {
                    let range = counted.counted(now);
                    let fits = range.least.saturating_add(cost) <= limit(scene.way, quota);
                    ensure!(fits, "{}", scene.tell(&format!("{range:?} of {quota:?}")));
                }
                scene.charges.push((receipt, false));
                let all = scene.counted.iter_mut().flatten();
                all.for_each(|counted| counted.admit(now, cost));
                seen.note("admitted");
            }
        }
        Ok(())
    });
    seen.expect("changes", 150);
    seen.expect("admitted", 150);
}

/// Rules for as many quotas as are kept are made once, whatever their order.
#[test]
fn rules_for_quotas_from_code_are_kept() {
    let quota = |max| Quota::new(std::time::Duration::from_secs(60), max).expect("valid");
    for algorithm in Algorithm::ALL {
        let rule = Rule::new("plans", [quota(1)]).expect("valid");
        let rule = Arc::new(rule.with_algorithm(algorithm));
        let of = |max| {
            let quotas = Quotas::new([quota(max)]).expect("valid");
            rule.of_quotas(Arc::new(quotas))
        };
        let made = || (1..=1_024).map(of).collect::<Vec<_>>();
        // Ever larger ones count for more, so that the rules before are made once more.
        let _ = made();
        let kept = made().iter().zip(&made()).all(|(a, b)| Arc::ptr_eq(a, b));
        assert!(kept, "{algorithm:?}");
    }
}
