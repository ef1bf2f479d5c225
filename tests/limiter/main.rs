//! The rate limiter: on real servers and in memory.

mod changes;
mod dropped;
mod evicted;
mod exact;
mod faults;
mod generations;
mod grants;
mod history;
mod layout;
mod own_rate;
mod runtimes;
mod scenes;
mod shares;
mod surface;
mod waiting;

use kit::prelude::*;
use tidegate::Redis;
use tokio::time::Instant;

/// A limiter with a rate for all.
async fn limiter(on: impl Into<LimiterBackend>, permits: u64, interval: u64) -> RateLimiter {
    let limiter = RateLimiter::new(on, "partner");
    let set = limiter.sets_first(overall(permits, millis(interval))).await;
    assert!(set, "the first writer wins");
    limiter
}

async fn connect(server: &kit::Redis) -> Redis {
    kit::handle(&server.url).await
}

/// A limiter, fair or not, in a task that waits for so many permits.
fn waiting(limiter: &RateLimiter, permits: u64) -> tokio::task::JoinHandle<()> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.waits(permits).await })
}

/// Where a check runs: in memory, by a clock that stands still while anything runs, or on Redis.
struct Home {
    on: LimiterBackend,
    server: Option<kit::Redis>,
}

impl Home {
    fn in_memory() -> Self {
        let on = in_memory();
        Self { on, server: None }
    }

    async fn on_redis() -> Self {
        let server = kit::Redis::start();
        let on = (&connect(&server).await).into();
        let server = Some(server);
        Self { on, server }
    }

    /// Measures how long a check waits from now on.
    fn watch(&self) -> Watch<'_> {
        match &self.server {
            None => Watch::Paused(Instant::now()),
            Some(server) => Watch::Server(server.stopwatch()),
        }
    }
}

impl From<&Home> for LimiterBackend {
    fn from(home: &Home) -> Self {
        home.on.clone()
    }
}

enum Watch<'a> {
    Paused(Instant),
    Server(Stopwatch<'a>),
}

impl Watch<'_> {
    /// Without the time in which the machine was busy.
    fn waited(&self) -> Duration {
        match self {
            Self::Paused(began) => began.elapsed(),
            Self::Server(stopwatch) => stopwatch.waited(),
        }
    }

    fn elapsed(&self) -> Duration {
        match self {
            Self::Paused(began) => began.elapsed(),
            Self::Server(stopwatch) => stopwatch.elapsed(),
        }
    }
}

/// Runs a check on both backends.
macro_rules! on_both {
    ($($check:ident),+ $(,)?) => {
        mod in_memory {
            $(#[tokio::test(start_paused = true)]
            async fn $check() {
                super::$check(&crate::Home::in_memory()).await;
            })+
        }
        mod on_redis {
            $(#[tokio::test]
            async fn $check() {
                super::$check(&crate::Home::on_redis().await).await;
            })+
        }
    };
}
pub(crate) use on_both;

fn in_memory() -> LimiterBackend {
    MemoryLimiters::default().into()
}

/// All permits can be had again, and then only the rate is left behind.
async fn comes_to_rest(limiter: &RateLimiter, server: &kit::Redis) {
    let rate = limiter.stored().await;
    eventually("all are free", async || limiter.free().await == rate).await;
    // Keys that were to last for a reservation do so, also if it was given back.
    let rests = async || server.names() == [limiter.name()];
    eventually("only the rate is left", rests).await;
}
