//! A Redis for an example: the one at `REDIS_URL`, or a `redis-server` that the example starts.
#![allow(dead_code, reason = "each example uses a part")]

use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::{Redis, StoreError};

/// Is kept for as long as the server has to run.
pub(crate) struct Server {
    pub(crate) url: String,
    own: Option<OwnServer>,
}

impl Server {
    pub(crate) fn from_env() -> Result<Self, Box<dyn Error>> {
        match std::env::var("REDIS_URL") {
            Ok(url) => Ok(Self { url, own: None }),
            Err(_) => Self::start(),
        }
    }

    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        // The system's choice of a free port.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let own = OwnServer::start(port)?;
        let url = format!("redis://127.0.0.1:{port}");
        Ok(Self {
            url,
            own: Some(own),
        })
    }

    pub(crate) async fn connect(&self) -> Result<Redis, StoreError> {
        Redis::connect(&self.url).await
    }

    pub(crate) fn kill(&mut self) {
        if let Some(own) = &mut self.own {
            own.kill();
        }
    }

    /// Starts the server again after a kill. It is empty.
    pub(crate) fn restart(&mut self) -> Result<(), Box<dyn Error>> {
        if let Some(own) = &mut self.own {
            *own = OwnServer::start(own.port)?;
        }
        Ok(())
    }
}

/// A server that ends when this is dropped.
struct OwnServer {
    port: u16,
    process: Child,
}

impl OwnServer {
    fn start(port: u16) -> Result<Self, Box<dyn Error>> {
        let started = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--bind",
                "127.0.0.1",
            ])
            .stdout(Stdio::null())
            .spawn();
        let process = started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                "there is no redis-server: install it, or set REDIS_URL".into()
            }
            _ => format!("redis-server does not start: {error}"),
        })?;
        let server = Self { port, process };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > Duration::from_secs(5) {
                return Err("redis-server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn kill(&mut self) {
        // It fails if the server has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
    }
}
