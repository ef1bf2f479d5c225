//! A TCP proxy between a store and its server, to do what networks do.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of connections.
#[derive(Clone)]
struct Rules {
    /// Where new connections lead to: host and port.
    target: String,
    /// Connections made in an earlier age are held open, and carry nothing any more.
    age: u64,
    /// How long a connection lasts.
    lifetime: Duration,
}

/// A proxy on a free port.
pub(crate) struct Proxy {
    pub(crate) url: String,
    rules: watch::Sender<Rules>,
    accepted: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let rules = watch::Sender::new(Rules {
            target: target(url),
            age: 0,
            lifetime: Duration::from_secs(3600),
        });
        let accepted = Arc::new(AtomicUsize::new(0));
        let (seen, counter) = (rules.subscribe(), accepted.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(client, seen.clone()));
            }
        });
        Self {
            url: format!("redis://{address}"),
            rules,
            accepted,
            task,
        }
    }

    /// New connections lead there; those that are there stay.
    pub(crate) fn lead_to(&self, url: &str) {
        self.rules.send_modify(|rules| rules.target = target(url));
    }

    /// Nothing gets through the connections that are there, and nobody is told.
    pub(crate) fn fall_silent(&self) {
        self.rules.send_modify(|rules| rules.age += 1);
    }

    /// New connections last only so long.
    pub(crate) fn cut_after(&self, lifetime: Duration) {
        self.rules.send_modify(|rules| rules.lifetime = lifetime);
    }

    /// Connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn target(url: &str) -> String {
    url.trim_start_matches("redis://").to_owned()
}

async fn carry(mut client: TcpStream, mut seen: watch::Receiver<Rules>) {
    let rules = seen.borrow().clone();
    let Ok(mut server) = TcpStream::connect(&rules.target).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        () = tokio::time::sleep(rules.lifetime) => return,
        _ = seen.wait_for(|now| now.age > rules.age) => {}
    }
    // Held open, but nothing is carried; until the test ends.
    std::future::pending::<()>().await;
}
