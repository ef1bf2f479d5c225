//! Jobs whose limiter carries its rate: Redis pauses, forgets, hangs and lies, and meanwhile old
//! processes are replaced by new ones. Each `Redis` handle is a process of its own.

use kit::proxy::{FaultTrace, FlightFault, Part};
use tidegate::Redis;

use super::*;

const INTERVAL: Duration = millis(300);
const MICROS: u64 = 300_000;

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

/// Whether so many are granted at once.
async fn takes(limiter: &RateLimiter, permits: u64) -> bool {
    limiter.try_acquire(permits).await.expect("an answer")
}

/// The most permits that were granted in one interval.
fn fullest(monitor: Monitor, server: &Server) -> u64 {
    let grants = monitor.grants(&server.url).remove("{job}:permits");
    grants.map_or(0, |grants| grants.fullest(MICROS))
}

/// The server stands still, for so many milliseconds.
async fn stand_still(server: &Server, time: u64) {
    server.signal("STOP");
    sleep(millis(time)).await;
    server.signal("CONT");
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

/// A process of the fleet: a few jobs that never end.
struct Process {
    jobs: JoinSet<()>,
}

impl Process {
    fn start(redis: &Redis, permits: u64, granted: &Arc<AtomicU64>) -> Self {
        let limiter = with(redis, permits, INTERVAL);
        let mut jobs = JoinSet::new();
        for at in 0..4_u64 {
            let granted = Arc::clone(granted);
            let limiter = limiter.clone();
            let limiter = if at % 2 == 0 { limiter } else { limiter.fair() };
            jobs.spawn(async move {
                loop {
                    limiter.acquire(1 + at / 2).await.expect("it goes on");
                    granted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { jobs }
    }

    /// Ends it as a crash would.
    async fn end(mut self) {
        let ended = self.jobs.try_join_next();
        assert!(ended.is_none(), "a job has ended: {ended:?}");
        self.jobs.shutdown().await;
    }
}

/// Four processes are replaced one by one, at random moments, by such with another rate, higher or
/// lower. Redis pauses, hangs up and loses its data meanwhile. No interval is above the higher rate,
/// the one that spans a loss at most twice, and in the end the new rate stands.
async fn a_deploy(seed: u64, old: u64, new: u64) {
    let mut random = Random::new(seed);
    let server = Server::start();
    let proxy = behind(&server, millis(2)).await;
    let granted = Arc::new(AtomicU64::new(0));
    let mut handles = Vec::new();
    for _ in 0..8 {
        handles.push(by_default(&proxy.url).await);
    }
    let all = Monitor::start(&server.url);
    let mut segment = Monitor::start(&server.url);
    let most = old.max(new);
    let check = |segment: Monitor| {
        let fullest = fullest(segment, &server);
        assert!(fullest <= most, "seed {seed}: {fullest} in an interval");
    };
    let olds = handles[..4].iter();
    let mut olds: Vec<_> = olds
        .map(|redis| Process::start(redis, old, &granted))
        .collect();
    let mut news = Vec::new();
    sleep(millis(400)).await;
    let mut last_loss = Instant::now();
    while !olds.is_empty() {
        match random.below(6) {
            0 if last_loss.elapsed() > INTERVAL * 3 => {
                check(segment);
                run(&server, "FLUSHALL");
                segment = Monitor::start(&server.url);
                last_loss = Instant::now();
            }
            1 => stand_still(&server, 100 + random.below(900)).await,
            2 => proxy.present(Mode::Reset),
            3 => run(&server, "SCRIPT FLUSH"),
            _ => {}
        }
        sleep(millis(random.below(300))).await;
        if news.len() < 4 && (random.is(50) || news.len() + olds.len() < 4) {
            news.push(Process::start(&handles[4 + news.len()], new, &granted));
        } else if !news.is_empty() && random.is(50) {
            let number = random.below(olds.len() as u64) as usize;
            olds.remove(number).end().await;
        }
    }
    let before = granted.load(Ordering::Relaxed);
    let is_so = async || granted.load(Ordering::Relaxed) > before + 10;
    eventually("the jobs go on", is_so).await;
    sleep(INTERVAL * 2).await;
    let look = RateLimiter::new(&handles[0], "job");
    eventually("a rate", async || stored(&look).await.is_some()).await;
    assert_eq!(stored(&look).await, Some(new), "seed {seed}: the new rate");
    for process in news {
        process.end().await;
    }
    check(segment);
    let fullest = fullest(all, &server);
    assert!((1..=2 * most).contains(&fullest), "{seed}: {fullest}");
}

/// To a higher rate, and to a lower one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deploys_at_random() {
    for seed in 0..4 {
        tokio::join!(a_deploy(seed, 10, 20), a_deploy(10 + seed, 16, 5));
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

/// Old and new processes work side by side for a long time: nobody writes a rate any more.
#[tokio::test]
async fn old_and_new_processes_do_not_fight() {
    let server = Server::start();
    let mut all = Vec::new();
    for at in 0..6_u64 {
        all.push(job(&server, 100_000 + at % 2, INTERVAL).await);
        sleep(millis(3)).await;
    }
    let round = async || {
        let granted = join_all(all.iter().map(|limiter| limiter.try_acquire(1))).await;
        assert!(granted.iter().all(|granted| matches!(granted, Ok(true))));
    };
    for is_lost in [false, true, true] {
        if is_lost {
            run(&server, "FLUSHALL");
        }
        for _ in 0..5 {
            round().await;
        }
        let before = (calls(&server, "evalsha"), calls(&server, "hset"));
        for _ in 0..100 {
            round().await;
        }
        let after = (calls(&server, "evalsha"), calls(&server, "hset"));
        assert_eq!(after.1, before.1, "somebody writes");
        assert_eq!(after.0 - before.0, 600, "one call for each acquire");
        assert_eq!(stored(&all[0]).await, Some(100_001));
    }
}

/// A rate that is forgotten while nobody works: whoever comes then, old or new, goes on, and the new
/// rate stands once a new process is there again.
#[tokio::test]
async fn a_rate_that_is_kept_alive() {
    let server = Server::start();
    let rate = |permits| {
        let rate = Rate::overall(permits, millis(100)).expect("valid");
        rate.with_keep_alive(millis(200)).expect("valid")
    };
    let of = |redis: &Redis, permits| RateLimiter::new(redis, "job").rate(rate(permits));
    let old = of(&by_default(&server.url).await, 4);
    goes_on(&old, 1).await;
    let new = of(&by_default(&server.url).await, 8);
    goes_on(&new, 1).await;
    for round in 0..4 {
        eventually("it is forgotten", async || stored(&old).await.is_none()).await;
        let mut order = [&old, &new];
        order.rotate_left(round % 2);
        for limiter in order {
            goes_on(limiter, 4).await;
        }
        // However long the two took: the one made last was used last, or stood before.
        goes_on(&new, 8).await;
        let set = new.stored_rate().await.expect("an answer");
        assert_eq!(set, Some(rate(8)), "round {round}");
        goes_on(&old, 4).await;
        assert_ne!(stored(&old).await, Some(4), "round {round}");
    }
}

/// What the first process has declared is not taken back by the next one that declares nothing, nor
/// lost with the data: counts of a shared limiter have no expiry.
#[tokio::test]
async fn a_deploy_declares_that_redisson_uses_it() {
    let server = Server::start();
    let old = job(&server, 5, HOUR).await;
    goes_on(&old, 1).await;
    assert_eq!(old.is_shared().await.expect("an answer"), Some(false));
    // The same rate: only the declaration is new.
    let new = job(&server, 5, HOUR).await.shared_with_redisson();
    goes_on(&new, 1).await;
    for is_lost in [false, true] {
        if is_lost {
            run(&server, "FLUSHALL");
            goes_on(&old, 1).await;
        }
        for limiter in [&new, &old, &new] {
            assert!(limiter.try_acquire(1).await.is_ok());
        }
        let shared = new.is_shared().await.expect("an answer");
        assert_eq!(shared, Some(true), "lost {is_lost}");
    }
}

/// A permit from before the loss gives back nothing of what others were granted after it.
#[tokio::test]
async fn permits_from_before_the_loss() {
    let server = Server::start();
    let (mine, other) = (job(&server, 3, HOUR).await, job(&server, 3, HOUR).await);
    let permit = mine.acquire_permit(2).await.expect("granted");
    run(&server, "FLUSHALL");
    assert!(takes(&other, 3).await);
    assert_eq!(permit.release().await.expect("an answer"), 0);
    assert_eq!(mine.release(3).await.expect("an answer"), 0);
    assert!(!takes(&mine, 1).await, "law 15");
    assert_eq!(other.release(3).await.expect("an answer"), 3);
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

/// The replies to the first calls of a process are lost one after the other: it is charged once.
#[tokio::test]
async fn the_first_replies_are_lost() {
    for lost in 1..5 {
        let server = Server::start();
        let proxy = Proxy::start(&server.url).await;
        let redis = by_default(&proxy.url).await;
        let limiter = with(&redis, 5, HOUR);
        proxy.present(Mode::LoseReplies(lost));
        goes_on(&limiter, 1).await;
        let is_so = async || limiter.available_permits().await.ok() == Some(4);
        eventually("only one is charged", is_so).await;
    }
}
