//! Four server processes that share one hot key with a large quota: `processes` drives the load and
//! prints the table; `processes serve URL` is one of the servers.

use tidegate_peers::load::Load;
use tidegate_peers::rounds::Rounds;
use tidegate_peers::servers::{HttpServer, RedisServer};
use tidegate_peers::statistics::{median, thousands};
use tidegate_peers::{Result, ours, serve, table};

const PROCESSES: usize = 4;
/// Of all processes together.
const CONNECTIONS: [usize; 2] = [64, 256];
const NAMES: [&str; 3] = [PLAIN, "memory", "log"];
const PLAIN: &str = "plain";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, redis] = arguments.as_slice()
        && serve == "serve"
    {
        return serve::serve(ours::large_quota_router(redis));
    }
    let Rounds { rounds, seconds } = Rounds::from_arguments()?;
    let mut fleet = Fleet::start()?;
    let mut runs = Vec::new();
    // The first round is the warm-up.
    for round in 0..=rounds {
        for connections in CONNECTIONS {
            eprintln!("processes: round {round} at {connections} connections");
            let group = fleet.group(connections, if round == 0 { 1 } else { seconds })?;
            if round > 0 {
                runs.extend(group);
            }
        }
    }
    println!("Medians of {rounds} rounds of {seconds} s.\n");
    print(&runs);
    Ok(())
}

/// What one run of one contender showed.
struct Run {
    name: &'static str,
    connections: usize,
    per_second: f64,
    p99_micros: f64,
    /// Both divided by the mean of `plain`'s two runs of the same round.
    throughput_to_plain: f64,
    p99_to_plain: f64,
    /// For each second and process.
    redis_calls: f64,
    /// The server's processor time in a second.
    redis_busy: f64,
}

struct Fleet {
    redis: RedisServer,
    servers: Vec<HttpServer>,
}

impl Fleet {
    fn start() -> Result<Self> {
        let redis = RedisServer::start(&[])?;
        let servers = (0..PROCESSES).map(|_| HttpServer::start(&redis.url()));
        let servers = servers.collect::<Result<_>>()?;
        Ok(Self { redis, servers })
    }

    /// All contenders, one after the other; `plain` runs before and after the others.
    fn group(&mut self, connections: usize, seconds: u64) -> Result<Vec<Run>> {
        let names = NAMES.into_iter().chain([PLAIN]);
        let runs = names.map(|name| self.run(name, connections, seconds));
        let mut runs = runs.collect::<Result<Vec<_>>>()?;
        let of_plain = |number: fn(&Run) -> f64| {
            let plain = runs.iter().filter(|run| run.name == PLAIN);
            plain.map(number).sum::<f64>() / 2.0
        };
        let (per_second, p99) = (
            of_plain(|run| run.per_second),
            of_plain(|run| run.p99_micros),
        );
        for run in &mut runs {
            run.throughput_to_plain = run.per_second / per_second;
            run.p99_to_plain = run.p99_micros / p99;
        }
        Ok(runs)
    }

    fn run(&mut self, name: &'static str, connections: usize, seconds: u64) -> Result<Run> {
        let ports: Vec<u16> = self.servers.iter().map(|server| server.port).collect();
        let load = Load {
            url: &format!("http://127.0.0.1:{}/{name}", ports[0]),
            ports: &ports,
            connections,
            seconds,
            field: Some("x-key: hot"),
            keys_from: None,
        };
        for server in &self.servers {
            server.statuses()?;
        }
        self.redis.reset_counts()?;
        let before = self.redis.counts()?;
        let outcome = load.run()?;
        let after = self.redis.counts()?;
        // The last requests were under way when the load ended.
        std::thread::sleep(std::time::Duration::from_millis(30));
        self.check(name)?;
        if outcome.errors > 0.0 || outcome.requests == 0.0 {
            let errors = outcome.errors;
            return Err(format!("{name} at {connections}: {errors} broken connections").into());
        }
        Ok(Run {
            name,
            connections,
            per_second: outcome.requests / outcome.seconds,
            p99_micros: outcome.p99_micros,
            throughput_to_plain: f64::NAN,
            p99_to_plain: f64::NAN,
            redis_calls: (after.calls - before.calls) / outcome.seconds / PROCESSES as f64,
            redis_busy: (after.cpu_micros - before.cpu_micros) / 1e6 / outcome.seconds,
        })
    }

    /// Each server has allowed what it was asked for.
    fn check(&self, name: &str) -> Result<()> {
        for server in &self.servers {
            let [allowed, denied, other] = server.statuses()?;
            if allowed == 0.0 || denied + other > 0.0 {
                let found =
                    format!("{allowed} times 200, {denied} times 429, {other} times another");
                return Err(format!("{name}: {found}").into());
            }
        }
        Ok(())
    }
}

fn print(runs: &[Run]) {
    let cells = |name: &str, number: fn(&Run) -> f64, format: fn(f64) -> String| {
        let medians = CONNECTIONS.map(|connections| {
            let runs = runs.iter();
            let runs = runs.filter(|run| run.name == name && run.connections == connections);
            format(median(runs.map(number)))
        });
        medians.join(" / ")
    };
    let two: fn(f64) -> String = |value| format!("{value:.2}");
    let rows = NAMES.map(|name| {
        vec![
            name.to_owned(),
            cells(name, |run| run.throughput_to_plain, two),
            cells(name, |run| run.p99_to_plain, two),
            cells(name, |run| run.per_second, thousands),
            cells(name, |run| run.p99_micros, thousands),
            cells(name, |run| run.redis_calls, thousands),
            cells(name, |run| run.redis_busy, two),
        ]
    });
    let head = [
        "four processes, one hot key, at 64 / 256 connections",
        "throughput to `plain`",
        "p99 to `plain`'s",
        "requests a second",
        "p99, µs",
        "Redis calls a second and process",
        "Redis CPU a second",
    ];
    table::print(&head, &rows);
}
