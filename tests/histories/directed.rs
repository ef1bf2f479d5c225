//! Histories that random numbers do not draw: what was broken once, and what needs thousands of
//! steps. The targets play them as they play random ones.

use kit::oracle::{Ledger, Terms};
use kit::steps::{BEGINNING, Seen, Setup, Spec, Theme, Way, limits, spec};

use crate::alike::{ALL, Base, On, Targets};
use crate::reference::{Fact, Outcome, Reference};
use crate::*;

/// What happens, plainly.
#[derive(Debug, Clone)]
enum Do {
    Wait(u64),
    /// The clock goes back.
    Back(u64),
    Take(u64),
    /// The whole of one of the latest charges is given back.
    Refund(usize),
    Rule(Spec),
    /// From now on under this plan; 0 is none.
    Plan(usize),
}

fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(window, max).expect("valid")
}

fn seconds(max: u64, seconds: u64) -> Quota {
    quota(max, Duration::from_secs(seconds))
}

const fn way(algorithm: Algorithm) -> Way {
    Way {
        algorithm,
        sub_windows: 64,
    }
}

fn of(algorithm: Algorithm, quotas: &[Quota]) -> Spec {
    spec(way(algorithm), quotas.to_vec())
}

/// Plays it on all targets, and returns the verdicts of its takes.
fn play_alike(targets: &Targets, on: &[On], first: Spec, steps: &[Do]) -> Vec<Verdict> {
    let facts = facts_alike(targets, on, first, steps).into_iter();
    let verdicts = facts.filter_map(|fact| match fact {
        Fact::Decided(verdict, ..) => Some(verdict),
        _ => None,
    });
    verdicts.collect()
}

fn facts_alike(targets: &Targets, on: &[On], first: Spec, steps: &[Do]) -> Vec<Fact> {
    let setup = Setup {
        theme: Theme::Mixed,
        specs: vec![first],
        start: BEGINNING,
    };
    let seen = Seen::default();
    let play = || {
        let mut reference = Reference::new(&setup, &seen);
        // Of thousands of steps laws take long.
        reference.has_laws = steps.len() < 1_000;
        let result = steps.iter().try_for_each(|step| match step {
            Do::Wait(micros) => {
                reference.now += micros;
                Ok(())
            }
            Do::Back(micros) => {
                reference.now -= micros;
                reference.clock_steps(false);
                Ok(())
            }
            Do::Take(cost) => reference.take(&[*cost]),
            Do::Refund(back) => {
                let number = reference.charge_before(*back);
                number.map_or(Ok(()), |number| reference.refund(number, u64::MAX))
            }
            Do::Rule(spec) => reference.change(spec),
            Do::Plan(plan) => {
                reference.plan = *plan;
                Ok(())
            }
        });
        reference.end(result)
    };
    let outcome = targets.play_in_time(&setup, on, play(), play);
    let outcome = targets.runtime.block_on(outcome);
    let Outcome { played, result } = outcome;
    result.unwrap_or_else(|broken| panic!("{broken}"));
    played.into_iter().flat_map(|step| step.facts).collect()
}

/// So many refunds, in any order, that it is not exactly known any more what was given back.
#[test]
fn many_refunds_decide_alike() {
    let targets = Targets::start();
    // Long windows: this takes seconds, and Redis forgets keys by the real time.
    for (round, algorithm) in Algorithm::ALL.into_iter().cycle().take(8).enumerate() {
        let mut numbers = Random::new(round as u64);
        // One step in so many refunds a take that was charged a long or a short while ago.
        let (kept, depth) = [(40, 2_000), (5, 400)][round / 4];
        let quotas = match round / 4 {
            0 => vec![seconds(400, 60)],
            _ => vec![seconds(700, 60), seconds(100, 6)],
        };
        let mut steps = Vec::new();
        for step in 0..3_000_u64 {
            steps.push(Do::Take(1 + numbers.below(3)));
            if step % 3 == 0 {
                steps.push(Do::Wait(numbers.below(100_000)));
            }
            if numbers.below(kept) > 0 {
                steps.push(Do::Refund(numbers.below(depth) as usize));
            }
        }
        play_alike(&targets, &ALL[..2], of(algorithm, &quotas), &steps);
    }
}

/// More handlers run at a time than a log has places for what was given back.
#[test]
fn many_open_handlers() {
    let targets = Targets::start();
    for (round, algorithm) in Algorithm::ALL.into_iter().enumerate() {
        let mut numbers = Random::new(77 + round as u64);
        let mut steps = Vec::new();
        for _ in 0..260 {
            steps.push(Do::Wait(1_001 + numbers.below(5_000_000)));
            steps.push(match numbers.is(60) {
                true => Do::Take([1, 1, 1, 2, 3][numbers.below(5) as usize]),
                false => Do::Refund(numbers.below(120) as usize),
            });
        }
        for base in [Base::Memory, Base::Redis] {
            let spec = of(algorithm, &[seconds(150, 60)]);
            play_alike(&targets, &[On::Layer(base)], spec, &steps);
        }
    }
}

/// What a double cannot hold: buckets of nearly 10^15 units, at instants that divide nothing.
#[test]
fn large_buckets_drain_alike() {
    let targets = Targets::start();
    for millis in [7, 997, 59_999, 3_600_001] {
        let whole = quota(Quota::MAX_UNITS - 6, Duration::from_millis(millis));
        let waits = (0..60).map(|step| Do::Wait(1 + millis * 1_000 * (step % 7) / 101));
        let takes = [1, 77, 1_000_003, Quota::MAX_UNITS / 3];
        let takes = takes.iter().cycle().map(|cost| Do::Take(*cost));
        let steps = takes.zip(waits).flat_map(|(take, wait)| [wait, take]);
        let first = Do::Take(Quota::MAX_UNITS - 6);
        let steps: Vec<_> = [first].into_iter().chain(steps).collect();
        play_alike(&targets, &ALL, of(Algorithm::Gcra, &[whole]), &steps);
    }
}

/// 10 a day, for a moment 10 a second, then 15 a day: all that was admitted in the day counts.
#[test]
fn a_longer_window_that_comes_back_finds_what_was_admitted_meanwhile() {
    let (day, few) = (86_400, [1; 20]);
    let reloads = [(10, day), (10, 1), (15, day), (25, day)].map(|it| (it, &few[..]));
    admitted_after_reloads(Algorithm::SlidingLog, &reloads, &[10, 10, 0, 5]);
    // A window of a second is another count than that of a day.
    admitted_after_reloads(Algorithm::SlidingWindow, &reloads, &[10, 10, 5, 10]);
}

/// The same of more than sums can hold.
#[test]
fn a_longer_window_that_comes_back_finds_the_largest_quotas_used() {
    let (day, all) = (86_400, Quota::MAX_UNITS);
    for seconds in 4..8 {
        let (one, whole) = (&[1][..], &[all][..]);
        let between = vec![((all, 1), whole); seconds];
        let reloads = [vec![((1, day), one)], between, vec![((all, day), one)]].concat();
        for (algorithm, last) in [(Algorithm::SlidingLog, 0), (Algorithm::SlidingWindow, 1)] {
            let admitted = [vec![1; seconds + 1], vec![last]].concat();
            admitted_after_reloads(algorithm, &reloads, &admitted);
        }
    }
}

/// Whatever a plan of seconds admits, a day that was charged finds its quota used.
#[test]
fn a_plan_that_admits_more_than_sums_can_hold_refills_no_other() {
    let (targets, all) = (Targets::start(), Quota::MAX_UNITS);
    for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow] {
        let rule = Spec {
            plans: vec![Some(limits(vec![seconds(all, 1)]))],
            ..of(algorithm, &[seconds(1, 86_400)])
        };
        // Of one instant, so that the sum begins anew between them.
        let [few, half, most] = [all / 1_000, all / 2, all / 10 * 9].map(Do::Take);
        let wait = Do::Wait(2_000_000);
        let round = [Do::Plan(1), few, half, most, wait, Do::Plan(0), Do::Take(1)];
        let verdicts = play_alike(&targets, &ALL, rule, &vec![round; 24].concat());
        let allowed: Vec<_> = verdicts.iter().map(|it| *it == Verdict::Allowed).collect();
        let mut expected = [true, true, false, false].repeat(24);
        // The day begins empty.
        expected[3] = true;
        assert_eq!(allowed, expected, "{algorithm:?}");
    }
}

/// How many takes are admitted after each reload, by max and seconds of the new quota, with these
/// costs. Two seconds later comes the next reload.
fn admitted_after_reloads(
    algorithm: Algorithm,
    reloads: &[((u64, u64), &[u64])],
    expected: &[usize],
) {
    let targets = Targets::start();
    let of_max = |(max, window): (u64, u64)| of(algorithm, &[seconds(max, window)]);
    let mut steps = Vec::new();
    for (quota, costs) in reloads {
        steps.push(Do::Rule(of_max(*quota)));
        steps.extend(costs.iter().map(|cost| Do::Take(*cost)));
        steps.push(Do::Wait(2_000_000));
    }
    let verdicts = play_alike(&targets, &ALL, of_max(reloads[0].0), &steps);
    let mut verdicts = verdicts.iter();
    let admitted = reloads.iter().map(|(_, costs)| {
        let verdicts = verdicts.by_ref().take(costs.len());
        verdicts.filter(|it| **it == Verdict::Allowed).count()
    });
    assert_eq!(admitted.collect::<Vec<_>>(), expected, "{algorithm:?}");
}

kit::for_each_algorithm!(
    many_takes_are_given_back_once_each,
    many_refunds_free_nothing_else
);

/// However many were given back before, and in whatever order.
fn many_takes_are_given_back_once_each(algorithm: Algorithm) {
    const TAKES: u64 = 601;
    let quota = seconds(10_000, 1_000);
    for stride in [1, 2, 250, TAKES - 1] {
        let mut count = Count::default();
        let mut receipts = Vec::new();
        for take in 0..TAKES {
            // A bucket must not drain meanwhile.
            let is_bucket = algorithm == Algorithm::Gcra;
            let now = if is_bucket { TAKES } else { take / 100 };
            let decision = count.take(algorithm, now, &[quota], 1 + take % 3);
            receipts.extend(decision.receipt());
        }
        let order = || (0..TAKES).map(|take| receipts[(take * stride % TAKES) as usize].clone());
        for receipt in order() {
            let back = count.refund(TAKES, &[quota], &receipt, receipt.units());
            assert_eq!(back, receipt.units(), "{receipt:?}, stride {stride}");
        }
        let whole = count.take(algorithm, TAKES, &[quota], 0);
        assert_eq!(whole.remaining(), quota.max(), "stride {stride}");
    }
}

/// So many refunds, in any order, that it is not exactly known any more what was given back: never
/// too few units count, and not many too many.
fn many_refunds_free_nothing_else(algorithm: Algorithm) {
    for (round, depth) in [4, 60, 400, 400].into_iter().enumerate() {
        let mut random = Random::new(round as u64);
        let quotas = [seconds(400, 60), seconds(100, 6)];
        let own = quotas[..1 + round % 2].to_vec();
        let terms = Terms {
            way: way(algorithm),
            own,
        };
        let (mut count, mut ledger) = (Count::default(), Ledger::default());
        let (mut now, mut more) = (7, 0);
        let mut charged = Vec::new();
        for step in 0..600 {
            now += random.below(3) * random.below(30_000);
            let cost = 1 + random.below(3);
            let decision = count.take(terms.way, now, &terms.own, cost);
            if let Some(receipt) = decision.receipt() {
                charged.push((receipt, ledger.admit(now, &terms, cost, false)));
            }
            let quotas = terms.own.iter().zip(terms.limits());
            for ((quota, limit), state) in quotas.zip(decision.quotas()) {
                let left = ledger.exactly_counted(now, &terms, quota).left_of(limit);
                let remaining = state.remaining();
                assert!(
                    remaining <= left.most,
                    "{remaining} remain, not {left:?}, round {round}, step {step}"
                );
                more = more.max((left.least - remaining) * 100 / limit);
            }
            if random.is(90) && !charged.is_empty() {
                let back = random.below(depth).min(charged.len() as u64 - 1) as usize;
                let (receipt, number) = charged.remove(charged.len() - 1 - back);
                let back = count.refund(now, &terms.own, &receipt, u64::MAX);
                ledger.give_back(now, number, back);
            }
        }
        println!("{algorithm:?}, {depth}: {more} % more");
        // With 40 seeds at most 24: two quotas under a bucket, 60 refunds back.
        assert!(
            more <= 35,
            "{more} % of the limit count longer, round {round}"
        );
    }
}

const SECOND: u64 = 1_000_000;

/// Of a quota of a plain history: max, its window in seconds, and what fits at once.
fn bucket(max: u64, window: u64, burst: u64) -> Do {
    let quota = seconds(max, window).with_burst(burst).expect("valid");
    Do::Rule(of(Algorithm::Gcra, &[quota]))
}

/// The last refund of a history gives back so many units, and so it does everywhere.
fn gives_back_at_last(steps: &[Do], expected: u64) {
    let Do::Rule(first) = &steps[0] else {
        panic!("it begins with its rule");
    };
    let facts = facts_alike(&Targets::start(), &ALL[..2], first.clone(), steps);
    let mut refunds = facts.iter().filter_map(|fact| match fact {
        Fact::Units(units) => Some(*units),
        _ => None,
    });
    assert_eq!(refunds.next_back(), Some(expected), "{steps:?}");
}

/// A key has places for the counters of 32 windows.
#[test]
fn of_too_many_windows_the_first_to_end_is_dropped() {
    let targets = Targets::start();
    for (max, again) in [(1, 0), (5, 1)] {
        let window = |window| Do::Rule(of(Algorithm::FixedWindow, &[seconds(max, window)]));
        let mut steps = Vec::new();
        for long in 1_000..1_030 {
            steps.extend([window(long), Do::Take(1)]);
        }
        steps.extend([window(100), Do::Take(1), Do::Wait(50 * SECOND)]);
        steps.extend([window(90), Do::Take(1 + again)]);
        // That of 100 seconds began first, and was charged last.
        steps.extend([window(100), Do::Take(again)]);
        steps.extend([Do::Wait(SECOND), window(2_000), Do::Take(1)]);
        steps.extend([Do::Wait(SECOND), window(90), Do::Take(1)]);
        let first = of(Algorithm::FixedWindow, &[seconds(max, 1_000)]);
        let verdicts = play_alike(&targets, &ALL[..2], first, &steps);
        let is_allowed = verdicts.last() == Some(&Verdict::Allowed);
        assert_eq!(is_allowed, max == 5, "{verdicts:?}");
    }
}

/// Of the instant of the last charge before the clock went back nothing is told apart either.
#[test]
fn a_take_from_the_last_instant_before_the_clock_went_back_stays_charged() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let steps = [
            Do::Rule(of(algorithm, &[seconds(5, 100)])),
            Do::Wait(10 * SECOND),
            Do::Take(2),
            Do::Back(5 * SECOND),
            Do::Take(1),
            Do::Wait(5 * SECOND),
            Do::Refund(1),
        ];
        gives_back_at_last(&steps, 0);
    }
}

/// With other sub-windows a take and one that came later may be one entry.
#[test]
fn a_take_from_before_sub_windows_changed_stays_charged() {
    let of_parts = |sub_windows| {
        let way = Way {
            algorithm: Algorithm::SlidingWindow,
            sub_windows,
        };
        Do::Rule(spec(way, vec![seconds(5, 10)]))
    };
    let half = SECOND / 2;
    let first = [of_parts(10), Do::Take(2), Do::Wait(half), of_parts(2)];
    let steps = [&first[..], &[Do::Take(1), Do::Wait(half), Do::Refund(1)]].concat();
    gives_back_at_last(&steps, 0);
}

/// What a bucket knows of its pace after its max, its burst and other windows came and went.
#[test]
fn refunds_of_a_bucket_whose_quota_changed() {
    let second = || Do::Wait(SECOND);
    // Its burst alone, after its max.
    let steps = [
        &[bucket(10, 10, 10), Do::Take(8), Do::Wait(4 * SECOND)][..],
        &[bucket(1, 10, 10), Do::Take(1), Do::Wait(1)],
        &[bucket(1, 10, 20), Do::Take(1), second()],
        &[bucket(20, 60, 20), Do::Take(5), second(), Do::Refund(3)],
    ];
    gives_back_at_last(&steps.concat(), 0);
    // Two takes under the new max.
    let steps = [
        &[bucket(20, 100, 20), Do::Take(1), second()][..],
        &[bucket(10, 100, 20), Do::Take(1), second()],
        &[Do::Take(5), second(), Do::Take(1), second()],
        &[bucket(20, 1_000, 20), Do::Take(10), second(), Do::Refund(2)],
    ];
    gives_back_at_last(&steps.concat(), 4);
    // One was given back before.
    let steps = [
        &[bucket(1, 100, 20), Do::Take(5), second()][..],
        &[Do::Take(3), Do::Refund(0), second()],
        &[bucket(2, 100, 20), Do::Take(1), second()],
        &[bucket(20, 1_000, 20), Do::Take(1), second(), Do::Refund(2)],
    ];
    gives_back_at_last(&steps.concat(), 0);
}

/// A raise comes so early in the draining of a unit that its new pace rounds that away.
#[test]
fn what_drained_before_a_take_that_was_given_back_stays_charged() {
    let quotas = |times: u64| [seconds(8 * times, 32), seconds(2 * times, 4)];
    let rule = |times| Do::Rule(of(Algorithm::Gcra, &quotas(times)));
    let steps = [
        &[rule(1), Do::Take(1), Do::Wait(1), Do::Take(1)][..],
        &[Do::Wait(2 * SECOND), Do::Refund(0), Do::Wait(1)],
        &[rule(4), Do::Take(2), Do::Refund(1)],
    ];
    gives_back_at_last(&steps.concat(), 0);
}

/// Rules refuse that, and `Count` takes it: the smaller max paces.
#[test]
fn a_bucket_of_two_quotas_drains_at_the_smaller_max() {
    let quotas = [seconds(10, 10).with_burst(1), seconds(5, 10).with_burst(20)];
    let quotas = quotas.map(|quota| quota.expect("valid"));
    let mut count = Count::default();
    let takes = [1, 2, 3].map(|at| count.take(Algorithm::Gcra, at * SECOND, &quotas, 1));
    let allowed = takes.map(|decision| decision.verdict() == Verdict::Allowed);
    assert_eq!(allowed, [true, false, true]);
}
