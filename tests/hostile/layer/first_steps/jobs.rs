//! Jobs whose limiter carries its rate: Redis pauses, forgets, hangs and lies, and meanwhile old
//! processes are replaced by new ones. Each `Redis` handle is a process of its own.

use kit::proxy::{FaultTrace, FlightFault, Part};

use super::*;

const INTERVAL: Duration = millis(300);
fn with(on: impl Into<LimiterBackend>, permits: u64, interval: Duration) -> RateLimiter {
    let limiter = RateLimiter::new(on, "job");
    limiter.rate(Rate::overall(permits, interval).expect("a valid rate"))
}

/// A limiter of such a rate in a process of its own.
async fn job(server: &Server, permits: u64, interval: Duration) -> RateLimiter {
    with(&by_default(&server.url).await, permits, interval)
}

async fn stored(limiter: &RateLimiter) -> Option<u64> {
    let rate = limiter.stored_rate().await.ok()??;
    Some(rate.permits())
}

/// One permit, in a task of its own.
fn waits(limiter: &RateLimiter) -> JoinHandle<Result<(), LimiterError>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(1).await })
}

async fn granted(waits: JoinHandle<Result<(), LimiterError>>) {
    let granted = timeout(Duration::from_secs(20), waits).await;
    let granted = granted.expect("in time").expect("no panic");
    granted.expect("it goes on");
}

async fn goes_on(limiter: &RateLimiter, permits: u64) {
    let granted = timeout(Duration::from_secs(30), limiter.acquire(permits)).await;
    granted.expect("in time").expect("it goes on");
}

/// An old process is used for the first time while the network holds its calls up, and meanwhile a
/// new one has set its rate. The late calls must not bring the old rate back for good.
#[tokio::test]
async fn a_first_use_that_arrives_late() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let old = by_default(&proxy.url).await;
    let old = with(&old, 10, INTERVAL);
    let new = by_default(&server.url).await;
    proxy.all(Mode::Hold);
    let waiting = waits(&old);
    sleep(millis(500)).await;
    let new = with(&new, 20, INTERVAL);
    goes_on(&new, 1).await;
    assert_eq!(stored(&new).await, Some(20));
    sleep(millis(500)).await;
    proxy.all(Mode::Pass);
    granted(waiting).await;
    for _ in 0..5 {
        goes_on(&old, 1).await;
        goes_on(&new, 1).await;
    }
    assert_eq!(stored(&new).await, Some(20), "the new one was made last");
}

/// The same where Redis stands still while both are made: the one made last wins, in whatever order
/// Redis reads their sockets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_are_made_while_redis_stands_still() {
    for round in 0..6 {
        let server = Server::start();
        let handles = [by_default(&server.url).await, by_default(&server.url).await];
        let [first, second] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        server.signal("STOP");
        let old = with(&handles[first], 10, INTERVAL);
        let of_old = waits(&old);
        sleep(millis(700)).await;
        let new = with(&handles[second], 20, INTERVAL);
        let of_new = waits(&new);
        sleep(millis(600)).await;
        server.signal("CONT");
        granted(of_old).await;
        granted(of_new).await;
        for _ in 0..3 {
            goes_on(&old, 1).await;
            goes_on(&new, 1).await;
        }
        drop(old);
        goes_on(&new, 1).await;
        assert_eq!(stored(&new).await, Some(20), "round {round}");
    }
}

/// Redis loses its data, and an old process is first to set its rate again. What a new process waits
/// for is above that rate, and not above its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_lowers_no_rate_under_who_waits() {
    let server = Server::start();
    let old = job(&server, 10, INTERVAL).await;
    goes_on(&old, 1).await;
    let new = job(&server, 20, INTERVAL).await;
    goes_on(&new, 1).await;
    let (greedy, modest) = (new.clone(), old.clone());
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let big = tokio::spawn(async move {
        loop {
            if let Err(error) = greedy.acquire(15).await {
                return error.to_string();
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let small = tokio::spawn(async move {
        loop {
            if let Err(error) = modest.try_acquire(1).await {
                return error.to_string();
            }
            sleep(millis(2)).await;
        }
    });
    for _ in 0..12 {
        sleep(millis(230)).await;
        run(&server, "FLUSHALL");
    }
    let before = served.load(Ordering::Relaxed);
    small.abort();
    let is_so = async || big.is_finished() || served.load(Ordering::Relaxed) > before + 2;
    eventually("the big one is served", is_so).await;
    assert!(!big.is_finished(), "{:?}", big.await);
    assert_eq!(stored(&new).await, Some(20));
}

/// A call loses its reply while another one is under way behind it, whose reply comes in its place.
/// That breaks a connection, and ends no job.
#[tokio::test]
async fn a_reply_is_lost_under_a_job() {
    let server = Server::start();
    let proxy = Proxy::start_with_flights(&server.url).await;
    proxy.delay(millis(10), millis(10));
    let limiter = with(&by_default(&proxy.url).await, 1_000_000, HOUR);
    goes_on(&limiter, 1).await;
    let mut misfits = 0;
    for _ in 0..10 {
        proxy.break_flight(FlightFault::Lose(Part::All), "", 0);
        // Who wants another number travels in another call, and a moment later in another flight.
        let behind = async {
            sleep(millis(5)).await;
            goes_on(&limiter, 2).await;
        };
        tokio::join!(goes_on(&limiter, 1), behind);
        let FaultTrace { hit, misfit, .. } = proxy.fault_trace();
        // While the first call is waited for, which has 200 ms.
        let both = hit.zip(misfit);
        let in_time = both.is_some_and(|(hit, misfit)| misfit - hit < millis(150));
        misfits += usize::from(in_time);
    }
    assert!(misfits > 0, "no reply came in place of another one");
}
