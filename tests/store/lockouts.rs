//! Keys that failures lock out: both stores and an oracle play the same histories.

use tidegate::rule::Lockout;
use tidegate::store::Change;

use crate::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOLDS: [u64; 3] = [20, 60, 200];
const DAY: u64 = 86_400_000_000;
/// For how long behind a hold its step is remembered, in microseconds.
const MEMORIES: [u64; 4] = [DAY, 0, 90_000_000, 30 * DAY];

fn lockout() -> Lockout {
    let holds = HOLDS.map(Duration::from_secs);
    let none: [&str; 0] = [];
    Lockout::after(3).within(MINUTE).hold(holds).on(none)
}

/// What is known of a key. Times are in microseconds, by the clock of the stores.
#[derive(Debug, Default, Clone)]
struct Oracle {
    memory: u64,
    /// When each failure that counts was told, by its id. Behind a hold, the one that has begun it.
    told: BTreeMap<u64, u64>,
    /// What was admitted before it counts nothing.
    since: u64,
    until: u64,
    step: u64,
    /// From then on all of it is forgotten.
    ends: u64,
}

impl Oracle {
    const WITHIN: u64 = 60_000_000;

    /// Nothing is known.
    fn of(memory: u64) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }

    /// What of it is true now.
    fn at(&self, now: u64) -> Self {
        if now >= self.ends {
            return Self::of(self.memory);
        }
        let (mut known, last) = (self.clone(), now + 1);
        // Nothing is ever written with a later instant: the clock has gone back.
        if known.since > last {
            known.since = 0;
        }
        if now > known.until + self.memory {
            known.step = 0;
        }
        known
    }

    fn is_held(&self, now: u64) -> bool {
        self.at(now).until > now
    }

    /// How many times in a row it was held, if it is.
    fn asked(&self, now: u64) -> u64 {
        if self.is_held(now) {
            self.at(now).step
        } else {
            0
        }
    }

    /// After how many more failures it is held.
    fn attempts(&self, now: u64) -> u64 {
        let mut known = self.at(now);
        known.drop_failures(now);
        match self.is_held(now) {
            true => 0,
            false => 3 - known.told.len() as u64,
        }
    }

    /// What the stores answer to a failure: which hold it has begun.
    fn fails(&mut self, now: u64, admitted: u64, id: u64, late: Duration) -> u64 {
        let mut known = self.at(now);
        if let Some(told) = known.told.get(&id) {
            let has_begun_it = *told < known.since;
            return if has_begun_it { self.asked(now) } else { 0 };
        }
        // What has taken longer than 10 s until it was told first counts in any case.
        let took = now.saturating_sub(admitted);
        if admitted.min(now) < known.since && took <= 10_000_000 + late.as_micros() as u64 {
            return 0;
        }
        known.drop_failures(now);
        known.told.insert(id, now.max(known.since));
        let is_enough = known.told.len() >= 3;
        if is_enough {
            known.step += 1;
            let hold = HOLDS[HOLDS.len().min(known.step as usize) - 1] * 1_000_000;
            (known.since, known.until) = (now + 1, known.until.max(now + hold));
            known.told = BTreeMap::from([(id, now)]);
        }
        let step = if is_enough { known.step } else { 0 };
        self.keep(known, now);
        step
    }

    fn succeeds(&mut self, now: u64, admitted: u64) {
        let (mut known, admitted) = (self.at(now), admitted.min(now));
        if admitted >= known.since {
            (known.since, known.step) = (admitted + 1, 0);
            known.drop_failures(now);
            self.keep(known, now);
        }
    }

    fn reset(&mut self, now: u64) {
        *self = Self::of(self.memory);
        let since = now + 1;
        let known = Self {
            since,
            ..self.clone()
        };
        self.keep(known, now);
    }

    /// Failures that were told too long ago, or before `since`, count no more.
    fn drop_failures(&mut self, now: u64) {
        let since = self.since;
        self.told
            .retain(|_, told| *told >= since && told.abs_diff(now) < Self::WITHIN);
    }

    fn keep(&mut self, known: Self, now: u64) {
        let steps_end = if known.step > 0 { self.memory } else { 0 };
        let ends = (now + Self::WITHIN).max(known.until + steps_end);
        *self = Self { ends, ..known };
    }
}

/// Redis forgets counts by the real time, whatever the clock of a history shows: their windows are
/// longer than a busy machine needs for one.
fn rules(algorithm: Algorithm, memory: u64) -> [Rule; 4] {
    let lockout = || lockout().forget_after(Duration::from_micros(memory));
    let quota = Quota::new(MINUTE, 50).expect("valid");
    let single = Rule::new("single", [quota]).expect("valid");
    let quotas = [quota, Quota::new(10 * MINUTE, 300).expect("valid")];
    let several = Rule::new("several", quotas).expect("valid");
    let user = Subject::new("user", Header::new("x-user")).limit(quota);
    let all = Subject::new("all", Everyone).limit(Quota::per_minute(80));
    let joint = Rule::joint("joint", [all, user]).expect("valid");
    let joint = joint.with_algorithm(algorithm);
    let joint = joint
        .with_lockout(lockout().subject("user"))
        .expect("valid");
    let permits = single.clone().with_max_concurrent(1_000).expect("valid");
    let locked = |rule: Rule| {
        rule.with_algorithm(algorithm)
            .with_lockout(lockout())
            .expect("valid")
    };
    [locked(single), locked(several), joint, locked(permits)]
}

fn take_of(rule: &Arc<Rule>, key: &str) -> Take {
    match rule.subjects() {
        [] => Take::new(Arc::clone(rule), Key::from(key)),
        _ => {
            let keys = [("user", Key::from(key)), ("all", Key::default())];
            Take::of_subjects(Arc::clone(rule), keys).expect("its subjects")
        }
    }
}

/// Both stores, under one clock that is moved.
struct Both {
    memory: MemoryStore,
    redis: RedisStore,
    clock: ManualClock,
}

impl Both {
    async fn take(&self, take: &Take, is_same: bool) -> Decision {
        let (one, other) = (ask(&self.memory, take).await, ask(&self.redis, take).await);
        let redis = other.clone().with_source(Source::Local);
        match is_same {
            true => assert_eq!(one, redis),
            // Holders of permits differ.
            false => assert_eq!(
                (one.verdict(), one.quotas()),
                (redis.verdict(), redis.quotas())
            ),
        }
        one
    }

    async fn change(&self, take: &Take, change: &Change) -> u64 {
        let one = self.memory.change(take, change).await.expect("an answer");
        let other = self.redis.change(take, change).await.expect("an answer");
        // What has ceased to count may be found by one of them.
        assert!(
            one == other || *change == Change::Forget,
            "{change:?}: {one}, {other}"
        );
        one
    }
}

async fn play(
    both: &Both,
    rule: &Arc<Rule>,
    memory: u64,
    random: &mut Random,
) -> BTreeMap<&'static str, u32> {
    let mut seen = BTreeMap::new();
    let mut note = |what| *seen.entry(what).or_default() += 1;
    let names = ["a", "b"];
    let mut oracles = [Oracle::of(memory), Oracle::of(memory)];
    let mut admitted: [Vec<(Receipt, u64)>; 2] = Default::default();
    let mut last_id = 0;
    let is_same = !rule.policies().iter().any(Policy::is_concurrent);
    let steps_back = is_same && random.is(50);
    for _ in 0..300 {
        let key = random.below(2) as usize;
        let (take, now) = (take_of(rule, names[key]), both.clock.now());
        let oracle = &mut oracles[key];
        match random.below(21) {
            0..8 => {
                // Where the clock goes back, one of them may know a count that has ended: nothing
                // is charged there.
                let cost = random.below(3);
                let take = take.with_cost(if steps_back { 0 } else { cost });
                let decision = both.take(&take, is_same).await;
                if decision.is_locked_out() {
                    note("locked out");
                    let left = Duration::from_micros(oracle.at(now).until - now);
                    assert_eq!(decision.retry_after(), Some(left));
                    assert_eq!(decision.remaining(), 0);
                } else if decision.is_allowed() {
                    assert!(!oracle.is_held(now), "{oracle:?} at {now}");
                }
                if let Some(receipt) = decision.receipt() {
                    last_id += 1;
                    admitted[key].push((receipt, last_id));
                }
            }
            8..14 if !admitted[key].is_empty() => {
                // Some are told late, and some twice.
                let among = admitted[key].len() as u64;
                let at = among - 1 - random.below(among.min(8));
                let (receipt, id) = admitted[key][at as usize].clone();
                let stamp = receipt.stamp();
                let is_first = !oracle.at(now).told.contains_key(&id);
                let late = [0, 0, 1_000_000, 20_000_000][random.below(4) as usize];
                let late = Duration::from_micros(random.below(1 + late));
                let was_over = stamp < oracle.at(now).since;
                let expected = oracle.fails(now, stamp, id, late);
                let is_counted = oracle.told.contains_key(&id);
                if is_first && is_counted && now > stamp + Oracle::WITHIN {
                    note("slow");
                }
                if is_first && is_counted && was_over {
                    note("slow behind a hold");
                }
                let step = both
                    .change(&take, &Change::Failed { receipt, id, late })
                    .await;
                assert_eq!(step, expected, "{id} of {stamp}: {oracle:?} at {now}");
                if is_first && step > 0 {
                    note(["first", "second", "third", "later"][(step as usize - 1).min(3)]);
                }
            }
            14 if random.is(10) && !admitted[key].is_empty() => {
                note("success");
                let among = admitted[key].len() as u64;
                let (receipt, _) = admitted[key][random.below(among) as usize].clone();
                oracle.succeeds(now, receipt.stamp());
                both.change(&take, &Change::Succeeded(receipt)).await;
            }
            15 if random.is(4) => {
                note("reset");
                both.change(&take, &Change::Forget).await;
                oracle.reset(now);
            }
            16 => {
                let step = both.change(&take, &Change::AskLockout).await;
                assert_eq!(step, oracle.asked(now), "{oracle:?} at {now}");
                let look = both.memory.peek(&take).await.expect("an answer");
                let other = both.redis.peek(&take).await.expect("an answer");
                assert_eq!(look, other.with_source(Source::Local));
                assert!(look.is_allowed() && look.is_locked_out() == oracle.is_held(now));
                assert!(!oracle.is_held(now) || look.remaining() == 0);
                if let Some((receipt, _)) = admitted[key].last() {
                    let asks = Change::AskAttempts(receipt.clone());
                    let left = both.change(&take, &asks).await;
                    assert_eq!(left, oracle.attempts(now), "{oracle:?} at {now}");
                }
            }
            17 if random.is(10) && oracle.step > 0 => {
                // Steps end soon.
                let end = oracle.until + memory;
                both.clock.set(now.max(end - random.below(50_000_000)));
            }
            18 if steps_back && random.is(20) => {
                note("back");
                let steps = [2, 1_000, 1_000_000, 70_000_000, 4_000_000_000];
                let step = steps[random.below(5) as usize];
                // What has ended may be forgotten by one of them.
                let ended = oracles.iter().map(|it| it.ends).filter(|end| *end <= now);
                let ended = ended.max().unwrap_or(0);
                both.clock.set(ended.max(now - 1 - random.below(step)));
            }
            _ => {
                let steps = [
                    1,
                    1_000,
                    100_000,
                    1_000_000,
                    10_000_000,
                    21_000_000,
                    100_000_000,
                    86_400_000_000,
                ];
                let longest = if random.is(5) { 8 } else { 6 };
                let step = steps[random.below(longest) as usize];
                both.clock.set(now + 1 + random.below(step));
            }
        }
    }
    seen
}

async fn stores_and_oracle_alike(algorithm: Algorithm) {
    let (server, clock) = (Redis::start(), clock_at(1_800_000_000_000_000));
    let redis = store_on(&server).await.clock(clock.clone());
    let memory = || MemoryStore::new().clock(clock.clone());
    let mut both = Both {
        memory: memory(),
        redis,
        clock: clock.clone(),
    };
    let (mut random, mut seen) = (Random::new(7), BTreeMap::<_, u32>::new());
    for round in 0..from_env("TIDEGATE_LOCKOUTS", 32) {
        let remembers = MEMORIES[round % MEMORIES.len()];
        for (at, rule) in rules(algorithm, remembers).into_iter().enumerate() {
            // One that knows only the keys of this history sweeps none of them.
            both.memory = memory();
            let rule = Arc::new(rule.with_prefix(format!("{round}:{at}:")));
            for (what, times) in play(&both, &rule, remembers, &mut random).await {
                *seen.entry(what).or_default() += times;
            }
        }
    }
    let all = [
        "back",
        "first",
        "later",
        "locked out",
        "reset",
        "second",
        "slow",
        "slow behind a hold",
        "success",
        "third",
    ];
    assert!(seen.keys().eq(&all), "{seen:?}");
}

#[tokio::test]
async fn alike_by_a_log() {
    stores_and_oracle_alike(Algorithm::SlidingLog).await;
}

#[tokio::test]
async fn alike_by_gcra() {
    stores_and_oracle_alike(Algorithm::Gcra).await;
}

#[tokio::test]
async fn alike_by_a_fixed_window() {
    stores_and_oracle_alike(Algorithm::FixedWindow).await;
}

#[tokio::test]
async fn alike_by_a_sliding_window() {
    stores_and_oracle_alike(Algorithm::SlidingWindow).await;
}

/// It is a key of its own, in the slot of the count, with an expiry; of a value that nobody here
/// wrote nothing is known, and the next failures put theirs in its place.
#[tokio::test]
async fn its_key() {
    let (server, store) = started().await;
    let rule = kit::per_hour("single", 1_000).with_lockout(lockout());
    let take = take_of(&Arc::new(rule.expect("it makes sense")), "us");
    let fail = async |id: u64| {
        let receipt = ask(&store, &take).await.receipt().expect("it is admitted");
        let late = Duration::ZERO;
        let failed = Change::Failed { receipt, id, late };
        store.change(&take, &failed).await.expect("an answer")
    };
    fail(1).await;
    let names = kit::keys(&server, "*~until");
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    let is_right = name.starts_with('{') && name.ends_with("single:us}~until");
    assert!(is_right, "{name}");
    let left = server.life(name);
    assert!((55_000..=62_001).contains(&left), "{left}");
    fail(2).await;
    assert_eq!(fail(3).await, 1);
    let left = server.life(name);
    assert!((86_410_000..=86_423_000).contains(&left), "{left}");

    let future = unix_micros() + 10_000_000_000;
    for (at, foreign) in [
        String::new(),
        "x".to_owned(),
        "-1".to_owned(),
        "1 2 3".to_owned(),
        format!("9999999999999999999999 {future} 0 1"),
        format!("0 {future} 9999999999999999999999 0"),
        format!("0 {future} 0 0 x:y 1:2"),
        format!("0 {future} 0 -3"),
    ]
    .iter()
    .enumerate()
    {
        let set = cmd("SET")
            .arg(name)
            .arg(foreign)
            .exec(&mut server.connection());
        set.expect("set");
        let first = 10 * (at as u64 + 1);
        let begun = [
            fail(first).await,
            fail(first + 1).await,
            fail(first + 2).await,
        ];
        assert!(
            begun[..2] == [0, 0] && begun[2] >= 1,
            "{foreign:?}: {begun:?}"
        );
        assert!(ask(&store, &take).await.is_locked_out(), "{foreign:?}");
        assert!(server.life(name) > 0, "{foreign:?}");
        assert!(store.reset(&take).await.expect("an answer"), "{foreign:?}");
    }
    run(&server, &format!("DEL {name}"));
    run(&server, &format!("RPUSH {name} x"));
    for id in 100..103 {
        fail(id).await;
    }
    assert!(ask(&store, &take).await.is_locked_out());
}

/// A store of so few keys, and what a name under a rule has: one failure more.
struct Small {
    store: MemoryStore,
    clock: ManualClock,
    rule: Arc<Rule>,
    last_id: u64,
}

impl Small {
    fn of(rule: Rule, max_keys: usize) -> Self {
        let clock = clock_at(1_000_000_000);
        Self {
            store: MemoryStore::with_max_keys(max_keys).clock(clock.clone()),
            clock,
            rule: Arc::new(rule),
            last_id: 0,
        }
    }

    fn pass(&self, time: Duration) {
        self.clock.set(self.clock.now() + time.as_micros() as u64);
    }

    async fn is_locked_out(&self, name: &str) -> bool {
        let take = take_of(&self.rule, name).with_cost(0);
        self.store
            .take(&take)
            .await
            .expect("it is known")
            .is_locked_out()
    }

    /// Which hold a failure of this name has begun.
    async fn fail(&mut self, name: &str) -> Result<u64, StoreError> {
        self.last_id += 1;
        // At no cost it takes no room but that of the failure.
        let take = take_of(&self.rule, name).with_cost(0);
        let decision = self.store.take(&take).await?;
        let (receipt, id) = (decision.receipt().expect("it was allowed"), self.last_id);
        let late = Duration::ZERO;
        self.store
            .change(&take, &Change::Failed { receipt, id, late })
            .await
    }
}

/// However many names fail, a new one is no error, a key that is held stays held, and a further name
/// is locked out as ever.
#[tokio::test]
async fn a_flood_of_failures_closes_no_login_and_lifts_no_lock_out() {
    for rule in rules(Algorithm::Gcra, DAY) {
        let mut small = Small::of(rule, 100);
        for _ in 0..3 {
            small.fail("held").await.expect("there is room");
        }
        // Ten times as many as there is room for, and faster than they leave the time.
        for name in 0..1_000 {
            small.pass(Duration::from_millis(15));
            let failed = small.fail(&name.to_string()).await;
            assert_eq!(failed.expect("there is room"), 0, "{name}");
            if name == 500 {
                for _ in 0..2 {
                    small.fail("further").await.expect("there is room");
                }
                assert_eq!(small.fail("further").await.expect("there is room"), 1);
            }
            assert!(small.is_locked_out("held").await, "{name}");
        }
        assert!(small.is_locked_out("further").await);
    }
}

/// What is forgotten first: steps of holds that are over, then the failures that end soonest.
#[tokio::test]
async fn what_a_flood_of_failures_forgets() {
    let mut small = Small::of(rules(Algorithm::Gcra, DAY)[0].clone(), 16);
    for name in ["s1", "s2"] {
        for _ in 0..3 {
            small.fail(name).await.expect("there is room");
        }
    }
    small.pass(30 * SECOND);
    for at in 0..14 {
        small.pass(SECOND);
        for _ in 0..2 {
            small.fail(&format!("f{at}")).await.expect("there is room");
        }
    }
    // An eighth goes.
    small.fail("a").await.expect("there is room");
    small.fail("b").await.expect("there is room");
    assert_eq!(small.fail("f0").await.expect("it is known"), 1);
    assert_eq!(small.fail("f13").await.expect("it is known"), 1);
    small.pass(SECOND);
    small.fail("c").await.expect("there is room");
    small.fail("d").await.expect("there is room");
    // What is held stays, and f1 and f2 went.
    assert!(small.is_locked_out("f0").await);
    assert_eq!(small.fail("f3").await.expect("it is known"), 1);
    for name in ["f1", "f2"] {
        small.pass(SECOND);
        assert_eq!(small.fail(name).await.expect("there is room"), 0, "{name}");
    }
    small.pass(SECOND);
    for _ in 0..2 {
        small.fail("s1").await.expect("there is room");
    }
    assert_eq!(
        small.fail("s1").await.expect("there is room"),
        1,
        "a first step"
    );
}

/// A flood makes room ten times a second at most, and where all keys are held there is none.
#[tokio::test]
async fn a_flood_of_failures_looks_at_all_of_them_ten_times_a_second() {
    let mut small = Small::of(rules(Algorithm::Gcra, DAY)[0].clone(), 80);
    let mut refused = Vec::new();
    for name in 0..100 {
        if small.fail(&name.to_string()).await.is_err() {
            refused.push(name);
        }
    }
    assert_eq!(refused, Vec::from_iter(90..100));
    // A look is no guess.
    let look = take_of(&small.rule, "further").looking();
    small.store.take(&look).await.expect("it is answered");
    small.pass(Duration::from_millis(100));
    small.fail("further").await.expect("there is room again");

    let mut small = Small::of(rules(Algorithm::Gcra, DAY)[0].clone(), 8);
    for name in 0..8 {
        for _ in 0..3 {
            small.fail(&name.to_string()).await.expect("there is room");
        }
    }
    small.pass(SECOND);
    let error = small.fail("further").await.expect_err("all are held");
    assert_eq!(error.kind(), StoreErrorKind::Full);
    let condition = small.store.condition();
    let kinds = condition.warnings.iter().map(|it| it.kind);
    assert!(kinds.eq([tidegate::warning::WarningKind::MemoryNearlyFull]));
    small.pass(20 * SECOND);
    small.fail("further").await.expect("there is room again");
}
