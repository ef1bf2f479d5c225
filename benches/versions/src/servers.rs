//! The processes that a run starts, and ends when it is over.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Result;

struct Running(Child);

impl Running {
    /// The processor time of its threads so far: the first number of a `schedstat` is nanoseconds.
    fn processor_micros(&self) -> Result<f64> {
        let mut nanos = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += text.split(' ').next().unwrap_or_default().parse::<f64>()?;
        }
        Ok(nanos / 1e3)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One `redis-server` on a free port, with nothing on disk.
pub(crate) struct Redis {
    process: Running,
    port: u16,
}

/// What a server says of its script calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scripts {
    pub(crate) calls: f64,
    pub(crate) micros: f64,
}

impl Redis {
    pub(crate) fn start() -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()?;
        let redis = Self {
            process: Running(process),
            port,
        };
        for _ in 0..500 {
            if redis.ask("PING").is_ok() {
                return Ok(redis);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("redis-server does not answer".into())
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn processor_micros(&self) -> Result<f64> {
        self.process.processor_micros()
    }

    pub(crate) fn reset_counts(&self) -> Result<()> {
        self.ask("CONFIG RESETSTAT").map(drop)
    }

    /// The script calls since the last reset.
    pub(crate) fn scripts(&self) -> Result<Scripts> {
        let info = self.ask("INFO commandstats")?;
        let mut scripts = Scripts::default();
        for line in info.lines() {
            let Some((name, fields)) = line.split_once(':') else {
                continue;
            };
            if matches!(name, "cmdstat_evalsha" | "cmdstat_eval") {
                scripts.calls += field(fields, "calls=")?;
                scripts.micros += field(fields, "usec=")?;
            }
        }
        Ok(scripts)
    }

    /// The reply to a command without line breaks in it, on a connection of its own.
    fn ask(&self, command: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    }
}

fn field(fields: &str, name: &str) -> Result<f64> {
    let value = fields.split(',').find_map(|pair| pair.strip_prefix(name));
    Ok(value
        .ok_or_else(|| format!("no {name} in {fields}"))?
        .parse()?)
}

/// `subject serve` in a process of its own.
pub(crate) struct Http {
    process: Running,
    pub(crate) port: u16,
}

impl Http {
    pub(crate) fn start(subject: &Path, redis: &str) -> Result<Self> {
        let mut process = Command::new(subject)
            .args(["serve", redis])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let process = Running(process);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse();
        Ok(Self {
            process,
            port: port.map_err(|_| "the HTTP server did not start")?,
        })
    }

    pub(crate) fn processor_micros(&self) -> Result<f64> {
        self.process.processor_micros()
    }

    /// The status of one request.
    pub(crate) fn status(&self, path: &str, key: &str) -> Result<u16> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        stream.write_all(format!("{head}x-key: {key}\r\n\r\n").as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response.get(9..12).ok_or("no status line")?.parse()?)
    }
}
