use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::Result;
use crate::options::Row;
use crate::servers::{Http, Redis};

/// How many keys the load of [`Row::Keys`] counts through; `wrk.lua` knows the number, too.
const KEYS: u64 = 100_000;
/// How long tasks run.
const MILLIS: &str = "500";

/// What one version did in one run at one width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) per_second: f64,
    /// Script calls of an operation, and the server's time in them.
    pub(crate) calls: f64,
    pub(crate) script_micros: f64,
    /// The processor time of the program, and of Redis.
    pub(crate) program_micros: f64,
    pub(crate) redis_micros: f64,
}

/// What was done in a run.
struct Done {
    operations: f64,
    seconds: f64,
    /// The operations that the counts belong to: with those of a warm-up.
    counted: f64,
    program_micros: f64,
}

/// What one operation takes, whatever else the machine does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

/// A version with a server of its own.
pub(crate) struct Version {
    subject: PathBuf,
    redis: Redis,
    http: Http,
    /// Where the next run over many keys begins.
    next_key: u64,
}

impl Version {
    pub(crate) fn start(subject: &Path) -> Result<Self> {
        let redis = Redis::start()?;
        let http = Http::start(subject, &redis.url())?;
        Ok(Self {
            subject: subject.to_owned(),
            redis,
            http,
            next_key: 0,
        })
    }

    /// One pass over all keys, and on the denied route what fits.
    pub(crate) fn warm_up(&mut self, row: Row) -> Result<()> {
        match row {
            Row::Keys => {
                while self.next_key < KEYS / 2 {
                    self.measure(row, 64)?;
                }
            }
            Row::Denied => drop(self.http.status("/denied", "one")?),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn measure(&mut self, row: Row, width: usize) -> Result<Cell> {
        self.redis.reset_counts()?;
        let redis = self.redis.processor_micros()?;
        let done = match row.is_http() {
            true => self.wrk(row, width)?,
            false => self.tasks(row, width)?,
        };
        let redis = self.redis.processor_micros()? - redis;
        let scripts = self.redis.scripts()?;
        Ok(Cell {
            per_second: done.operations / done.seconds,
            calls: scripts.calls / done.counted,
            script_micros: scripts.micros / done.counted,
            program_micros: done.program_micros / done.counted,
            redis_micros: redis / done.counted,
        })
    }

    fn wrk(&mut self, row: Row, connections: usize) -> Result<Done> {
        let threads = if connections == 1 { 1 } else { 2 };
        let path = format!("/{}", row.name());
        let mut command = Command::new("wrk");
        command
            .args(["-t", &threads.to_string(), "-c", &connections.to_string()])
            .args(["-d", "1s", "-s"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("wrk.lua"));
        match row {
            Row::Keys => command
                .env("KEYS_FROM", self.next_key.to_string())
                .env("KEYS_APART", (KEYS / threads).to_string()),
            _ => command.args(["-H", "x-key: one"]),
        };
        command.arg(format!("http://127.0.0.1:{}{path}", self.http.port));
        let before = self.http.processor_micros()?;
        let text = output(&mut command)?;
        // The last requests were under way when the load ended.
        sleep(Duration::from_millis(30));
        let program_micros = self.http.processor_micros()? - before;
        let line = text.lines().find_map(|line| line.strip_prefix("outcome "));
        let [requests, micros, .., errors] = numbers(line.ok_or("wrk printed no outcome")?)?[..]
        else {
            return Err(format!("wrk printed {text}").into());
        };
        if errors > 0.0 || requests == 0.0 {
            return Err(format!("{path}: {errors} broken connections").into());
        }
        let expected = if row == Row::Denied { 429 } else { 200 };
        let status = self.http.status(&path, "one")?;
        if status != expected {
            return Err(format!("{path} answered {status}").into());
        }
        if row == Row::Keys {
            self.next_key += requests as u64 / threads;
        }
        Ok(Done {
            operations: requests,
            seconds: micros / 1e6,
            counted: requests,
            program_micros,
        })
    }

    fn tasks(&self, row: Row, tasks: usize) -> Result<Done> {
        let mut command = Command::new(&self.subject);
        command.args(["run", row.name(), &tasks.to_string(), MILLIS]);
        let text = output(command.arg(self.redis.url()))?;
        match numbers(&text)?[..] {
            [operations, micros, counted, program_micros] => Ok(Done {
                operations,
                seconds: micros / 1e6,
                counted,
                program_micros,
            }),
            _ => Err(format!("{} printed {text}", row.name()).into()),
        }
    }

    pub(crate) fn count(&self, row: Row) -> Result<Counts> {
        let number = row.counted();
        let arguments = ["count".into(), row.name().into(), number.to_string()];
        let url = self.redis.url();
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        // Not the start of the program, which takes now more, now less.
        command.arg("--toggle-collect=subject::counted");
        command.arg(&self.subject).args(&arguments).arg(&url);
        let text = command.output()?.stderr;
        let text = String::from_utf8_lossy(&text);
        let count = text.lines().find_map(|line| line.split_once("Collected :"));
        let count = count.ok_or_else(|| format!("valgrind printed {text}"))?;
        let instructions = count.1.trim().parse::<f64>()? / number as f64;
        let mut command = Command::new(&self.subject);
        let allocations = output(command.args(&arguments).arg(&url))?;
        let allocations = allocations.trim().parse::<f64>()? / number as f64;
        Ok(Counts {
            instructions,
            allocations,
        })
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn numbers(text: &str) -> Result<Vec<f64>> {
    let words = text.split_whitespace().map(str::parse);
    Ok(words.collect::<std::result::Result<_, _>>()?)
}
