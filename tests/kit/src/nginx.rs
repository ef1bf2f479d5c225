//! A real nginx in front of servers of a test, with its defaults.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis_test::utils::get_random_available_port;
use tempfile::TempDir;

/// A running nginx; it and its folder are gone when this is dropped.
pub struct Nginx {
    child: Child,
    _folder: TempDir,
    pub address: SocketAddr,
}

impl Nginx {
    /// Passes all requests on to these servers, such as `127.0.0.1:3000` and `unix:/tmp/socket`.
    ///
    /// # Panics
    ///
    /// If it does not start: the Debian package is `nginx-light`.
    pub fn before(servers: &[String]) -> Self {
        Self::start(servers, "", "", "")
    }

    /// The same, with a limit for each address: a rate such as `20r/m`, and what else `limit_req` says.
    /// What it denies gets a 429.
    ///
    /// # Panics
    ///
    /// As [`before`](Self::before).
    pub fn limiting(servers: &[String], rate: &str, limit: &str) -> Self {
        let zone = format!("limit_req_zone $binary_remote_addr zone=all:1m rate={rate};");
        let limit = format!("limit_req zone=all {limit}; limit_req_status 429;");
        Self::start(servers, &zone, "", &limit)
    }

    /// The same, with connections to the servers that it keeps and uses again, as many set-ups have
    /// it. With `streams` it passes a request on before it has read it whole, in chunks if it comes
    /// in chunks.
    ///
    /// # Panics
    ///
    /// As [`before`](Self::before).
    pub fn keeping(servers: &[String], streams: bool) -> Self {
        let buffering = if streams { "off" } else { "on" };
        let proxy = format!(
            "proxy_http_version 1.1; proxy_set_header Connection \"\";
            proxy_request_buffering {buffering};"
        );
        Self::start(servers, "", "keepalive 16;", &proxy)
    }

    fn start(servers: &[String], zone: &str, upstream: &str, proxy: &str) -> Self {
        loop {
            // Another process may take the free port first; then this nginx is gone at once.
            let port = get_random_available_port();
            if let Some(nginx) = Self::try_start(port, servers, zone, upstream, proxy) {
                return nginx;
            }
        }
    }

    fn try_start(
        port: u16,
        servers: &[String],
        zone: &str,
        upstream: &str,
        proxy: &str,
    ) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let servers: String = servers.iter().map(|it| format!("server {it};")).collect();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = temporary.map(|it| format!("{it}_temp_path {path}/{it};"));
        let settings = format!(
            "pid {path}/pid; daemon off; events {{}}
            http {{
                access_log off; client_max_body_size 0; {zone} {}
                upstream servers {{ {servers} {upstream} }}
                server {{
                    listen 127.0.0.1:{port};
                    location / {{
                        proxy_pass http://servers; {proxy}
                        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                    }}
                }}
            }}",
            temporary.concat()
        );
        let [file, log] = ["nginx.conf", "log"].map(|name| folder.path().join(name));
        std::fs::write(&file, settings).expect("is written");
        let nginx = Command::new("nginx")
            .arg("-c")
            .arg(file)
            .arg("-e")
            .arg(log)
            .stderr(Stdio::null())
            .spawn();
        let mut nginx = Self {
            child: nginx.expect("nginx starts: the Debian package is nginx-light"),
            _folder: folder,
            address: ([127, 0, 0, 1], port).into(),
        };
        nginx.listens().then_some(nginx)
    }

    fn listens(&mut self) -> bool {
        let started = Instant::now();
        while self.child.try_wait().expect("our child").is_none() {
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "nginx is silent"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master process ends its workers, unless it is killed.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}
