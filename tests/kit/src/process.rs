//! One `redis-server` with arguments of its own, as a node of a cluster, behind sentinels, or as a
//! sentinel.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_test::utils::get_random_available_port;
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// A running server, with a folder of its own; both are gone when it is dropped.
pub struct Process {
    child: Child,
    folder: Arc<TempDir>,
    arguments: Vec<String>,
    pub port: u16,
    held: Option<TcpSocket>,
}

impl Process {
    /// Starts it on a free port; `arguments` come behind the port's.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        loop {
            // Another process may take the free port first; then this server is gone at once.
            let port = get_random_available_port();
            if let Some(process) = Self::try_start(&folder, port, arguments) {
                return process;
            }
        }
    }

    /// Starts a sentinel: its file of settings has these lines.
    pub fn sentinel(lines: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        loop {
            let port = get_random_available_port();
            let file = folder.path().join("sentinel.conf");
            std::fs::write(&file, lines).expect("is written");
            let file = file.to_str().expect("an ordinary path");
            if let Some(process) = Self::try_start(&folder, port, &[file, "--sentinel"]) {
                return process;
            }
        }
    }

    fn try_start(folder: &Arc<TempDir>, port: u16, arguments: &[&str]) -> Option<Self> {
        // The name of a file of settings comes first.
        let (file, others) = match arguments {
            [file, others @ ..] if file.ends_with(".conf") => (Some(*file), others),
            others => (None, others),
        };
        let port_text = port.to_string();
        let mut all: Vec<String> = file.into_iter().map(str::to_owned).collect();
        all.extend(["--port", &port_text, "--bind", "127.0.0.1"].map(str::to_owned));
        all.extend(others.iter().map(|argument| (*argument).to_owned()));
        let mut process = Self {
            child: spawn(folder, &all),
            folder: Arc::clone(folder),
            arguments: all,
            port,
            held: None,
        };
        process.answers().then_some(process)
    }

    fn answers(&mut self) -> bool {
        let started = Instant::now();
        while self.child.try_wait().expect("our child").is_none() {
            let pid = self.try_connection().and_then(|mut connection| {
                redis::cmd("INFO")
                    .arg("server")
                    .query::<redis::InfoDict>(&mut connection)
            });
            match pid {
                Ok(info) => {
                    return info.get::<i64>("process_id") == Some(i64::from(self.child.id()));
                }
                // One that wants a password is there.
                Err(error) if error.to_string().contains("NOAUTH") => return true,
                Err(_) => {}
            }
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "redis-server does not answer"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    fn try_connection(&self) -> redis::RedisResult<redis::Connection> {
        let client = redis::Client::open(self.url()).expect("a valid address");
        let connection = client.get_connection_with_timeout(Duration::from_secs(20))?;
        connection.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(connection)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// A plain connection, to look behind the curtain.
    pub fn connection(&self) -> redis::Connection {
        self.try_connection().expect("a running server")
    }

    /// One command, of words; it must not matter if it is done twice.
    pub fn run<T: redis::FromRedisValue>(&self, command: &str) -> T {
        let mut answer = self.try_run(command);
        for _ in 0..3 {
            // A server that is made a replica hangs up on everybody.
            if answer.as_ref().is_err_and(redis::RedisError::is_io_error) {
                answer = self.try_run(command);
            }
        }
        answer.unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub fn try_run<T: redis::FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        crate::server::words(command).query(&mut self.try_connection()?)
    }

    /// Calls of these commands so far, such as `evalsha`.
    pub fn calls(&self, commands: &[&str]) -> u64 {
        crate::server::calls_of(&self.run::<String>("INFO commandstats"), commands)
    }

    /// Waits until it is a `master`, or a `slave`.
    pub async fn becomes(&self, role: &str) {
        let is_so = || {
            let replication: String = self.run("INFO replication");
            replication.contains(&format!("role:{role}"))
        };
        crate::load::until(&format!("it is a {role}"), is_so).await;
    }

    /// Sends the server a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status();
        assert!(status.expect("kill runs").success());
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
        self.held = Some(crate::server::hold(self.port));
    }

    /// Starts it again, after [`Process::kill`], with these arguments besides, and does not wait.
    pub fn respawn(&mut self, besides: &[&str]) {
        let besides = besides.iter().map(|&word| word.to_owned());
        self.arguments.extend(besides);
        self.held = None;
        self.child = spawn(&self.folder, &self.arguments);
    }

    /// Starts it again, after [`Process::kill`], with what it wrote down in its folder.
    pub fn restart(&mut self) {
        self.respawn(&[]);
        assert!(self.answers(), "the port was taken meanwhile");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &TempDir, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(arguments)
        .args(["--dir", folder.path().to_str().expect("an ordinary path")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server starts")
}

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_secs(150),
            "never: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
