//! Whether this machine stood still for so long that a lost decision proves nothing.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::proxy::Proxy;

/// A decision that did not come.
#[derive(Debug)]
pub struct Lost {
    pub asked: Instant,
    pub answered: Instant,
    pub why: String,
}

impl Lost {
    pub fn since(asked: Instant, why: impl ToString) -> Self {
        Self {
            asked,
            answered: Instant::now(),
            why: why.to_string(),
        }
    }
}

/// Sends a PING every 2 ms over a plain connection through the same proxy. Each that takes longer
/// than it should is a time at which the machine, and not the crate, was slow.
pub struct Stalls {
    seen: Arc<Mutex<Vec<(Instant, Instant)>>>,
    _task: JoinSet<()>,
}

impl Stalls {
    const EVERY: Duration = Duration::from_millis(2);

    pub async fn watch(urls: &[&str], usual: Duration) -> Self {
        let seen = Arc::<Mutex<_>>::default();
        let mut task = JoinSet::new();
        for &url in urls {
            let client = redis::Client::open(url).expect("a valid address");
            let connection = client.get_multiplexed_async_connection().await;
            let connection = connection.expect("a running server");
            task.spawn(watch(connection, usual, Arc::clone(&seen)));
        }
        Self { seen, _task: task }
    }

    /// Whether a stall began or ended shortly before or during this wait. What gathered in a stall
    /// takes about as long again.
    pub fn excuse(&self, lost: &Lost, aftermath: Duration) -> bool {
        let seen = self.seen.lock().expect("nobody panics");
        seen.iter().any(|(began, ended)| {
            let over = *ended + (*ended - *began) + aftermath;
            *began <= lost.answered && over >= lost.asked
        })
    }

    pub fn longest(&self) -> Option<Duration> {
        let seen = self.seen.lock().expect("nobody panics");
        seen.iter().map(|(began, ended)| *ended - *began).max()
    }
}

async fn watch(
    connection: MultiplexedConnection,
    usual: Duration,
    seen: Arc<Mutex<Vec<(Instant, Instant)>>>,
) {
    let mut pings = JoinSet::new();
    loop {
        let (mut connection, seen_by_ping) = (connection.clone(), Arc::clone(&seen));
        pings.spawn(async move {
            let asked = Instant::now();
            let _: redis::RedisResult<()> = redis::cmd("PING").query_async(&mut connection).await;
            if asked.elapsed() > usual {
                let mut seen = seen_by_ping.lock().expect("nobody panics");
                seen.push((asked, Instant::now()));
            }
        });
        while pings.try_join_next().is_some() {}
        let asked = Instant::now();
        sleep(Stalls::EVERY).await;
        if asked.elapsed() > Stalls::EVERY + usual / 4 {
            let mut seen = seen.lock().expect("nobody panics");
            seen.push((asked, Instant::now()));
        }
    }
}

/// Runs an attack that says which decisions were lost.
///
/// A plain PING through the proxy is usually back within `usual`. While it is not, and for some
/// time after, lost decisions are the machine's fault.
///
/// # Panics
///
/// If a decision is lost while the machine is well.
pub async fn nothing_is_lost(
    proxy: &Proxy,
    usual: Duration,
    aftermath: Duration,
    attack: impl AsyncFnOnce() -> Vec<Lost>,
) {
    let stalls = Stalls::watch(&[&proxy.url], usual).await;
    let accepted = proxy.accepted();
    let lost = attack().await;
    let longest = stalls.longest();
    let (excused, proven): (Vec<_>, Vec<_>) = lost
        .into_iter()
        .partition(|lost| stalls.excuse(lost, aftermath));
    if !excused.is_empty() || longest.is_some() {
        let first = excused.first();
        println!(
            "{} excused by stalls up to {longest:?}: {first:?}",
            excused.len()
        );
    }
    let number = proven.len();
    assert!(
        proven.is_empty(),
        "{number} lost, stalls {longest:?}: {:?}",
        &proven[..number.min(3)]
    );
    if longest.is_none() {
        assert_eq!(proxy.accepted(), accepted, "a healthy server is kept");
    }
}
