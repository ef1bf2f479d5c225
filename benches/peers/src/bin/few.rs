//! Processor time of a request while few are in progress, and while many are: contenders in turns
//! behind one axum server, by connections. `few serve URL` is the HTTP server, and `few open URL
//! RATE SECONDS` asks a store at random instants. With `--beside PROGRAM`, this program of another
//! tree takes its turns, too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use axum::Router;
use tidegate_peers::contenders::{self, KEYS, Traffic, path};
use tidegate_peers::load::Load;
use tidegate_peers::open_loop;
use tidegate_peers::servers::{HttpServer, RedisServer};
use tidegate_peers::statistics::median;
use tidegate_peers::{Result, others, ours, serve, table};

const CONNECTIONS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 256];
const PEER: &str = "tower-rate-limit-redis";
/// What is measured: the contender, the traffic, and where.
const ROWS: [(&str, Traffic, &[usize]); 7] = [
    (PEER, Traffic::Keys, &CONNECTIONS),
    ("tower-rate-limiter", Traffic::Keys, &CONNECTIONS),
    ("gcra", Traffic::Keys, &CONNECTIONS),
    ("log", Traffic::Keys, &[1, 8, 64, 256]),
    ("tower-rate-limiter", Traffic::Hot, &[1, 8, 64, 256]),
    ("gcra", Traffic::Hot, &[1, 8, 64, 256]),
    ("log", Traffic::Hot, &[1, 8, 64, 256]),
];
/// Takes a second of the open loops: on this machine they keep 0.5 to 20 in progress.
const RATES: [u64; 5] = [2_000, 8_000, 16_000, 24_000, 32_000];

struct Options {
    rounds: usize,
    seconds: u64,
    beside: Option<PathBuf>,
    is_open: bool,
}

/// A row at a number of connections, by this program or by that of another tree.
struct Cell {
    row: usize,
    connections: usize,
    is_beside: bool,
    /// Microseconds of processor time a request: of the application and of Redis.
    cpu: Vec<[f64; 2]>,
    p50: Vec<f64>,
    next_key: u64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", redis] => return serve::serve(router(redis)),
        ["open", redis, rate, seconds, bursts] => {
            let [p50, p99] =
                open_loop::run(redis, rate.parse()?, seconds.parse()?, bursts.parse()?)?;
            println!("{p50} {p99}");
            return Ok(());
        }
        _ => {}
    }
    let options = Options::parse(&arguments)?;
    match options.is_open {
        true => open_loops(&options),
        false => closed_loops(&options),
    }
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let (rounds, seconds) = (9, 1);
        let mut options = Self {
            rounds,
            seconds,
            beside: None,
            is_open: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
            match argument.as_str() {
                "--rounds" => options.rounds = value()?.parse()?,
                "--seconds" => options.seconds = value()?.parse()?,
                "--beside" => options.beside = Some(value()?.into()),
                "--open" => options.is_open = true,
                other => return Err(format!("unknown option {other}").into()),
            }
        }
        Ok(options)
    }
}

async fn router(redis: &str) -> Result<Router> {
    Ok(contenders::plain_routes()
        .merge(ours::router(redis).await?)
        .merge(others::router(redis).await?))
}

fn closed_loops(options: &Options) -> Result<()> {
    let mut redis = RedisServer::start(&[])?;
    let own = HttpServer::start(&redis.url())?;
    let beside = options.beside.as_deref();
    let beside = beside
        .map(|program| HttpServer::of(program, &redis.url()))
        .transpose()?;
    let mut cells = Vec::new();
    for (row, (name, _, numbers)) in ROWS.into_iter().enumerate() {
        let is_ours = ["gcra", "log"].contains(&name);
        for connections in numbers {
            for is_beside in [false, true] {
                if !is_beside || is_ours && beside.is_some() {
                    let (cpu, p50) = (Vec::new(), Vec::new());
                    cells.push(Cell {
                        row,
                        connections: *connections,
                        is_beside,
                        cpu,
                        p50,
                        next_key: 0,
                    });
                }
            }
        }
    }
    cells.sort_by_key(|cell| cell.connections);
    for cell in cells.iter_mut().filter(|cell| cell.connections == 64) {
        let server = if cell.is_beside {
            beside.as_ref()
        } else {
            Some(&own)
        };
        let mut warm = 0;
        while warm < KEYS as u64 {
            cell.measure(server.ok_or("no server")?, &mut redis, 1)?;
            warm = if ROWS[cell.row].1 == Traffic::Keys {
                cell.next_key * 2
            } else {
                u64::MAX
            };
        }
        (cell.cpu, cell.p50) = (Vec::new(), Vec::new());
    }
    for round in 1..=options.rounds {
        eprintln!("few: round {round}");
        for cell in &mut cells {
            let server = if cell.is_beside {
                beside.as_ref()
            } else {
                Some(&own)
            };
            cell.measure(server.ok_or("no server")?, &mut redis, options.seconds)?;
        }
    }
    report(&cells);
    Ok(())
}

impl Cell {
    fn measure(
        &mut self,
        server: &HttpServer,
        redis: &mut RedisServer,
        seconds: u64,
    ) -> Result<()> {
        let (name, traffic, _) = ROWS[self.row];
        let path = path(name, traffic);
        let load = Load {
            url: &format!("http://127.0.0.1:{}{path}", server.port),
            ports: &[],
            connections: self.connections,
            seconds,
            field: traffic.fixed_key(),
            keys_from: (traffic == Traffic::Keys).then_some(self.next_key),
        };
        server.statuses()?;
        let times = |redis: &RedisServer| Result::Ok([server.cpu_micros()?, redis.cpu_micros()?]);
        let before = times(redis)?;
        let outcome = load.run()?;
        std::thread::sleep(Duration::from_millis(30));
        let after = times(redis)?;
        let [allowed, denied, other] = server.statuses()?;
        if denied + other + outcome.errors > 0.0 {
            return Err(format!("{path}: {denied} times 429, {other} others").into());
        }
        let threads = if self.connections == 1 { 1 } else { 2 };
        self.next_key += allowed as u64 / threads;
        self.cpu
            .push([0, 1].map(|at| (after[at] - before[at]) / allowed));
        self.p50.push(outcome.p50_micros);
        Ok(())
    }

    fn together(&self) -> f64 {
        median(
            self.cpu
                .iter()
                .map(|[application, redis]| application + redis),
        )
    }

    /// Of all rounds, to those of another cell: the median.
    fn to(&self, other: &Self) -> f64 {
        let sum = |[application, redis]: &[f64; 2]| application + redis;
        median(
            self.cpu
                .iter()
                .zip(&other.cpu)
                .map(|(own, other)| sum(own) / sum(other)),
        )
    }
}

fn report(cells: &[Cell]) {
    let find = |row: usize, connections: usize, is_beside: bool| {
        let mut cells = cells.iter();
        cells.find(|it| (it.row, it.connections, it.is_beside) == (row, connections, is_beside))
    };
    let mut head = vec!["processor time a request, application and Redis, µs".to_owned()];
    head.extend(CONNECTIONS.map(|number| number.to_string()));
    let head: Vec<_> = head.iter().map(String::as_str).collect();
    let cell_row = |title: String, of: &dyn Fn(usize) -> Option<String>| {
        let cells = CONNECTIONS.map(|connections| of(connections).unwrap_or_default());
        [vec![title], cells.to_vec()].concat()
    };
    let (mut rows, mut p50s) = (Vec::new(), Vec::new());
    for (row, (name, traffic, _)) in ROWS.into_iter().enumerate() {
        let title = format!("`{name}`, {}", traffic.name());
        let time = |at, is_beside| Some(format!("{:.1}", find(row, at, is_beside)?.together()));
        rows.push(cell_row(title.clone(), &|at| time(at, false)));
        if find(row, 8, true).is_some() {
            let before = |at| {
                Some(format!(
                    "{:.2}",
                    find(row, at, false)?.to(find(row, at, true)?)
                ))
            };
            rows.push(cell_row(format!("{title}, to the tree before"), &before));
        }
        if (name, traffic) == ("gcra", Traffic::Keys) {
            let peer = |at| {
                Some(format!(
                    "{:.2}",
                    find(row, at, false)?.to(find(0, at, false)?)
                ))
            };
            rows.push(cell_row(format!("{title}, to {PEER}"), &peer));
        }
        let p50 = |at| Some(format!("{:.0}", median(find(row, at, false)?.p50.clone())));
        p50s.push(cell_row(title, &p50));
    }
    table::print(&head, &rows);
    let mut head = head;
    head[0] = "p50, µs";
    table::print(&head, &p50s);
}

/// Poisson arrivals, and bursts of eight at a time, at rates that keep few in progress.
fn open_loops(options: &Options) -> Result<()> {
    let redis = RedisServer::start(&[])?;
    let own = std::env::current_exe()?;
    let ask = |program: &Path, rate: u64, bursts: usize| {
        let seconds = options.seconds.to_string();
        let (rate, bursts) = (rate.to_string(), bursts.to_string());
        let output = Command::new(program)
            .args(["open", &redis.url(), &rate, &seconds, &bursts])
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let numbers: std::result::Result<Vec<f64>, _> =
            text.trim().split(' ').map(str::parse).collect();
        Result::Ok(numbers?)
    };
    let mut rows = Vec::new();
    for (title, bursts) in [("Poisson", 1), ("bursts of eight", 8)] {
        for rate in RATES {
            let (mut mine, mut to_before) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
            for _ in 0..options.rounds {
                let began = Instant::now();
                let own = ask(&own, rate, bursts)?;
                if let Some(beside) = &options.beside {
                    let beside = ask(beside, rate, bursts)?;
                    (0..2).for_each(|at| to_before[at].push(own[at] / beside[at]));
                }
                (0..2).for_each(|at| mine[at].push(own[at]));
                eprintln!("{title}, {rate}: {:?}", began.elapsed());
            }
            let texts = mine.map(|values| format!("{:.0}", median(values)));
            let ratios = to_before.map(|values| format!("{:.2}", median(values)));
            let mut row = vec![format!("{title}, {rate} a second")];
            row.extend(texts);
            row.extend(ratios.into_iter().filter(|_| options.beside.is_some()));
            rows.push(row);
        }
    }
    let head = [
        "open loop",
        "p50, µs",
        "p99, µs",
        "p50, to the tree before",
        "p99, to the tree before",
    ];
    let columns = if options.beside.is_some() { 5 } else { 3 };
    table::print(&head[..columns], &rows);
    Ok(())
}
