//! What clients that give up cost a bystander: twelve clients of one route, or one, leave after 8 ms,
//! where a decision takes a round trip of 20 ms, and one client of another route, over the same
//! store, waits for each of its answers. Beside it in the same seconds, each in a process of its
//! own: as many clients that wait for their answers, and none at all. `bystander serve URL` is the
//! HTTP server of a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tidegate::{RateLimitLayer, RedisStore};
use tidegate_peers::contenders::handler;
use tidegate_peers::rounds::Rounds;
use tidegate_peers::servers::{HttpServer, RedisServer};
use tidegate_peers::statistics::{median, thousands};
use tidegate_peers::{Result, serve, table};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

const ROUND_TRIP: Duration = Duration::from_millis(20);
/// How long a client waits that gives up.
const PATIENCE: Duration = Duration::from_millis(8);
const HOUR: Duration = Duration::from_secs(3_600);

/// The clients of the other route of one process.
#[derive(Debug, Clone, Copy)]
struct Clients {
    name: &'static str,
    number: usize,
    leave: bool,
    /// The place of the process with as many clients that wait.
    control: usize,
}

const fn clients(name: &'static str, number: usize, leave: bool, control: usize) -> Clients {
    Clients {
        name,
        number,
        leave,
        control,
    }
}

const CLIENTS: [Clients; 5] = [
    clients("12 that leave after 8 ms", 12, true, 1),
    clients("12 that wait", 12, false, 1),
    clients("1 that leaves after 8 ms", 1, true, 3),
    clients("1 that waits", 1, false, 3),
    clients("none", 0, false, 4),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, redis] = arguments.as_slice()
        && serve == "serve"
    {
        return serve::serve(router(redis));
    }
    let Rounds { rounds, seconds } = Rounds::from_arguments()?;
    let redis = RedisServer::start(&[])?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let proxy = runtime.block_on(delayed(redis.port))?;
    let url = format!("redis://127.0.0.1:{proxy}");
    let servers = CLIENTS.map(|_| HttpServer::start(&url));
    let servers: Vec<HttpServer> = servers.into_iter().collect::<Result<_>>()?;
    let mut seen = [const { Vec::new() }; CLIENTS.len()];
    for round in 1..=rounds {
        eprintln!("bystander: round {round}");
        let mut processes = JoinSet::new();
        for (at, clients) in CLIENTS.into_iter().enumerate() {
            let (port, length) = (servers[at].port, Duration::from_secs(seconds));
            let process = async move { (at, run(port, clients, length).await) };
            processes.spawn_on(process, runtime.handle());
        }
        while let Some(ended) = runtime.block_on(processes.join_next()) {
            let (at, one) = ended?;
            seen[at].push(one?);
        }
    }
    let rows = CLIENTS.into_iter().zip(&seen);
    let rows = rows.map(|(clients, own)| row(clients.name, own, &seen[clients.control]));
    table::print(
        &[
            "clients of the other route",
            "a bystander's decisions",
            "to those beside as many that wait",
            "median, ms",
            "to theirs",
            "errors",
        ],
        &rows.collect::<Vec<_>>(),
    );
    Ok(())
}

/// What a bystander saw in one round.
struct Seen {
    decisions: f64,
    median: f64,
    errors: usize,
}

fn row(name: &str, own: &[Seen], control: &[Seen]) -> Vec<String> {
    let ratios = |of: fn(&Seen) -> f64| {
        let ratios = own.iter().zip(control).map(|(own, its)| of(own) / of(its));
        let ratios: Vec<f64> = ratios.collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        format!("{:.3} ({least:.3} to {most:.3})", median(ratios))
    };
    let medians = own.iter().map(|seen| seen.median);
    vec![
        name.to_owned(),
        thousands(own.iter().map(|seen| seen.decisions).sum()),
        ratios(|seen| seen.decisions),
        format!("{:.1}", median(medians)),
        ratios(|seen| seen.median),
        own.iter()
            .map(|seen| seen.errors)
            .sum::<usize>()
            .to_string(),
    ]
}

/// Two routes over one store, with the default time-out of 50 ms.
async fn router(redis: &str) -> Result<Router> {
    let store = RedisStore::connect(redis).await?;
    let route = |path: &str| {
        let layer = RateLimitLayer::new(path, HOUR, 1_000_000_000).store(store.clone());
        Router::new().route(&format!("/{path}"), get(handler).layer(layer))
    };
    Ok(route("hasty").merge(route("calm")))
}

async fn run(port: u16, clients: Clients, length: Duration) -> Result<Seen> {
    let is_over = Arc::<AtomicBool>::default();
    let mut others = JoinSet::new();
    for _ in 0..clients.number {
        let is_over = Arc::clone(&is_over);
        others.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                // A client that cannot connect asks again.
                let _ = ask_hastily(port, clients).await;
            }
        });
    }
    let mut client = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
    let (mut times, mut errors, began) = (Vec::new(), 0, Instant::now());
    while began.elapsed() < length {
        let asked = Instant::now();
        match ask(&mut client, "/calm").await? {
            200 => times.push(asked.elapsed().as_secs_f64() * 1e3),
            _ => errors += 1,
        }
    }
    is_over.store(true, Ordering::Relaxed);
    others.join_all().await;
    Ok(Seen {
        decisions: times.len() as f64 / began.elapsed().as_secs_f64() * length.as_secs_f64(),
        median: median(times),
        errors,
    })
}

/// One request over a connection of its own, at most every 8 ms. It is left, or its answer is read
/// while the next one is under way.
async fn ask_hastily(port: u16, clients: Clients) -> Result<()> {
    let mut client = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
    if !clients.leave {
        tokio::spawn(async move { ask(&mut client, "/hasty").await.is_ok() });
        sleep(PATIENCE).await;
        return Ok(());
    }
    let request = b"GET /hasty HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.get_mut().write_all(request).await?;
    sleep(PATIENCE).await;
    Ok(())
}

/// The status of the answer.
async fn ask(client: &mut BufReader<TcpStream>, path: &str) -> Result<u16> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.get_mut().write_all(request.as_bytes()).await?;
    let mut line = String::new();
    client.read_line(&mut line).await?;
    let status = line.get(9..12).ok_or("no status line")?.parse()?;
    let mut length = 0;
    loop {
        line.clear();
        client.read_line(&mut line).await?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse()?;
            }
            Some(_) => {}
            None => break,
        }
    }
    client.read_exact(&mut vec![0; length]).await?;
    Ok(status)
}

/// The port of a proxy that adds the round trip to every call.
async fn delayed(redis: u16) -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", redis)).await else {
                return;
            };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(carry(from_client, to_server));
            tokio::spawn(carry(from_server, to_client));
        }
    });
    Ok(port)
}

/// Writes what is read half a round trip later.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let (line, mut due) = mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, bytes)) = due.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        let at = tokio::time::Instant::now() + ROUND_TRIP / 2;
        if line.send((at, bytes[..length].to_vec())).is_err() {
            return;
        }
    }
}
