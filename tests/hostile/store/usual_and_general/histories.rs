//! Law 8: memory equals Redis, whatever is mixed on the keys of a path: one quota and several,
//! plans, leases, looks, costs that never fit, refunds, resets, evictions and clocks that go back.
//! Takes of many keys and rules are asked together, by two processes in turn.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use kit::Redis;
use kit::proxy::Proxy;
use kit::random::Random;
use tidegate::algorithm::Count;
use tidegate::decision::Receipt;
use tidegate::store::StoreErrorKind;
use tidegate::test_util::ManualClock;
use tidegate::{
    Algorithm, Decision, MemoryStore, Quota, RedisStore, Rule, Store, StoreError, Take,
};

use super::{START, check_expiries, names, owned, quotas, take};
use kit::{PATIENT, behind, connect, millis};

/// Redis expires by its own clock. A key lives for a second at least, so what took less time than
/// this saw no key expire.
const SHORTEST_LIFE: Duration = Duration::from_millis(900);
const TEN_YEARS: u64 = 315_576_000_000;
/// The key under which something else stands.
const FOREIGN: &str = "foreign";

fn any_quota(random: &mut Random) -> (u64, u64) {
    let maxes = [0, 1, 1, 2, 3, 5, 5, 9, 40, Quota::MAX_UNITS];
    let windows = [1, 1, 2, 7, 1_000, 10_000, 10_000, 3_600_000, TEN_YEARS];
    let of = |random: &mut Random, numbers: &[u64]| {
        numbers[usize::try_from(random.below(numbers.len() as u64)).expect("small")]
    };
    (of(random, &maxes), of(random, &windows))
}

fn any_quotas(random: &mut Random) -> Vec<(u64, u64)> {
    let number = if random.is(70) {
        1
    } else {
        2 + random.below(2)
    };
    (0..number).map(|_| any_quota(random)).collect()
}

/// Rules that share a path, and so their counts: most of them have one quota.
fn any_rules(algorithm: Algorithm, path: &str, random: &mut Random) -> Vec<Arc<Rule>> {
    let mut rules = Vec::new();
    for _ in 0..3 {
        let rule = owned(algorithm, path, &any_quotas(random));
        let leased = rule.clone().with_lease(millis(1 + random.below(3_000)));
        match random.below(5) {
            0 => rules.push(Arc::new(leased.unwrap_or(rule))),
            1 => {
                let plan = quotas(&any_quotas(random));
                let planned = Arc::new(rule.with_plan("paid", plan).expect("a valid plan"));
                rules.push(planned.of_plan("paid").expect("the plan"));
                rules.push(planned);
            }
            2 => {
                let given = Arc::new(quotas(&any_quotas(random)));
                let rule = Arc::new(rule);
                rules.push(rule.of_quotas(given));
                rules.push(rule);
            }
            _ => rules.push(Arc::new(rule)),
        }
    }
    rules
}

fn any_cost(random: &mut Random) -> u64 {
    match random.below(20) {
        0..13 => 1,
        13..15 => 0,
        15..18 => 2 + random.below(5),
        18 => Quota::MAX_UNITS,
        _ => u64::MAX,
    }
}

enum Question {
    Take(Take),
    Refund(Take, Receipt),
}

#[derive(Debug, PartialEq)]
enum Answer {
    Decision(
        tidegate::decision::Verdict,
        Vec<tidegate::decision::QuotaState>,
        Option<Receipt>,
    ),
    Units(u64),
    Error(StoreErrorKind),
}

fn of_decision(decision: Result<Decision, StoreError>) -> Answer {
    match decision {
        Ok(one) => Answer::Decision(one.verdict(), one.quotas().to_vec(), one.receipt()),
        Err(error) => Answer::Error(error.kind()),
    }
}

fn of_units(units: Result<u64, StoreError>) -> Answer {
    units.map_or_else(|error| Answer::Error(error.kind()), Answer::Units)
}

fn ask(store: &dyn Store, question: &Question) -> BoxFuture<'static, Answer> {
    match question {
        Question::Take(take) => {
            let answer = store.take(take);
            Box::pin(async { of_decision(answer.await) })
        }
        Question::Refund(take, receipt) => {
            let answer = store.refund(take, receipt);
            Box::pin(async { of_units(answer.await) })
        }
    }
}

/// The three that have to agree.
struct World<'a> {
    server: &'a Redis,
    /// Of two processes.
    stores: [RedisStore; 2],
    clock: ManualClock,
    /// None once the clock went back: its own is monotonic.
    memory: Option<MemoryStore>,
    pure: HashMap<String, Count>,
    /// How often a key was evicted: to the memory store it is another one then.
    evicted: HashMap<String, u64>,
    /// Of charges that may still be given back: the take, its receipt.
    charges: Vec<(Take, Receipt)>,
    story: String,
}

impl World<'_> {
    fn in_memory(&self, take: &Take) -> Take {
        let times = self.evicted.get(take.key().as_str()).copied().unwrap_or(0);
        let key = format!("{} {times}", take.key().as_str());
        super::take(take.rule(), &key).with_cost(take.cost())
    }

    /// What the algorithm alone says, and the memory store.
    async fn expected(&mut self, question: &Question) -> Answer {
        let now = self.clock.now();
        let (Question::Take(take) | Question::Refund(take, _)) = question;
        if take.key().as_str() == FOREIGN {
            return Answer::Error(StoreErrorKind::WrongType);
        }
        let memory_take = self.in_memory(take);
        let count = self.pure.entry(take.key().as_str().to_owned()).or_default();
        let (pure, memory) = match question {
            Question::Take(take) => {
                let algorithm = take.rule().algorithm();
                let pure = count.take(algorithm, now, take.quotas(), take.cost());
                let memory = match &self.memory {
                    Some(memory) => Some(of_decision(memory.take(&memory_take).await)),
                    None => None,
                };
                if let Some(receipt) = pure.receipt() {
                    self.charges.push((take.clone(), receipt));
                }
                (of_decision(Ok(pure)), memory)
            }
            Question::Refund(take, receipt) => {
                let pure = count.refund(now, receipt, take.cost());
                let memory = match &self.memory {
                    Some(memory) => Some(of_units(memory.refund(&memory_take, receipt).await)),
                    None => None,
                };
                (Answer::Units(pure), memory)
            }
        };
        if let Some(memory) = memory {
            assert_eq!(memory, pure, "{}, memory: {take:?}", self.story);
        }
        pure
    }

    /// A wave of questions at one instant, and whether all answers were right.
    async fn wave(&mut self, rules: &[Arc<Rule>], keys: u64, random: &mut Random) -> bool {
        let which = usize::from(random.is(50));
        let number = if random.is(30) {
            1
        } else {
            1 + random.below(90)
        };
        let mut questions = Vec::new();
        for _ in 0..number {
            let at = random.below(self.charges.len().max(1) as u64) as usize;
            if random.is(12) && at < self.charges.len() {
                let (take, receipt) = self.charges.swap_remove(at);
                let units = if random.is(50) { u64::MAX } else { 1 };
                questions.push(Question::Refund(take.with_cost(units), receipt));
                continue;
            }
            let rule = &rules[random.below(rules.len() as u64) as usize];
            let key = match random.below(40) {
                0 => FOREIGN.to_owned(),
                _ => random.below(keys).to_string(),
            };
            questions.push(Question::Take(take(rule, &key).with_cost(any_cost(random))));
        }
        let store = &self.stores[which];
        let asked = questions.iter().map(|question| ask(store, question));
        let answers = join_all(asked).await;
        for (at, (question, answer)) in questions.iter().zip(answers).enumerate() {
            let expected = self.expected(question).await;
            if answer != expected {
                let (Question::Take(take) | Question::Refund(take, _)) = question;
                self.story = format!(
                    "{}, question {at} of {number}: {take:?} of {:?}: {answer:?}, not {expected:?}",
                    self.story,
                    take.quotas()
                );
                return false;
            }
        }
        true
    }

    /// Something happens to the server, to a key, or to the time.
    async fn happens(&mut self, rules: &[Arc<Rule>], keys: u64, random: &mut Random) {
        let key = random.below(keys).to_string();
        let take = take(&rules[0], &key);
        match random.below(14) {
            0 => {
                let mut del = redis::cmd("DEL");
                del.arg(&names(&take))
                    .exec(&mut self.server.connection())
                    .expect("evicted");
                self.pure.remove(&key);
                *self.evicted.entry(key.clone()).or_default() += 1;
                self.charges.retain(|(take, _)| take.key().as_str() != key);
            }
            1 => {
                self.stores[0].reset(&take).await.expect("is reset");
                let memory_take = self.in_memory(&take);
                if let Some(memory) = &self.memory {
                    memory.reset(&memory_take).await.expect("is reset");
                }
                let now = self.clock.now();
                if let Some(count) = self.pure.get_mut(&key) {
                    count.reset(now);
                }
                self.clock.set(now + 1);
            }
            2 if random.is(50) => {
                let back = [1, 999, 1_000, 5_000_000, 11_000_000][random.below(5) as usize];
                self.clock.set(self.clock.now() - back);
                self.memory = None;
            }
            3..12 => {
                let pauses = [1, 300, 999, 1_000, 2_000, 400_000, 9_999_999, 10_000_000];
                let pause = pauses[random.below(pauses.len() as u64) as usize];
                self.clock.set(self.clock.now() + pause);
            }
            _ => {}
        }
    }
}

/// One history, and what was wrong with it.
async fn play(server: &Redis, stores: &[RedisStore; 2], number: u64) -> Result<(), String> {
    let mut random = Random::new(number * 7_919);
    let algorithm = Algorithm::ALL[(number % 4) as usize];
    let flush = redis::cmd("FLUSHALL");
    flush.exec(&mut server.connection()).expect("flushes");
    let clock = ManualClock::default();
    clock.set(START + random.below(1_000_000));
    let keys = if random.is(50) { 2 } else { 70 };
    let mut world = World {
        server,
        stores: stores.clone().map(|store| store.clock(clock.clone())),
        memory: Some(MemoryStore::new().clock(clock.clone())),
        clock,
        pure: HashMap::new(),
        evicted: HashMap::new(),
        charges: Vec::new(),
        story: String::new(),
    };
    let mut rules = any_rules(algorithm, "mixed", &mut random);
    let foreign = names(&take(&rules[0], FOREIGN))[0].clone();
    let mut put = redis::cmd("RPUSH");
    put.arg(&foreign)
        .arg("mine")
        .exec(&mut server.connection())
        .expect("is put");
    let began = Instant::now();
    for step in 0..14 {
        world.story = format!("{algorithm:?}, history {number}, step {step}");
        if random.is(25) {
            let other = any_rules(algorithm, "mixed", &mut random);
            rules.extend(other);
            rules.drain(..rules.len() - 5);
        }
        let is_right = world.wave(&rules, keys, &mut random).await;
        if began.elapsed() > SHORTEST_LIFE {
            // Too slow to say anything of it.
            return Ok(());
        }
        if !is_right {
            return Err(world.story);
        }
        world.happens(&rules, keys, &mut random).await;
    }
    let mut del = redis::cmd("DEL");
    del.arg(foreign)
        .exec(&mut server.connection())
        .expect("is gone");
    check_expiries(server, i64::MAX, &world.story);
    Ok(())
}

async fn histories(numbers: std::ops::Range<u64>, round_trip: Duration) {
    let server = Redis::start();
    let near = connect(&server.url, PATIENT).await;
    let proxy: Option<Proxy> = match round_trip.is_zero() {
        true => None,
        false => Some(behind(&server, round_trip).await),
    };
    let far = match &proxy {
        Some(proxy) => connect(&proxy.url, PATIENT).await,
        None => connect(&server.url, PATIENT).await,
    };
    // Whoever finds a script missing asks again, behind others.
    for algorithm in Algorithm::ALL {
        let take = take(&Arc::new(owned(algorithm, "scripts", &[(1, 1_000)])), "");
        let receipt = near.take(&take).await.expect("a decision").receipt();
        let refund = near.refund(&take, &receipt.expect("it is charged"));
        refund.await.expect("an answer");
    }
    let stores = [near, far];
    for number in numbers {
        if let Err(story) = play(&server, &stores, number).await {
            panic!("{story}");
        }
    }
}

fn number_of_histories(default: u64) -> u64 {
    let set = std::env::var("TIDEGATE_HISTORIES").ok();
    set.map_or(default, |number| number.parse().expect("a number"))
}

#[tokio::test]
async fn all_that_can_be_mixed() {
    histories(0..number_of_histories(60), Duration::ZERO).await;
}

#[tokio::test]
async fn all_that_can_be_mixed_from_two_processes() {
    let number = number_of_histories(30);
    histories(1_000_000..1_000_000 + number, millis(3)).await;
}
