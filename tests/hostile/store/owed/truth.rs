//! Retry-after is true after a settlement, to the microsecond, and all stores charge alike.

use super::*;

const MICRO: Duration = Duration::from_micros(1);
const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn ask(clocked: &Clocked, take: &Take) -> Decision {
    let answer = clocked.store.take(take).await;
    let now = clocked.clock.now();
    answer.unwrap_or_else(|error| panic!("{} at {now}: {error}: {take:?}", clocked.name))
}

/// If the take is denied, it is denied until the microsecond before its retry-after, and allowed
/// then. Returns whether it was denied.
async fn retry_after_is_true(clocked: &Clocked, take: &Take, case: &str) -> bool {
    let first = ask(clocked, take).await;
    let Some(after) = first.retry_after() else {
        assert!(first.is_allowed(), "{case}: {first:?}");
        return false;
    };
    assert!(after >= MICRO, "{case}: {first:?}");
    clocked.advance(after / 2);
    let halfway = ask(clocked, take).await;
    if after > MICRO {
        let rest = after - after / 2;
        let rest = Duration::from_micros(rest.as_nanos().div_ceil(1_000) as u64);
        assert_eq!(halfway.retry_after(), Some(rest), "{case}: halfway");
        clocked.advance(rest - MICRO);
        let early = ask(clocked, take).await;
        assert_eq!(early.retry_after(), Some(MICRO), "{case}: a step earlier");
    }
    clocked.advance(MICRO);
    let last = ask(clocked, take).await;
    assert!(last.is_allowed(), "{case}: after {after:?}: {last:?}");
    true
}

/// A debt of every size, under one and two quotas, of takes of several costs: law 3.
#[tokio::test]
async fn takes_are_denied_until_the_microsecond() {
    const QUOTAS: [&[(u64, Duration)]; 3] = [
        &[(10, Duration::from_secs(60))],
        &[(7, SECOND)],
        &[(5, SECOND), (12, Duration::from_secs(60))],
    ];
    const USES: [(u64, u64); 4] = [(1, 4), (1, 13), (5, 100), (2, 1_500)];
    let stores = Stores::start().await;
    let owes = [None, Some(0), Some(3), Some(1_000)];
    let debts = owes.map(|owe| USES.map(|of| (owe, of))).concat();
    for (case, clocked, algorithm) in stores.cases() {
        for (which, quotas) in QUOTAS.into_iter().enumerate() {
            let max = quotas.iter().map(|it| it.0).min().expect("quotas");
            let with_costs = |debt| [1, 3, max].map(|cost| (debt, cost));
            for (&(owe, (reserved, beyond)), cost) in debts.iter().flat_map(with_costs) {
                let case = format!("{case} {quotas:?} {owe:?} {reserved}+{beyond}, {cost}");
                let rule = rule(algorithm, &format!("truth{which}"), quotas, owe);
                let one = take(&rule, &case, reserved);
                let charge = clocked.charge(&one).await;
                clocked.advance(Duration::from_micros(130_411));
                let settled = settle(&charge, reserved + beyond).await;
                let sum = settled.charged + settled.forgiven;
                assert_eq!((sum, settled.given_back), (beyond, 0), "{case}");
                if algorithm != Algorithm::Gcra {
                    let room = quotas.iter().map(|it| it.0 + owe.unwrap_or(it.0));
                    let room = room.min().expect("quotas") - reserved;
                    assert_eq!(settled.charged, beyond.min(room), "{case}");
                }
                clocked.advance(Duration::from_micros(77_777));
                retry_after_is_true(clocked, &one.with_cost(cost), &case).await;
            }
        }
    }
}

/// Reset-after is true, too: then all is there again, and not a microsecond earlier.
#[tokio::test]
async fn all_is_there_again_when_it_was_said() {
    for (_, clocked, algorithm) in Stores::start().await.cases() {
        for beyond in [3, 14, 400] {
            let case = format!("{} {algorithm:?} {beyond}", clocked.name);
            let rule = rule(algorithm, "again", &[(10, SECOND)], 200);
            let one = take(&rule, &case, 1);
            let charge = clocked.charge(&one).await;
            clocked.advance(millis(33));
            settle(&charge, 1 + beyond).await;
            clocked.advance(millis(5));
            let found = clocked.store.peek(&one).await.expect("an answer");
            clocked.advance(found.reset_after() - MICRO);
            assert!(clocked.remaining(&one).await < 10, "{case}: {found:?}");
            clocked.advance(MICRO);
            assert_eq!(clocked.remaining(&one).await, 10, "{case}: {found:?}");
        }
    }
}

/// A take under a larger plan forgives nothing of what the rule's own quota owes.
#[tokio::test]
async fn a_plan_forgives_no_debt() {
    for (case, clocked, algorithm) in Stores::start().await.cases() {
        let rule = Rule::clone(&rule(algorithm, "plan", &[(10, SECOND)], 2_000));
        let large = Quotas::new([Quota::per_second(10_000)]).expect("valid");
        let rule = Arc::new(rule.with_plan("large", large).expect("valid"));
        let one = take(&rule, &case, 1);
        settle(&clocked.charge(&one).await, 1_010).await;
        clocked.advance(millis(17));
        let large = take(&rule.of_plan("large").expect("a plan"), &case, 1);
        ask(clocked, &large).await;
        retry_after_is_true(clocked, &one, &case).await;
    }
}

/// Numbers at their ends: what is charged and what is forgiven is what was used beyond, no quota
/// owes more than it may, retry-after is true for years, and memory equals Redis.
#[tokio::test]
async fn numbers_at_their_ends() {
    const MOST: u64 = Quota::MAX_UNITS;
    let stores = Stores::start().await;
    let mut charged = Vec::new();
    let quotas = [1, 5, MOST].map(|max| [millis(1), SECOND, 30 * DAY].map(|it| (max, it)));
    let debts = [0, 1, MOST, u64::MAX].map(|owe| [2, MOST + 7, u64::MAX].map(|it| (owe, it)));
    let (quotas, debts) = (quotas.concat(), debts.concat());
    let with_debts = |quota| debts.iter().map(move |debt| (quota, *debt));
    let all = quotas.into_iter().flat_map(with_debts);
    let all: Vec<_> = all.collect();
    for clocked in &stores.all {
        let (mut of_store, start) = (Vec::new(), clocked.clock.now());
        for algorithm in Algorithm::ALL {
            for &((max, window), (owe, used)) in &all {
                let case = format!("{algorithm:?} {max} in {window:?}, {owe}, {used}");
                let rule = rule(algorithm, "ends", &[(max, window)], owe);
                let one = take(&rule, &case, 1);
                let case = format!("{} {case}", clocked.name);
                clocked.clock.set(start);
                let charge = clocked.charge(&one).await;
                let settled = settle(&charge, used).await;
                let most = (max - 1 + owe.min(MOST)).min(used - 1);
                let sum = settled.charged.checked_add(settled.forgiven);
                assert_eq!(sum, Some(used - 1), "{case}");
                match algorithm {
                    Algorithm::Gcra => assert!(settled.charged <= most, "{case}"),
                    _ => assert_eq!(settled.charged, most, "{case}"),
                }
                of_store.push(settled.charged);
                let again = settle(&charge, u64::MAX).await;
                assert_eq!((again.charged, again.forgiven), (0, 0), "{case}");
                let is_denied = retry_after_is_true(clocked, &one, &case).await;
                let is_full = settled.charged + 1 >= max;
                assert!(is_denied || !is_full, "{case}");
            }
        }
        charged.push(of_store);
    }
    assert!(charged.iter().all(|it| *it == charged[0]), "law 8");
}

/// Settles the same take in all stores, which answer alike.
async fn settle_alike(charges: &[Charge], used: u64, case: &str) -> Settled {
    let answers = join_all(charges.iter().map(|charge| settle(charge, used))).await;
    let is_alike = answers.iter().all(|it| *it == answers[0]);
    assert!(is_alike, "{case}: {answers:?}");
    answers[0]
}

/// What counts, by the letter: units leave when their window has passed.
struct Exact {
    /// When, and how many.
    entries: Vec<(u64, u64)>,
}

impl Exact {
    fn used(&self, now: u64, window: u64) -> u64 {
        let inside = self.entries.iter().filter(|it| it.0 + window > now);
        inside.map(|it| it.1).sum()
    }
}

/// Takes, settlements, refunds and resets in any order: all stores answer alike, whoever is denied
/// is told the truth, and a sliding log charges and gives back by the letter.
#[tokio::test]
async fn random_histories() {
    const QUOTAS: [(u64, Duration); 2] = [(9, Duration::from_secs(60)), (25, HOUR)];
    let stores = Stores::start().await;
    for algorithm in Algorithm::ALL {
        for seed in 0..6 {
            let owe = [None, Some(0), Some(4), Some(60), Some(MANY_TIMES), Some(1)][seed as usize];
            let rule = rule(algorithm, &format!("random{seed}"), &QUOTAS, owe);
            history(&stores, &rule, 0xc0de + seed).await;
        }
    }
}

const MANY_TIMES: u64 = 2_500;

async fn history(stores: &Stores, rule: &Arc<tidegate::Rule>, seed: u64) {
    let algorithm = rule.algorithm().algorithm();
    let (mut random, mut open) = (Random::new(seed), Vec::<(u64, u64, Vec<Charge>)>::new());
    let mut exact = Exact { entries: vec![] };
    let start = stores.all[0].clock.now();
    let advance = |by: Duration| stores.all.iter().for_each(|it| it.advance(by));
    let mut settlements = 0;
    for step in 0..120 {
        let case = format!("{algorithm:?} {seed:x} step {step}");
        // Nothing is ever charged exactly a window later: 7 is no part of 60.
        advance(Duration::from_secs(7 * random.below(3)));
        let now = stores.all[0].clock.now() - start;
        match random.below(10) {
            0..=4 => {
                let one = take(rule, "x", 1 + random.below(4));
                let decisions = join_all(stores.all.iter().map(|it| ask(it, &one))).await;
                let first = decisions[0].clone();
                for (decision, clocked) in decisions.iter().zip(&stores.all) {
                    let case = format!("{case}, {}", clocked.name);
                    assert_eq!(decision.verdict(), first.verdict(), "{case}");
                }
                if algorithm == Algorithm::SlidingLog {
                    let fits = rule.quotas().iter().all(|quota| {
                        let window = quota.window().as_micros() as u64;
                        exact.used(now, window) + one.cost() <= quota.max()
                    });
                    assert_eq!(first.is_allowed(), fits, "{case}: law 1");
                }
                if first.is_allowed() {
                    let charges = decisions.iter().zip(&stores.all).map(|(it, clocked)| {
                        let receipt = it.receipt().expect("it is charged");
                        Charge::new(clocked.store.clone(), one.clone(), receipt)
                    });
                    open.push((now, one.cost(), charges.collect()));
                    exact.entries.push((now, one.cost()));
                } else if algorithm != Algorithm::SlidingLog && random.is(30) {
                    for clocked in &stores.all {
                        let case = format!("{case}, {}", clocked.name);
                        retry_after_is_true(clocked, &one, &case).await;
                    }
                    open.clear();
                }
            }
            5..=7 if !open.is_empty() => {
                let at = random.below(open.len() as u64) as usize;
                let (_, reserved, charges) = open.swap_remove(at);
                let beyond = [0, 1, 2, 9, 30, u64::MAX - reserved][random.below(6) as usize];
                let settled = settle_alike(&charges, reserved + beyond, &case).await;
                settlements += u64::from(settled.charged > 0);
                assert_eq!(settled.charged + settled.forgiven, beyond, "{case}");
                if algorithm == Algorithm::SlidingLog {
                    let room = rule.quotas().iter().map(|quota| {
                        let most = quota.max() + rule.owe_at_most().unwrap_or(quota.max());
                        let window = quota.window().as_micros() as u64;
                        most.saturating_sub(exact.used(now, window))
                    });
                    let room = room.min().expect("quotas");
                    assert_eq!(settled.charged, beyond.min(room), "{case}");
                }
                exact.entries.push((now, settled.charged));
            }
            8 if !open.is_empty() => {
                let at = random.below(open.len() as u64) as usize;
                let (when, reserved, charges) = open.swap_remove(at);
                let used = random.below(reserved);
                let back = settle_alike(&charges, used, &case).await.given_back;
                assert!(back <= reserved - used, "{case}: law 15");
                if algorithm == Algorithm::SlidingLog {
                    let window = HOUR.as_micros() as u64;
                    let counts = when + window > now;
                    assert_eq!(back, (reserved - used) * u64::from(counts), "{case}");
                    let entry = exact.entries.iter_mut().find(|it| **it == (when, reserved));
                    if let (Some(entry), true) = (entry, counts) {
                        entry.1 = used;
                    }
                }
            }
            9 if random.is(15) => {
                for clocked in &stores.all {
                    reset(&clocked.store, &take(rule, "x", 1)).await;
                }
                exact.entries.clear();
                // Their receipts give nothing back, and they may be settled with more.
                open.clear();
                advance(SECOND * 7);
            }
            _ => {
                let one = take(rule, "x", 1);
                let left = join_all(stores.all.iter().map(|it| it.remaining(&one))).await;
                assert!(left.iter().all(|it| *it == left[0]), "{case}: {left:?}");
            }
        }
    }
    assert!(settlements > 0, "{algorithm:?} {seed:x}");
}

/// Whatever became of the reservation, what was used beyond is charged, as much as of any other.
#[tokio::test]
async fn whatever_became_of_the_reservation() {
    for (_, clocked, algorithm) in Stores::start().await.cases_of(COUNTING) {
        for fate in ["counts", "expired", "reset", "long gone"] {
            let case = format!("{} {algorithm:?} {fate}", clocked.name);
            let rule = rule(algorithm, "fate", &[(10, SECOND)], None);
            let one = take(&rule, &case, 4);
            let charge = clocked.charge(&one).await;
            match fate {
                "expired" => clocked.advance(3 * SECOND),
                "reset" => {
                    assert!(reset(&clocked.store, &one).await, "{case}");
                }
                "long gone" => clocked.advance(400 * DAY),
                _ => {}
            }
            let settled = settle(&charge, 9).await;
            assert_eq!((settled.charged, settled.forgiven), (5, 0), "{case}");
            let counts = if fate == "counts" { 9 } else { 5 };
            assert_eq!(clocked.remaining(&one).await, 10 - counts, "{case}");
            for used in [0, 3, 9, u64::MAX] {
                assert_eq!(settle(&charge, used).await, Default::default(), "{case}");
            }
            assert_eq!(give_back(&charge).await, 0, "{case}");
            assert_eq!(clocked.remaining(&one).await, 10 - counts, "{case}: once");
        }
    }
}

/// Refunded first, it is not settled; settled first, it is not refunded; clones are one charge.
#[tokio::test]
async fn whatever_comes_first_counts() {
    for (case, clocked, algorithm) in Stores::start().await.cases_of(COUNTING) {
        let rule = rule(algorithm, "first", &[(10, HOUR)], None);
        let one = take(&rule, "x", 4);
        let charge = clocked.charge(&one).await;
        assert_eq!(give_back(&charge.clone()).await, 4, "{case}");
        assert_eq!(settle(&charge, 30).await, Default::default(), "{case}");
        assert_eq!(clocked.remaining(&one).await, 10, "{case}");

        let charge = clocked.charge(&one).await;
        let exactly = settle(&charge.clone(), 4).await;
        assert_eq!(exactly, Default::default(), "{case}");
        assert_eq!(settle(&charge, 30).await, Default::default(), "{case}");
        assert_eq!(give_back(&charge).await, 0, "{case}");
        assert_eq!(clocked.remaining(&one).await, 6, "{case}");

        // One that was never begun is none.
        let charge = clocked.charge(&one).await;
        drop(charge.settle(30));
        let settled = settle(&charge, 5).await;
        let left = clocked.remaining(&one).await;
        assert_eq!((settled.charged, left), (1, 1), "{case}: {settled:?}");
        clocked.advance(3 * HOUR);
    }
}

/// Refunds beside a debt give back their own units, and what is told afterwards is true.
#[tokio::test]
async fn refunds_beside_a_debt() {
    for (_, clocked, algorithm) in Stores::start().await.cases() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let case = format!("{} {algorithm:?} {order:?}", clocked.name);
            let rule = rule(algorithm, "beside", &[(10, Duration::from_secs(100))], 40);
            let key = format!("{order:?}");
            let mut charges = Vec::new();
            for _ in 0..3 {
                charges.push(clocked.charge(&take(&rule, &key, 3)).await);
                clocked.advance(MICRO);
            }
            // 9 are used, and 25 more.
            let last = clocked.charge(&take(&rule, &key, 1)).await;
            assert_eq!(settle(&last, 26).await.charged, 25, "{case}");
            let mut back = 0;
            for at in order {
                let units = give_back(&charges[at]).await;
                assert!(units <= 3, "{case}: law 15: {units}");
                back += units;
            }
            if algorithm != Algorithm::Gcra {
                assert_eq!(back, 9, "{case}");
            }
            let denied = ask(clocked, &take(&rule, &key, 1)).await;
            let after = denied.retry_after().expect("26 of 10 are used");
            if algorithm == Algorithm::Gcra {
                // Each unit takes ten seconds to drain.
                let least = Duration::from_secs(10 * (35 - back + 1 - 10)) - millis(1);
                assert!(after >= least, "{case}: law 15: {after:?}, {back}");
            }
            retry_after_is_true(clocked, &take(&rule, &key, 1), &case).await;
        }
        clocked.advance(HOUR);
    }
}
