//! The Redis servers and the HTTP server that a run starts, and ends when it is over.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Connection, InfoDict, cmd};

use crate::Result;

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// The processor time of all its threads since its start.
    fn cpu_micros(&self) -> Result<f64> {
        let mut nanos = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let times = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += times.split(' ').next().unwrap_or_default().parse::<f64>()?;
        }
        Ok(nanos / 1_000.0)
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !done() {
        if started.elapsed() > Duration::from_secs(10) {
            return Err(format!("waited 10 s in vain: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// One `redis-server` on a free port, with nothing on disk.
pub struct RedisServer {
    process: Running,
    pub port: u16,
    connection: Connection,
}

impl RedisServer {
    pub fn start(arguments: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let folder: PathBuf = std::env::temp_dir();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(folder)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()?;
        let process = Running(process);
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
        let mut connection = None;
        wait_until("a Redis server answers", || {
            connection = client.get_connection().ok();
            connection.is_some()
        })?;
        let mut connection = connection.ok_or("no connection")?;
        let info: InfoDict = cmd("INFO").arg("server").query(&mut connection)?;
        if info.get::<u32>("process_id") != Some(process.0.id()) {
            return Err(format!("another server answers on port {port}").into());
        }
        Ok(Self {
            process: process,
            port,
            connection,
        })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The processor time of all its threads since its start.
    pub fn cpu_micros(&self) -> Result<f64> {
        self.process.cpu_micros()
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn run(&mut self, command: &str) -> Result<String> {
        let mut words = command.split(' ');
        let mut built = cmd(words.next().unwrap_or_default());
        words.for_each(|word| {
            built.arg(word);
        });
        Ok(built.query(&mut self.connection)?)
    }

    /// Begins a new count of the calls.
    pub fn reset_counts(&mut self) -> Result<()> {
        self.run("CONFIG RESETSTAT").map(drop)
    }

    /// The script calls since the last reset, and the processor time since the start.
    pub fn counts(&mut self) -> Result<RedisCounts> {
        let info: InfoDict = cmd("INFO")
            .arg("commandstats")
            .arg("cpu")
            .query(&mut self.connection)?;
        let mut counts = RedisCounts::default();
        // What a script calls is counted in its own line and again in the script's, so that only
        // the scripts' lines are added up.
        for command in ["evalsha", "eval", "script|load"] {
            if let Some(line) = info.get::<String>(&format!("cmdstat_{command}")) {
                counts.calls += field(&line, "calls=")?;
                counts.script_micros += field(&line, "usec=")?;
            }
        }
        for part in ["user", "sys"] {
            let seconds: Option<f64> = info.get(&format!("used_cpu_{part}_main_thread"));
            counts.cpu_micros += seconds.ok_or("no processor time in INFO")? * 1e6;
        }
        Ok(counts)
    }
}

fn field(line: &str, name: &str) -> Result<f64> {
    let value = line.split(',').find_map(|pair| pair.strip_prefix(name));
    Ok(value
        .ok_or_else(|| format!("no {name} in {line}"))?
        .parse()?)
}

#[derive(Debug, Default, Clone, Copy)]
pub struct RedisCounts {
    pub calls: f64,
    pub script_micros: f64,
    pub cpu_micros: f64,
}

/// A cluster of masters, without replicas.
pub struct RedisCluster {
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    pub const SLOTS: usize = 16_384;

    pub fn start(masters: usize) -> Result<Self> {
        let mut nodes = Vec::new();
        let mut bus_ports = Vec::new();
        for _ in 0..masters {
            let bus_port = free_port()?.to_string();
            // Every node needs a file of its own for what it knows of the others.
            let file = format!("tidegate-peers-{}-{bus_port}.conf", std::process::id());
            nodes.push(RedisServer::start(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus_port,
                "--cluster-config-file",
                &file,
            ])?);
            bus_ports.push(bus_port);
        }
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", nodes[0].port, bus_ports[0]);
        for (place, node) in nodes.iter_mut().enumerate() {
            let first = Self::SLOTS * place / masters;
            let last = Self::SLOTS * (place + 1) / masters - 1;
            node.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", place + 1))?;
            node.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            node.run(&meet)?;
        }
        let mut cluster = Self { nodes };
        wait_until("the cluster is ready", || cluster.is_ready())?;
        Ok(cluster)
    }

    fn is_ready(&mut self) -> bool {
        let all = self.nodes.len();
        self.nodes.iter_mut().all(|node| {
            let info = node.run("CLUSTER INFO").unwrap_or_default();
            info.contains("cluster_state:ok")
                && info.contains("cluster_slots_ok:16384")
                && info.contains(&format!("cluster_known_nodes:{all}"))
        })
    }

    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(|node| node.port).collect();
        let addresses: Vec<_> = addresses.iter().map(|p| format!("127.0.0.1:{p}")).collect();
        format!("redis-cluster://{}", addresses.join(","))
    }

    /// Which node has each key.
    pub fn owners(&mut self, keys: &[String]) -> Result<Vec<usize>> {
        let masters = self.nodes.len();
        let mut pipeline = redis::pipe();
        for key in keys {
            pipeline.cmd("CLUSTER").arg("KEYSLOT").arg(key);
        }
        let slots: Vec<usize> = pipeline.query(self.nodes[0].connection())?;
        let owner = |slot: &usize| (0..masters).find(|at| *slot < Self::SLOTS * (at + 1) / masters);
        let owners: Option<_> = slots.iter().map(owner).collect();
        owners.ok_or_else(|| "a slot without a master".into())
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let file: redis::RedisResult<Vec<String>> = cmd("CONFIG")
                .arg("GET")
                .arg("cluster-config-file")
                .query(node.connection());
            // A file that stays behind does no harm.
            if let Some(file) = file.ok().and_then(|pair| pair.into_iter().nth(1)) {
                let _ = std::fs::remove_file(std::env::temp_dir().join(file));
            }
        }
    }
}

/// This program as the HTTP server, in a process of its own.
pub struct HttpServer {
    process: Running,
    pub port: u16,
}

impl HttpServer {
    pub fn start(redis: &str) -> Result<Self> {
        Self::of(&std::env::current_exe()?, redis)
    }

    /// Another build of this program.
    pub fn of(program: &Path, redis: &str) -> Result<Self> {
        let mut process = Command::new(program)
            .args(["serve", redis])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let process = Running(process);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let port = line.trim().parse();
        let port = port.map_err(|_| "the HTTP server did not start")?;
        Ok(Self {
            process: process,
            port,
        })
    }

    /// The processor time of all its threads since its start.
    pub fn cpu_micros(&self) -> Result<f64> {
        self.process.cpu_micros()
    }

    /// One request, with a header field if there is one; its status code and body.
    pub fn get(&self, path: &str, field: Option<&str>) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let field = field.map(|field| format!("{field}\r\n"));
        let field = field.unwrap_or_default();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        stream.write_all(format!("{head}{field}\r\n").as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let status = response.get(9..12).ok_or("no status line")?.parse()?;
        let body = response.split_once("\r\n\r\n").ok_or("no body")?.1;
        Ok((status, body.to_owned()))
    }

    /// How many responses were 200, 429 and anything else since the last call.
    pub fn statuses(&self) -> Result<[f64; 3]> {
        let (_, body) = self.get("/statuses", None)?;
        let counts: std::result::Result<Vec<f64>, _> = body.split(' ').map(str::parse).collect();
        let counts: std::result::Result<[f64; 3], _> = counts?.try_into();
        counts.map_err(|_| format!("not three counts: {body}").into())
    }
}
