//! Limiters that carry their rate: it is set where it is missing, a deploy with another number
//! takes effect, and old and new processes do not fight, whatever happens to Redis meanwhile.

use std::process::Child;
use std::time::Duration;

use futures_util::future::join_all;
use kit::Redis as Server;
use kit::limiter_monitor::Monitor;
use kit::workers::{instructions, start_worker};
use redis::{Commands, cmd};
use tidegate::Redis;
use tidegate::limiter::{
    Generation, LimiterBackend, LimiterErrorKind, MemoryLimiters, Rate, RateLimiter,
};
use tidegate::test_util::ManualClock;
use tokio::time::{Instant, sleep, timeout};

use crate::{connect, on_both, replace_rate};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

on_both!(
    a_missing_rate_is_set,
    another_rate_is_replaced_at_the_first_use,
    what_is_set_by_hand_later_stands,
    of_two_in_one_process_the_one_made_last_stands,
    a_rate_is_set_before_it_is_judged,
    a_deleted_rate_is_set_again,
    a_limiter_that_was_not_used_yet_is_full,
);

/// A limiter with a rate of so many permits in a minute.
fn with(on: impl Into<LimiterBackend>, permits: u64) -> RateLimiter {
    let limiter = RateLimiter::new(on, "partner");
    limiter.rate(Rate::overall(permits, MINUTE).expect("a valid rate"))
}

async fn stored(limiter: &RateLimiter) -> u64 {
    let rate = limiter.stored_rate().await.expect("an answer");
    rate.map_or(0, |rate| rate.permits())
}

async fn set_by_hand(limiter: &RateLimiter, permits: u64) {
    let set = limiter.set_rate(Rate::overall(permits, MINUTE).expect("valid"));
    set.await.expect("is set");
}

async fn take(limiter: &RateLimiter, permits: u64) -> bool {
    limiter.try_acquire(permits).await.expect("an answer")
}

async fn a_missing_rate_is_set(on: LimiterBackend) {
    for way in 0..4 {
        let limiter = RateLimiter::new(on.clone(), format!("way {way}"));
        let rate = Rate::overall(3, MINUTE).expect("valid");
        let rate = rate.with_keep_alive(HOUR).expect("valid");
        let limiter = limiter.rate(rate);
        let soon = Duration::from_secs(5);
        let granted = match way {
            0 => limiter.try_acquire(2).await,
            1 => limiter.try_acquire_for(2, soon).await,
            2 => limiter.acquire(2).await.map(|()| true),
            _ => limiter.clone().fair().acquire(2).await.map(|()| true),
        };
        assert!(granted.expect("an answer"));
        let set = limiter.stored_rate().await.expect("an answer");
        assert_eq!(set, Some(rate));
        assert_eq!(limiter.available_permits().await.expect("an answer"), 1);
    }
}

async fn another_rate_is_replaced_at_the_first_use(on: LimiterBackend) {
    // Made before, and used after another rate is set.
    let limiter = with(on.clone(), 8);
    let by_hand = RateLimiter::new(on.clone(), "partner");
    set_by_hand(&by_hand, 5).await;
    assert!(take(&by_hand, 5).await);
    assert!(take(&limiter, 1).await);
    assert_eq!(stored(&limiter).await, 8);
    assert!(take(&limiter, 2).await, "what was granted counts, no more");
    assert!(!take(&limiter, 1).await, "what was granted counts");
    // Once in a process, whoever makes another limiter with the same rate.
    set_by_hand(&by_hand, 5).await;
    assert!(take(&with(on, 8), 5).await);
    assert_eq!(stored(&limiter).await, 5);
}

async fn what_is_set_by_hand_later_stands(on: LimiterBackend) {
    let limiter = with(on, 8);
    assert!(take(&limiter, 1).await);
    for permits in [5, 20] {
        set_by_hand(&limiter, permits).await;
        assert!(take(&limiter, 5).await);
        assert_eq!(stored(&limiter).await, permits);
        let rate = Rate::overall(permits + 1, MINUTE).expect("valid");
        assert!(replace_rate(&limiter, rate).await.expect("an answer"));
        assert!(take(&limiter, 1).await);
        assert_eq!(stored(&limiter).await, permits + 1);
    }
}

async fn of_two_in_one_process_the_one_made_last_stands(on: LimiterBackend) {
    let (old, new) = (with(on.clone(), 10), with(on.clone(), 20));
    assert!(take(&old, 1).await);
    assert_eq!(stored(&old).await, 10, "the new one is not used yet");
    for _ in 0..3 {
        assert!(take(&new, 1).await);
        assert_eq!(stored(&old).await, 20);
        assert!(take(&old, 1).await);
        assert_eq!(stored(&old).await, 20, "they do not take turns");
    }
    // Back to the old number.
    let newest = with(on.clone(), 10);
    for limiter in [&newest, &new, &old] {
        assert!(take(limiter, 1).await);
        assert_eq!(stored(&old).await, 10);
    }
    // Where the new one is used first, the old one changes nothing.
    let (old, new) = (with(on.clone(), 30), with(on, 40));
    for limiter in [&new, &old] {
        assert!(take(limiter, 1).await);
        assert_eq!(stored(&old).await, 40);
    }
}

async fn a_rate_is_set_before_it_is_judged(on: LimiterBackend) {
    set_by_hand(&RateLimiter::new(on.clone(), "partner"), 2).await;
    let limiter = with(on, 5);
    assert!(take(&limiter, 5).await);
    let above = limiter.acquire(6).await.expect_err("above the rate");
    assert_eq!(above.kind(), LimiterErrorKind::AboveRate);
}

async fn a_deleted_rate_is_set_again(on: LimiterBackend) {
    let limiter = with(on, 1);
    for _ in 0..3 {
        assert!(take(&limiter, 1).await);
        let waiting = limiter.clone();
        let waiting = tokio::spawn(async move { waiting.acquire(1).await });
        sleep(Duration::from_millis(20)).await;
        assert!(limiter.delete().await.expect("an answer"));
        let waited = timeout(Duration::from_secs(5), waiting).await;
        let waited = waited.expect("it asks again").expect("no panic");
        waited.expect("the rate is set again");
        assert_eq!(stored(&limiter).await, 1);
        assert!(limiter.delete().await.expect("an answer"));
    }
}

async fn a_limiter_that_was_not_used_yet_is_full(on: LimiterBackend) {
    let limiter = with(on, 7);
    assert_eq!(limiter.available_permits().await.expect("an answer"), 7);
    assert_eq!(limiter.release(1).await.expect("an answer"), 0);
    assert_eq!(stored(&limiter).await, 0, "nothing was written");
}

/// In all generations; with the first process that uses it, a limiter is declared as shared.
#[tokio::test]
async fn generations_and_redisson() {
    use Generation::{First, Second, Third};
    let server = Server::start();
    let redis = connect(&server).await;
    for generation in [First, Second, Third] {
        for is_shared in [false, true] {
            let name = format!("{generation:?} {is_shared}");
            let limiter = RateLimiter::new(&redis, &*name).generation(generation);
            let mut limiter = limiter.rate(Rate::overall(3, MINUTE).expect("a valid rate"));
            if is_shared {
                assert!(take(&limiter, 1).await);
                limiter = limiter.shared_with_redisson();
            }
            for _ in 0..2 {
                assert!(take(&limiter, 1).await, "{name}");
                let shared = limiter.is_shared().await.expect("an answer");
                assert_eq!(shared, Some(is_shared), "{name}");
                let _: () = server.connection().del(&name).expect("is lost");
            }
            // Redisson sets another rate where there is none.
            redis::pipe()
                .hset(&name, "rate", 1)
                .hset(&name, "interval", 60_000)
                .hset(&name, "type", 0)
                .exec(&mut server.connection())
                .expect("is written");
            let _ = take(&limiter, 1).await;
            assert_eq!(stored(&limiter).await, 3, "{name}");
        }
    }
}

/// The calls of scripts by their hash.
fn calls(server: &Server) -> u64 {
    let mut connection = server.connection();
    let stats: redis::InfoDict = cmd("INFO")
        .arg("commandstats")
        .query(&mut connection)
        .expect("stats");
    let stat: Option<String> = stats.get("cmdstat_evalsha");
    let stat = stat.unwrap_or_default();
    let calls = stat.split(',').find_map(|pair| pair.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn it_costs_one_call_of_each_process() {
    let server = Server::start();
    let redis = connect(&server).await;
    let before = calls(&server);
    let limiter = with(&redis, 1_000);
    for _ in 0..50 {
        assert!(take(&limiter, 1).await);
        // A limiter that is made for each call, too.
        assert!(take(&with(&redis, 1_000), 1).await);
    }
    assert_eq!(calls(&server) - before, 100 + 1);
}

/// The map of names does not grow with each name that was ever used.
#[tokio::test]
async fn a_process_remembers_its_rate_while_it_may_need_it() {
    let server = Server::start();
    let redis = connect(&server).await;
    let limiter = with(&redis, 5);
    assert!(take(&limiter, 1).await);
    set_by_hand(&limiter, 6).await;
    for number in 0..300 {
        let other = RateLimiter::new(&redis, format!("other {number}"));
        let other = other.rate(Rate::overall(1, MINUTE).expect("valid"));
        assert!(take(&other, 1).await);
    }
    assert!(take(&limiter, 1).await);
    assert_eq!(stored(&limiter).await, 6, "it was not its first use");
}

fn flush(server: &Server) {
    let mut connection = server.connection();
    cmd("FLUSHALL").exec(&mut connection).expect("is empty");
}

#[tokio::test]
async fn a_job_outlives_a_server_that_was_restarted_empty() {
    let mut server = Server::start();
    let redis = Redis::connect(&server.url).await.expect("a running server");
    let limiter = with(&redis, 1);
    let fair = limiter.clone().fair();
    assert!(take(&limiter, 1).await);
    let waiting = [limiter.clone(), fair.clone()].map(|limiter| {
        let waits = async move { limiter.acquire(1).await.map_err(|error| error.kind()) };
        tokio::spawn(waits)
    });
    sleep(Duration::from_millis(100)).await;
    server.kill();
    sleep(Duration::from_millis(300)).await;
    server.restart();
    // One of them has the only permit, and the other one waits on.
    let began = Instant::now();
    while !waiting.iter().any(|waits| waits.is_finished()) {
        assert!(began.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(10)).await;
    }
    sleep(Duration::from_millis(1_200)).await;
    let [first, second] = waiting;
    assert!(first.is_finished() != second.is_finished());
    for waits in [first, second] {
        match waits.is_finished() {
            true => assert_eq!(waits.await.expect("no panic"), Ok(())),
            false => waits.abort(),
        }
    }
    // A call that does not wait finds the rate missing, and sets it.
    flush(&server);
    assert!(take(&limiter, 1).await);
    flush(&server);
    let soon = Duration::from_millis(10);
    assert!(fair.try_acquire_for(1, soon).await.expect("an answer"));
}

/// Four processes are replaced one by one. Whatever is lost, and whoever is first to set its rate
/// again, the new rate stands in the end.
#[tokio::test]
async fn a_deploy_takes_effect_and_nobody_fights() {
    for lost_after in 0..=4 {
        for first_old in [true, false] {
            let server = Server::start();
            let redis = join_all((0..8).map(|_| connect(&server))).await;
            let mut olds: Vec<_> = redis[..4].iter().map(|redis| with(redis, 1_000)).collect();
            let mut news: Vec<RateLimiter> = Vec::new();
            for old in &olds {
                assert!(take(old, 1).await);
            }
            for number in 0..=4 {
                if number == lost_after {
                    flush(&server);
                }
                let (one, other) = match first_old {
                    true => (&olds, &news),
                    false => (&news, &olds),
                };
                for limiter in one.iter().chain(other).chain(one) {
                    assert!(take(limiter, 1).await);
                }
                if !news.is_empty() {
                    assert_eq!(stored(&news[0]).await, 2_000, "{lost_after} {first_old}");
                }
                if number < 4 {
                    news.push(with(&redis[4 + number], 2_000));
                    assert!(take(&news[number], 1).await);
                    assert_eq!(stored(&news[0]).await, 2_000);
                    olds.remove(0);
                }
            }
        }
    }
}

/// An old process that comes late, to its first use, changes nothing for long.
#[tokio::test]
async fn an_old_process_that_is_late() {
    let server = Server::start();
    let redis = [connect(&server).await, connect(&server).await];
    let old = with(&redis[0], 10);
    sleep(Duration::from_millis(5)).await;
    let new = with(&redis[1], 20);
    assert!(take(&new, 1).await);
    assert!(take(&old, 1).await);
    for limiter in [&new, &old, &new, &old] {
        assert!(take(limiter, 1).await);
        assert_eq!(stored(&new).await, 20);
    }
}

/// A failover leads to a server whose clock is an hour behind: the next deploy takes effect at
/// once, and the old processes do not undo it.
async fn a_clock_that_goes_back(
    clock: ManualClock,
    processes: [LimiterBackend; 3],
    lose: impl Fn(),
) {
    let hour = |hours: f64| clock.set((hours * 3.6e9) as u64);
    hour(10.0);
    let [one, two, three] = processes;
    let old = with(one, 1_000);
    assert!(take(&old, 1).await);
    hour(9.0);
    let new = with(two, 2_000);
    for limiter in [&new, &old, &new, &old] {
        assert!(take(limiter, 1).await);
        assert_eq!(stored(&new).await, 2_000);
    }
    lose();
    for limiter in [&old, &new, &old] {
        assert!(take(limiter, 1).await);
    }
    assert_eq!(stored(&new).await, 2_000);
    hour(8.5);
    let newest = with(three, 3_000);
    for limiter in [&newest, &old, &new, &newest] {
        assert!(take(limiter, 1).await);
        assert_eq!(stored(&new).await, 3_000);
    }
    hour(11.0);
    for limiter in [&old, &new, &newest] {
        assert!(take(limiter, 1).await);
        assert_eq!(stored(&new).await, 3_000);
    }
}

#[tokio::test]
async fn a_clock_that_goes_back_on_redis() {
    let server = Server::start();
    let clock = ManualClock::default();
    let redis = [
        connect(&server).await,
        connect(&server).await,
        connect(&server).await,
    ];
    let processes = redis.map(|redis| LimiterBackend::redis_with_clock(&redis, clock.clone()));
    a_clock_that_goes_back(clock, processes, || flush(&server)).await;
}

#[tokio::test]
async fn a_clock_that_goes_back_in_memory() {
    let clock = ManualClock::default();
    let one = MemoryLimiters::with_clock(clock.clone());
    let processes = [one.another_client(), one.another_client(), one].map(LimiterBackend::from);
    a_clock_that_goes_back(clock, processes, || {}).await;
}

const INTERVAL: Duration = Duration::from_millis(500);

/// Plays a process with four jobs.
#[tokio::test]
#[ignore = "is started by another test"]
async fn worker_has_jobs() {
    let Some(words) = instructions() else { return };
    let redis = Redis::connect_lazy(&*words[0]).expect("an address");
    let limiter = RateLimiter::new(&redis, "partner");
    let permits = words[1].parse().expect("a number");
    let limiter = limiter.rate(Rate::overall(permits, INTERVAL).expect("a valid rate"));
    let jobs = (0..4_u64).map(|number| {
        let limiter = if number % 2 == 0 {
            limiter.clone()
        } else {
            limiter.clone().fair()
        };
        async move {
            loop {
                limiter.acquire(1 + number / 2).await.expect("it goes on");
            }
        }
    });
    join_all(jobs).await;
}

struct Workers(Vec<Child>);

impl Workers {
    fn start(&mut self, server: &Server, permits: u64) {
        let instructions = format!("{} {permits}", server.url);
        self.0
            .push(start_worker("own_rate::worker_has_jobs", &instructions));
    }

    /// Ends the one that was started first.
    fn end_first(&mut self) {
        let mut worker = self.0.remove(0);
        let ended = worker.try_wait().expect("our child");
        assert!(ended.is_none(), "a job has ended: {ended:?}");
        worker.kill().expect("our child");
        worker.wait().expect("our child");
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// Redis is stopped, restarted empty and flushed, and meanwhile four processes are replaced one by
/// one by such with a higher rate. All jobs go on, and no interval is above the higher rate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_go_on() {
    const OLD: u64 = 10;
    const NEW: u64 = 20;
    let micros = u64::try_from(INTERVAL.as_micros()).expect("short");
    let mut server = Server::start();
    let mut workers = Workers(Vec::new());
    let check = |monitor: Monitor, server: &Server, most: u64| {
        let mut grants = monitor.grants(&server.url);
        let grants = grants.remove("{partner}:permits").expect("grants");
        let fullest = grants.fullest(micros);
        println!(
            "{} grants, at most {fullest} in an interval",
            grants.all.len()
        );
        assert!(fullest <= most, "{fullest} in an interval");
        assert!(grants.all.len() > 5, "the jobs go on");
    };
    for _ in 0..4 {
        workers.start(&server, OLD);
    }
    let monitor = Monitor::start(&server.url);
    sleep(Duration::from_secs(2)).await;
    server.signal("STOP");
    // 1.5 s, and as much longer as `TIDEGATE_FLEET_SECONDS` says.
    sleep(crate::fleet::lasts() - Duration::from_millis(2_500)).await;
    server.signal("CONT");
    sleep(Duration::from_secs(2)).await;
    check(monitor, &server, OLD);

    server.kill();
    sleep(Duration::from_millis(500)).await;
    server.restart();
    let mut monitor = Monitor::start(&server.url);
    sleep(Duration::from_secs(2)).await;
    for number in 0..4 {
        workers.start(&server, NEW);
        sleep(Duration::from_millis(1_500)).await;
        if number % 2 == 1 {
            check(monitor, &server, NEW);
            flush(&server);
            monitor = Monitor::start(&server.url);
            sleep(Duration::from_secs(1)).await;
        }
        workers.end_first();
    }
    sleep(Duration::from_secs(2)).await;
    check(monitor, &server, NEW);
    let redis = connect(&server).await;
    let limiter = RateLimiter::new(&redis, "partner");
    assert_eq!(stored(&limiter).await, NEW);
    while !workers.0.is_empty() {
        workers.end_first();
    }
}
