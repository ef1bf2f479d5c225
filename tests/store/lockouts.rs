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
    /// The failures that count, in the order in which they were told.
    told: Vec<Told>,
    /// Those that count no more, and may be told again.
    over: Vec<Told>,
    /// What was admitted before it counts nothing.
    since: u64,
    until: u64,
    step: u64,
    /// From then on all of it is forgotten.
    ends: u64,
}

#[derive(Debug, Clone)]
struct Told {
    id: u64,
    /// When it was told.
    at: u64,
    /// The hold that it has begun, or 0.
    step: u64,
    /// It was admitted before a hold or a success.
    is_slow: bool,
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

    /// What is known of this failure.
    fn told(&self, now: u64, id: u64) -> Option<Told> {
        let known = self.at(now);
        let mut all = known.told.into_iter().chain(known.over);
        all.find(|it| it.id == id)
    }

    /// What the stores answer to a failure: which hold it has begun.
    fn fails(&mut self, now: u64, admitted: u64, id: u64, late: Duration) -> u64 {
        let mut known = self.at(now);
        if let Some(told) = self.told(now, id) {
            return if self.is_held(now) { told.step } else { 0 };
        }
        // What has taken longer than 10 s until it was told first counts in any case.
        let took = now.saturating_sub(admitted);
        let is_slow = admitted.min(now) < known.since;
        if is_slow && took <= 10_000_000 + late.as_micros() as u64 {
            return 0;
        }
        known.drop_failures(now);
        if known.told.len() + known.over.len() == 3 + 32 {
            let slow = known.over.iter().position(|it| it.is_slow);
            known.over.remove(slow.unwrap_or(0));
        }
        let at = now.max(known.since);
        let is_enough = known.told.len() == 2;
        if is_enough {
            known.step += 1;
            let hold = HOLDS[HOLDS.len().min(known.step as usize) - 1] * 1_000_000;
            (known.since, known.until) = (now + 1, known.until.max(now + hold));
        }
        let step = if is_enough { known.step } else { 0 };
        known.told.push(Told {
            id,
            at,
            step,
            is_slow,
        });
        if is_enough {
            known.over.append(&mut known.told);
        }
        self.keep(known, now);
        step
    }

    fn succeeds(&mut self, now: u64, admitted: u64) {
        let (mut known, admitted) = (self.at(now), admitted.min(now));
        if admitted >= known.since {
            (known.since, known.step) = (admitted + 1, 0);
            known.drop_failures(now);
            let before = known.told.extract_if(.., |it| it.at <= admitted);
            known.over.extend(before);
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

    /// Nothing is known of failures that were told too long ago.
    fn drop_failures(&mut self, now: u64) {
        for failures in [&mut self.told, &mut self.over] {
            failures.retain(|it| it.at.abs_diff(now) < Self::WITHIN);
        }
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
    // With the id of its failure, and when that was told first.
    let mut admitted: [Vec<(Receipt, u64, Option<u64>)>; 2] = Default::default();
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
                    admitted[key].push((receipt, last_id, None));
                }
            }
            8..14 if !admitted[key].is_empty() => {
                // Some are told late, and some again, on a way that is longer than the first one,
                // or shorter.
                let among = admitted[key].len() as u64;
                let at = among - 1 - random.below(among.min(8));
                let (receipt, id, first) = &mut admitted[key][at as usize];
                let (receipt, id) = (receipt.clone(), *id);
                let stamp = receipt.stamp();
                let ways = [0, 0, 1_000_000, 20_000_000][random.below(4) as usize];
                let ways = random.below(1 + ways);
                let late = match (&*first, random.is(2)) {
                    (None, _) => ways,
                    (Some(first), true) => now.saturating_sub(first + ways),
                    (Some(first), false) => now.saturating_sub(*first) + ways,
                };
                first.get_or_insert(now);
                let late = Duration::from_micros(late);
                let was_over = stamp < oracle.at(now).since;
                let known = oracle.told(now, id);
                let is_first = known.is_none();
                let would_count = now.saturating_sub(stamp) > 10_000_000 + late.as_micros() as u64;
                if known.is_some_and(|it| it.step == 0) && was_over && would_count {
                    note("again behind a hold");
                }
                let expected = oracle.fails(now, stamp, id, late);
                let is_counted = oracle.told(now, id).is_some();
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
                let (receipt, ..) = admitted[key][random.below(among) as usize].clone();
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
                if let Some((receipt, ..)) = admitted[key].last() {
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

kit::for_each_algorithm!(async stores_and_oracle_alike);

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
        "again behind a hold",
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

/// Each of the failures that made a hold is known until it may be told no more, and of slow ones
/// behind them the last ones.
#[tokio::test]
async fn how_many_failures_are_known() {
    let (server, clock) = (Redis::start(), clock_at(1_800_000_000_000_000));
    let both = Both {
        memory: MemoryStore::new().clock(clock.clone()),
        redis: store_on(&server).await.clock(clock.clone()),
        clock,
    };
    let rule = rules(Algorithm::Gcra, DAY).into_iter().next();
    let take = take_of(&Arc::new(rule.expect("the first one")), "us").with_cost(0);
    let mut receipts = Vec::new();
    for _ in 0..40 {
        receipts.extend(both.take(&take, true).await.receipt());
    }
    let tell = async |id: usize, late: Duration| {
        let (receipt, id) = (receipts[id - 1].clone(), id as u64);
        both.change(&take, &Change::Failed { receipt, id, late })
            .await
    };
    // Each third one begins a hold.
    let step = |id: usize| {
        if id.is_multiple_of(3) {
            id as u64 / 3
        } else {
            0
        }
    };
    for id in 1..=40 {
        if id == 4 {
            both.clock.set(both.clock.now() + 11_000_000);
        }
        assert_eq!(tell(id, Duration::ZERO).await, step(id), "{id}");
    }
    let names = kit::keys(&server, "*~until");
    let text: String = server.connection().get(&names[0]).expect("a text");
    assert_eq!(text.matches([':', ';']).count(), 35, "{text}");
    for id in (1..=3).chain(9..=40) {
        for late in [Duration::ZERO, MINUTE] {
            assert_eq!(tell(id, late).await, step(id), "{id}");
        }
    }
    assert_eq!(
        [tell(4, Duration::ZERO).await, tell(5, Duration::ZERO).await],
        [0, 14]
    );
    // Within a minute of the last ones.
    both.clock.set(both.clock.now() + 60_000_000);
    assert_eq!(tell(40, Duration::ZERO).await, 0);
    assert_eq!(both.change(&take, &Change::AskLockout).await, 14);
}

/// Keys under a rule that fail, in a store whose time is moved, or not.
struct Failing<S> {
    store: S,
    clock: ManualClock,
    rule: Arc<Rule>,
    last_id: u64,
}

impl Failing<MemoryStore> {
    /// In a store that has room for so many keys.
    fn in_room(max_keys: usize, rule: Rule) -> Self {
        let clock = clock_at(1_000_000_000);
        Self {
            store: MemoryStore::with_max_keys(max_keys).clock(clock.clone()),
            clock,
            rule: Arc::new(rule),
            last_id: 0,
        }
    }
}

impl<S: Store> Failing<S> {
    /// Which hold a failure of this key has begun, or 0.
    async fn fail(&mut self, key: &str) -> Result<u64, StoreError> {
        self.last_id += 1;
        // At no cost it takes no room but that of the failure.
        let take = take_of(&self.rule, key).with_cost(0);
        let decision = self.store.take(&take).await?;
        let (receipt, id) = (decision.receipt().expect("it was allowed"), self.last_id);
        let late = Duration::ZERO;
        let failed = Change::Failed { receipt, id, late };
        self.store.change(&take, &failed).await
    }

    /// `a` fails; with `a=1` that has begun its first hold, with `a=some` any one, and with
    /// `a=full` there is no room for it. With `a!` it is held, and with `+15` so many milliseconds
    /// pass.
    async fn play(&mut self, steps: &str) {
        for step in steps.split(' ') {
            if let Some(millis) = step.strip_prefix('+') {
                let millis: u64 = millis.parse().expect("a number");
                self.clock.set(self.clock.now() + 1_000 * millis);
                continue;
            }
            if let Some(key) = step.strip_suffix('!') {
                let take = take_of(&self.rule, key).with_cost(0);
                assert!(ask(&self.store, &take).await.is_locked_out(), "{step}");
                continue;
            }
            let (key, expected) = step.split_once('=').unwrap_or((step, ""));
            match (expected, self.fail(key).await) {
                ("full", Err(error)) => assert_eq!(error.kind(), StoreErrorKind::Full),
                ("", Ok(_)) | ("some", Ok(1..)) => {}
                (hold, Ok(begun)) if hold == begun.to_string() => {}
                (_, answer) => panic!("{step} of {steps}: {answer:?}"),
            }
        }
    }
}

/// It is a key of its own, in the slot of the count, with an expiry; of a value that nobody here
/// wrote nothing is known, and the next failures put theirs in its place.
#[tokio::test]
async fn its_key() {
    let (server, store) = started().await;
    let rule = kit::per_hour("single", 1_000).with_lockout(lockout());
    let mut failing = Failing {
        store: store.clone(),
        clock: ManualClock::default(),
        rule: Arc::new(rule.expect("it makes sense")),
        last_id: 0,
    };
    failing.play("us=0").await;
    let names = kit::keys(&server, "*~until");
    let [name] = &names[..] else {
        panic!("{names:?}")
    };
    let is_right = name.starts_with('{') && name.ends_with("single:us}~until");
    assert!(is_right, "{name}");
    let left = server.life(name);
    assert!((55_000..=62_001).contains(&left), "{left}");
    failing.play("us=0 us=1").await;
    let left = server.life(name);
    assert!((86_410_000..=86_423_000).contains(&left), "{left}");

    let future = unix_micros() + 10_000_000_000;
    for foreign in [
        String::new(),
        "x".to_owned(),
        "-1".to_owned(),
        "1 2 3".to_owned(),
        format!("9999999999999999999999 {future} 0 1"),
        format!("0 {future} 9999999999999999999999 0"),
        format!("0 {future} 0 0 x:y 1:2"),
        format!("0 {future} 0 -3"),
    ] {
        println!("{foreign:?}");
        let () = server.connection().set(name, &foreign).expect("set");
        failing.play("us=0 us=0 us=some us!").await;
        assert!(server.life(name) > 0, "{foreign:?}");
        let take = take_of(&failing.rule, "us");
        assert!(store.reset(&take).await.expect("an answer"), "{foreign:?}");
    }
    // Of an older version: two failures, and behind a hold the one that has begun it.
    let now = unix_micros();
    for (text, steps) in [
        (format!("0 {future} 0 0 {now}:1 {now}:2"), "us=1 us!"),
        (
            format!("{now} {future} {now} 1 {}:1", now - 1),
            "us=0 us=0 us=2 us!",
        ),
    ] {
        let () = server.connection().set(name, text).expect("set");
        failing.play(steps).await;
    }
    run(&server, &format!("DEL {name}"));
    run(&server, &format!("RPUSH {name} x"));
    failing.play("us us us us!").await;
}

/// However many names fail, a new one is no error, a key that is held stays held, and a further name
/// is locked out as ever.
#[tokio::test]
async fn a_flood_of_failures_closes_no_login_and_lifts_no_lock_out() {
    for rule in rules(Algorithm::Gcra, DAY) {
        let mut failing = Failing::in_room(100, rule);
        failing.play("held held held").await;
        // Ten times as many as there is room for, and faster than they leave the time.
        for name in 0..1_000 {
            failing.play(&format!("+15 {name}=0")).await;
            if name == 500 {
                failing.play("further further further=1").await;
            }
            failing.play("held!").await;
        }
        failing.play("further!").await;
    }
}

/// What is forgotten first: steps of holds that are over, then the failures that end soonest.
#[tokio::test]
async fn what_a_flood_of_failures_forgets() {
    let mut failing = Failing::in_room(16, rules(Algorithm::Gcra, DAY)[0].clone());
    failing.play("s1 s1 s1 s2 s2 s2 +30000").await;
    for at in 0..14 {
        failing.play(&format!("+1000 f{at} f{at}")).await;
    }
    // An eighth goes.
    failing.play("a b f0=1 f13=1 +1000 c d").await;
    // What is held stays, and f1 and f2 went; a hold of s1 is a first one again.
    failing.play("f0! f3=1 +1000 f1=0 +1000 f2=0").await;
    failing.play("+1000 s1 s1 s1=1").await;
}

/// A flood makes room ten times a second at most, and where all keys are held there is none.
#[tokio::test]
async fn a_flood_of_failures_looks_at_all_of_them_ten_times_a_second() {
    let mut failing = Failing::in_room(80, rules(Algorithm::Gcra, DAY)[0].clone());
    for name in 0..100 {
        let full = if name < 90 { "" } else { "=full" };
        failing.play(&format!("{name}{full}")).await;
    }
    // A look is no guess.
    let look = take_of(&failing.rule, "further").looking();
    failing.store.take(&look).await.expect("it is answered");
    failing.play("+100 further").await;

    let mut failing = Failing::in_room(8, rules(Algorithm::Gcra, DAY)[0].clone());
    for name in 0..8 {
        failing.play(&format!("{name} {name} {name}")).await;
    }
    failing.play("+1000 further=full").await;
    let condition = failing.store.condition();
    let kinds = condition.warnings.iter().map(|it| it.kind);
    assert!(kinds.eq([tidegate::warning::WarningKind::MemoryNearlyFull]));
    failing.play("+20000 further").await;
}
