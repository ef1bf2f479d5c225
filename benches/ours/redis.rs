//! What a take costs inside Redis, in microseconds of the server's time and in bytes: beside a script
//! that does only what the best-known sorted-set limiter does, and one that does what Redisson's
//! limiter does. The bench starts a server of its own.

#[path = "support/recorder.rs"]
mod recorder;
mod support;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kit::Redis;
use recorder::{Recorder, ScriptCall};
use redis::{Cmd, Connection, InfoDict, Value, cmd};
use support::{Table, median};
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, Key, Quota, Rule, Take};

/// Takes between two looks at the server's statistics.
const CALLS: usize = 20_000;
/// Commands in one pipeline.
const AT_ONCE: usize = 500;
const ROUNDS: usize = 9;
const MAX: u64 = 1_000_000_000;
const WINDOW_MS: u64 = 10_000;

/// One question, for every contender alike.
struct Ask {
    key: String,
    /// Set: the time in ms. Unset: now.
    at: Option<u64>,
    max: u64,
    number: usize,
}

fn ask(key: impl Into<String>, at: Option<u64>, max: u64, number: usize) -> Ask {
    let key = key.into();
    Ask {
        key,
        at,
        max,
        number,
    }
}

/// Who answers questions inside Redis.
enum Contender {
    /// Ours, as the store sends it.
    Ours(Algorithm),
    /// A script of another design: its hash, the keys and the arguments that it wants.
    Other(String, Arguments),
}

type Arguments = fn(&Ask) -> (Vec<String>, Vec<Vec<u8>>);

struct Bench {
    recorder: Recorder,
    connection: Connection,
}

impl Bench {
    fn load(&mut self, source: &str) -> String {
        let sha = cmd("SCRIPT")
            .arg("LOAD")
            .arg(source)
            .query(&mut self.connection);
        sha.expect("a valid script")
    }

    /// Microseconds of server time for each call of a run.
    fn run(&mut self, contender: &Contender, asks: impl Iterator<Item = Ask>) -> f64 {
        let asks: Vec<_> = asks.collect();
        let commands = match contender {
            Contender::Ours(algorithm) => self.commands(*algorithm, &asks),
            Contender::Other(sha, arguments) => {
                asks.iter().map(|ask| call(sha, *arguments, ask)).collect()
            }
        };
        self.measure(&commands)
    }

    /// What the store sends for these takes, each in a call of its own.
    fn commands(&mut self, algorithm: Algorithm, asks: &[Ask]) -> Vec<Cmd> {
        let call = self.record(algorithm, &asks[0], 1, 1);
        let again = |ask: &Ask| call.again(&[name(&ask.key)], ask.at.map(|millis| millis * 1_000));
        asks.iter().map(again).collect()
    }

    /// The store's call for so many keys and so many takes of each, at a time as this ask has it.
    fn record(&mut self, algorithm: Algorithm, ask: &Ask, keys: usize, takes: usize) -> ScriptCall {
        let quota = Quota::new(Duration::from_millis(WINDOW_MS), ask.max).expect("valid");
        let rule = Rule::new("p", [quota])
            .expect("valid")
            .with_algorithm(algorithm);
        let rule = Arc::new(rule);
        let key = |key: usize| Key::from(format!("recorded{key}").as_str());
        let take = |n| Take::new(Arc::clone(&rule), key(n));
        let takes: Vec<_> = (0..keys).flat_map(|key| vec![take(key); takes]).collect();
        let mut store = self.recorder.store.clone();
        if let Some(millis) = ask.at {
            let clock = ManualClock::default();
            clock.set(millis * 1_000);
            store = store.clock(clock);
        }
        let call = self.recorder.record(&store, &takes);
        // Only what is sent again may be left on the server.
        let delete = cmd("DEL").arg(call.keys()).exec(&mut self.connection);
        delete.expect("deletes");
        call
    }

    fn send(&mut self, commands: &[Cmd]) {
        for commands in commands.chunks(AT_ONCE) {
            let mut pipeline = redis::pipe();
            for command in commands {
                pipeline.add_command(command.clone());
            }
            let replies: Vec<Value> = pipeline.query(&mut self.connection).expect("runs");
            assert!(replies.iter().all(is_decision), "late, or an error");
        }
    }

    fn measure(&mut self, commands: &[Cmd]) -> f64 {
        let reset = cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection);
        reset.expect("resets");
        self.send(commands);
        self.micros_per_call()
    }

    fn micros_per_call(&mut self) -> f64 {
        let info: InfoDict = cmd("INFO")
            .arg("commandstats")
            .query(&mut self.connection)
            .expect("informs");
        let stats: String = info.get("cmdstat_evalsha").expect("was called");
        let field = |name: &str| {
            let value = stats.split(',').find_map(|pair| pair.strip_prefix(name));
            let value = value.expect("a known field");
            value.parse::<f64>().expect("a number")
        };
        field("usec=") / field("calls=")
    }

    /// An empty server, but for the rates that Redisson's limiter keeps.
    fn empty(&mut self, max: u64) {
        let all = redis::pipe()
            .cmd("FLUSHALL")
            .cmd("HSET")
            .arg("rates")
            .arg(&["rate", &max.to_string(), "interval", "10000", "type", "0"])
            .arg(&["countsExpire", &format!("{max} 10000 0")])
            .exec(&mut self.connection);
        all.expect("flushes");
    }

    fn round(&mut self, contender: &Contender, traffic: &Traffic) -> f64 {
        self.empty((traffic.ask)(0).max);
        if traffic.before > 0 {
            self.run(contender, (0..traffic.before).map(traffic.ask));
        }
        let all = traffic.before..traffic.before + traffic.takes;
        let parts: Vec<f64> = all
            .clone()
            .step_by(CALLS)
            .map(|from| {
                let asks = from..all.end.min(from + CALLS);
                self.run(contender, asks.map(traffic.ask))
            })
            .collect();
        parts.iter().sum::<f64>() / parts.len() as f64
    }

    /// Bytes of a key after so many takes, evenly over one window.
    fn bytes(&mut self, contender: &Contender, takes: usize) -> u64 {
        self.empty(MAX);
        let spread = |n: usize| Some(1_800_000_000_000 + (WINDOW_MS * n as u64) / takes as u64);
        for from in (0..takes).step_by(CALLS) {
            let asks = from..takes.min(from + CALLS);
            self.run(contender, asks.map(|n| ask("k", spread(n), MAX, n)));
        }
        let keys: Vec<String> = redis::Commands::keys(&mut self.connection, "*").expect("keys");
        let keys = keys.iter().filter(|key| *key != "rates");
        let usage = |key: &String| -> u64 {
            let usage = cmd("MEMORY")
                .arg("USAGE")
                .arg(key)
                .arg("SAMPLES")
                .arg(0)
                .query(&mut self.connection);
            usage.expect("the key exists")
        };
        keys.map(usage).sum()
    }

    /// Server time of a call of the store with these keys and takes.
    fn call(&mut self, algorithm: Algorithm, shape: &Shape) -> f64 {
        self.empty(shape.max);
        let ask = ask("", None, shape.max, 0);
        let call = self.record(algorithm, &ask, shape.keys, shape.takes);
        let commands: Vec<_> = (0..shape.calls())
            .map(|n| {
                let keys = (0..shape.keys).map(|key| name(&shape.key(n, key)));
                call.again(&keys.collect::<Vec<_>>(), None)
            })
            .collect();
        self.send(&commands[..shape.before]);
        self.measure(&commands[shape.before..])
    }

    /// Server time of another contender's call for one of these takes.
    fn single_call(&mut self, contender: &Contender, shape: &Shape) -> f64 {
        self.empty(shape.max);
        let asks = |from: usize, to: usize| {
            let keys = move |n| (0..shape.keys).map(move |key| shape.key(n, key));
            let asks = (from..to).flat_map(keys);
            let takes = asks.flat_map(|key| std::iter::repeat_n(key, shape.takes));
            let takes = takes.enumerate();
            takes.map(move |(n, key)| ask(key, None, shape.max, from * shape.size() + n))
        };
        if shape.before > 0 {
            self.run(contender, asks(0, shape.before));
        }
        self.run(contender, asks(shape.before, shape.calls()))
    }
}

/// Whether the script came to a decision about its first take: see lua/formats.md. The other
/// contenders answer with numbers.
fn is_decision(reply: &Value) -> bool {
    match reply {
        Value::BulkString(bytes) => match bytes.get(8) {
            Some(0) => matches!(bytes.get(23), Some(0 | 1 | 247..)),
            mark => mark.is_some(),
        },
        // The limiter's, behind the number of its call.
        Value::Array(parts) => {
            !matches!(parts.get(1), Some(Value::Int(..0) | Value::ServerError(_)))
        }
        _ => true,
    }
}

/// What the store calls the count of a key.
fn name(key: &str) -> String {
    format!("CurrentLimiter:p:{key}")
}

fn call(sha: &str, arguments: Arguments, ask: &Ask) -> Cmd {
    let (keys, arguments) = arguments(ask);
    let mut command = cmd("EVALSHA");
    command.arg(sha).arg(keys.len()).arg(keys).arg(arguments);
    command
}

fn first_design(ask: &Ask) -> (Vec<String>, Vec<Vec<u8>>) {
    let now = ask.at.unwrap_or_else(now_ms);
    let member = format!("192.168.10.21:{now}:0.{:010}", ask.number);
    let numbers = [now, WINDOW_MS, ask.max, now - WINDOW_MS];
    let numbers = numbers.iter().map(u64::to_string).chain([member]);
    (
        vec![name(&ask.key)],
        numbers.map(String::into_bytes).collect(),
    )
}

fn redisson(ask: &Ask) -> (Vec<String>, Vec<Vec<u8>>) {
    let now = ask.at.unwrap_or_else(now_ms).to_string();
    let id = (ask.number as u128 + (1 << 100)).to_le_bytes();
    let key = &ask.key;
    let keys = [
        "rates".to_owned(),
        format!("{{CurrentLimiter:p:{key}}}:value"),
        format!("{{CurrentLimiter:p:{key}}}:permits"),
    ];
    (
        keys.into(),
        vec![b"1".to_vec(), now.into_bytes(), id.to_vec()],
    )
}

/// The limiter's: the same keys, and those of a client, which are not used.
fn limiter(ask: &Ask) -> (Vec<String>, Vec<Vec<u8>>) {
    let (mut keys, arguments) = redisson(ask);
    keys.extend(["value", "permits", "epoch"].map(|what| format!("{{k}}:{what}:c")));
    let more = ["waiting", "waiting_clients", "waiting:c", "expired"];
    keys.extend(more.map(|what| format!("{{k}}:{what}")));
    let [permits, _, id] = <[_; 3]>::try_from(arguments).expect("three");
    let id = [&[16][..], &id, &1_u32.to_le_bytes()].concat();
    let now = ask.at.map(|millis| (millis * 1_000).to_string());
    let now = now.unwrap_or_default().into_bytes();
    let text = |text: &str| text.as_bytes().to_vec();
    let (one_caller, no_average, in_doubt) = (text("1"), text(""), text("0"));
    let (chosen_at, deadline, number) = (text(""), text("9e15"), text("1"));
    let of_call = [chosen_at, deadline, number];
    let arguments = [now, permits, one_caller, id, no_average, in_doubt];
    (keys, arguments.into_iter().chain(of_call).collect())
}

fn limiters(bench: &mut Bench) {
    let scripts = ["acquire", "acquire_fair"];
    let text = |name| kit::script_of_limiter(&format!("limiter/{name}.lua"));
    let [acquire, fair] = scripts.map(|name| bench.load(&text(name)));
    let theirs = bench.load(include_str!("redisson.lua"));
    let contenders = [
        Contender::Other(acquire, limiter),
        Contender::Other(fair, limiter),
        Contender::Other(theirs, redisson),
    ];
    let mut table = Table::new(&[
        "permits of a `RateLimiter`, µs a call",
        "acquire",
        "fair",
        "Redisson's",
        "acquire to Redisson's",
        "fair to Redisson's",
    ]);
    for traffic in traffics() {
        let rounds: Vec<Vec<f64>> = (0..ROUNDS)
            .map(|_| {
                let of = |contender| bench.round(contender, &traffic);
                contenders.iter().map(of).collect()
            })
            .collect();
        let of =
            |value: &dyn Fn(&Vec<f64>) -> f64| format!("{:.2}", median(rounds.iter().map(value)));
        table.row(&[
            traffic.name.to_owned(),
            of(&|round| round[0]),
            of(&|round| round[1]),
            of(&|round| round[2]),
            of(&|round| round[0] / round[2]),
            of(&|round| round[1] / round[2]),
        ]);
    }
    table.print();
}

fn nothing(ask: &Ask) -> (Vec<String>, Vec<Vec<u8>>) {
    (vec![ask.key.clone()], Vec::new())
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.expect("after 1970").as_millis();
    u64::try_from(millis).expect("a long time")
}

/// A traffic: which key is asked when, and what has happened before.
struct Traffic {
    name: &'static str,
    before: usize,
    takes: usize,
    ask: fn(usize) -> Ask,
}

fn traffics() -> Vec<Traffic> {
    vec![
        Traffic {
            name: "allowed, one busy key, 200,000 takes in its window",
            before: 0,
            takes: 10 * CALLS,
            ask: |n| ask("k", None, MAX, n),
        },
        Traffic {
            name: "allowed, 2,000 keys of 10 takes each",
            before: 0,
            takes: CALLS,
            ask: |n| ask(format!("k{}", n % 2_000), None, MAX, n),
        },
        Traffic {
            name: "allowed, each key for the first time",
            before: 0,
            takes: CALLS,
            ask: |n| ask(format!("k{n}"), None, MAX, n),
        },
        Traffic {
            name: "allowed, a full window that one take leaves as one comes",
            before: 100,
            takes: CALLS,
            ask: |n| ask("k", Some(1_800_000_000_000 + 100 * n as u64), 100, n),
        },
        Traffic {
            name: "denied, max 100",
            before: 100,
            takes: CALLS,
            ask: |n| ask("k", None, 100, n),
        },
    ]
}

/// Ours, then the first design, then Redisson's, then `return 1`.
const FIRST: usize = 4;
const REDISSON: usize = 5;
const NAMES: [&str; 7] = [
    "sliding log",
    "sliding window",
    "GCRA",
    "fixed window",
    "the first design",
    "Redisson's",
    "`return 1`",
];

fn times(bench: &mut Bench, contenders: &[Contender]) {
    let mut micros = Table::new(&[&["server time, µs a call"], &NAMES[..]].concat());
    let head = |to| [&[to], &NAMES[..FIRST]].concat();
    let mut to_first = Table::new(&head("the same, to the first design"));
    let mut to_redisson = Table::new(&head("the same, to Redisson's"));
    for traffic in traffics() {
        let rounds: Vec<Vec<f64>> = (0..ROUNDS)
            .map(|_| {
                let of = |contender| bench.round(contender, &traffic);
                contenders.iter().map(of).collect()
            })
            .collect();
        let row = |value: &dyn Fn(&Vec<f64>, usize) -> f64, number: usize| {
            let median = |at| median(rounds.iter().map(|round| value(round, at)));
            let cells = (0..number).map(|at| format!("{:.2}", median(at)));
            [traffic.name.to_owned()]
                .into_iter()
                .chain(cells)
                .collect::<Vec<_>>()
        };
        micros.row(&row(&|round, at| round[at], NAMES.len()));
        to_first.row(&row(&|round, at| round[at] / round[FIRST], FIRST));
        to_redisson.row(&row(&|round, at| round[at] / round[REDISSON], FIRST));
    }
    micros.print();
    to_first.print();
    to_redisson.print();
}

fn sizes(bench: &mut Bench, contenders: &[Contender]) {
    let head = [&["bytes of a key, takes in a 10 s window"], &NAMES[..6]].concat();
    let mut table = Table::new(&head);
    for takes in [1, 100, 10_000, 1_000_000] {
        let bytes = contenders[..6]
            .iter()
            .map(|contender| bench.bytes(contender, takes).to_string());
        table.row(
            &[takes.to_string()]
                .into_iter()
                .chain(bytes)
                .collect::<Vec<_>>(),
        );
    }
    table.print();
}

/// Calls of the store with several takes.
struct Shape {
    name: &'static str,
    keys: usize,
    takes: usize,
    max: u64,
    /// Calls that are not measured.
    before: usize,
    has_new_keys: bool,
}

impl Shape {
    const fn size(&self) -> usize {
        self.keys * self.takes
    }

    const fn calls(&self) -> usize {
        self.before + CALLS / self.size()
    }

    fn key(&self, call: usize, key: usize) -> String {
        match self.has_new_keys {
            true => format!("k{key}:{call}"),
            false => format!("k{key}"),
        }
    }
}

const fn shape(name: &'static str, keys: usize, takes: usize) -> Shape {
    Shape {
        name,
        keys,
        takes,
        max: MAX,
        before: 100,
        has_new_keys: false,
    }
}

const SHAPES: [Shape; 5] = [
    shape("one key, 1 take", 1, 1),
    shape("one key, 64 takes", 1, 64),
    shape("64 keys, 1 take of each", 64, 1),
    Shape {
        before: 0,
        has_new_keys: true,
        ..shape("64 keys, 1 take of each, all for the first time", 64, 1)
    },
    Shape {
        max: 100,
        ..shape("64 keys, 1 take of each, denied", 64, 1)
    },
];

fn calls(bench: &mut Bench, first_design: &Contender) {
    let head = |first| [&[first], &NAMES[..FIRST]].concat();
    let mut micros = Table::new(&head("one call of the store, µs (µs for each take)"));
    let mut ratios = Table::new(&head("a take of it, to the first design's call"));
    micros.head.push("the first design, a call for each");
    for shape in SHAPES {
        let rounds: Vec<Vec<f64>> = (0..ROUNDS)
            .map(|_| {
                let ours = Algorithm::ALL.map(|algorithm| bench.call(algorithm, &shape));
                let first = bench.single_call(first_design, &shape);
                ours.into_iter().chain([first]).collect()
            })
            .collect();
        let size = shape.size() as f64;
        let median = |at: usize| median(rounds.iter().map(|round| round[at]));
        let to_first = |at: usize| {
            let ratios = rounds.iter().map(|round| round[at] / size / round[FIRST]);
            support::median(ratios)
        };
        let row = |cells: Vec<String>| [vec![shape.name.to_owned()], cells].concat();
        let cell = |at| format!("{:.1} ({:.2})", median(at), median(at) / size);
        let first = format!("{:.2}", median(FIRST));
        micros.row(&row((0..FIRST).map(cell).chain([first]).collect()));
        let cell = |at| format!("{:.2}", to_first(at));
        ratios.row(&row((0..FIRST).map(cell).collect()));
    }
    micros.print();
    ratios.print();
}

fn main() {
    let redis = Redis::start();
    let mut bench = Bench {
        recorder: Recorder::start(redis.url.trim_start_matches("redis://")),
        connection: redis.connection(),
    };
    let first = bench.load(include_str!("first_design.lua"));
    let theirs = bench.load(include_str!("redisson.lua"));
    let idle = bench.load("return 1");
    let ours = Algorithm::ALL.map(Contender::Ours);
    let others = [
        Contender::Other(first, first_design),
        Contender::Other(theirs, redisson),
        Contender::Other(idle, nothing),
    ];
    let contenders: Vec<_> = ours.into_iter().chain(others).collect();

    // `cargo bench --bench redis -- limiters` prints that table alone.
    let chosen: Vec<_> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    if is_chosen("times") {
        times(&mut bench, &contenders);
    }
    if is_chosen("calls") {
        calls(&mut bench, &contenders[FIRST]);
    }
    if is_chosen("limiters") {
        limiters(&mut bench);
    }
    if is_chosen("sizes") {
        sizes(&mut bench, &contenders);
    }
}
