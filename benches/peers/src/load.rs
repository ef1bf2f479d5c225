//! One run of `wrk`, and what it reports.

use std::process::Command;

use crate::Result;
use crate::contenders::KEYS;

/// What to ask, for how long, over how many connections.
pub struct Load<'a> {
    pub url: &'a str,
    /// The servers' ports, if they are several. Each has a thread of `wrk` and its part of the
    /// connections.
    pub ports: &'a [u16],
    pub connections: usize,
    pub seconds: u64,
    /// A header field for every request.
    pub field: Option<&'a str>,
    /// Set: the keys count up from here.
    pub keys_from: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub requests: f64,
    pub seconds: f64,
    pub p50_micros: f64,
    pub p99_micros: f64,
    /// Connections that failed, broke or timed out.
    pub errors: f64,
}

impl Load<'_> {
    pub fn run(&self) -> Result<Outcome> {
        let threads = match self.ports.len() {
            0 if self.connections == 1 => 1,
            0 => 2,
            servers => servers,
        };
        let mut command = Command::new("wrk");
        command
            .args(["-t", &threads.to_string()])
            .args(["-c", &self.connections.to_string()])
            .args(["-d", &format!("{}s", self.seconds)])
            .args(["-s", concat!(env!("CARGO_MANIFEST_DIR"), "/wrk.lua")]);
        if let Some(field) = self.field {
            command.args(["-H", field]);
        }
        if !self.ports.is_empty() {
            let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
            command.env("PORTS", ports.join(" "));
        }
        if let Some(from) = self.keys_from {
            command.env("KEYS_FROM", from.to_string());
            command.env("KEYS_APART", (KEYS / threads).to_string());
        }
        let output = command.arg(self.url).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        outcome(&text).ok_or_else(|| format!("wrk {} said: {text}", output.status).into())
    }
}

/// Reads the line that `wrk.lua` prints at the end.
fn outcome(text: &str) -> Option<Outcome> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("outcome "))?;
    let numbers: Option<Vec<f64>> = line.split(' ').map(|word| word.parse().ok()).collect();
    let [requests, micros, p50_micros, p99_micros, errors] = numbers?.try_into().ok()?;
    Some(Outcome {
        requests,
        seconds: micros / 1e6,
        p50_micros,
        p99_micros,
        errors,
    })
}
