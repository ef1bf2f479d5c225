//! Runs every contender in turn, round after round, and checks what it answered.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_peers::Result;
use tidegate_peers::contenders::{KEYS, PLAIN, PLAIN_ANSWERS, Traffic, path};
use tidegate_peers::load::Load;
use tidegate_peers::servers::{HttpServer, RedisServer};

use crate::options::Options;

pub(crate) const CONNECTIONS: [usize; 3] = [1, 64, 256];

/// What one run of one contender showed.
pub(crate) struct Run {
    pub(crate) name: &'static str,
    pub(crate) traffic: Traffic,
    pub(crate) connections: usize,
    pub(crate) per_second: f64,
    /// The same divided by the mean of `plain`'s two runs of the same round.
    pub(crate) to_plain: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    pub(crate) redis_calls: f64,
    pub(crate) script_micros: f64,
    pub(crate) redis_cpu_micros: f64,
}

pub(crate) fn drive(options: &Options) -> Result<Vec<Run>> {
    let redis = RedisServer::start(&[])?;
    let http = HttpServer::start(&redis.url())?;
    let next_key = HashMap::new();
    let mut driver = Driver {
        redis,
        http,
        next_key,
    };
    for name in &options.names {
        driver.warm_up(name)?;
    }
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        for connections in CONNECTIONS {
            for traffic in Traffic::ALL {
                eprintln!(
                    "round {round}: {} at {connections} connections",
                    traffic.name()
                );
                driver.group(options, traffic, connections, &mut runs)?;
            }
        }
    }
    Ok(runs)
}

struct Driver {
    redis: RedisServer,
    http: HttpServer,
    /// Where the next run over many keys begins.
    next_key: HashMap<&'static str, u64>,
}

impl Driver {
    /// One pass over all keys, and on the denied route what fits.
    fn warm_up(&mut self, name: &'static str) -> Result<()> {
        eprintln!("warm-up: {name}");
        let mut passed = 0.0;
        while passed < KEYS as f64 {
            passed += self.run(name, Traffic::Keys, 64, 1)?.per_second;
        }
        self.expect(name, Traffic::Hot, 200)?;
        if Traffic::Denied.denies(name) && Traffic::Denied.includes(name) {
            // Only the static answers deny the first request.
            if name != PLAIN_ANSWERS {
                self.expect(name, Traffic::Denied, 200)?;
            }
            self.expect(name, Traffic::Denied, 429)?;
        }
        Ok(())
    }

    fn expect(&self, name: &str, traffic: Traffic, expected: u16) -> Result<()> {
        let path = path(name, traffic);
        let (status, _) = self.http.get(&path, traffic.fixed_key())?;
        match status == expected {
            true => Ok(()),
            false => Err(format!("{path} answered {status} instead of {expected}").into()),
        }
    }

    /// All contenders on the same traffic, one after the other.
    fn group(
        &mut self,
        options: &Options,
        traffic: Traffic,
        connections: usize,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        // `plain` runs before and after the others, so that one disturbed run weighs half.
        let names = options.names.iter().filter(|name| traffic.includes(name));
        let names = names.copied().chain([PLAIN]);
        let first = runs.len();
        for name in names {
            runs.push(self.run(name, traffic, connections, options.seconds)?);
        }
        let plain = runs[first..].iter().filter(|run| run.name == PLAIN);
        let plain = plain.map(|run| run.per_second).sum::<f64>() / 2.0;
        for run in &mut runs[first..] {
            run.to_plain = run.per_second / plain;
        }
        Ok(())
    }

    fn run(
        &mut self,
        name: &'static str,
        traffic: Traffic,
        connections: usize,
        seconds: u64,
    ) -> Result<Run> {
        let path = path(name, traffic);
        let next_key = self.next_key.entry(name).or_default();
        let load = Load {
            url: &format!("http://127.0.0.1:{}{path}", self.http.port),
            ports: &[],
            connections,
            seconds,
            field: traffic.fixed_key(),
            keys_from: (traffic == Traffic::Keys).then_some(*next_key),
        };
        self.http.statuses()?;
        self.redis.reset_counts()?;
        let before = self.redis.counts()?;
        let outcome = load.run()?;
        // The last requests were under way when the load ended.
        std::thread::sleep(Duration::from_millis(30));
        let after = self.redis.counts()?;
        if traffic == Traffic::Keys {
            let threads = if connections == 1 { 1 } else { 2 };
            *next_key += outcome.requests as u64 / threads;
        }
        let answered = self.check(&path, name, traffic, connections)?;
        if outcome.errors > 0.0 || outcome.requests == 0.0 {
            let errors = outcome.errors;
            return Err(format!("{path} at {connections}: {errors} broken connections").into());
        }
        Ok(Run {
            name,
            traffic,
            connections,
            per_second: outcome.requests / outcome.seconds,
            to_plain: f64::NAN,
            p50_micros: outcome.p50_micros,
            p99_micros: outcome.p99_micros,
            redis_calls: (after.calls - before.calls) / answered,
            script_micros: (after.script_micros - before.script_micros) / answered,
            redis_cpu_micros: (after.cpu_micros - before.cpu_micros) / answered,
        })
    }

    /// The number of responses, all of which had the status that the route is for.
    fn check(&self, path: &str, name: &str, traffic: Traffic, connections: usize) -> Result<f64> {
        let [allowed, denied, other] = self.http.statuses()?;
        let (expected, wrong) = match traffic.denies(name) {
            true => (denied, allowed),
            false => (allowed, denied),
        };
        if wrong > 0.0 || other > 0.0 {
            let found = format!("{allowed} times 200, {denied} times 429, {other} times another");
            return Err(format!("{path} at {connections} connections answered {found}").into());
        }
        Ok(expected)
    }
}
