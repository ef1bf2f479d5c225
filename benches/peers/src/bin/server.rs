//! How many decisions one Redis server makes for eight processes: `server` starts the processes and
//! prints the table; `server client ...` is one of them. With `BESIDE=PROGRAM`, this program of another
//! tree, the log and GCRA are compared with those of that tree instead.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script, cmd};
use tidegate::Algorithm;
use tidegate_peers::ours::DirectLimiter;
use tidegate_peers::rounds::Rounds;
use tidegate_peers::servers::{RedisCounts, RedisServer};
use tidegate_peers::statistics::{median, thousands};
use tidegate_peers::{Result, same_script, table};

const PROCESSES: usize = 8;
/// In each process.
const TASKS: [usize; 4] = [1, 8, 64, 512];
/// Of all processes together, each of which asks for them in turn from a place of its own.
const KEYS: [usize; 2] = [1, 100_000];
const LOG: &str = "log";
const LOG_CALLS: &str = "log, a call each";
const GCRA: &str = "gcra";
const GCRA_CALLS: &str = "gcra, a call each";
const FIRST_DESIGN: &str = "the first design, a call each";
const NAMES: [&str; 5] = [LOG, LOG_CALLS, GCRA, GCRA_CALLS, FIRST_DESIGN];
/// Before it is measured, each key is asked for.
const WARM_UP: Duration = Duration::from_millis(1_300);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [client, words @ ..] = arguments.as_slice()
        && client == "client"
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        return runtime.block_on(client_process(words));
    }
    let Rounds { rounds, seconds } = Rounds::from_arguments()?;
    let mut redis = RedisServer::start(&[])?;
    let own = std::env::current_exe()?;
    let beside = std::env::var_os("BESIDE").map(PathBuf::from);
    let contenders: Vec<_> = match &beside {
        None => NAMES.map(|name| (name, &own)).into(),
        Some(other) => [LOG, GCRA]
            .map(|name| [(name, &own), (name, other)])
            .concat(),
    };
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for tasks in TASKS {
            for keys in KEYS {
                eprintln!("server: round {round} with {tasks} tasks and {keys} keys");
                for (name, program) in &contenders {
                    let run = Run::measure(&mut redis, (name, program), tasks, keys, seconds)?;
                    eprintln!("{run:?}");
                    let is_own = *program == &own;
                    if is_own { &mut runs } else { &mut others }.push(run);
                }
            }
        }
    }
    println!("Medians of {rounds} rounds of {seconds} s.\n");
    match beside {
        None => print(&runs),
        Some(_) => print_beside(&runs, &others),
    }
    Ok(())
}

/// How many decisions this tree makes in a second of Redis's processor, to those of another tree.
fn print_beside(runs: &[Run], others: &[Run]) {
    let mut rows = Vec::new();
    for name in [LOG, GCRA] {
        for tasks in TASKS {
            let mut row = vec![format!("{name}, {tasks}")];
            for keys in KEYS {
                let is_asked = |run: &&Run| (run.name, run.tasks, run.keys) == (name, tasks, keys);
                let of = |runs: &[Run]| -> Vec<f64> {
                    let runs = runs.iter().filter(is_asked);
                    runs.map(|run| run.per_cpu_second).collect()
                };
                let (own, other) = (of(runs), of(others));
                let ratios = own.iter().zip(&other).map(|(own, other)| own / other);
                row.push(format!("{:.2}", median(ratios)));
                row.push(thousands(median(own.into_iter())));
            }
            rows.push(row);
        }
    }
    let head = [
        "eight processes; tasks in each",
        "one key: decisions a second of Redis CPU, to the other tree",
        "this tree",
        "100,000 keys: to the other tree",
        "this tree",
    ];
    table::print(&head, &rows);
}

/// What one run of one contender showed.
#[derive(Debug)]
struct Run {
    name: &'static str,
    tasks: usize,
    keys: usize,
    per_second: f64,
    per_call: f64,
    /// The part of the time in which the server's main thread had a processor.
    busy: f64,
    per_cpu_second: f64,
}

impl Run {
    fn measure(
        redis: &mut RedisServer,
        (name, program): (&'static str, &Path),
        tasks: usize,
        keys: usize,
        seconds: u64,
    ) -> Result<Self> {
        cmd("FLUSHALL").exec(redis.connection())?;
        let begin = now() + WARM_UP;
        let end = begin + Duration::from_secs(seconds);
        let clients = (0..PROCESSES).map(|process| {
            Command::new(program)
                .args(["client", &redis.url(), name])
                .args([process, tasks, keys].map(|number| number.to_string()))
                .args([begin, end].map(|instant| instant.as_micros().to_string()))
                .stdout(Stdio::piped())
                .spawn()
        });
        let clients = clients.collect::<std::io::Result<Vec<Child>>>()?;
        let mut counts_at = |instant: Duration| -> Result<RedisCounts> {
            std::thread::sleep(instant.saturating_sub(now()));
            redis.counts()
        };
        let (before, after) = (counts_at(begin)?, counts_at(end)?);
        let mut decisions = 0.0;
        for client in clients {
            let output = client.wait_with_output()?;
            if !output.status.success() {
                return Err(format!("{name}: a client failed").into());
            }
            let output = String::from_utf8(output.stdout)?;
            decisions += output.trim().parse::<f64>()?;
        }
        let cpu_seconds = (after.cpu_micros - before.cpu_micros) / 1e6;
        Ok(Self {
            name,
            tasks,
            keys,
            per_second: decisions / seconds as f64,
            per_call: decisions / (after.calls - before.calls),
            busy: cpu_seconds / seconds as f64,
            per_cpu_second: decisions / cpu_seconds,
        })
    }
}

/// Since 1970: all processes go by one clock.
fn now() -> Duration {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.unwrap_or_default()
}

/// Asks until the end, and prints the decisions between the beginning and the end.
async fn client_process(words: &[String]) -> Result<()> {
    let [url, name, process, tasks, keys, begin, end] = words else {
        return Err("a client wants seven words".into());
    };
    let [process, tasks, keys] = [process, tasks, keys].map(|word| word.parse::<usize>());
    let (process, tasks, keys) = (process?, tasks?, keys?);
    let [begin, end] = [begin, end].map(|word| word.parse().map(Duration::from_micros));
    let (begin, end) = (begin?, end?);
    let decider = Arc::new(Decider::connect(name, url, keys).await?);
    let next = Arc::new(AtomicU64::new((process * keys / PROCESSES) as u64));
    for _ in 0..tasks {
        let (decider, next) = (Arc::clone(&decider), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let decided = decider.decide(number as usize % keys, number).await;
                if let Err(error) = decided {
                    eprintln!("{error}");
                    std::process::exit(1);
                }
            }
        });
    }
    tokio::time::sleep(begin.saturating_sub(now())).await;
    let before = next.load(Ordering::Relaxed);
    tokio::time::sleep(end.saturating_sub(now())).await;
    // As many were under way at the beginning.
    println!("{}", next.load(Ordering::Relaxed) - before);
    Ok(())
}

enum Decider {
    Store(DirectLimiter),
    Calls(Calls),
}

/// One call of a script for each decision.
struct Calls {
    connection: MultiplexedConnection,
    script: Script,
    keys: Vec<String>,
    /// The question to the crate's script; `None` for the first design.
    question: Option<Vec<u8>>,
    /// What nobody else uses.
    name: String,
}

impl Decider {
    async fn connect(name: &str, url: &str, keys: usize) -> Result<Self> {
        let keys: Vec<String> = (0..keys).map(|number| format!("k{number}")).collect();
        let algorithm = match name {
            LOG => Algorithm::SlidingLog,
            GCRA => Algorithm::Gcra,
            _ => return Ok(Self::Calls(Calls::connect(name, url, keys).await?)),
        };
        Ok(Self::Store(
            DirectLimiter::connect(url, &keys, algorithm).await?,
        ))
    }

    async fn decide(&self, key: usize, number: u64) -> Result<()> {
        match self {
            Self::Store(limiter) => limiter.decide(key).await,
            Self::Calls(calls) => calls.decide(key, number).await,
        }
    }
}

impl Calls {
    async fn connect(name: &str, url: &str, keys: Vec<String>) -> Result<Self> {
        let (source, question) = match name {
            LOG_CALLS => of_own_script(Algorithm::SlidingLog)?,
            GCRA_CALLS => of_own_script(Algorithm::Gcra)?,
            _ => (
                include_str!("../../../ours/first_design.lua").to_owned(),
                None,
            ),
        };
        let script = Script::new(&source);
        let client = redis::Client::open(url)?;
        // Thousands of calls may wait for a server that is busy.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await?;
        script.prepare_invoke().load_async(&mut connection).await?;
        Ok(Self {
            connection,
            script,
            keys,
            question,
            name: std::process::id().to_string(),
        })
    }

    async fn decide(&self, key: usize, number: u64) -> Result<()> {
        let mut connection = self.connection.clone();
        let mut call = cmd("EVALSHA");
        call.arg(self.script.get_hash()).arg(1).arg(&self.keys[key]);
        let is_allowed = match &self.question {
            Some(question) => {
                call.arg(question);
                let reply: Vec<u8> = call.query_async(&mut connection).await?;
                same_script::is_allowed(&reply)
            }
            None => {
                let (window, millis) = (1_000, now().as_millis() as u64);
                call.arg(millis).arg(window).arg(1_000_000);
                call.arg(millis - window);
                call.arg(format!("{}-{number}", self.name));
                let reply: u64 = call.query_async(&mut connection).await?;
                reply == 200
            }
        };
        match is_allowed {
            true => Ok(()),
            false => Err("a key below its limit was denied".into()),
        }
    }
}

/// The crate's own script, and a question to it.
fn of_own_script(algorithm: Algorithm) -> Result<(String, Option<Vec<u8>>)> {
    let source = same_script::source(algorithm)?;
    Ok((source, Some(same_script::question(algorithm))))
}

/// The contender with the same script and a call for each decision.
fn by_calls(name: &str) -> &'static str {
    match name {
        LOG | LOG_CALLS => LOG_CALLS,
        _ => GCRA_CALLS,
    }
}

fn print(runs: &[Run]) {
    let mut rows = Vec::new();
    for name in NAMES {
        for tasks in TASKS {
            let of = |name: &str, keys: usize| {
                let runs = runs.iter();
                let runs = runs.filter(move |run| run.tasks == tasks && run.keys == keys);
                let name = name.to_owned();
                runs.filter(move |run| run.name == name)
            };
            let cells = |number: fn(&Run) -> f64, format: &dyn Fn(f64) -> String| {
                KEYS.map(|keys| format(median(of(name, keys).map(number))))
                    .join(" / ")
            };
            let ratios = |other: &str, number: fn(&Run) -> f64| {
                let ratios = KEYS.map(|keys| {
                    let pairs = of(name, keys).zip(of(other, keys));
                    let ratios = pairs.map(|(own, other)| number(own) / number(other));
                    format!("{:.2}", median(ratios))
                });
                ratios.join(" / ")
            };
            rows.push(vec![
                format!("{name}, {tasks}"),
                cells(|run| run.per_second, &thousands),
                ratios(by_calls(name), |run| run.per_second),
                ratios(FIRST_DESIGN, |run| run.per_second),
                cells(|run| run.per_call, &|value| format!("{value:.1}")),
                cells(|run| run.busy, &|value| format!("{value:.2}")),
                cells(|run| run.per_cpu_second, &thousands),
                ratios(by_calls(name), |run| run.per_cpu_second),
            ]);
        }
    }
    let head = [
        "eight processes; tasks in each; 1 / 100,000 keys",
        "decisions a second",
        "to its script, a call each",
        "to the first design",
        "decisions a call",
        "Redis busy",
        "decisions a second of Redis CPU",
        "the same to its script, a call each",
    ];
    table::print(&head, &rows);
}
