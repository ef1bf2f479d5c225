//! A Redis server that this app starts, stops and starts again, so that its page can show what
//! becomes of the limits meanwhile. It keeps nothing on disk.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use crate::child::Owned;

/// How long it may take until it can be asked.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that was started at least once.
pub(crate) struct OwnRedis {
    port: u16,
    server: Arc<Mutex<Option<Owned>>>,
}

impl OwnRedis {
    /// Starts one on a free port, if `redis-server` is installed.
    pub(crate) async fn start() -> Option<Self> {
        let mut version = Command::new("redis-server");
        version.arg("--version").stdin(Stdio::null());
        let found = version.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|it| it.success()) {
            return None;
        }
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let port = free.local_addr().ok()?.port();
        drop(free);
        let redis = Self {
            port,
            server: Arc::default(),
        };
        redis.run().await.ok().map(|()| redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Also false while it is being started or stopped.
    pub(crate) fn is_running(&self) -> bool {
        self.server.try_lock().is_ok_and(|server| server.is_some())
    }

    /// Starts it, unless it runs, and returns once it can be asked.
    pub(crate) async fn run(&self) -> Result<(), String> {
        let (server, port) = (Arc::clone(&self.server), self.port.to_string());
        let start = move || {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            if server.is_some() {
                return Ok(());
            }
            let folder = std::env::temp_dir().display().to_string();
            let arguments = [
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                &folder,
            ];
            let (started, output) = Owned::start("redis-server", &arguments, &[])?;
            // A pipe that nobody reads fills up, and one that is closed is an error to the server.
            std::thread::spawn(move || {
                output.map(|mut it| std::io::copy(&mut it, &mut std::io::sink()))
            });
            *server = Some(started);
            Ok(())
        };
        let started = spawn_blocking(start)
            .await
            .map_err(|error| error.to_string())?;
        started.map_err(|error: std::io::Error| format!("redis-server: {error}"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let began = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if began.elapsed() > PATIENCE {
                self.stop().await;
                return Err(format!("redis-server does not answer at {address}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Ends it. What it counted is lost.
    pub(crate) async fn stop(&self) {
        let server = Arc::clone(&self.server);
        // The next one cannot begin before its end, which leaves the port.
        let end = move || *server.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = spawn_blocking(end).await;
    }
}
