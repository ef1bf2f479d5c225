//! Calls at random from both languages, some of them by processes that are killed.

use std::collections::{BTreeMap, HashMap};

use kit::limiter_oracle::Monitor;
use kit::lock_oracle::overlaps;
use kit::random::Random;
use kit::{Redis, handle, millis};
use tidegate::limiter::{Rate, RateLimiter, RateType};

use super::calls::{Calls, logged};
use super::fleet::Language::{Java, Rust};
use super::fleet::{Language, Process};
use super::is_long;
use super::locks;
use super::worker::pause;

const THREADS: u64 = 4;
/// Longer than any pause of a busy machine, and what those who are killed cost the others.
const LEASE: u64 = 10_000;
/// Limiters whose rates stay as they are: permits and milliseconds.
const RATES: [(&str, RateType, u64, u64); 3] = [
    ("all", RateType::Overall, 100, 50),
    ("{all}1", RateType::Overall, 20, 20),
    ("each", RateType::PerClient, 30, 50),
];

/// One task of a Rust process, which does what a thread of the Java driver does.
pub(crate) struct Caller {
    calls: Calls,
    random: Random,
    task: u64,
    left: u64,
}

impl Caller {
    pub(crate) fn new(redis: &tidegate::Redis, seed: u64, task: u64, left: u64) -> Self {
        Self {
            calls: Calls::new(redis),
            random: Random::new(seed * 1_000 + task),
            task,
            left,
        }
    }

    pub(crate) async fn run(mut self) {
        while self.left > 0 {
            let other = self.random.below(3) as usize;
            let braced = self.random.below(2) as usize;
            match self.random.below(8) {
                0..=2 => self.lock(["plain0", "plain1"][other % 2]).await,
                3 => self.lock("{plain}2").await,
                4 => self.wild_lock(["wild", "{wild}1"][braced]).await,
                5 | 6 => self.limiter(RATES[other].0).await,
                _ => self.wild_limiter(["free", "{free}1"][braced]).await,
            }
        }
    }

    /// A lock that nobody loses: at times taken again by its holder.
    async fn lock(&mut self, name: &str) {
        let wait = 1 + self.random.below(100);
        let taken = match self.random.below(5) {
            0 => self.call("lock", name, &[]).await,
            1 => self.call("lockFor", name, &[LEASE]).await,
            2 => self.call("tryLock", name, &[]).await,
            3 => self.call("tryLockFor", name, &[wait]).await,
            _ => self.call("tryLockForLease", name, &[wait, LEASE]).await,
        };
        if taken == "no" {
            return;
        }
        let mut depth = 1;
        while self.random.below(4) == 0 && depth < 3 {
            self.call("lock", name, &[]).await;
            depth += 1;
        }
        self.call("count", name, &[]).await;
        pause(self.random.below(1_000)).await;
        for _ in 0..depth {
            self.call("unlock", name, &[]).await;
        }
    }

    /// One that is lost at times: its lease ends, or somebody takes it away.
    async fn wild_lock(&mut self, name: &str) {
        match self.random.below(4) {
            0 => drop(self.call("forceUnlock", name, &[]).await),
            1 => drop(self.call("isLocked", name, &[]).await),
            _ => {
                let lease = 10 + self.random.below(30);
                if self.call("tryLockForLease", name, &[50, lease]).await != "no" {
                    pause(self.random.below(40_000)).await;
                    self.call("unlock", name, &[]).await;
                }
            }
        }
    }

    async fn limiter(&mut self, name: &str) {
        let (permits, wait) = (1 + self.random.below(3), self.random.below(60));
        match self.random.below(6) {
            0 => self.call("available", name, &[]).await,
            1 => self.call("tryAcquireFor", name, &[permits, wait]).await,
            2 => self.call("acquire", name, &[permits]).await,
            _ => self.call("tryAcquire", name, &[permits]).await,
        };
    }

    /// One whose rate comes and goes.
    async fn wild_limiter(&mut self, name: &str) {
        let random = &mut self.random;
        let rate = [
            random.below(2),
            3 + random.below(20),
            20 + random.below(100),
        ];
        let (permits, wait) = (1 + self.random.below(3), self.random.below(60));
        match self.random.below(12) {
            0 | 1 => self.call("trySetRate", name, &rate).await,
            2 => self.call("setRate", name, &rate).await,
            3 => self.call("updateRate", name, &rate).await,
            4 => self.call("delete", name, &[]).await,
            5 => self.call("expire", name, &[1 + wait]).await,
            6 => self.call("release", name, &[permits]).await,
            7 => self.call("available", name, &[]).await,
            8 => self.call("tryAcquireFor", name, &[permits, wait]).await,
            _ => self.call("tryAcquire", name, &[permits]).await,
        };
    }

    async fn call(&mut self, call: &str, name: &str, numbers: &[u64]) -> String {
        self.left = self.left.saturating_sub(1);
        let line = logged(&mut self.calls, call, name, numbers).await;
        println!("{}\t{line}", self.task);
        let (_, result) = line.rsplit_once('\t').expect("a result");
        result.to_owned()
    }
}

/// A line of the log of a process.
#[derive(Debug)]
struct Call {
    thread: String,
    from: u64,
    until: u64,
    call: String,
    name: String,
    result: String,
}

impl Call {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split('\t').collect();
        let [thread, from, until, call, name, _, result] = words[..] else {
            return None;
        };
        Some(Self {
            thread: thread.to_owned(),
            from: from.parse().expect("a time"),
            until: until.parse().expect("a time"),
            call: call.to_owned(),
            name: name.to_owned(),
            result: result.to_owned(),
        })
    }

    fn is_of_plain_lock(&self) -> bool {
        self.name.contains("plain")
    }

    /// Why this answer is none that is possible.
    fn violation(&self) -> Option<String> {
        let is_plain = self.is_of_plain_lock() || RATES.iter().any(|rate| rate.0 == self.name);
        let is_lost = is_plain && ["not held", "no rate"].contains(&&*self.result);
        let is_violation = is_lost || self.result.starts_with("error");
        is_violation.then(|| format!("{self:?}"))
    }

    fn takes(&self) -> bool {
        let names = [
            "lock",
            "lockFor",
            "tryLock",
            "tryLockFor",
            "tryLockForLease",
        ];
        names.contains(&&*self.call) && self.result != "no"
    }
}

/// From the log of one process: what each lock was held for, and counters that do not equal the
/// holds.
fn holds(log: &[Call], violations: &mut Vec<String>) -> Vec<(String, u64, u64)> {
    let mut open: HashMap<(&str, &str), (u64, u64)> = HashMap::new();
    let mut holds = Vec::new();
    for call in log.iter().filter(|call| call.is_of_plain_lock()) {
        let (depth, since) = open.entry((&call.thread, &call.name)).or_default();
        if call.takes() {
            *depth += 1;
            *since = if *depth == 1 { call.until } else { *since };
        } else if call.call == "unlock" {
            *depth = depth.saturating_sub(1);
            if *depth == 0 {
                holds.push((call.name.clone(), *since, call.from));
            }
        } else if call.call == "count" && call.result != depth.to_string() {
            violations.push(format!("{depth} holds, {call:?}"));
        }
    }
    holds
}

/// Keys without an expiry that have no business to stay: all but a rate, and what Java clients
/// count.
fn left_without_expiry(server: &Redis, ours: &[String]) -> Vec<String> {
    let stays = |key: &String| {
        let limiter = ["all", "{all}1", "each", "free", "{free}1"];
        let is_of = |name: &&str| {
            let braced = match name.contains('{') {
                true => (*name).to_owned(),
                false => format!("{{{name}}}"),
            };
            let counted = [":value", ":permits"].map(|end| format!("{braced}{end}"));
            *key == *name || counted.iter().any(|counted| key.starts_with(counted))
        };
        limiter.iter().any(is_of) && !ours.iter().any(|client| key.ends_with(client))
    };
    let mut left = server.names();
    left.retain(|key| !stays(key) && server.life(key) == -1);
    left
}

/// No error, no lock with two holders, no counter that is not its holds, nothing that stays.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/interop.sh builds the Java half"]
async fn calls_at_random() {
    println!();
    let operations = if is_long() { 500_000 } else { 20_000 };
    let server = Redis::start();
    let redis = handle(&server.url).await;
    for (name, kind, permits, every) in RATES {
        let limiter = RateLimiter::new(&redis, name).shared_with_redisson();
        let set = limiter.try_set_rate(Rate::new(kind, permits, millis(every)).expect("valid"));
        assert!(set.await.expect("an answer"));
    }
    let monitor = Monitor::start(&server.url);
    let url = server.url.clone();
    let play = move || {
        let each = operations / (4 * THREADS);
        let start = |seed: u64, language| {
            let words = format!("{seed} {THREADS} {each}");
            Process::spawn(language, "random", &url, &words)
        };
        let start_all = |first, languages: &[Language]| -> Vec<_> {
            let seeds = (first..).zip(languages);
            let started = seeds.map(|(seed, language)| start(seed, *language));
            started.collect()
        };
        let mut fleet = start_all(1, &[Java, Rust, Java, Rust]);
        let mut killed = start_all(11, &[Java, Rust]);
        fleet.iter_mut().chain(&mut killed).for_each(Process::ready);
        let all = fleet.iter_mut().chain(&mut killed);
        all.for_each(|process| process.tell("go"));
        std::thread::sleep(millis(2_000));
        killed.iter_mut().for_each(Process::kill);
        let logs = fleet.into_iter().map(|it| (it.who, it.rest()));
        logs.collect::<Vec<_>>()
    };
    let logs = tokio::task::spawn_blocking(play).await.expect("no panic");

    let (mut violations, mut held, mut calls) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (language, lines) in &logs {
        let log: Vec<_> = lines.iter().filter_map(|line| Call::parse(line)).collect();
        violations.extend(log.iter().filter_map(Call::violation));
        held.extend(holds(&log, &mut violations));
        for call in log {
            let is_number = call.result.parse::<u64>().is_ok();
            let result = if is_number {
                "a number".into()
            } else {
                call.result
            };
            let of = calls.entry((call.call, result));
            let counts: &mut [u64; 2] = of.or_default();
            counts[usize::from(*language == Rust)] += 1;
        }
    }
    violations.extend(overlaps(&mut held));

    println!("call             result             Java     Rust");
    for ((call, result), [java, rust]) in &calls {
        println!("{call:<16} {result:<13} {java:>9} {rust:>8}");
    }
    let made: u64 = calls.values().flatten().sum();
    // All leases of those who were killed are over by then.
    tokio::time::sleep(millis(LEASE)).await;
    let seen = locks::seen(monitor, &server.url);
    violations.extend(seen.violations);
    let left = left_without_expiry(&server, &seen.clients);
    violations.extend(left.iter().map(|key| format!("stays: {key}")));
    let (holds, broken) = (seen.holds, violations.len());
    println!("{made} calls, {holds} holds as MONITOR shows them, {broken} violations");
    assert!(made >= operations, "{made}");
    let first: Vec<_> = violations.iter().take(20).collect();
    assert!(first.is_empty(), "{first:#?}");
}
