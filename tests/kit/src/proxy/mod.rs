//! A TCP proxy between a store and its server, to do what networks do.

mod carry;
mod flights;
mod frame;

pub use flights::{Extra, FaultTrace, FlightFault, Part, Spot};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use flights::Faults;

/// What happens to a connection.
#[derive(Debug, Clone, Copy)]
pub enum Mode {
    Pass,
    /// What is sent is lost, and nobody is told: the connection is dead for good.
    BlackHole,
    /// Nothing is carried for now; it comes late, when the connection passes again.
    Hold,
    /// All takes so much longer.
    Delay {
        calls: Duration,
        replies: Duration,
    },
    /// Closed after so many more bytes of replies.
    CutAfter(usize),
    /// Closed by a reset.
    Reset,
    /// These bytes come instead of replies.
    Garbage(&'static [u8]),
    /// The client hears that there are no more replies, and may go on to call.
    HalfClosed,
    /// So many more replies are lost, and those behind them are not.
    LoseReplies(usize),
    /// The contents of so many more replies that are strings are edited.
    Edit {
        edit: fn(&mut Vec<u8>),
        replies: usize,
    },
    /// Closed when nothing was carried for so long.
    CloseIdle(Duration),
}

#[derive(Clone)]
struct Rules {
    /// Where new connections lead to: host and port.
    target: String,
    /// Connections of an earlier age are the present ones, those of this age are new.
    age: u64,
    present: Mode,
    new: Mode,
    /// How long a new connection lasts.
    lifetime: Duration,
    /// The fault of one flight, if flights are told apart.
    faults: Option<Arc<Faults>>,
}

/// A proxy on a free port.
pub struct Proxy {
    pub url: String,
    address: String,
    rules: watch::Sender<Rules>,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
    faults: Option<Arc<Faults>>,
}

impl Proxy {
    pub async fn start(url: &str) -> Self {
        Self::start_with(url, None).await
    }

    /// A proxy that tells flights apart, for [`Proxy::break_flight`].
    pub async fn start_with_flights(url: &str) -> Self {
        Self::start_with(url, Some(Arc::default())).await
    }

    async fn start_with(url: &str, faults: Option<Arc<Faults>>) -> Self {
        let rules = watch::Sender::new(Rules {
            target: target(url),
            age: 0,
            present: Mode::Pass,
            new: Mode::Pass,
            lifetime: Duration::from_secs(3600),
            faults: faults.clone(),
        });
        let accepted = Arc::new(AtomicUsize::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        Self {
            url: format!("redis://{address}"),
            address,
            task: tokio::spawn(accept(listener, accepted.clone(), rules.subscribe())),
            rules,
            accepted,
            faults,
        }
    }

    /// What happens to the connections that are there.
    pub fn present(&self, mode: Mode) {
        self.rules.send_modify(|rules| {
            rules.age += 1;
            rules.present = mode;
        });
    }

    /// What happens to all connections, present and to come.
    pub fn all(&self, mode: Mode) {
        self.rules.send_modify(|rules| {
            rules.present = mode;
            rules.new = mode;
        });
    }

    /// All calls and all replies take so much longer.
    pub fn delay(&self, calls: Duration, replies: Duration) {
        self.all(Mode::Delay { calls, replies });
    }

    /// Connections are refused: nobody listens any more.
    pub async fn refuse(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// After [`Proxy::refuse`].
    pub async fn accept_again(&mut self) {
        let listener = TcpListener::bind(&self.address).await;
        let listener = listener.expect("the port is still free");
        let (accepted, rules) = (self.accepted.clone(), self.rules.subscribe());
        self.task = tokio::spawn(accept(listener, accepted, rules));
    }

    /// New connections lead there; those that are there stay.
    pub fn lead_to(&self, url: &str) {
        self.rules.send_modify(|rules| rules.target = target(url));
    }

    /// Nothing gets through the connections that are there, and nobody is told.
    pub fn fall_silent(&self) {
        self.present(Mode::BlackHole);
    }

    /// New connections last only so long.
    pub fn cut_after(&self, lifetime: Duration) {
        self.rules.send_modify(|rules| rules.lifetime = lifetime);
    }

    /// Breaks one flight: that which contains this and comes after so many others that do. Forgets
    /// the trace of the one before.
    ///
    /// # Panics
    ///
    /// If it was not started with flights.
    pub fn break_flight(&self, fault: FlightFault, contains: &str, skip: usize) {
        self.faults().arm(fault, contains.as_bytes(), skip);
    }

    /// What became of [`Proxy::break_flight`].
    ///
    /// # Panics
    ///
    /// If it was not started with flights.
    pub fn fault_trace(&self) -> FaultTrace {
        self.faults().trace()
    }

    fn faults(&self) -> &Faults {
        self.faults.as_ref().expect("flights are told apart")
    }

    /// Connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn target(url: &str) -> String {
    let (_, target) = url.split_once("://").expect("a URL");
    target.to_owned()
}

async fn accept(listener: TcpListener, accepted: Arc<AtomicUsize>, rules: watch::Receiver<Rules>) {
    while let Ok((client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(carry::carry(client, rules.clone()));
    }
}
