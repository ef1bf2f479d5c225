//! Three routes over Redis that take turns: a lone request, and 64 connections of `wrk`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use axum::Router;
use kit::Redis;
use redis::Connection;
use tidegate::{Algorithm, RedisStore};

use crate::served::{CALLS, Costs, MICROS, loaded, script_calls, serve};
use crate::support::{Table, median, number_of_rounds};

/// Lone requests of a contender before the next one's turn, and turns in a round.
const REQUESTS: usize = 50;
const TURNS: usize = 20;

/// Microseconds of each of these requests, one after the other.
fn lone(connection: &mut TcpStream, path: &str) -> Vec<f64> {
    let request = format!("GET /{path} HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut response = [0; 4096];
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let asked = Instant::now();
        connection.write_all(request.as_bytes()).expect("sends");
        let mut size = 0;
        while !response[..size].ends_with(b"\r\n\r\n1") {
            size += connection.read(&mut response[size..]).expect("an answer");
            assert!(response.starts_with(b"HTTP/1.1 200 "), "{path} was denied");
        }
        times.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    times
}

/// The median of a lone request, its script calls, and microseconds of the server.
fn lone_round(names: [&str; 3], server: &mut Connection, connection: &mut TcpStream) -> [Costs; 3] {
    let mut times = [const { Vec::new() }; 3];
    let mut costs = [Costs::default(); 3];
    for _ in 0..TURNS {
        for (at, path) in names.into_iter().enumerate() {
            script_calls(server);
            times[at].extend(lone(connection, path));
            let (calls, micros) = script_calls(server);
            costs[at][CALLS] += calls / (TURNS * REQUESTS) as f64;
            costs[at][MICROS] += micros / (TURNS * REQUESTS) as f64;
        }
    }
    for (costs, times) in costs.iter_mut().zip(times) {
        costs[0] = median(times);
    }
    costs
}

/// The same over 64 connections: requests a second.
fn loaded_round(names: [&str; 3], server: &mut Connection, address: SocketAddr) -> [Costs; 3] {
    names.map(|path| loaded(server, address, path))
}

fn row(algorithm: Algorithm, rounds: &[[Costs; 3]], decimals: usize) -> Vec<String> {
    let of = |at: usize, cost: usize| median(rounds.iter().map(|round| round[at][cost]));
    let to = |other: usize| median(rounds.iter().map(|round| round[0][0] / round[other][0]));
    let each = |cost, decimals| {
        let cells = (0..3).map(|at| format!("{:.decimals$}", of(at, cost)));
        cells.collect::<Vec<_>>().join(" / ")
    };
    vec![
        algorithm.name().to_owned(),
        each(0, decimals),
        format!("{:.2}", to(1)),
        format!("{:.2}", to(2)),
        each(CALLS, 3),
        each(MICROS, 1),
    ]
}

/// Measures the routes of this application that have these names, under each algorithm.
pub(crate) fn measure(
    names: [&str; 3],
    columns: [&'static str; 3],
    app: impl Fn(&RedisStore, Algorithm) -> Router,
) {
    let server = Redis::start();
    let mut connection = server.connection();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = runtime.block_on(RedisStore::connect(server.url.as_str()));
    let store = store.expect("connects").timeout(Duration::from_secs(5));
    let rounds = number_of_rounds(9);
    let behind = ["script calls a request", "µs of the server a request"];
    let table = |first| Table::new(&[&[first], &columns[..], &behind].concat());
    let mut of_lone = table("a lone request, p50 in µs");
    let mut of_loaded = table("64 connections, requests a second");
    for algorithm in Algorithm::ALL {
        let address = runtime.block_on(serve(app(&store, algorithm)));
        let mut client = TcpStream::connect(address).expect("connects");
        client.set_nodelay(true).expect("a connection");
        lone_round(names, &mut connection, &mut client);
        let (mut lone, mut loaded) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            lone.push(lone_round(names, &mut connection, &mut client));
            loaded.push(loaded_round(names, &mut connection, address));
        }
        of_lone.row(&row(algorithm, &lone, 0));
        of_loaded.row(&row(algorithm, &loaded, 0));
    }
    of_lone.print();
    of_loaded.print();
}
