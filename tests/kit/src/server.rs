//! Real servers for tests: each context has its own, on a free port, gone when it is dropped.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use redis::ConnectionAddr;
use redis_test::server::RedisServer;
use redis_test::utils::get_random_available_port;
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::fake_clock::FakeClock;

/// A running `redis-server`.
pub struct Redis {
    server: RedisServer,
    pub url: String,
    /// What it is started with besides.
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// Where its dumps go.
    folder: TempDir,
    held: Option<TcpSocket>,
}

impl Redis {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If there is no `redis-server`: these tests never skip.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with arguments of its own, which a restart repeats.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_in(&[], arguments)
    }

    /// The same by a clock of its own, which a restart keeps.
    pub fn start_by(clock: &FakeClock, arguments: &[&str]) -> Self {
        Self::start_in(&clock.environment(), arguments)
    }

    fn start_in(environment: &[(&'static str, String)], arguments: &[&str]) -> Self {
        loop {
            let addr = RedisServer::get_addr(get_random_available_port());
            let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
            let folder = tempfile::tempdir().expect("a folder");
            let server = spawn(addr, environment, &arguments, folder.path());
            let (host, port) = server.host_and_port().expect("a TCP server");
            let url = format!("redis://{host}:{port}");
            let mut redis = Self {
                server,
                url,
                arguments,
                environment: environment.to_vec(),
                folder,
                held: None,
            };
            // Another process may take the free port first; then this server is gone at once.
            if redis.answers() {
                return redis;
            }
        }
    }

    fn answers(&mut self) -> bool {
        let client = redis::Client::open(&*self.url).expect("a valid address");
        let started = Instant::now();
        while self.server.process.try_wait().expect("our child").is_none() {
            let pid = client.get_connection().and_then(|mut connection| {
                redis::cmd("INFO")
                    .arg("server")
                    .query::<redis::InfoDict>(&mut connection)
            });
            let ours = i64::from(self.server.process.id());
            if let Ok(info) = pid {
                return info.get::<i64>("process_id") == Some(ours);
            }
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "redis-server does not answer"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// A plain connection, to look behind the curtain.
    pub fn connection(&self) -> redis::Connection {
        let client = redis::Client::open(&*self.url).expect("a valid address");
        client.get_connection().expect("a running server")
    }

    /// The same for a server that wants a password by now.
    pub fn connection_with_password(&self, password: &str) -> redis::Connection {
        let url = self.url.replace("//", &format!("//:{password}@"));
        let client = redis::Client::open(url).expect("a valid address");
        client.get_connection().expect("a running server")
    }

    /// What it answers to a command of words.
    pub fn run<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let answer = words(command).query(&mut self.connection());
        answer.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// The names of all keys, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.run("KEYS *");
        names.sort();
        names
    }

    /// How many milliseconds a key stays: -1 for ever, -2 if there is none.
    pub fn life(&self, key: &str) -> i64 {
        let life = redis::cmd("PTTL").arg(key).query(&mut self.connection());
        life.expect("a time to live")
    }

    /// What its clock shows, in milliseconds.
    pub fn millis(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.run("TIME");
        seconds * 1_000 + micros / 1_000
    }

    /// Whether somebody listens to this channel.
    pub fn is_listened_to(&self, channel: &str) -> bool {
        let channels: Vec<String> = self.run("PUBSUB CHANNELS");
        channels.iter().any(|one| one == channel)
    }

    /// Calls of these commands so far, such as `evalsha`.
    pub fn calls(&self, commands: &[&str]) -> u64 {
        calls_of(&self.run::<String>("INFO commandstats"), commands)
    }

    /// Calls of scripts so far.
    pub fn script_calls(&self) -> u64 {
        self.calls(&["evalsha", "eval"])
    }

    /// Where its dumps go.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends the server a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.server.process.id().to_string()])
            .status();
        assert!(status.expect("kill runs").success());
    }

    /// Begins to measure how long a test waits for something else than a processor. Only of use in
    /// a runtime of one thread.
    pub fn stopwatch(&self) -> Stopwatch<'_> {
        Stopwatch::start(Some(self))
    }

    /// How long this thread and the server have been at work, or ready to while no processor was
    /// free, as the kernel counts it.
    fn busy(&self) -> Duration {
        busy("thread-self") + busy(&self.server.process.id().to_string())
    }

    /// Makes the server a replica of the one at this address.
    pub fn follow(&self, master: &str) {
        let master = master.trim_start_matches("redis://");
        let (host, port) = master.split_once(':').expect("a port");
        let mut follow = redis::cmd("REPLICAOF");
        follow.arg(host).arg(port);
        follow.exec(&mut self.connection()).expect("follows");
    }

    /// It is killed, or it stands still.
    pub fn go_away(&mut self, is_killed: bool) {
        match is_killed {
            true => self.kill(),
            false => self.signal("STOP"),
        }
    }

    /// It is there again after that.
    pub fn come_back(&mut self, was_killed: bool) {
        match was_killed {
            true => self.restart(),
            false => self.signal("CONT"),
        }
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&mut self) {
        self.server.stop();
        let (_, port) = self.server.host_and_port().expect("a TCP server");
        self.held = Some(hold(port));
    }

    /// Starts a server on the same port, after [`Redis::kill`]: an empty one, if nothing was saved.
    pub fn restart(&mut self) {
        self.respawn();
        assert!(self.answers(), "the port was taken meanwhile");
    }

    /// The same, without waiting for an answer.
    pub fn respawn(&mut self) {
        self.held = None;
        let addr = self.server.addr.clone();
        self.server = spawn(addr, &self.environment, &self.arguments, self.folder.path());
    }
}

/// Holds the port of a server that is gone: who connects is refused, and no other server gets it.
pub(crate) fn hold(port: u16) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    let address = ([127, 0, 0, 1], port).into();
    socket.bind(address).expect("its port");
    socket
}

/// Of what `INFO commandstats` shows.
pub(crate) fn calls_of(stats: &str, commands: &[&str]) -> u64 {
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        let calls = calls.parse::<u64>().expect("a number");
        commands.contains(&name).then_some(calls)
    });
    calls.sum()
}

pub(crate) fn words(command: &str) -> redis::Cmd {
    let mut words = command.split_whitespace();
    let mut question = redis::cmd(words.next().expect("a command"));
    for word in words {
        question.arg(word);
    }
    question
}

/// A connection that waits for answers for as long as a busy machine needs, not half a second.
pub async fn async_connection(url: &str) -> redis::aio::MultiplexedConnection {
    let patience = Some(Duration::from_secs(20));
    let config = redis::AsyncConnectionConfig::new();
    let config = config.set_response_timeout(patience);
    let config = config.set_connection_timeout(patience);
    let client = redis::Client::open(url).expect("a valid address");
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.expect("a running server")
}

/// Stands still while the thread of the test or the server is at work or has to wait for a
/// processor: what it shows does not depend on how busy the machine is.
pub struct Stopwatch<'a> {
    server: Option<&'a Redis>,
    busy: Duration,
    began: Instant,
}

impl Stopwatch<'static> {
    /// One that looks at this thread alone, where the server may be gone.
    pub fn here() -> Self {
        Self::start(None)
    }
}

impl<'a> Stopwatch<'a> {
    fn start(server: Option<&'a Redis>) -> Self {
        let mut stopwatch = Self {
            server,
            busy: Duration::ZERO,
            began: Instant::now(),
        };
        stopwatch.busy = stopwatch.busy();
        stopwatch
    }

    pub fn waited(&self) -> Duration {
        // In this order: nothing that passes is left out of what is taken off.
        let elapsed = self.elapsed();
        elapsed.saturating_sub(self.busy())
    }

    /// By the wall clock.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// For how long it stood still.
    pub fn busy(&self) -> Duration {
        let now = self.server.map_or_else(busy_here, Redis::busy);
        now.saturating_sub(self.busy)
    }
}

/// How long this thread has been at work, or ready to while no processor was free.
pub fn busy_here() -> Duration {
    busy("thread-self")
}

/// Nothing where the kernel does not say.
fn busy(task: &str) -> Duration {
    let words = std::fs::read_to_string(format!("/proc/{task}/schedstat"));
    let words = words.unwrap_or_default();
    let nanos = words.split_whitespace().take(2).flat_map(str::parse::<u64>);
    Duration::from_nanos(nanos.sum())
}

fn spawn(
    addr: ConnectionAddr,
    environment: &[(&'static str, String)],
    arguments: &[String],
    folder: &Path,
) -> RedisServer {
    let spawn = |command: &mut Command| {
        let command = command.args(arguments).current_dir(folder);
        let command = command.envs(environment.iter().cloned());
        command.spawn().expect("redis-server starts")
    };
    RedisServer::new_with_addr_tls_modules_and_spawner(addr, None, None, false, None, &[], spawn)
}
