//! Rules that change their quotas while something counts: nothing is refilled, nothing is held for
//! longer than a window, and what is given back is free again. A rule that changes its algorithm
//! starts afresh.

use proptest::prelude::*;
use tidegate::algorithm::Count;
use tidegate::decision::Receipt;
use tidegate::{Algorithm, Decision, Quota};

use crate::check::{Broken, Seen, check, ensure, for_each, for_each_algorithm, story};
use crate::history::{
    Event, Past, Step, Way, cost, instant, micros, part_of, quota, start, steps, way,
};
use crate::oracle::{Book, limit, span_of_memory, window};

/// One of the rules between which a history goes to and fro.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    way: Way,
    quotas: Vec<Quota>,
}

#[derive(Debug, Clone)]
struct Setup {
    rules: Vec<Rule>,
    start: u64,
}

/// A few rules over a few quotas, so that they have quotas in common.
fn setup(algorithm: Algorithm) -> impl Strategy<Value = Setup> {
    let ways = prop::collection::vec(way(algorithm), 3);
    let picks = prop::collection::vec(0..9_usize, 3);
    let pool = prop::collection::vec(quota(), 3);
    (ways, picks, pool, start()).prop_map(|(ways, picks, pool, start)| {
        let rules = ways.into_iter().zip(picks).map(|(way, pick)| {
            let (first, second) = (pick / 3, pick % 3);
            let quotas = match first == second {
                true => vec![pool[first]],
                false => vec![pool[first], pool[second]],
            };
            Rule { way, quotas }
        });
        Setup {
            rules: rules.collect(),
            start,
        }
    })
}

fn history(algorithm: Algorithm) -> impl Strategy<Value = (Setup, Vec<Step>)> {
    (setup(algorithm), steps(20))
}

for_each_algorithm!(
    what_was_admitted_goes_on_counting,
    refunds_refill_nothing,
    a_refund_takes_nothing_away,
    nothing_is_held_for_longer_than_a_window,
    answers_hold_after_a_charge,
    answers_hold_after_a_change,
    denials_leave_no_trace_across_changes,
    what_is_forgotten_is_as_good_as_new,
    another_algorithm_starts_afresh,
);
for_each!(other_rules_refill_nothing {
    gcra Gcra,
    fixed_window FixedWindow,
});
for_each!(a_refund_after_a_change_frees_what_counts {
    sliding_log SlidingLog,
    sliding_window SlidingWindow,
});
for_each!(a_switch_refills_nothing {
    sliding_log SlidingLog,
    sliding_window SlidingWindow,
    fixed_window FixedWindow,
});

/// A take that was charged, and by which rule.
#[derive(Debug, Clone)]
struct Charge {
    stamp: u64,
    units: u64,
    back: u64,
    is_refunded: bool,
    rule: usize,
    receipt: Receipt,
}

#[derive(Debug, Clone)]
struct Scene {
    rules: Vec<Rule>,
    rule: usize,
    now: u64,
    count: Count,
    charges: Vec<Charge>,
    last: Option<Decision>,
    events: Vec<Event>,
}

impl Scene {
    fn new(setup: &Setup) -> Self {
        Self {
            rules: setup.rules.clone(),
            rule: 0,
            now: setup.start,
            count: Count::default(),
            charges: Vec::new(),
            last: None,
            events: Vec::new(),
        }
    }

    /// The rule now.
    fn current(&self) -> &Rule {
        &self.rules[self.rule]
    }

    /// Time passes, and perhaps the rule changes.
    fn go_on(&mut self, step: Step, seen: &Seen) {
        let rule = self.current();
        let quota = rule.quotas[usize::from(step.wait / 16) % rule.quotas.len()];
        let last = self.last.as_ref();
        let past = Past {
            stamps: self.charges.iter().map(|charge| charge.stamp).collect(),
            retry: last.and_then(Decision::retry_after),
            reset: last.map(Decision::reset_after),
        };
        self.now = instant(step.wait, self.now, &quota, rule.way, &past);
        let next = usize::from(step.act / 16) % 6;
        if next < self.rules.len() && next != self.rule {
            self.rule = next;
            seen.note("changes");
        }
    }

    fn cost(&self, step: Step) -> u64 {
        if step.act % 16 == 12 {
            return 0;
        }
        let rule = self.current();
        let limits = rule.quotas.iter().map(|quota| limit(rule.way, quota));
        let left = self.last.as_ref().map_or(1, Decision::remaining);
        cost(step.size, limits.min().unwrap_or(0), left)
    }

    fn take(&mut self, cost: u64) -> Decision {
        let rule = &self.rules[self.rule];
        let decision = self.count.take(rule.way, self.now, &rule.quotas, cost);
        if let Some(receipt) = decision.receipt() {
            self.charges.push(Charge {
                stamp: self.now,
                units: cost,
                back: 0,
                is_refunded: false,
                rule: self.rule,
                receipt,
            });
        }
        self.last = Some(decision.clone());
        self.events
            .push(Event::Took(self.now, cost, decision.clone()));
        decision
    }

    fn refund(&mut self, index: usize, units: u64) -> u64 {
        let receipt = self.charges[index].receipt.clone();
        let back = self.count.refund(self.now, &receipt, units);
        self.charges[index].back = back;
        self.charges[index].is_refunded = true;
        self.events
            .push(Event::Refunded(self.now, receipt, units, back));
        back
    }

    /// What a clone answers.
    fn would(&self, now: u64, cost: u64) -> Decision {
        let rule = self.current();
        self.count.clone().take(rule.way, now, &rule.quotas, cost)
    }

    /// What rules with this quota and this kind of algorithm admitted, in one book.
    fn book(&self, quota: &Quota, of: impl Fn(Algorithm) -> bool) -> Book {
        let mut book = Book::new(self.current().way, *quota);
        for charge in &self.charges {
            let rule = &self.rules[charge.rule];
            if of(rule.way.algorithm) && rule.quotas.contains(quota) {
                book.admit(charge.stamp, charge.units - charge.back);
            }
        }
        book
    }

    /// What was charged, all of it under this quota.
    fn book_with_refunds(&self, quota: &Quota) -> Book {
        let mut book = Book::new(self.current().way, *quota);
        for charge in &self.charges {
            book.admit(charge.stamp, charge.units);
        }
        for (index, charge) in self.charges.iter().enumerate() {
            book.give_back(charge.stamp, index, charge.back);
        }
        book
    }

    /// Net units of those inside of the window.
    fn admitted(&self, quota: &Quota, of: impl Fn(Algorithm) -> bool) -> u64 {
        self.book(quota, of).inside(self.now)
    }

    /// Net units inside of the window that have to count for any quota of this window, whether or
    /// not a rule had it before: those that have been inside of a window in use ever since. A window
    /// is in use until it has passed once since it was charged last.
    fn kept(&self, quota: &Quota) -> u64 {
        let life = |charge: &Charge| {
            let windows = self.rules[charge.rule].quotas.iter().map(window);
            windows.max().unwrap_or(0)
        };
        let has_left = |stamp: u64, window, now| stamp.saturating_add(window) <= now;
        // The windows in use at an instant are those of the charges before. What was given back may
        // be as if it had never been charged.
        let is_in_use = |stamp, charges: &[Charge], now| {
            let charges = charges.iter().filter(|charge| charge.back < charge.units);
            let mut lives = charges.map(|charge| (charge.stamp, life(charge)));
            lives.any(|(at, life)| !has_left(at, life, now) && !has_left(stamp, life, now))
        };
        let is_kept = |at: &usize| {
            let stamp = self.charges[*at].stamp;
            let later = at + 1..self.charges.len();
            let mut instants = later.map(|at| (at, self.charges[at].stamp));
            instants.all(|(at, now)| is_in_use(stamp, &self.charges[..at], now))
                && is_in_use(stamp, &self.charges, self.now)
                && !has_left(stamp, window(quota), self.now)
        };
        let kept = (0..self.charges.len()).filter(is_kept);
        let kept = kept.map(|at| &self.charges[at]);
        kept.map(|charge| charge.units - charge.back).sum()
    }

    /// Whether every take since this one was charged by a rule that counts as this one does, and
    /// has this quota.
    fn has_been_in_use(&self, quota: &Quota, since: usize) -> bool {
        let rules = self.charges[since..].iter().map(|charge| charge.rule);
        let mut rules = rules.chain([self.rule]).map(|rule| &self.rules[rule]);
        let way = self.current().way;
        rules.all(|rule| {
            let is_alike = rule.way == way || way.algorithm == Algorithm::SlidingLog;
            is_alike && rule.quotas.contains(quota)
        })
    }

    /// How long this quota may be held: the same with a larger burst may have filled its bucket.
    fn longest(&self, way: Way, quota: &Quota) -> u64 {
        let quotas = self.rules.iter().flat_map(|rule| &rule.quotas);
        let alike =
            quotas.filter(|other| (other.max(), other.window()) == (quota.max(), quota.window()));
        let spans = alike.map(|other| span_of_memory(way, other));
        spans.max().unwrap_or(0).max(window(quota))
    }

    /// Whether another rule was charged last.
    fn was_changed(&self) -> bool {
        let last = self.charges.last();
        last.is_some_and(|last| self.rules[last.rule] != *self.current())
    }

    fn last_charge(&self) -> Option<u64> {
        self.charges.last().map(|charge| charge.stamp)
    }

    fn tell(&self, broken: &str) -> Broken {
        let rules = self.rules.iter().map(|rule| format!("\n{rule:?}"));
        format!(
            "{broken}; rule {} at {}{}{}",
            self.rule,
            self.now,
            rules.collect::<String>(),
            story(&self.events)
        )
    }
}

const fn slides(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::SlidingLog | Algorithm::SlidingWindow)
}

fn what_was_admitted_goes_on_counting(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            scene.go_on(step, seen);
            take_and_count(&mut scene, step, seen)?;
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("denied", 100);
    expect_counted(&seen, algorithm);
}

fn expect_counted(seen: &Seen, algorithm: Algorithm) {
    // A fixed window counts what it admitted by itself in its own way; another law looks after
    // that.
    if algorithm != Algorithm::FixedWindow {
        seen.expect("counted from before a change", 10);
    }
}

fn refunds_refill_nothing(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            scene.go_on(step, seen);
            if step.act % 16 > 12 && !scene.charges.is_empty() {
                refund(&mut scene, step, seen)?;
            } else {
                take_and_count(&mut scene, step, seen)?;
            }
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("refunds", 20);
    expect_counted(&seen, algorithm);
}

fn take_and_count(scene: &mut Scene, step: Step, seen: &Seen) -> Result<(), Broken> {
    let decision = scene.take(scene.cost(step));
    seen.note_if(!decision.is_allowed(), "denied");
    goes_on_counting(scene, &decision, seen).map_err(|broken| scene.tell(&broken))
}

fn refund(scene: &mut Scene, step: Step, seen: &Seen) -> Result<(), Broken> {
    let index = usize::from(step.act / 96) % scene.charges.len();
    if scene.charges[index].is_refunded {
        return Ok(());
    }
    let charge = scene.charges[index].clone();
    let back = scene.refund(index, part_of(charge.units, step.size));
    ensure!(
        back <= charge.units,
        "{}",
        scene.tell("more than was charged")
    );
    seen.note_if(back > 0, "refunds");
    Ok(())
}

/// What a quota admitted while takes slid still counts for it, whatever came in between. It may be
/// asked by a fixed window now: that has to know too.
fn goes_on_counting(scene: &Scene, decision: &Decision, seen: &Seen) -> Result<(), Broken> {
    let rule = scene.current();
    for (quota, state) in rule.quotas.iter().zip(decision.quotas()) {
        let limit = limit(rule.way, quota);
        let counted = match rule.way.algorithm {
            Algorithm::Gcra => {
                scene
                    .book(quota, |algorithm| algorithm == Algorithm::Gcra)
                    .counted(scene.now)
                    .least
            }
            _ => scene.admitted(quota, slides),
        };
        ensure!(counted <= limit, "{counted} units of {quota:?}");
        let kept = match slides(rule.way.algorithm) {
            true => scene.kept(quota).max(counted),
            false => counted,
        };
        seen.note_if(kept > counted, "counted from other quotas");
        let (remaining, left) = (state.remaining(), limit.saturating_sub(kept));
        ensure!(
            remaining <= left,
            "{remaining} remain of {quota:?}, not {left}"
        );
        seen.note_if(
            counted > 0 && scene.was_changed(),
            "counted from before a change",
        );
    }
    Ok(())
}

/// Of quotas that were in use all the time. What other rules had besides makes no difference.
fn a_refund_after_a_change_frees_what_counts(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            scene.go_on(step, seen);
            let index = usize::from(step.act / 96) % scene.charges.len().max(1);
            if step.act % 16 > 12 && scene.charges.get(index).is_some_and(|it| !it.is_refunded) {
                let counted = counted_of(&scene, index);
                let units = part_of(scene.charges[index].units, step.size);
                let back = scene.refund(index, units);
                let least = counted.min(units);
                ensure!(back >= least, "{}", scene.tell("less than counts"));
                let was_changed = scene.charges[index..].windows(2);
                let mut was_changed = was_changed.map(|pair| pair[0].rule != pair[1].rule);
                seen.note_if(
                    least > 0 && was_changed.any(|it| it),
                    "refunds after a change",
                );
            } else {
                scene.take(scene.cost(step));
            }
            for (at, state) in scene.would(scene.now, 0).quotas().iter().enumerate() {
                let rule = scene.current();
                let (quota, limit) = (&rule.quotas[at], limit(rule.way, &rule.quotas[at]));
                if scene.has_been_in_use(quota, 0) {
                    let counted = scene.book_with_refunds(quota).counted(scene.now);
                    let (left, remaining) = (counted.left_of(limit), state.remaining());
                    ensure!(
                        left.contains(remaining),
                        "{}",
                        scene.tell(&format!("{remaining} remain of {quota:?}, not {left:?}"))
                    );
                    seen.note("quotas in use all the time");
                }
            }
        }
        Ok(())
    });
    seen.expect("changes", 200);
    let (refunds, quotas) = match algorithm {
        Algorithm::SlidingLog => (2, 300),
        // As long as the number of sub-windows stays.
        _ => (0, 300),
    };
    seen.expect("refunds after a change", refunds);
    seen.expect("quotas in use all the time", quotas);
}

/// How many units of a take count for a quota that has been in use since then.
fn counted_of(scene: &Scene, index: usize) -> u64 {
    let charge = &scene.charges[index];
    let mut quotas = scene.current().quotas.iter();
    let counts = |quota: &Quota| {
        let is_inside = charge.stamp + window(quota) > scene.now;
        is_inside && scene.has_been_in_use(quota, index)
    };
    if quotas.any(counts) { charge.units } else { 0 }
}

fn a_refund_takes_nothing_away(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            scene.go_on(step, seen);
            if step.act % 16 <= 12 || scene.charges.is_empty() {
                scene.take(scene.cost(step));
                continue;
            }
            let before = scene.would(scene.now, 0);
            refund(&mut scene, step, seen)?;
            let after = scene.would(scene.now, 0);
            for (before, after) in before.quotas().iter().zip(after.quotas()) {
                let (before, after) = (before.remaining(), after.remaining());
                ensure!(
                    before <= after,
                    "{}",
                    scene.tell(&format!("{before} remained, then {after}"))
                );
            }
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("refunds", 20);
}

/// Compared with a clone that was left alone since this quota was charged last.
fn other_rules_refill_nothing(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        let mut charged: Vec<(Way, Quota, Count)> = Vec::new();
        for step in steps {
            scene.go_on(step, seen);
            let actual = scene.would(scene.now, 0);
            let rule = scene.current();
            for (index, quota) in rule.quotas.iter().enumerate() {
                let alike = |entry: &&(Way, Quota, Count)| entry.0 == rule.way && entry.1 == *quota;
                let Some((_, _, alone)) = charged.iter().find(alike) else {
                    continue;
                };
                let alone = alone.clone().take(rule.way, scene.now, &rule.quotas, 0);
                let (remaining, most) = (
                    actual.quotas()[index].remaining(),
                    alone.quotas()[index].remaining(),
                );
                ensure!(
                    remaining <= most,
                    "{}",
                    scene.tell(&format!(
                        "{remaining} remain of {quota:?}, but {most} had nobody asked"
                    ))
                );
                seen.note_if(most < limit(rule.way, quota), "not whole");
            }
            if scene.take(scene.cost(step)).receipt().is_some() {
                let rule = scene.current();
                charged.retain(|(_, quota, _)| !rule.quotas.contains(quota));
                charged.extend(
                    rule.quotas
                        .iter()
                        .map(|quota| (rule.way, *quota, scene.count.clone())),
                );
            }
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("not whole", 100);
}

/// At the instant of a change a quota has no more left than it had.
fn a_switch_refills_nothing(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            let before = scene.current().clone();
            scene.go_on(step, seen);
            let after = scene.current().clone();
            // A rule that was never charged may only seem to be strict.
            if scene
                .charges
                .last()
                .is_none_or(|last| scene.rules[last.rule] != before)
            {
                scene.take(scene.cost(step));
                continue;
            }
            switch(&scene, &before, &after, seen).map_err(|broken| scene.tell(&broken))?;
            scene.take(scene.cost(step));
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("counted at a switch", 20);
}

fn switch(scene: &Scene, before: &Rule, after: &Rule, seen: &Seen) -> Result<(), Broken> {
    let peek = |rule: &Rule| {
        scene
            .count
            .clone()
            .take(rule.way, scene.now, &rule.quotas, 0)
    };
    let (old, new) = (peek(before), peek(after));
    for (quota, state) in after.quotas.iter().zip(new.quotas()) {
        let Some(index) = before.quotas.iter().position(|other| other == quota) else {
            continue;
        };
        let counted = counted(scene, before, quota, old.quotas()[index].remaining());
        let counted = counted.saturating_sub(drained(scene, before, after, quota));
        let left = limit(after.way, quota).saturating_sub(counted);
        let remaining = state.remaining();
        ensure!(
            remaining <= left,
            "{remaining} remain of {quota:?} after a switch, not {left}, before: {before:?}"
        );
        seen.note_if(before != after && counted > 0, "counted at a switch");
    }
    Ok(())
}

/// What has to go on counting, if so much remains.
fn counted(scene: &Scene, rule: &Rule, quota: &Quota, remaining: u64) -> u64 {
    let since = scene
        .last_charge()
        .map_or(u64::MAX, |last| scene.now - last);
    match rule.way.algorithm {
        // They may be late, which is no reason for others to be.
        Algorithm::SlidingLog | Algorithm::SlidingWindow => scene.admitted(quota, slides),
        // A bucket that is larger than a window's rate holds what is older than a window.
        Algorithm::Gcra if since >= window(quota) => 0,
        _ => limit(rule.way, quota) - remaining,
    }
}

/// A bucket takes over what counts as of the last charge, and drains from there.
fn drained(scene: &Scene, before: &Rule, after: &Rule, quota: &Quota) -> u64 {
    let becomes_a_bucket =
        after.way.algorithm == Algorithm::Gcra && before.way.algorithm != Algorithm::Gcra;
    if !becomes_a_bucket {
        return 0;
    }
    let span = scene.last_charge().map_or(0, |last| scene.now - last);
    let drained = u128::from(span) * u128::from(quota.max()) / u128::from(window(quota));
    u64::try_from(drained).unwrap_or(u64::MAX)
}

/// A stricter rule may be stricter for a window after the last charge, and no longer.
fn nothing_is_held_for_longer_than_a_window(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        for step in steps {
            scene.go_on(step, seen);
            let decision = scene.take(scene.cost(step));
            let rule = scene.current();
            let charged = scene.last_charge();
            for (quota, state) in rule.quotas.iter().zip(decision.quotas()) {
                // One without units is always whole.
                if limit(rule.way, quota) == 0 {
                    continue;
                }
                let whole = scene.now + micros(Some(state.reset_after()));
                let span = scene.longest(rule.way, quota);
                let latest = charged.map_or(0, |last| last + span);
                ensure!(
                    whole <= latest.max(scene.now),
                    "{}",
                    scene.tell(&format!("{quota:?} is held until {whole}, not {latest}"))
                );
            }
            seen.note_if(!decision.is_allowed(), "denied");
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("denied", 100);
}

/// What remains, when to come back, when all is whole again: put to the test on clones.
fn answers_hold_after_a_charge(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        answers_hold(&setup, steps, seen, |scene| !scene.was_changed())
    });
    seen.expect("changes", 200);
    seen.expect("denied", 50);
}

/// The same before the new rule was charged.
fn answers_hold_after_a_change(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        answers_hold(&setup, steps, seen, Scene::was_changed)
    });
    seen.expect("changes", 200);
    seen.expect("denied", 50);
}

fn answers_hold(
    setup: &Setup,
    steps: Vec<Step>,
    seen: &Seen,
    when: impl Fn(&Scene) -> bool,
) -> Result<(), Broken> {
    let mut scene = Scene::new(setup);
    for step in steps {
        scene.go_on(step, seen);
        let cost = scene.cost(step);
        let decision = scene.take(cost);
        if when(&scene) {
            answers(&scene, cost, &decision).map_err(|broken| scene.tell(&broken))?;
            seen.note_if(decision.retry_after().is_some(), "denied");
        }
    }
    Ok(())
}

fn answers(scene: &Scene, cost: u64, decision: &Decision) -> Result<(), Broken> {
    let remaining = decision.remaining();
    ensure!(
        scene.would(scene.now, remaining).is_allowed(),
        "what remains does not fit"
    );
    ensure!(
        !scene.would(scene.now, remaining + 1).is_allowed(),
        "more than remains fits"
    );
    if let Some(wait) = decision.retry_after() {
        let then = scene.now + micros(Some(wait));
        ensure!(
            scene.would(then, cost).is_allowed(),
            "denied after the wait"
        );
        // Until the new rule is charged a wait may be longer than need be.
        ensure!(
            scene.was_changed() || !scene.would(then - 1, cost).is_allowed(),
            "allowed before the wait ends"
        );
    }
    let rule = scene.current();
    for (index, (quota, state)) in rule.quotas.iter().zip(decision.quotas()).enumerate() {
        let is_whole =
            |now| scene.would(now, 0).quotas()[index].remaining() == limit(rule.way, quota);
        let wait = micros(Some(state.reset_after()));
        ensure!(is_whole(scene.now + wait), "{quota:?} is not whole again");
        ensure!(
            scene.was_changed() || wait == 0 || !is_whole(scene.now + wait - 1),
            "{quota:?} was whole earlier"
        );
    }
    Ok(())
}

fn denials_leave_no_trace_across_changes(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        let mut quiet = scene.count.clone();
        for step in steps {
            scene.go_on(step, seen);
            let cost = scene.cost(step);
            let decision = scene.take(cost);
            if decision.receipt().is_some() {
                let rule = scene.current();
                let alike = quiet.take(rule.way, scene.now, &rule.quotas, cost);
                ensure!(
                    alike == decision,
                    "{}",
                    scene.tell(&format!("{alike:?}, had nobody asked"))
                );
            } else {
                seen.note("denied or peeks");
            }
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("denied or peeks", 100);
}

fn what_is_forgotten_is_as_good_as_new(algorithm: Algorithm) {
    let seen = check(history(algorithm), |(setup, steps), seen| {
        let mut scene = Scene::new(&setup);
        let (first, then) = steps.split_at(steps.len() / 2);
        for step in first {
            scene.go_on(*step, seen);
            scene.take(scene.cost(*step));
        }
        scene.now = scene.now.max(scene.count.forgotten_at());
        let mut new = scene.clone();
        new.count = Count::default();
        for step in then {
            scene.go_on(*step, seen);
            (new.now, new.rule) = (scene.now, scene.rule);
            let cost = scene.cost(*step);
            let (expected, got) = (new.take(cost), scene.take(cost));
            let alike = (expected.verdict(), expected.quotas()) == (got.verdict(), got.quotas());
            ensure!(
                alike,
                "{}",
                scene.tell(&format!("not as good as new: {expected:?}"))
            );
            seen.note_if(got.receipt().is_some(), "charged");
        }
        Ok(())
    });
    seen.expect("changes", 200);
    seen.expect("charged", 100);
}

/// Only what another algorithm is charged replaces a state, and then it is as if there had been
/// none.
fn another_algorithm_starts_afresh(algorithm: Algorithm) {
    let others = Algorithm::ALL.into_iter();
    let others: Vec<_> = others.filter(|other| *other != algorithm).collect();
    let next = prop::sample::select(others).prop_flat_map(way);
    let seen = check(
        (history(algorithm), next),
        |((setup, steps), next), seen| {
            let mut scene = Scene::new(&setup);
            for step in steps {
                scene.go_on(step, seen);
                let cost = scene.cost(step);
                let quotas = &scene.rules[scene.rule].quotas;
                let mut other = scene.count.clone();
                let got = other.take(next, scene.now, quotas, cost);
                let expected = Count::default().take(next, scene.now, quotas, cost);
                ensure!(
                    got == expected,
                    "{}",
                    scene.tell(&format!("{got:?} by {next:?}, afresh {expected:?}"))
                );
                if got.receipt().is_none() {
                    let (before, after) = (format!("{:?}", scene.count), format!("{other:?}"));
                    ensure!(before == after, "{before} became {after}");
                    seen.note("left alone");
                }
                scene.take(cost);
            }
            Ok(())
        },
    );
    seen.expect("left alone", 50);
}
