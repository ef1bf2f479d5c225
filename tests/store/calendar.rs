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

    fn gives_back(&mut self, it: &Charged, units: u64, now: u64) -> u64 {
        let counts = it.round == self.round && self.end > now;
        let back = units.min(it.units).min(if counts { self.used } else { 0 });
        self.used -= back;
        back
    }

    fn owes(&mut self, it: &Charged, of: &Kind, units: u64, now: u64) -> u64 {
        let mut period = self.at(&of.period, now);
        if self.end <= now && it.end > now {
            period.end = it.end;
        }
        let most = (of.max + of.owed).saturating_sub(period.used);
        let owed = units.min(most) * u64::from(it.end == period.end);
        if owed > 0 {
            period.used += owed;
            *self = period;
        }
        owed
    }
}

struct Kind {
    period: Period,
    max: u64,
    owed: u64,
    rule: Arc<Rule>,
}

/// Rules that count in one count of a month: of several maxes, two zones and four beginnings, alone
/// and beside windows.
fn rules() -> Vec<Kind> {
    let berlin = Period::MONTH.in_zone("Europe/Berlin").expect("a zone");
    let from = |period: &Period, day| period.clone().from_day(day).expect("a day");
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
        of(&from(&Period::MONTH, 15), 20, &[], Some(2)),
        of(&from(&berlin, 28), 30, &windows, None),
        of(&from(&berlin, 31), 25, &[], None),
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
async fn history(stores: &kit::clocked::Stores, seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(kit::random::seed(seed));
    let (rules, key) = (rules(), Key::from(seed));
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
            what @ (0 | 1) if !charged.is_empty() => {
                let at = random.usize(..charged.len());
                let (it, is_refund) = (&charged[at], what == 0);
                let of = &rules[it.rule];
                let units = random.u64(1..if is_refund { 4 } else { 9 });
                let expected = match is_refund {
                    true => oracle.gives_back(it, units, now),
                    false => oracle.owes(it, of, units, now),
                };
                let take = Take::new(Arc::clone(&of.rule), key.clone()).with_cost(units);
                for (clocked, receipt) in stores.all[..2].iter().zip(&it.receipts) {
                    let answer = match is_refund {
                        true => clocked.store.refund(&take, receipt).await,
                        false => clocked.store.owe(&take, receipt).await,
                    };
                    let answer = answer.expect("an answer");
                    // Windows of the same rule may give back more.
                    if of.rule.policies().len() == 1 {
                        assert_eq!(answer, expected, "{} {}", clocked.name, context());
                    }
                }
                if is_refund {
                    charged.swap_remove(at);
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
                    let reset = match period.used == 0 {
                        true => Duration::ZERO,
                        false => ends_in,
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

/// `TIDEGATE_HISTORIES` plays so many, of `TIDEGATE_STEPS` steps.
#[tokio::test]
async fn one_history_in_all_stores() {
    let stores = kit::clocked::Stores::start().await;
    let steps = kit::workers::from_env("TIDEGATE_STEPS", 2_000);
    for seed in 0..kit::workers::from_env("TIDEGATE_HISTORIES", 10) {
        history(&stores, seed, steps).await;
    }
}

/// A script's reply as if the server's clock were ahead by 70 days. What that shows stands behind the
/// number of the call and 8 zeros.
fn is_ahead(reply: &mut [u8]) {
    if reply.first() == Some(&0) && reply.get(8..16) == Some(&[0; 8]) {
        let now = reply[16..23]
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        reply[16..23].copy_from_slice(&(now + 70 * 86_400_000_000_u64).to_be_bytes()[1..]);
    }
}

/// By a clock that is not the server's, a take is of another month: nothing is written, and it is
/// asked once more, of the right one.
#[tokio::test]
async fn the_servers_clock_decides() {
    let server = Redis::start();
    let minute = Policy::from(Quota::per_minute(9));
    let policies = [minute, Policy::calendar(Period::MONTH, 20)];
    let rule = Rule::with_policies("budget", policies).expect("valid");
    let take = Take::new(rule.into(), Key::from("alice")).with_cost(2);
    let month = Period::MONTH.around(std::time::SystemTime::now());

    let proxy = Proxy::start(&server.url).await;
    proxy.all(Mode::Edit {
        edit: |reply| is_ahead(reply),
        replies: usize::MAX,
    });
    let store = kit::connect(&proxy.url, PATIENT).await;
    let error = store.take(&take).await.expect_err("no decision");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let why = "its clock was set while it was asked about a calendar quota";
    assert!(error.to_string().ends_with(why), "{error}");
    assert_eq!(kit::keys(&server, "*budget*"), Vec::<String>::new());

    proxy.all(Mode::Pass);
    let before = kit::calls(&server, "evalsha");
    let decision = store.take(&take).await.expect("a decision");
    assert_eq!(kit::calls(&server, "evalsha") - before, 2);
    let left = decision.quotas().iter().map(QuotaState::remaining);
    assert!(left.eq([7, 18]), "{decision:?}");
    let ends = std::time::SystemTime::now() + decision.quotas()[1].reset_after();
    let off = ends.duration_since(month.end);
    let off = off.unwrap_or_else(|error| error.duration());
    assert!(off < 5 * SECOND, "{off:?}");

    // It lives two days longer than its month, by the usual case and by `core`, which charges what
    // is owed.
    let name = "{CurrentLimiter:budget:alice}~month";
    let left = decision.quotas()[1].reset_after() + 2 * Duration::from_secs(86_400);
    for owed in 0..2 {
        let receipt = decision.receipt().expect("it was charged");
        let one = take.clone().with_cost(owed);
        assert_eq!(store.owe(&one, &receipt).await.expect("an answer"), owed);
        let life: u64 = kit::query(&server, &format!("PTTL {name}"));
        let off = left.abs_diff(Duration::from_millis(life));
        assert!(off < 5 * SECOND, "{off:?}");
    }
}

/// Whatever else stands there is an error of its key, or a fresh start, and is not overwritten
/// where it is of another type.
#[tokio::test]
async fn bad_states_heal() {
    let (server, store) = started().await;
    let rule = Rule::with_policies("budget", [Policy::calendar(Period::MONTH, 20)]);
    let take = Take::new(rule.expect("valid").into(), Key::from("alice"));
    let name = "{CurrentLimiter:budget:alice}~month";
    for text in ["", "x", "\u{fe}", &"x".repeat(22), &"\u{fe}".repeat(11)] {
        kit::run(&server, "FLUSHALL");
        let () = server.connection().set(name, text).expect("set");
        assert_eq!(ask(&store, &take).await.remaining(), 19, "{text:?}");
        assert_eq!(ask(&store, &take).await.remaining(), 18, "{text:?}");
    }
    kit::run(&server, "FLUSHALL");
    kit::run(&server, &format!("RPUSH {name} a"));
    let error = store.take(&take).await.expect_err("another type");
    assert_eq!(error.kind(), StoreErrorKind::WrongType);
    assert_eq!(kit::query::<u64>(&server, &format!("LLEN {name}")), 1);
}

/// Also where the call begins with the usual case of a log, which reads the quotas of its rules.
#[tokio::test]
async fn units_owed_travel_with_takes_of_windows() {
    let (_server, store) = started().await;
    let rule = Rule::with_policies("budget", [Policy::calendar(Period::MONTH, 20)]);
    let rule = rule.expect("valid").with_owe_at_most(9);
    let take = Take::new(rule.into(), Key::from("alice"));
    let receipt = ask(&store, &take).await.receipt().expect("a receipt");
    let minute: Arc<Rule> = Rule::new("minute", [Quota::per_minute(9)])
        .expect("valid")
        .into();
    let others = (0..3).map(|n| Take::new(Arc::clone(&minute), Key::from(n)));
    let others: Vec<_> = others.collect();
    let takes = join_all(others.iter().map(|take| store.take(take)));
    let (decisions, owed) = tokio::join!(takes, store.owe(&take, &receipt));
    for decision in decisions {
        assert!(decision.expect("a decision").is_allowed());
    }
    assert_eq!(owed.expect("an answer"), 1);
}

/// A rule of a month, alone or behind windows of each algorithm.
fn months() -> Vec<Take> {
    let month = || Policy::calendar(Period::MONTH, 20);
    let alone = Rule::with_policies("alone", [month()]).expect("valid");
    let beside = Algorithm::ALL.into_iter().map(|algorithm| {
        let policies = [Policy::from(Quota::per_minute(9)), month()];
        let path = algorithm.name().replace('-', "");
        let rule = Rule::with_policies(&path, policies).expect("valid");
        rule.with_algorithm(algorithm)
    });
    let rules = [alone].into_iter().chain(beside);
    rules
        .map(|rule| Take::new(rule.into(), Key::from("alice")))
        .collect()
}

/// By the usual case; a key whose period has begun lives long enough.
#[tokio::test]
async fn its_expiry_is_set_once_in_a_period() {
    let (server, store) = started().await;
    for take in months() {
        let path = take.rule().path();
        assert_eq!(allowed(&store, &take, 1).await, 1);
        let name = &kit::keys(&server, &format!("*{path}*~month"))[0];
        kit::run(&server, &format!("PEXPIRE {name} 9000000"));
        let decision = ask(&store, &take).await;
        let left = decision.quotas().last().expect("the month").remaining();
        assert_eq!(left, 18, "{path}");
        let life: u64 = kit::query(&server, &format!("PTTL {name}"));
        assert!(life <= 9_000_000, "{path}: {life}");
    }
}
