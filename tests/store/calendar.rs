//! Quotas of a period of the calendar: one history in memory and on Redis, beside an oracle.

use std::time::UNIX_EPOCH;

use tidegate::decision::{Receipt, Verdict};
use tidegate::rule::{Period, Policy};

use crate::*;

/// What is used of a period. It stands from the first charge on.
#[derive(Clone, Copy, Default)]
struct Oracle {
    /// Where the period ends, in microseconds.
    end: u64,
    /// How often it has begun anew.
    round: u32,
    used: u64,
}

/// A receipt of each store, with the period and the units of the oracle.
struct Charged {
    receipts: Vec<Receipt>,
    rule: usize,
    end: u64,
    round: u32,
    units: u64,
}

fn micros(period: &Period, now: u64) -> u64 {
    let end = period.around(UNIX_EPOCH + Duration::from_micros(now)).end;
    let end = end.duration_since(UNIX_EPOCH).expect("behind 1970");
    u64::try_from(end.as_micros()).expect("a time")
}

impl Oracle {
    fn at(self, period: &Period, now: u64) -> Self {
        if self.end > now {
            return self;
        }
        Self {
            end: micros(period, now),
            round: self.round + 1,
            used: 0,
        }
    }
}

struct Kind {
    period: Period,
    max: u64,
    owed: u64,
    rule: Arc<Rule>,
}

/// Rules that count in one count of a month: of two maxes and two zones, alone and beside windows.
fn rules() -> Vec<Kind> {
    let berlin = Period::MONTH.in_zone("Europe/Berlin").expect("a zone");
    let policy = |period: &Period, max| Policy::calendar(period.clone(), max);
    let of = |period: &Period, max, others: &[Policy], owed: Option<u64>| {
        let policies = others.iter().cloned().chain([policy(period, max)]);
        let rule = Rule::with_policies("budget", policies).expect("valid");
        let rule = match owed {
            Some(units) => rule.with_owe_at_most(units),
            None => rule,
        };
        Kind {
            period: period.clone(),
            max,
            owed: owed.unwrap_or(max),
            rule: rule.into(),
        }
    };
    let windows = [Quota::per_second(1_000).into()];
    vec![
        of(&Period::MONTH, 20, &[], None),
        of(&Period::MONTH, 30, &[], Some(3)),
        of(&berlin, 20, &[], None),
        of(&berlin, 20, &windows, Some(0)),
        of(&Period::MONTH, 25, &windows, None),
    ]
}

fn advance(random: &mut fastrand::Rng, clock: u64, end: u64) -> u64 {
    const HOUR: u64 = 3_600_000_000;
    match random.u8(..24) {
        // To the last microsecond, to the end, or a little behind.
        0..3 if end > clock => end - 2 + random.u64(..4),
        3 => clock + random.u64(..40 * 24) * HOUR,
        4 => clock + random.u64(..3) * HOUR,
        // A clock is put back, over the beginning of a period at times.
        5 => clock - random.u64(..4) * HOUR,
        6 => end.max(clock) + random.u64(..HOUR),
        _ => clock + random.u64(..1_000_000),
    }
}

/// What each store answers about the month, without where it was decided. Where a clock goes back,
/// stores may have forgotten what was charged in windows.
fn told(decision: &tidegate::Decision) -> String {
    let (month, verdict) = (decision.quotas().last(), decision.verdict());
    format!("{verdict:?} {month:?} {}", decision.receipt().is_some())
}

/// A cache tells of a denial what was left then, so the stores are those without.
async fn history(seed: u64, steps: usize) {
    let stores = kit::clocked::Stores::start().await;
    let mut random = fastrand::Rng::with_seed(seed);
    let (rules, key) = (rules(), Key::from("alice"));
    // The end of November 2026.
    let mut now: u64 = 1_795_900_000_000_000;
    let (mut oracle, mut charged) = (Oracle::default(), Vec::<Charged>::new());
    for step in 0..steps {
        now = advance(&mut random, now, oracle.end);
        for clocked in &stores.all[..2] {
            clocked.clock.set(now);
        }
        let number = random.usize(..rules.len());
        let of = &rules[number];
        let context = || format!("seed {seed} step {step} rule {number} at {now}");
        match random.u8(..16) {
            0 if !charged.is_empty() => {
                let mut it = charged.swap_remove(random.usize(..charged.len()));
                let units = random.u64(1..4);
                let counts = it.round == oracle.round && oracle.end > now;
                let most = if counts { oracle.used } else { 0 };
                let expected = units.min(it.units).min(most);
                oracle.used -= expected;
                let take = Take::new(Arc::clone(&rules[it.rule].rule), key.clone());
                let take = take.with_cost(units);
                for (clocked, receipt) in stores.all[..2].iter().zip(it.receipts.drain(..)) {
                    let back = clocked
                        .store
                        .refund(&take, &receipt)
                        .await
                        .expect("an answer");
                    // Windows of the same rule may give back more.
                    let is_alone = rules[it.rule].rule.policies().len() == 1;
                    if is_alone {
                        assert_eq!(back, expected, "{} {}", clocked.name, context());
                    }
                }
            }
            1 if !charged.is_empty() => {
                let it = &charged[random.usize(..charged.len())];
                let of = &rules[it.rule];
                let units = random.u64(1..9);
                let period = match oracle.end > now || it.end <= now {
                    true => oracle.at(&of.period, now),
                    false => Oracle {
                        end: it.end,
                        ..oracle.at(&of.period, now)
                    },
                };
                let most = (of.max + of.owed).saturating_sub(period.used);
                let expected = if it.end == period.end {
                    units.min(most)
                } else {
                    0
                };
                if expected > 0 {
                    oracle = period;
                    oracle.used += expected;
                }
                let take = Take::new(Arc::clone(&of.rule), key.clone()).with_cost(units);
                for (clocked, receipt) in stores.all[..2].iter().zip(&it.receipts) {
                    let owed = clocked.store.owe(&take, receipt).await.expect("an answer");
                    if of.rule.policies().len() == 1 {
                        assert_eq!(owed, expected, "{} {}", clocked.name, context());
                    }
                }
            }
            2 if random.u8(..8) == 0 => {
                let take = Take::new(Arc::clone(&of.rule), key.clone());
                for clocked in &stores.all[..2] {
                    clocked.store.reset(&take).await.expect("an answer");
                }
                (oracle.end, oracle.used) = (0, 0);
                oracle.round += 1;
            }
            _ => {
                let cost = [0, 1, 1, 2, 3, 7, 31][random.usize(..7)];
                let is_look = random.u8(..8) == 0;
                let cost = if is_look { 0 } else { cost };
                let mut period = oracle.at(&of.period, now);
                let ends_in = Duration::from_micros(period.end - now);
                let expected = match () {
                    () if cost > of.max => Verdict::Never,
                    () if period.used + cost > of.max => Verdict::Denied {
                        retry_after: ends_in,
                    },
                    () => Verdict::Allowed,
                };
                let take = Take::new(Arc::clone(&of.rule), key.clone()).with_cost(cost);
                let take = if is_look { take.looking() } else { take };
                if expected == Verdict::Allowed && cost > 0 {
                    period.used += cost;
                    oracle = period;
                }
                let mut answers = Vec::new();
                for clocked in &stores.all[..2] {
                    let answer = match is_look {
                        true => clocked.store.peek(&take).await,
                        false => clocked.store.take(&take).await,
                    };
                    answers.push((clocked.name, answer.expect("a decision")));
                }
                for (name, decision) in &answers {
                    let at = || format!("{name} {}: {decision:?}", context());
                    let state = decision.quotas().last().expect("that of the month");
                    let verdict = if is_look { Verdict::Allowed } else { expected };
                    assert_eq!(decision.verdict(), verdict, "{}", at());
                    let left = of.max.saturating_sub(period.used);
                    assert_eq!(state.remaining(), left, "{}", at());
                    let reset = if period.used == 0 {
                        Duration::ZERO
                    } else {
                        ends_in
                    };
                    assert_eq!(state.reset_after(), reset, "{}", at());
                    assert_eq!(state.max(), of.max, "{}", at());
                    assert_eq!(told(decision), told(&answers[0].1), "{}", at());
                }
                let receipts: Option<Vec<_>> = answers.iter().map(|it| it.1.receipt()).collect();
                if let Some(receipts) = receipts.filter(|_| !is_look) {
                    charged.push(Charged {
                        receipts,
                        rule: number,
                        end: period.end,
                        round: period.round,
                        units: cost,
                    });
                }
            }
        }
    }
}

#[tokio::test]
async fn one_history_in_all_stores() {
    for seed in 0..10 {
        history(seed, 2_000).await;
    }
}
