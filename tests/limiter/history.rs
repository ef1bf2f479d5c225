//! The same random history in memory and on Redis: equal answers, call by call.
//!
//! Two kinds of histories. In the fine ones any microsecond can pass, and the clock can go back; no
//! key expires. In the coarse ones all times are multiples of 50 ms, so that the keys in Redis can
//! expire by the clock of the test: see [`Expiries`].
//!
//! `TIDEGATE_HISTORIES` is how many histories of each kind are played.

use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tidegate::limiter::{Permit, RateType};

use crate::*;

const CLIENTS: usize = 3;
const DEFAULT_HISTORIES: u32 = 300;

#[derive(Debug, Clone)]
enum Step {
    /// So many microseconds pass.
    Wait(u64),
    Back(u64),
    /// One of the clients calls.
    Call(usize, Call),
}

#[derive(Debug, Clone)]
enum Call {
    Acquire(u64),
    /// As a fair caller, for as long as waiting costs nothing.
    Reserve(u64),
    Release(u64),
    /// Gives back one of the grants so far.
    GiveBack(usize),
    Available,
    Rate,
    Exists,
    Remaining,
    TrySet(NewRate),
    Set(NewRate),
    Keep(NewRate),
    Expire(u64),
    Delete,
}

#[derive(Debug, Clone, Copy)]
struct NewRate {
    rate: Rate,
    is_shared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fine,
    Coarse,
}

/// The step of coarse times, in microseconds.
const COARSE: u64 = 50_000;

/// Most rates of a history have the same type.
fn new_rate(kind: Kind, rate_type: RateType) -> BoxedStrategy<NewRate> {
    let intervals = match kind {
        Kind::Fine => vec![1, 7, 50, 1_000],
        // A client's counts live for a second after they have expired. So other clients find them
        // after each of these intervals was replaced by another one.
        Kind::Coarse => vec![50, 100, 200, 400, 1_000],
    };
    // Two in three rates keep the limiter until it is deleted.
    let keep_alive = prop_oneof![2 => Just(None), 1 => (0..40_u64).prop_map(Some)].boxed();
    let types = [RateType::Overall, RateType::PerClient];
    let rate_type = prop_oneof![8 => Just(rate_type), 1 => prop::sample::select(types.to_vec())];
    let parts = (
        rate_type,
        1..12_u64,
        prop::sample::select(intervals),
        keep_alive,
        prop::bool::weighted(0.3),
    );
    let new_rate = move |(rate_type, permits, interval, keep_alive, is_shared)| {
        let rate = Rate::new(rate_type, permits, Duration::from_millis(interval)).expect("valid");
        let rate = match keep_alive {
            Some(longer) if kind == Kind::Coarse => {
                let keep_alive = interval + longer * COARSE / 1_000;
                let rate = rate.with_keep_alive(Duration::from_millis(keep_alive));
                rate.expect("valid")
            }
            _ => rate,
        };
        NewRate { rate, is_shared }
    };
    parts.prop_map(new_rate).boxed()
}

fn call(kind: Kind, rate_type: RateType) -> BoxedStrategy<Call> {
    let in_both = prop_oneof![
        16 => (1..12_u64).prop_map(Call::Acquire),
        6 => (1..6_u64).prop_map(Call::Release),
        6 => (1..6_u64).prop_map(Call::Reserve),
        4 => (0..8_usize).prop_map(Call::GiveBack),
        6 => Just(Call::Available),
        1 => Just(Call::Rate),
        1 => Just(Call::Exists),
        4 => new_rate(kind, rate_type).prop_map(Call::TrySet),
        1 => new_rate(kind, rate_type).prop_map(Call::Set),
        4 => new_rate(kind, rate_type).prop_map(Call::Keep),
        1 => Just(Call::Delete),
    ];
    let with_expiries = prop_oneof![
        3 => (1..12_u64).prop_map(|steps| Call::Expire(steps * COARSE)),
        2 => Just(Call::Remaining),
    ];
    match kind {
        Kind::Fine => in_both.boxed(),
        Kind::Coarse => prop_oneof![10 => in_both, 1 => with_expiries].boxed(),
    }
}

fn steps(kind: Kind, rate_type: RateType) -> BoxedStrategy<Vec<Step>> {
    let wait = match kind {
        Kind::Fine => prop_oneof![
            0..3_000_u64,
            Just(1_000),
            Just(999),
            Just(50_000),
            0..2_000_000_u64
        ]
        .boxed(),
        Kind::Coarse => prop_oneof![
            6 => (1..6_u64).prop_map(|steps| steps * COARSE),
            2 => (6..30_u64).prop_map(|steps| steps * COARSE),
            1 => (30..200_u64).prop_map(|steps| steps * COARSE),
        ]
        .boxed(),
    };
    let client = 0..CLIENTS;
    let calls = (client, call(kind, rate_type)).prop_map(|(client, call)| Step::Call(client, call));
    let waits = wait.clone().prop_map(Step::Wait);
    // A rate is forgotten, and set again while its grants may still count.
    let is_forgotten = (1..4_u64, 0..6_u64, new_rate(kind, rate_type));
    let is_forgotten = is_forgotten.prop_map(|(expires_after, later, rate)| {
        vec![
            Step::Call(0, Call::Expire(expires_after * COARSE)),
            Step::Wait((expires_after + later) * COARSE),
            Step::Call(0, Call::TrySet(rate)),
        ]
    });
    let steps = match kind {
        Kind::Fine => prop_oneof![20 => calls, 8 => waits, 1 => wait.prop_map(Step::Back)].boxed(),
        Kind::Coarse => prop_oneof![5 => calls, 2 => waits].boxed(),
    };
    let steps = steps.prop_map(|step| vec![step]);
    let steps = match kind {
        Kind::Fine => steps.boxed(),
        Kind::Coarse => prop_oneof![20 => steps, 1 => is_forgotten].boxed(),
    };
    let steps = prop::collection::vec(steps, 1..60);
    steps.prop_map(|steps| steps.concat()).boxed()
}

/// The same client in memory and on Redis.
struct Client {
    memory: RateLimiter,
    redis: RateLimiter,
    permits: Vec<(Permit, Permit)>,
}

/// Lets the keys of one limiter expire by the clock of the test. Before each call they are given
/// what is left of their time, and after it their times are read.
struct Expiries {
    connection: redis::Connection,
    keys: Vec<String>,
    /// By the clock of the test, for keys with an expiry.
    deadlines: HashMap<String, u64>,
}

impl Expiries {
    fn before_a_call(&mut self, now: u64) {
        if self.deadlines.is_empty() {
            return;
        }
        let mut pipeline = redis::pipe();
        for (key, deadline) in &self.deadlines {
            match deadline.saturating_sub(now) / 1_000 {
                0 => pipeline.del(key),
                millis => pipeline.pexpire(key, millis.try_into().expect("years")),
            };
        }
        pipeline.exec(&mut self.connection).expect("an answer");
    }

    fn after_a_call(&mut self, now: u64) {
        let mut pipeline = redis::pipe();
        for key in &self.keys {
            pipeline.pttl(key);
        }
        let lives: Vec<i64> = pipeline.query(&mut self.connection).expect("times");
        let deadlines = self.keys.iter().zip(lives).filter(|(_, life)| *life >= 0);
        let deadline = |life: i64| now + (life.unsigned_abs() * 1_000).next_multiple_of(COARSE);
        let deadlines = deadlines.map(|(key, life)| (key.clone(), deadline(life)));
        self.deadlines = deadlines.collect();
    }

    /// A caller that gives up leaves the queue in the background.
    async fn wait_for_empty_queues(&mut self) {
        let mut pipeline = redis::pipe();
        for key in self.keys.iter().filter(|key| key.contains(":waiting")) {
            pipeline.exists(key);
        }
        loop {
            let exist: Vec<bool> = pipeline.query(&mut self.connection).expect("an answer");
            if !exist.contains(&true) {
                return;
            }
            sleep(Duration::from_micros(100)).await;
        }
    }

    fn existing(&mut self) -> Vec<String> {
        let exists = |key: &&String| {
            let mut exists = redis::cmd("EXISTS");
            exists.arg(*key).query(&mut self.connection).expect("yes")
        };
        self.keys.iter().filter(exists).cloned().collect()
    }
}

struct Server {
    server: kit::Redis,
    clients: Vec<Redis>,
}

struct Both {
    kind: Kind,
    clock: ManualClock,
    clients: Vec<Client>,
    expiries: Expiries,
    /// Whether a call took so long that keys may have expired meanwhile.
    is_late: bool,
}

/// What took longer may have met with an expiry by the server's clock, or told a choice late.
const MAX_CALL: Duration = Duration::from_millis(40);
const MAX_FINE_HISTORY: Duration = Duration::from_millis(900);

impl Both {
    fn new(server: &Server, kind: Kind) -> Self {
        static HISTORIES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("h{}", HISTORIES.fetch_add(1, Ordering::Relaxed));
        let clock = ManualClock::default();
        clock.set(1_800_000_000_000_000);
        let memory = MemoryLimiters::with_clock(clock.clone());
        let client = |redis| {
            let redis = LimiterBackend::redis_with_clock(redis, clock.clone());
            Client {
                memory: RateLimiter::new(memory.another_client(), &*name),
                redis: RateLimiter::new(redis, &*name),
                permits: Vec::new(),
            }
        };
        let mut keys = vec![name.clone()];
        for key in [
            "value",
            "permits",
            "waiting",
            "waiting_clients",
            "forgotten",
        ] {
            keys.push(format!("{{{name}}}:{key}"));
        }
        for key in ["value", "permits", "waiting", "epoch"] {
            let ids = server.clients.iter().map(Redis::id);
            keys.extend(ids.map(|id| format!("{{{name}}}:{key}:{id}")));
        }
        Self {
            kind,
            clients: server.clients.iter().map(client).collect(),
            clock,
            expiries: Expiries {
                connection: server.server.connection(),
                keys,
                deadlines: HashMap::new(),
            },
            is_late: false,
        }
    }

    async fn play(&mut self, steps: &[Step]) -> Result<(), TestCaseError> {
        let began = Instant::now();
        // A value that is worked out anew after a change forgets what has left at another moment
        // than memory does, which only a clock that goes back can tell.
        let mut changed_at = None;
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Back(_) if changed_at.is_some() => {}
                Step::Wait(micros) => self.clock.set(self.clock.now() + micros),
                Step::Back(micros) => self.clock.set(self.clock.now() - micros),
                Step::Call(client, call) => {
                    if matches!(call, Call::Keep(_)) {
                        // Of two choices at one moment, the real microseconds until each was told
                        // would decide which is the later one.
                        if changed_at == Some(self.clock.now()) {
                            self.clock.set(self.clock.now() + COARSE);
                        }
                        changed_at = Some(self.clock.now());
                    }
                    let [memory, redis] = self.call(*client, call).await;
                    self.is_late |= self.kind == Kind::Fine && began.elapsed() > MAX_FINE_HISTORY;
                    prop_assert_eq!(redis, memory, "step {}: {} {:?}", at, client, call);
                }
            }
        }
        if self.kind == Kind::Coarse {
            self.comes_to_rest().await?;
        }
        Ok(())
    }

    /// Law 4: a limiter whose rate expires leaves nothing behind.
    async fn comes_to_rest(&mut self) -> Result<(), TestCaseError> {
        let [_memory, _redis] = self.call(0, &Call::Expire(COARSE)).await;
        self.clock.set(self.clock.now() + 3_600_000_000);
        self.expiries.before_a_call(self.clock.now());
        prop_assert_eq!(self.expiries.existing(), Vec::<String>::new());
        Ok(())
    }

    /// What memory and Redis answer.
    async fn call(&mut self, client: usize, call: &Call) -> [Result<u64, String>; 2] {
        let now = self.clock.now();
        let began = Instant::now();
        if self.kind == Kind::Coarse {
            self.expiries.before_a_call(now);
        }
        let client = &mut self.clients[client];
        let answers = match call {
            Call::Acquire(permits) => {
                let memory = client.memory.try_acquire_permit(*permits).await;
                let redis = client.redis.try_acquire_permit(*permits).await;
                let answers = [&memory, &redis].map(|answer| match answer {
                    Ok(Ok(_)) => Ok(0),
                    Ok(Err(wait)) => Ok(wait.as_micros() as u64),
                    Err(error) => Err(kind_of(error)),
                });
                if let (Ok(Ok(memory)), Ok(Ok(redis))) = (memory, redis) {
                    client.permits.push((memory, redis));
                }
                answers
            }
            Call::GiveBack(index) if *index < client.permits.len() => {
                let (memory, redis) = client.permits.swap_remove(*index);
                let answers = [memory.release().await, redis.release().await];
                answers.map(|answer| answer.map_err(|error| kind_of(&error)))
            }
            call => {
                let memory = answer(&client.memory, call).await;
                let redis = answer(&client.redis, call).await;
                [memory, redis].map(|answer| answer.map_err(|error| kind_of(&error)))
            }
        };
        if matches!(call, Call::Reserve(_)) {
            self.expiries.wait_for_empty_queues().await;
        }
        if self.kind == Kind::Coarse {
            self.expiries.after_a_call(now);
        }
        self.is_late |= began.elapsed() > MAX_CALL;
        answers
    }
}

fn kind_of(error: &LimiterError) -> String {
    format!("{:?}", error.kind())
}

async fn answer(limiter: &RateLimiter, call: &Call) -> Result<u64, LimiterError> {
    let by = |new: &NewRate| match new.is_shared {
        true => limiter.clone().shared_with_redisson(),
        false => limiter.clone(),
    };
    Ok(match call {
        Call::Acquire(_) | Call::GiveBack(_) => 0,
        Call::Reserve(permits) => {
            // Long enough to be asked with, too short for any wait.
            let none = Duration::from_nanos(1);
            u64::from(
                limiter
                    .clone()
                    .fair()
                    .try_acquire_for(*permits, none)
                    .await?,
            )
        }
        Call::Release(permits) => limiter.release(*permits).await?,
        Call::Available => limiter.available_permits().await?,
        Call::Rate => {
            let rate = limiter.stored_rate().await?;
            rate.map_or(0, |rate| {
                rate.permits() + 100 * rate.interval().as_millis() as u64
            })
        }
        Call::Exists => u64::from(limiter.exists().await?),
        Call::Remaining => {
            let remaining = limiter.remaining().await?;
            let micros = remaining.map(|remaining| remaining.as_micros() as u64);
            micros.map_or(u64::MAX, |micros| micros.next_multiple_of(COARSE))
        }
        Call::TrySet(new) => u64::from(by(new).try_set_rate(new.rate).await?),
        Call::Set(new) => by(new).set_rate(new.rate).await.map(|()| 0)?,
        Call::Keep(new) => u64::from(replace_rate(&by(new), new.rate).await?),
        Call::Expire(micros) => u64::from(limiter.expire(Duration::from_micros(*micros)).await?),
        Call::Delete => u64::from(limiter.delete().await?),
    })
}

/// What plays histories of one kind: steps behind a rate that is set first. A history that was late
/// is played again.
fn player(kind: Kind) -> impl Fn(NewRate, Vec<Step>) -> Result<(), TestCaseError> {
    let runtime = still_runtime();
    let server = kit::Redis::start();
    let clients = (0..CLIENTS).map(|_| runtime.block_on(crate::connect(&server)));
    let server = Server {
        clients: clients.collect(),
        server,
    };
    move |rate, mut steps| {
        steps.insert(0, Step::Call(0, Call::TrySet(rate)));
        loop {
            let mut both = Both::new(&server, kind);
            let played = runtime.block_on(both.play(&steps));
            if played.is_ok() || !both.is_late {
                return played;
            }
        }
    }
}

/// Plays random histories of one kind.
fn check(kind: Kind) {
    let play = player(kind);
    let histories = std::env::var("TIDEGATE_HISTORIES");
    let histories = histories.map_or(DEFAULT_HISTORIES, |number| {
        number.parse().expect("a number")
    });
    let config = kit::random::config(histories);
    let types = prop::sample::select(vec![RateType::Overall, RateType::PerClient]);
    let steps = types.prop_flat_map(move |of_most| (new_rate(kind, of_most), steps(kind, of_most)));
    let played = TestRunner::new(config).run(&steps, |(rate, steps)| play(rate, steps));
    if let Err(error) = played {
        panic!("{error}");
    }
}

#[test]
fn memory_and_redis_decide_alike() {
    check(Kind::Fine);
}

/// Law 2: a denial after the clock went back forgets no grant that has expired. When the clock goes
/// back once more, it counts again.
#[test]
fn a_denial_forgets_nothing() {
    let rate = Rate::overall(9, millis(1)).expect("valid");
    let rate = NewRate {
        rate,
        is_shared: false,
    };
    let call = |call| Step::Call(0, call);
    let steps = vec![
        call(Call::Acquire(2)),
        call(Call::Acquire(2)),
        Step::Back(51_000),
        call(Call::Reserve(4)),
        Step::Wait(50_000),
        // The first two count as granted now.
        call(Call::Acquire(6)),
        Step::Back(50_000),
        call(Call::Release(1)),
    ];
    let played = player(Kind::Fine)(rate, steps);
    played.expect("equal answers");
}

#[test]
fn memory_and_redis_forget_alike() {
    check(Kind::Coarse);
}
