//! What an algorithm answers, in Rust and in Lua, and what the script leaves in Redis: the files of
//! `tests/vectors`, for those who read both. A test that has changed an answer on purpose writes
//! them anew with `TIDEGATE_UPDATE=1`; then read what differs.
//!
//! All times are seconds, and instants are those since the beginning of a case:
//!
//! ```text
//! == a name of a case                 it begins with nothing
//! quotas 10/60 burst 3, 2/1           under these from now on: max and window
//! sub-windows 4                       from now on
//! at 1.5 take 2                   ->  the answer
//! at 1.5 refund #2 1              ->  units given back of the take with this serial number
//! at 2 owe 3                      ->  units charged
//! at 2 reset                      ->  whether something counted
//! state
//!     = what stands in Redis now
//! ```

mod limits;

use std::fs;

use tidegate::algorithm::{AlgorithmConfig, Count};

use crate::prelude::*;

/// The beginning of each case: not far from the real time, so that Redis expires nothing early.
const START: u64 = 1_800_000_000_000_000;

/// What is asked.
enum What {
    Take(u64),
    Refund(Receipt, u64),
    Owe(u64),
    Reset,
}

enum Answer {
    Decision(Decision),
    Number(u64),
}

/// One of the two tellings.
trait Twin {
    /// From now on it has counted nothing.
    fn begin(&mut self, case: &str);

    fn ask(&mut self, now: u64, config: AlgorithmConfig, quotas: &[Quota], what: &What) -> Answer;

    /// The lines of its state; `None` if they stay as they are.
    fn state(&mut self) -> Option<Vec<String>>;
}

impl Twin for Count {
    fn begin(&mut self, _: &str) {
        *self = Self::default();
    }

    fn ask(&mut self, now: u64, config: AlgorithmConfig, quotas: &[Quota], what: &What) -> Answer {
        let answer = match what {
            What::Take(cost) => Answer::Decision(self.take(config, now, quotas, *cost)),
            What::Refund(receipt, units) => {
                Answer::Number(self.refund(now, quotas, receipt, *units))
            }
            What::Owe(units) => Answer::Number(self.owe(config, now, quotas, *units, None)),
            What::Reset => Answer::Number(self.reset(now).into()),
        };
        // As a store that keeps bytes.
        *self = Self::from_bytes(&self.to_bytes()).expect("its own bytes");
        answer
    }

    fn state(&mut self) -> Option<Vec<String>> {
        None
    }
}

/// The script, on a server.
struct Script<'a> {
    runtime: tokio::runtime::Runtime,
    connection: &'a mut redis::Connection,
    store: RedisStore,
    clock: ManualClock,
    case: String,
    /// What stands in Redis for this case.
    names: [String; 2],
}

impl Twin for Script<'_> {
    fn begin(&mut self, case: &str) {
        case.clone_into(&mut self.case);
    }

    fn ask(&mut self, now: u64, config: AlgorithmConfig, quotas: &[Quota], what: &What) -> Answer {
        let policies = quotas.iter().enumerate();
        let policies = policies.map(|(at, quota)| Policy::new(&at.to_string(), *quota));
        let rule = Rule::with_policies(&self.case, policies).expect("a valid rule");
        let rule = Arc::new(rule.with_algorithm(config));
        let (store, take) = (&self.store, Take::new(rule, Key::default()));
        let of = |units: u64| take.clone().with_cost(units);
        let name = take.name("CurrentLimiter:");
        self.names = [name.clone(), format!("{{{name}}}:back")];
        self.clock.set(now);
        let answer = async {
            Ok::<_, StoreError>(match what {
                What::Take(cost) => Answer::Decision(store.take(&of(*cost)).await?),
                What::Refund(by, units) => Answer::Number(store.refund(&of(*units), by).await?),
                What::Owe(units) => {
                    Answer::Number(store.owe(&of(*units), &Receipt::new(0, 0, 1)).await?)
                }
                What::Reset => Answer::Number(store.reset(&take).await?.into()),
            })
        };
        self.runtime.block_on(answer).expect("an answer")
    }

    fn state(&mut self) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        for name in &self.names {
            let text: Result<Option<Vec<u8>>, _> =
                redis::cmd("GET").arg(name).query(self.connection);
            // A log is a set.
            let mut members = redis::cmd("ZRANGE");
            let members = members.arg(name).arg(0).arg(-1);
            texts.extend(match text {
                Ok(text) => text.into_iter().collect(),
                Err(_) => members.query::<Vec<_>>(self.connection).expect("a set"),
            });
        }
        Some(texts.iter().flat_map(|text| lines_of(text)).collect())
    }
}

/// A field of a state: an instant has `@` before its name, a duration `~`, and `*` stands before
/// fields that are repeated to the end.
fn lines_of(text: &[u8]) -> Vec<String> {
    let (head, each) = match text[0] {
        247 => (
            "total base oldest_base @oldest_stamp @stamp ~horizon largest serial",
            "~long_window long_units @long_until @refundable_since",
        ),
        248 => (
            "serial @stamp",
            "max ~window @needed_until @refundable_since ~sub_window base *@stamp *total",
        ),
        249 => (
            "serial @stamp",
            "max ~window burst @needed_until @refundable_since @start units",
        ),
        250 => (
            "serial @stamp",
            "max ~window @needed_until @refundable_since @start units",
        ),
        251 => ("@reset", ""),
        253 => ("@since", "start up_to"),
        mark => panic!("a state with the mark {mark}"),
    };
    let mut rest = &text[1..];
    let mut lines = vec![fields(head, &mut rest)];
    while !rest.is_empty() {
        lines.push(fields(each, &mut rest));
    }
    lines
}

fn fields(names: &str, rest: &mut &[u8]) -> String {
    let (once, again): (Vec<_>, Vec<_>) = names.split(' ').partition(|it| !it.starts_with('*'));
    let mut told: Vec<_> = once
        .iter()
        .map(|name| field(name, number(rest, 7)))
        .collect();
    for _ in 0..if again.is_empty() { 0 } else { number(rest, 2) } {
        told.extend(again.iter().map(|name| field(&name[1..], number(rest, 7))));
    }
    told.join(", ")
}

fn field(name: &str, number: u64) -> String {
    match name.split_at(1) {
        ("@", name) if number == 0 => format!("{name} -"),
        ("@", name) => format!("{name} {}", seconds(number as i64 - START as i64)),
        ("~", name) => format!("{name} {}", seconds(number as i64)),
        // The log's says so if units of older entries were given back.
        _ if number >> 52 > 0 => format!("{name} {} + 2^52", number - (1 << 52)),
        _ => format!("{name} {number}"),
    }
}

fn number(rest: &mut &[u8], size: usize) -> u64 {
    let (bytes, behind) = rest.split_at(size);
    *rest = behind;
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Microseconds as seconds, without zeros at the end.
fn seconds(micros: i64) -> String {
    let text = format!(
        "{}.{:06}",
        micros.abs() / 1_000_000,
        micros.abs() % 1_000_000
    );
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn micros(seconds: &str) -> u64 {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    integer(&format!("{whole}{part:0<6}"))
}

fn told(answer: &Answer) -> String {
    let decision = match answer {
        Answer::Number(number) => return number.to_string(),
        Answer::Decision(decision) => decision,
    };
    let of = |time: Duration| seconds(time.as_micros() as i64);
    let (receipt, wait) = (decision.receipt(), decision.retry_after());
    let verdict = match (
        decision.verdict(),
        receipt.filter(|it| it.units() > 0),
        wait,
    ) {
        (Verdict::Allowed, Some(receipt), _) => format!("allowed #{}", receipt.serial()),
        (Verdict::Allowed, ..) => "allowed".to_owned(),
        (_, _, Some(wait)) => format!("denied for {}", of(wait)),
        _ => "never".to_owned(),
    };
    let of_quota = |quota: &QuotaState| {
        let whole_in = of(quota.reset_after());
        format!("; {} left, whole in {whole_in}", quota.remaining())
    };
    verdict + &decision.quotas().iter().map(of_quota).collect::<String>()
}

fn integer(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn quota(text: &str) -> Quota {
    let mut words = text.split(' ');
    let (max, window) = words
        .next()
        .expect("words")
        .split_once('/')
        .expect("a quota");
    let window = Duration::from_micros(micros(window));
    let quota = Quota::new(window, integer(max)).expect("a valid quota");
    let burst = words.nth(1).map(integer);
    burst.map_or(quota, |burst| {
        quota.with_burst(burst).expect("a valid burst")
    })
}

/// The text with the answers of this twin.
fn played(text: &str, algorithm: Algorithm, twin: &mut impl Twin) -> String {
    let (mut quotas, mut receipts) = (Vec::new(), Vec::new());
    let (mut config, mut lines) = (AlgorithmConfig::from(algorithm), Vec::new());
    // Whether the lines of a state are those of this twin.
    let mut is_replaced = false;
    for line in text.lines() {
        let asked = line.split(" -> ").next().unwrap_or_default().trim_end();
        let words: Vec<_> = asked.split(' ').collect();
        let units = |at: usize| words.get(at).copied().map(integer);
        let what = match words[..] {
            ["==", ..] => {
                twin.begin(line);
                config = algorithm.into();
                receipts.clear();
                None
            }
            ["quotas", ..] => {
                quotas = asked["quotas ".len()..].split(", ").map(quota).collect();
                None
            }
            ["sub-windows", number] => {
                config = config.sub_windows(integer(number) as u16);
                None
            }
            ["at", _, "take", ..] => Some(What::Take(units(3).expect("a cost"))),
            ["at", _, "refund", number, ..] => {
                let serial = integer(number.trim_start_matches('#'));
                let found = receipts.iter().rfind(|it: &&Receipt| it.serial() == serial);
                let receipt = found.expect("a take with this number").clone();
                let units = units(4).unwrap_or(receipt.units());
                Some(What::Refund(receipt, units))
            }
            ["at", _, "owe", ..] => Some(What::Owe(units(3).expect("units"))),
            ["at", _, "reset"] => Some(What::Reset),
            _ => None,
        };
        if line.starts_with("    = ") && is_replaced {
            continue;
        }
        let Some(what) = what else {
            lines.push(line.to_owned());
            let state = (line == "state").then(|| twin.state()).flatten();
            is_replaced = state.is_some();
            lines.extend(state.into_iter().flatten().map(|it| format!("    = {it}")));
            continue;
        };
        let answer = twin.ask(START + micros(words[1]), config, &quotas, &what);
        if let Answer::Decision(decision) = &answer {
            receipts.extend(decision.receipt().filter(|it| it.units() > 0));
        }
        lines.push(format!("{asked:<20} -> {}", told(&answer)));
    }
    lines.join("\n") + "\n"
}

#[test]
fn both_tellings_give_the_vectors() {
    let server = Redis::start();
    for algorithm in Algorithm::ALL {
        let name = algorithm.name().replace('-', "_");
        let path = kit::root().join(format!("tests/vectors/{name}.txt"));
        let text = fs::read_to_string(&path).expect("a file of vectors");
        let (runtime, clock) = (still_runtime(), ManualClock::default());
        let store = runtime.block_on(store_on(&server)).clock(clock.clone());
        let mut script = Script {
            runtime,
            connection: &mut server.connection(),
            store,
            clock,
            case: String::new(),
            names: Default::default(),
        };
        let by_script = played(&text, algorithm, &mut script);
        if std::env::var("TIDEGATE_UPDATE").is_ok() {
            fs::write(&path, &by_script).expect("is written");
        } else {
            assert_eq!(by_script, text, "the script of {name}");
        }
        let in_rust = played(&by_script, algorithm, &mut Count::default());
        assert_eq!(
            in_rust,
            by_script,
            "Rust beside the script: {}",
            path.display()
        );
    }
}
