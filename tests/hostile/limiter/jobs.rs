//! Jobs in processes that carry their rate go on, whatever happens to Redis, and through deploys.

use crate::*;

const INTERVAL: Duration = millis(500);

/// Plays a process with four jobs.
#[tokio::test]
#[ignore = "is started by another test"]
async fn worker_has_jobs() {
    let Some(words) = instructions() else { return };
    let redis = Redis::connect_lazy(&*words[0]).expect("an address");
    let limiter = RateLimiter::new(&redis, "partner");
    let permits = words[1].parse().expect("a number");
    let limiter = limiter.rate(overall(permits, INTERVAL));
    let jobs = (0..4_u64).map(|number| {
        let limiter = limiter.fair_if(number % 2 == 1);
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
            .push(start_worker("jobs::worker_has_jobs", &instructions));
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
    let mut server = Server::start();
    let mut workers = Workers(Vec::new());
    let check = |monitor: Monitor, server: &Server, most: u64| {
        let grants = monitor.grants_of(&server.url, "partner");
        grants.check(most, INTERVAL);
        println!("{} grants", grants.all.len());
        assert!(grants.all.len() > 5, "the jobs go on");
    };
    for _ in 0..4 {
        workers.start(&server, OLD);
    }
    let monitor = Monitor::start(&server.url);
    sleep(2 * SECOND).await;
    server.signal("STOP");
    // 1.5 s, and as much longer as `TIDEGATE_FLEET_SECONDS` says.
    sleep(super::changing::lasts() - millis(2_500)).await;
    server.signal("CONT");
    sleep(2 * SECOND).await;
    check(monitor, &server, OLD);

    server.kill();
    sleep(millis(500)).await;
    server.restart();
    let mut monitor = Monitor::start(&server.url);
    sleep(2 * SECOND).await;
    for number in 0..4 {
        workers.start(&server, NEW);
        sleep(millis(1_500)).await;
        if number % 2 == 1 {
            check(monitor, &server, NEW);
            run(&server, "FLUSHALL");
            monitor = Monitor::start(&server.url);
            sleep(SECOND).await;
        }
        workers.end_first();
    }
    sleep(2 * SECOND).await;
    check(monitor, &server, NEW);
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner");
    assert_eq!(limiter.stored().await, NEW);
    while !workers.0.is_empty() {
        workers.end_first();
    }
}
