//! The same calls at the same time, by the real Redisson on one server and by this crate on another
//! one: the answers are equal, and so is what stands in both.
//!
//! `MONITOR` shows the time that Redisson's scripts were told; ours are told the same.
//! The differences that `docs/evidence/redisson.md` lists are left out, and counted.

use std::collections::{BTreeMap, BTreeSet};

use kit::limiter_oracle::Monitor;
use kit::random::Random;
use kit::{Redis, handle};
use redis::Commands;
use tidegate::test_util::ManualClock;

use super::calls::Calls;
use super::fleet::Language::Java;
use super::fleet::Process;
use super::is_long;

/// Both servers are looked at one behind the other, on a busy machine.
const TOLERANCE: i64 = 400;

/// Keys that one of them has alone, or whose expiries differ; all of them have one.
const LISTED_KEYS: [(&str, &str); 4] = [
    (
        "redisson_lock_token:",
        "a fencing token for each lock, which expires",
    ),
    (
        "redisson_unlock_latch:",
        "how long it is known what became of a request",
    ),
    (
        "{each}:epoch:",
        "for which rate a client's permits were counted, which expires",
    ),
    (
        "{all}:forgotten",
        "how long grants count after their rate has expired, which expires",
    ),
];

/// What stands under a key: its type, its value, and for how many milliseconds; -1 without end.
type Kept = BTreeMap<String, (String, i64)>;

/// How often each listed difference was seen.
type Seen = BTreeMap<&'static str, u64>;

/// A word that is a time in milliseconds, about when it was sent.
fn told_time(word: &[u8], at: u64) -> Option<u64> {
    let millis: u64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    let micros = millis.checked_mul(1_000)?;
    (micros.abs_diff(at) < 60_000_000).then_some(micros)
}

/// Everything on a server, with one name for all clients, threads and identities.
fn kept(server: &Redis) -> Kept {
    let mut connection = server.connection();
    let mut kept = Kept::new();
    for key in server.names() {
        let kind = redis::cmd("TYPE").arg(&key).query(&mut connection);
        let kind: String = kind.expect("a type");
        let value = match &*kind {
            "none" => continue,
            "string" => connection.get(&key).expect("a string"),
            "hash" => {
                let fields: BTreeMap<String, String> = connection.hgetall(&key).expect("a hash");
                let fields = fields.iter().map(|(field, value)| {
                    let is_holder = field.contains('-');
                    format!("{}={value}", if is_holder { "<holder>" } else { field })
                });
                fields.collect::<Vec<_>>().join(" ")
            }
            "zset" => {
                let members: Vec<(Vec<u8>, u64)> =
                    connection.zrange_withscores(&key, 0, -1).expect("a set");
                let members = members.iter().map(|(member, score)| {
                    let (identity, permits) = member.split_at(member.len() - 4);
                    let permits = u32::from_le_bytes(permits.try_into().expect("four bytes"));
                    assert_eq!(usize::from(identity[0]) + 1, identity.len());
                    format!("{score}:{permits}")
                });
                members.collect::<Vec<_>>().join(" ")
            }
            other => panic!("{key}: {other}"),
        };
        let life = server.life(&key);
        // Behind one of the limiter's keys, or behind a request's latch.
        let ends = [
            ":value:",
            ":permits:",
            ":epoch:",
            "redisson_unlock_latch:{l}:",
        ];
        let mut ends = ends.iter();
        let end = ends.find_map(|end| key.find(end).map(|at| at + end.len()));
        let name = end.map_or(key.clone(), |end| format!("{}<client>", &key[..end]));
        kept.insert(name, (format!("{kind} {value}"), life));
    }
    kept
}

/// Leaves out what is listed as a difference, and notes which that was.
fn without_listed(kept: &mut Kept, is_ours: bool, now: u64, seen: &mut Seen) {
    let mut note = |what| *seen.entry(what).or_default() += 1;
    for (prefix, what) in LISTED_KEYS {
        let is_it = |key: &str, life: i64| key.starts_with(prefix) && life > 0;
        let before = kept.len();
        kept.retain(|key, (_, life)| !is_it(key, *life));
        if kept.len() < before && is_ours {
            note(what);
        }
    }
    let values = kept.values_mut().map(|(value, _)| value);
    for value in values.filter(|value| value.starts_with("hash ")) {
        let fields: Vec<_> = value.split(' ').collect();
        let is_listed = |field: &&str| field.starts_with("epoch=") || *field == "keepAliveTime=0";
        if fields.iter().any(is_listed) {
            let [ours, theirs] = ["a rate has an epoch", "keepAliveTime 0 stands for none"];
            note(if is_ours { ours } else { theirs });
        }
        let is_choice = |field: &&str| field.starts_with("chosenAt=");
        if is_ours && fields.iter().any(is_choice) {
            note("a rate says when it was chosen");
        }
        let others = fields.into_iter();
        let others = others.filter(|field| !is_listed(field) && !is_choice(field));
        let others: Vec<_> = others.collect();
        *value = others.join(" ");
    }
    for name in ["all", "each"] {
        if leave(kept, name, now) && is_ours {
            note("what has left is cleared with the next grant, not by a question or a refusal");
        }
    }
}

/// Takes out of a limiter what has left. Whether anything had.
fn leave(kept: &mut Kept, name: &str, now: u64) -> bool {
    let Some((config, _)) = kept.get(name) else {
        return false;
    };
    let number = |field: &str| {
        let mut fields = config.split(' ');
        let value = fields.find_map(|it| it.strip_prefix(field)?.strip_prefix('='));
        value.expect("a rate").parse::<u64>().expect("a number")
    };
    let (rate, interval) = (number("rate"), number("interval"));
    let end = if name == "each" { ":<client>" } else { "" };
    let [value, permits] = ["value", "permits"].map(|half| format!("{{{name}}}:{half}{end}"));
    let Some((members, _)) = kept.get_mut(&permits) else {
        // All that there is: as good as nothing.
        let all = format!("string {rate}");
        let is_all = kept.get(&value).is_some_and(|(left, _)| *left == all);
        return is_all && kept.remove(&value).is_some();
    };
    let (mut gone, mut stay) = (0, vec!["zset".to_owned()]);
    for member in members.split(' ').skip(1) {
        let (score, count) = member.split_once(':').expect("a score");
        match score.parse::<u64>().expect("a score") + interval <= now / 1_000 {
            true => gone += count.parse::<u64>().expect("permits"),
            false => stay.push(member.to_owned()),
        }
    }
    *members = stay.join(" ");
    if stay.len() == 1 {
        kept.remove(&permits);
    }
    let (left, _) = kept.get_mut(&value).expect("both halves");
    let text = left.strip_prefix("string ").expect("a number");
    let now_left = (text.parse::<u64>().expect("a number") + gone).min(rate);
    *left = format!("string {now_left}");
    if now_left == rate {
        kept.remove(&value);
    }
    gone > 0
}

/// How two servers differ.
fn differences(theirs: &Kept, ours: &Kept, seen: &mut Seen) -> Vec<String> {
    let keys: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        let (a, b) = (theirs.get(key), ours.get(key));
        let lives = a.zip(b).map(|((_, a), (_, b))| (*a, *b));
        let is_alike = |(a, b): (i64, i64)| (a == -1) == (b == -1) && (a - b).abs() <= TOLERANCE;
        let lives_longer = |(a, b): (i64, i64)| b > a && (a > 0 || key.ends_with(":<client>"));
        let is_alike = lives.is_some_and(is_alike);
        let lives_longer = lives.is_some_and(lives_longer);
        if lives_longer && !is_alike {
            let what = "what is counted expires later, a client's own keys at all";
            *seen.entry(what).or_default() += 1;
        }
        if a.map(|a| &a.0) != b.map(|b| &b.0) || !(is_alike || lives_longer) {
            found.push(format!("{key}: {a:?}, ours {b:?}"));
        }
    }
    found
}

/// Calls in an order that is chosen at random, from those that both know.
fn calls(random: &mut Random) -> Vec<(&'static str, &'static str, Vec<u64>)> {
    let mut calls = Vec::new();
    for _ in 0..if is_long() { 2_000 } else { 150 } {
        let (name, kind) = [("all", 0), ("each", 1)][random.below(2) as usize];
        let rate = vec![kind, 3 + random.below(10), 60 + random.below(100)];
        calls.push(match random.below(16) {
            0 => ("trySetRate", name, rate),
            1 => ("setRate", name, rate),
            2 if random.below(4) == 0 => ("delete", name, vec![]),
            3 | 4 => ("available", name, vec![]),
            _ => ("tryAcquire", name, vec![1 + random.below(3)]),
        });
    }
    calls
}

/// Calls of a lock, one behind the other; the second lease of two is the longer one.
fn calls_of_a_lock() -> Vec<(&'static str, &'static str, Vec<u64>)> {
    let calls = "lock lock count unlock count unlock isLocked lockFor:20000 lockFor:30000 isLocked \
        unlock unlock unlock tryLock unlock tryLockFor:100 unlock tryLockForLease:100:5000 \
        forceUnlock forceUnlock unlock";
    let call = |text: &'static str| {
        let (call, numbers) = text.split_once(':').unwrap_or((text, ""));
        let numbers = numbers.split_terminator(':');
        let numbers = numbers.map(|it| it.parse().expect("a number"));
        (call, "l", numbers.collect())
    };
    calls.split_whitespace().map(call).collect()
}

/// Two servers, one for each language, and what is seen of the listed differences.
struct Pair {
    theirs: Redis,
    ours: Redis,
    redisson: Process,
    calls: Calls,
    clock: ManualClock,
    seen: Seen,
}

impl Pair {
    async fn start() -> Self {
        let (theirs, ours) = (Redis::start(), Redis::start());
        let redisson = Process::start(Java, "serve", &theirs.url, "");
        let redis = handle(&ours.url).await;
        let clock = ManualClock::default();
        Self {
            theirs,
            ours,
            redisson,
            calls: Calls::with_clock(&redis, clock.clone()),
            clock,
            seen: Seen::new(),
        }
    }

    /// Makes a call of Redisson: its answer, and the time by which it was decided, in microseconds.
    fn redisson(&mut self, call: &str, name: &str, numbers: &[u64]) -> (String, u64) {
        let (url, mut time) = (&self.theirs.url, None);
        let monitor = Monitor::start(url);
        let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
        let line = format!("1 {call} {name} {}", numbers.join(" "));
        self.redisson.tell(line.trim_end());
        let line = self.redisson.line(|line| line.starts_with("1\t"));
        let (_, answer) = line.rsplit_once('\t').expect("an answer");
        monitor.replay(url, |at, in_script, words| {
            // A script that the server does not know yet is sent twice: it runs the second time.
            if !in_script && words.iter().any(|word| word == name.as_bytes()) {
                let told = words.iter().rev().find_map(|word| told_time(word, at));
                time = Some(told.unwrap_or(at));
            }
        });
        (answer.to_owned(), time.expect("it was sent"))
    }

    /// Makes a call on both, and compares their answers: the time by which it was decided.
    async fn call(&mut self, call: &str, name: &str, numbers: &[u64]) -> u64 {
        let (answer, at) = self.redisson(call, name, numbers);
        self.clock.set(at);
        let ours = self.calls.call(call, name, numbers).await;
        let ours = ours.unwrap_or_else(|error| panic!("{call}: {error}"));
        assert_eq!(ours, answer, "{call} {name} {numbers:?}");
        at
    }

    /// The same with what stands on both servers then.
    async fn compare(&mut self, call: &str, name: &str, numbers: &[u64]) {
        let at = self.call(call, name, numbers).await;
        let mut kept_of = |server, is_ours| {
            let mut kept = kept(server);
            without_listed(&mut kept, is_ours, at, &mut self.seen);
            kept
        };
        let (theirs, ours) = (kept_of(&self.theirs, false), kept_of(&self.ours, true));
        let found = differences(&theirs, &ours, &mut self.seen);
        let what = format!("after {call} {name} {numbers:?} at {at}");
        assert!(found.is_empty(), "{what}: {found:#?}");
    }
}

/// Except for what is listed: calls of a lock, and calls of limiters at random.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/interop.sh builds the Java half"]
async fn the_same_calls_leave_the_same() {
    println!();
    let mut pair = Pair::start().await;
    // What the driver has done when it started.
    kit::run(&pair.theirs, "FLUSHALL");
    let mut random = Random::new(7);
    let calls = calls_of_a_lock().into_iter().chain(calls(&mut random));
    let calls: Vec<_> = calls.collect();
    for (call, name, numbers) in &calls {
        pair.compare(call, name, numbers).await;
    }
    // A limiter that is forgotten: what is counted may live on.
    pair.call("delete", "all", &[]).await;
    pair.compare("trySetRate", "all", &[0, 10, 60_000]).await;
    pair.compare("tryAcquire", "all", &[7]).await;
    pair.compare("expire", "all", &[30_000]).await;
    // A release gives back the grants, too, which Java's leaves in the set.
    pair.call("release", "all", &[3]).await;
    let values = [&pair.theirs, &pair.ours].map(|server| server.run::<u64>("GET {all}:value"));
    assert_eq!(values, [6, 6]);
    println!("{} calls, alike but for", calls.len() + 4);
    for (what, count) in &pair.seen {
        println!("{count:>6} times: {what}");
    }
}
