//! Random histories of rules of several subjects, with and without permits: the memory store and
//! Redis decide as an oracle does that asks each count by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::random::Random;
use tidegate::algorithm::{AlgorithmConfig, Count};
use tidegate::decision::{QuotaState, Receipt, Verdict};
use tidegate::key::Everyone;
use tidegate::rule::{Policy, Quotas, Subject};
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Decision, Key, MemoryStore, Quota, RedisStore, Rule, Store, Take};

use kit::store_on;

/// What the oracle expects of a decision: the verdict, and of each quota what remains, when it is
/// whole, and whether it denied the take.
type Expected = (Verdict, Vec<(u64, Duration, bool)>);

fn shown(decision: &Decision) -> Expected {
    let state = |state: &QuotaState| (state.remaining(), state.reset_after(), state.is_exceeded());
    (
        decision.verdict(),
        decision.quotas().iter().map(state).collect(),
    )
}

/// Knows nothing of joint takes: it has a count for each name, looks at a copy of each, and charges
/// all, or none.
#[derive(Default)]
struct Oracle {
    counts: HashMap<String, Count>,
    /// Of each count of permits: the numbers of their holders, and the milliseconds at which their
    /// leases end.
    permits: HashMap<String, Vec<(u64, u64)>>,
    last_holder: u64,
}

/// Whether it counts the requests in progress.
fn is_of_permits(count: &Take) -> bool {
    count.name("").ends_with("~permits")
}

const LEASE: u64 = 15_000;

impl Oracle {
    fn take(&mut self, now: u64, take: &Take) -> (Expected, Option<Vec<Receipt>>) {
        let rule = take.rule();
        let mut after: Vec<(String, Count, Decision)> = Vec::new();
        let mut held = HashMap::new();
        for count in take.counts() {
            let name = count.name("");
            if is_of_permits(count) {
                let holders = self.permits.entry(name.clone()).or_default();
                holders.retain(|(_, until)| *until > now / 1_000);
                held.insert(name, holders.len() as u64);
                continue;
            }
            let mut state = self.counts.get(&name).cloned().unwrap_or_default();
            let config = count.rule().algorithm();
            let decision = state.take(config, now, count.quotas(), count.cost());
            after.push((name, state, decision));
        }
        let max = |count: &Take| count.quotas()[0].max();
        let is_busy = |count: &Take| count.cost() > 0 && held[&count.name("")] >= max(count);
        let of_permits = || take.counts().iter().filter(|count| is_of_permits(count));
        let all_fit = after.iter().all(|(_, _, decision)| decision.is_allowed())
            && !of_permits().any(is_busy);
        let mut verdict = Verdict::Allowed;
        let full = |quota: &Quota| match rule.algorithm().algorithm() {
            Algorithm::Gcra if quota.max() > 0 => quota.burst(),
            _ => quota.max(),
        };
        let mut states: Vec<_> = rule
            .quotas()
            .iter()
            .map(|quota| (full(quota), Duration::ZERO, false))
            .collect();
        let mut receipts = Vec::new();
        let of_quotas = take.counts().iter().filter(|count| !is_of_permits(count));
        for ((name, state, decision), count) in after.into_iter().zip(of_quotas) {
            let told = match (all_fit, decision.is_allowed()) {
                // It would have been charged: how it stands without that.
                (false, true) => {
                    let mut state = self.counts.get(&name).cloned().unwrap_or_default();
                    state.take(count.rule().algorithm(), now, count.quotas(), 0)
                }
                _ => decision.clone(),
            };
            let wait = |verdict| match verdict {
                Verdict::Denied { retry_after } => retry_after,
                _ => Duration::ZERO,
            };
            verdict = match (verdict, decision.verdict()) {
                (Verdict::Never, _) | (_, Verdict::Never) => Verdict::Never,
                (one, other) if one == Verdict::Allowed && other == Verdict::Allowed => one,
                (one, other) => Verdict::Denied {
                    retry_after: wait(one).max(wait(other)),
                },
            };
            let mut told = told.quotas().iter();
            for (at, policy) in rule.policies().iter().enumerate() {
                let subject = policy.subject().expect("each has one");
                let cost = policy
                    .cost()
                    .map_or(String::new(), |cost| format!("~{cost}"));
                if !policy.is_concurrent()
                    && count.rule().id().ends_with(&format!("}}:{subject}{cost}"))
                {
                    let state = told.next().expect("one for each");
                    states[at] = (state.remaining(), state.reset_after(), state.is_exceeded());
                }
            }
            if all_fit {
                receipts.push(decision.receipt().unwrap_or(Receipt::new(0, 0, 0)));
                self.counts.insert(name, state);
            }
        }
        for count in of_permits() {
            let is_charged = all_fit && count.cost() > 0;
            let holders = self
                .permits
                .get_mut(&count.name(""))
                .expect("it was looked at");
            if is_charged {
                self.last_holder += 1;
                holders.push((self.last_holder, now / 1_000 + 1 + LEASE));
            }
            let held = holders.len() as u64;
            let at = rule.policies().iter().position(|policy| {
                let end = format!("}}:{}", policy.subject().expect("each has one"));
                policy.is_concurrent() && count.rule().id().ends_with(&end)
            });
            let is_exceeded = is_busy(count);
            let left = max(count).saturating_sub(held);
            states[at.expect("its policy")] = (left, Duration::ZERO, is_exceeded);
            verdict = match verdict {
                _ if is_exceeded && max(count) == 0 => Verdict::Never,
                Verdict::Allowed if is_exceeded => Verdict::Busy {
                    retry_after: Duration::from_secs(1),
                },
                verdict => verdict,
            };
            if all_fit {
                receipts.push(Receipt::new(0, self.last_holder, u64::from(is_charged)));
            }
        }
        let is_charged = all_fit && receipts.iter().any(|receipt| receipt.units() > 0);
        ((verdict, states), is_charged.then_some(receipts))
    }

    /// Charges each count by the request's cost, and returns the fewest units that were.
    fn owe(&mut self, now: u64, take: &Take) -> u64 {
        let counts = take.counts().iter();
        let counts = counts.filter(|it| !is_of_permits(it) && !it.rule().id().contains("~1"));
        let charged = counts.filter(|count| count.cost() > 0).map(|count| {
            let state = self.counts.entry(count.name("")).or_default();
            let (config, quotas) = (count.rule().algorithm(), count.quotas());
            state.owe(config, now, quotas, take.cost(), None)
        });
        charged.min().unwrap_or(0)
    }

    /// Returns how many units of the request's cost are given back. Where nothing counts by that
    /// cost, these are all that were `charged`, as far as they are asked for, or none.
    fn refund(&mut self, now: u64, take: &Take, charged: u64, receipts: &[Receipt]) -> u64 {
        let mut most = [None, None];
        let counts = take.counts().iter().filter(|count| !is_of_permits(count));
        for (count, receipt) in counts.zip(receipts) {
            let state = self.counts.entry(count.name("")).or_default();
            let units = state.refund(now, receipt, count.cost().min(receipt.units()));
            let has_own_cost = count.rule().id().contains("~1");
            let of_kind = &mut most[usize::from(has_own_cost)];
            *of_kind = Some(units.max(of_kind.unwrap_or(0)));
        }
        most[0].unwrap_or(match most[1] {
            None | Some(0) => 0,
            Some(_) => take.cost().min(charged),
        })
    }

    /// Gives the permit of this count back, and returns 1 if it was held.
    fn release(&mut self, count: &Take, holder: &Receipt) -> u64 {
        let holders = self.permits.entry(count.name("")).or_default();
        let before = holders.len();
        holders.retain(|(number, _)| *number != holder.serial());
        (before - holders.len()) as u64
    }

    fn renew(&mut self, now: u64, count: &Take, holder: &Receipt) {
        self.release(count, holder);
        let holders = self.permits.entry(count.name("")).or_default();
        holders.push((holder.serial(), now / 1_000 + 1 + LEASE));
    }

    fn reset(&mut self, now: u64, take: &Take) {
        for count in take.counts() {
            if let Some(state) = self.counts.get_mut(&count.name("")) {
                state.reset(now);
            }
        }
    }
}

fn quota(random: &mut Random) -> Quota {
    let windows = [1, 3, 10, 1_000, 60_000];
    let window = Duration::from_millis(windows[random.below(5) as usize]);
    let max = if random.is(80) {
        random.below(12)
    } else {
        random.below(200)
    };
    let quota = Quota::new(window, max).expect("valid");
    match random.is(20) {
        true => quota.with_burst(1 + random.below(20)).expect("valid"),
        false => quota,
    }
}

const SUBJECTS: [&str; 3] = ["user", "address", "everyone"];

/// Quotas of the subjects; each has at least one if `each`, and no more if `one`.
fn policies(random: &mut Random, each: bool, one: bool) -> Vec<Policy> {
    let mut policies: Vec<Policy> = Vec::new();
    for name in SUBJECTS {
        for at in 0..3 {
            if at > 0 && (one || random.is(70)) || at == 0 && !each && random.is(30) {
                continue;
            }
            let policy = Policy::new(&format!("{name}-{at}"), quota(random)).of_subject(name);
            policies.push(match random.is(25) {
                true => policy.with_cost(1),
                false => policy,
            });
        }
    }
    for name in SUBJECTS {
        if !random.is(20) {
            continue;
        }
        let permits = Policy::concurrent([0, 1, 1, 2, 3][random.below(5) as usize]);
        policies.push(permits.of_subject(name));
    }
    policies
}

fn rule(random: &mut Random, path: &str, algorithm: AlgorithmConfig) -> Arc<Rule> {
    // Half of them are as the scripts' usual case wants them.
    let one = random.is(50);
    let policies_of_rule = policies(random, true, one);
    let subjects = SUBJECTS.map(|name| {
        let own = policies_of_rule
            .iter()
            .filter(|policy| policy.subject() == Some(name));
        own.cloned()
            .fold(Subject::new(name, Everyone), Subject::limit)
    });
    let mut rule = Rule::joint(path, subjects)
        .expect("valid")
        .with_algorithm(algorithm);
    for name in ["pro", "free"] {
        let policies = policies(random, false, false);
        if !policies.is_empty() && !one && random.is(30) {
            let quotas = Quotas::with_policies(policies).expect("valid");
            rule = rule.with_plan(name, quotas).expect("valid");
        }
    }
    Arc::new(rule)
}

fn take(random: &mut Random, rule: &Arc<Rule>) -> Option<Take> {
    let rule = match random.below(4) {
        0 => rule.of_plan("pro").unwrap_or_else(|| Arc::clone(rule)),
        1 => rule.of_plan("free").unwrap_or_else(|| Arc::clone(rule)),
        _ => Arc::clone(rule),
    };
    let users = [Key::from("alice"), Key::from("bob")];
    let addresses = [Key::from("1.2.3.4"), Key::default().with("a").with("b")];
    let keys = [
        ("user", users[random.below(2) as usize].clone()),
        ("address", addresses[random.below(2) as usize].clone()),
        ("everyone", Key::default()),
    ];
    let skipped = random.below(10);
    let keys = keys.into_iter().enumerate();
    let keys = keys
        .filter(|(at, _)| *at as u64 != skipped)
        .map(|(_, key)| key);
    let cost = [1, 1, 1, 2, 5, 0, 40][random.below(7) as usize];
    let take = Take::of_subjects(rule, keys)
        .expect("a subject")
        .with_cost(cost);
    // A plan may have no quota of any subject that is left.
    (!take.counts().is_empty()).then_some(take)
}

async fn run(redis: &RedisStore, seed: u64, algorithm: AlgorithmConfig) -> Result<(), String> {
    let mut random = Random::new(seed);
    let clock = ManualClock::default();
    clock.set(1_800_000_000_000_777);
    let redis = redis.clone().clock(clock.clone());
    let memory = MemoryStore::new().clock(clock.clone());
    let path = format!("p{seed}");
    let mut oracle = Oracle::default();
    let mut current = rule(&mut random, &path, algorithm);
    let mut charged: Vec<(Take, [Receipt; 2], Vec<Receipt>)> = Vec::new();
    let mut retry_after = 0;
    for step in 0..40 {
        let now = clock.now();
        match random.below(22) {
            20 if !charged.is_empty() => {
                let at = random.below(charged.len() as u64) as usize;
                let (take, receipts, of_oracle) = &charged[at];
                let last = receipts[0].counts().len() - 1;
                let count = &take.counts()[last];
                if !is_of_permits(count) || receipts[0].counts()[last].units() == 0 {
                    continue;
                }
                let [of_memory, of_redis] = receipts.each_ref().map(|it| &it.counts()[last]);
                if random.is(70) {
                    let expected = oracle.release(count, &of_oracle[last]);
                    let memory = memory.refund(count, of_memory).await.expect("an answer");
                    let redis = redis.refund(count, of_redis).await.expect("an answer");
                    // One whose lease has ended may be there still, and counts no more.
                    if expected == 1 && [memory, redis] != [1, 1] {
                        return Err(format!("{step}: release {memory} {redis} {expected}"));
                    }
                } else {
                    oracle.renew(now, count, &of_oracle[last]);
                    memory.renew(count, of_memory).await.expect("an answer");
                    redis.renew(count, of_redis).await.expect("an answer");
                }
            }
            20 => {}
            0 => current = rule(&mut random, &path, algorithm),
            1..=4 => {
                let micros = [1, 300, 1_000, 5_000, 2_000_000, 59_999_999];
                clock.set(now + micros[random.below(6) as usize]);
            }
            5 | 6 => clock.set(now + retry_after),
            7 | 8 if !charged.is_empty() => {
                let at = random.below(charged.len() as u64) as usize;
                let (take, [of_memory, of_redis], of_oracle) = charged.remove(at);
                let cost = take.cost();
                let take = take.with_cost(if random.is(70) { 40 } else { 1 });
                let expected = oracle.refund(now, &take, cost, &of_oracle);
                let memory = memory.refund(&take, &of_memory).await.expect("an answer");
                let redis = redis.refund(&take, &of_redis).await.expect("an answer");
                if [memory, redis] != [expected; 2] {
                    return Err(format!(
                        "{step}: refund {memory} {redis} {expected}: {take:?}"
                    ));
                }
            }
            9 => {
                let Some(take) = take(&mut random, &current) else {
                    continue;
                };
                oracle.reset(now, &take);
                memory.reset(&take).await.expect("an answer");
                redis.reset(&take).await.expect("an answer");
                clock.set(now + 1);
            }
            _ => {
                let number = if random.is(60) {
                    1
                } else {
                    1 + random.below(8)
                };
                let mut takes: Vec<Take> = Vec::new();
                for _ in 0..number {
                    match takes.last() {
                        Some(last) if random.is(50) => takes.push(last.clone()),
                        _ => takes.extend(take(&mut random, &current)),
                    }
                }
                // Some are what was used beyond a reservation.
                let asked = takes.into_iter().map(|take| (random.is(15), take));
                let asked = asked.collect::<Vec<_>>();
                let any = Receipt::new(0, 0, 1);
                let of_redis = asked.iter().map(async |(is_owed, take)| match is_owed {
                    true => Err(redis.owe(take, &any).await.expect("an answer")),
                    false => Ok(redis.take(take).await.expect("a decision")),
                });
                let of_redis = join_all(of_redis).await;
                for ((_, take), of_redis) in asked.into_iter().zip(of_redis) {
                    let of_redis = match of_redis {
                        Ok(of_redis) => of_redis,
                        Err(redis) => {
                            let expected = oracle.owe(now, &take);
                            let memory = memory.owe(&take, &any).await.expect("an answer");
                            if [memory, redis] != [expected; 2] {
                                return Err(format!(
                                    "{step}: owed {memory} {redis} {expected}: {take:?}"
                                ));
                            }
                            continue;
                        }
                    };
                    let (expected, receipts) = oracle.take(now, &take);
                    let of_memory = memory.take(&take).await.expect("a decision");
                    if [shown(&of_memory), shown(&of_redis)] != [expected.clone(), expected.clone()]
                    {
                        return Err(format!(
                            "{step}: {take:?}\nmemory {of_memory:?}\nredis {of_redis:?}\nexpected \
                             {expected:?}"
                        ));
                    }
                    if let Verdict::Denied { retry_after: wait } = expected.0 {
                        retry_after = u64::try_from(wait.as_micros()).expect("short");
                    }
                    if let Some(receipts) = receipts {
                        let both = [of_memory, of_redis].map(|it| it.receipt().expect("charged"));
                        charged.push((take, both, receipts));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Redis forgets keys by the real time, whatever the history's clock shows: what took this long
/// proves nothing.
const KEPT: Duration = Duration::from_millis(900);

async fn histories(algorithm: Algorithm) {
    let number = std::env::var("TIDEGATE_HISTORIES");
    let number: u64 = number.map_or(400, |number| number.parse().expect("a number"));
    let server = Redis::start();
    let redis = store_on(&server).await;
    let first = 1_000_000 * (1 + algorithm as u64);
    for seeds in (first..first + number).collect::<Vec<_>>().chunks(32) {
        let run = async |seed: &u64| {
            let mut attempt = 0;
            loop {
                let (began, seed) = (Instant::now(), *seed);
                let algorithm = AlgorithmConfig::from(algorithm).sub_windows(7);
                let outcome = run(&redis, seed + attempt * 500_000, algorithm).await;
                attempt += 1;
                match outcome {
                    Err(error) if began.elapsed() < KEPT => panic!("seed {seed}: {error}"),
                    Err(_) => {}
                    Ok(()) => return,
                }
            }
        };
        join_all(seeds.iter().map(run)).await;
    }
}

#[tokio::test]
async fn logs_decide_as_the_oracle() {
    histories(Algorithm::SlidingLog).await;
}

#[tokio::test]
async fn gcras_decide_as_the_oracle() {
    histories(Algorithm::Gcra).await;
}

#[tokio::test]
async fn sliding_windows_decide_as_the_oracle() {
    histories(Algorithm::SlidingWindow).await;
}

#[tokio::test]
async fn fixed_windows_decide_as_the_oracle() {
    histories(Algorithm::FixedWindow).await;
}
