//! Law 1 with leases over a real server: several processes' worth of stores, and real processes.

use super::faults::{Shift, work};
use super::*;

/// Whatever was asked for and answered within one window was used within it.
pub(crate) fn check(allowed: &mut [Allowed], max: u64, window: Duration) {
    allowed.sort_by_key(|one| one.asked);
    for (at, first) in allowed.iter().enumerate() {
        let end = first.asked + window;
        let later = allowed[at..].iter().take_while(|one| one.asked < end);
        let inside = later.filter(|one| one.answered < end).count() as u64;
        assert!(inside <= max, "law 1: {inside} of {max} in one window");
    }
}

#[derive(Clone, Copy)]
struct Fleet {
    algorithm: Algorithm,
    max: u64,
    window: Duration,
    lease: Duration,
    leasing: usize,
    /// Processes with the rule's lease, and without the wrapper.
    counting: usize,
    /// Processes whose rule has no lease.
    plain: usize,
}

impl Fleet {
    async fn check(&self) {
        let server = Redis::start();
        let proxy = behind(&server, millis(2)).await;
        let rule = leased(self.algorithm, "fleet", self.max, self.window, self.lease);
        let plain = by(self.algorithm, "fleet", self.max, self.window);
        let mut stores: Vec<(Arc<dyn Store>, _)> = Vec::new();
        for at in 0..self.leasing + self.counting + self.plain {
            let store = connect(&proxy.url, PATIENT).await;
            let leases = at < self.leasing;
            let is_plain = at >= self.leasing + self.counting;
            let rule = if is_plain { &plain } else { &rule };
            stores.push(match leases {
                true => (Arc::new(Resilient::bare(store)), rule),
                false => (Arc::new(store), rule),
            });
        }
        let shift = Shift::new((4 * self.window).max(Duration::from_secs(3)), 200);
        let processes = stores.into_iter().map(|(store, rule)| {
            let (one, shift) = (take(rule, "x"), shift.clone());
            tokio::spawn(work(store, one, 8, millis(5), shift))
        });
        let mut allowed = done(processes).await.concat();
        shift.check();
        check(&mut allowed, self.max, self.window);
    }
}

const DEFAULT: Fleet = Fleet {
    algorithm: Algorithm::SlidingLog,
    max: 2_000,
    window: Duration::from_secs(1),
    lease: millis(20),
    leasing: 3,
    counting: 1,
    plain: 0,
};

/// Two algorithms; a longer window and lease, with demand in bursts at the end of it: units are
/// leased late, and used when the window of others ends; and takers whose rule has no lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_holds_more_than_max() {
    let mut fleets = [DEFAULT; 4];
    fleets[1].algorithm = Algorithm::SlidingWindow;
    (fleets[2].window, fleets[2].lease, fleets[2].max) = (millis(2_000), millis(40), 3_000);
    (fleets[3].counting, fleets[3].plain) = (0, 1);
    for fleet in fleets {
        fleet.check().await;
    }
}

/// Takers whose rule has no lease count leased units until the lease and the window are over: one
/// that asks when the window of a charge is over, and that of its use is not, is not told that the
/// unit is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takers_without_a_lease() {
    const WINDOW: Duration = Duration::from_secs(5);
    const MAX: u64 = 1_000;
    let (server, plain) = near().await;
    let leasing = Resilient::bare(connect(&server.url, PATIENT).await);
    let with = leased_log("mixed", MAX, WINDOW, millis(100));
    let without = take(&rule("mixed", MAX, WINDOW), "x");
    let mut connection = server.connection();
    let mut time = || -> u64 {
        let time = redis::cmd("TIME").query(&mut connection);
        let (seconds, micros): (u64, u64) = time.expect("the time");
        seconds * 1_000_000 + micros
    };
    // Used at this time of the server or later, and charged then.
    let late = |(used, charged): &(u64, u64)| used.saturating_sub(*charged);
    let mut used: Vec<(u64, u64)> = Vec::new();
    let began = Instant::now();
    // A busy machine needs longer until it leases.
    let latest = loop {
        let latest = used.iter().max_by_key(|one| late(one)).copied();
        let latest = latest.filter(|one| late(one) > 20_000);
        if let Some(latest) = latest.filter(|_| used.len() >= 150) {
            break latest;
        }
        assert!(began.elapsed() < PATIENT, "no unit was used late");
        let before = time();
        let decision = decide(&leasing, &with).await;
        used.push((before, decision.receipt().expect("charged").stamp()));
        sleep(millis(2)).await;
    };
    let window = WINDOW.as_micros() as u64;
    while time() <= latest.1 + window + 1_000 {
        sleep(millis(1)).await;
    }
    let free = remaining(&plain, &without).await;
    let now = time();
    let inside = used.iter().filter(|(at, _)| at + window > now).count() as u64;
    assert!(free + inside <= MAX, "law 1: {free} free, {inside} used");
}

/// Takes until it is killed: it tells what it used.
#[tokio::test]
#[ignore = "a worker of another test"]
async fn worker_that_is_killed() {
    let Some(words) = instructions() else { return };
    let store = Resilient::bare(connect(&words[0], PATIENT).await);
    let one = leased_log("killed", 50_000, HOUR, millis(400));
    let mut used = units(&until_leased(&store, &one).await);
    for _ in 0..200 {
        used += u64::from(is_allowed(&store.take(&one).await));
        sleep(millis(1)).await;
    }
    println!("used {used}");
    sleep(PATIENT).await;
}

/// A process is killed while it holds leases: what is lost is bounded by its demand of a lease or
/// two, and a process that ends its lease in peace loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed() {
    use std::io::{BufRead, BufReader};
    let (server, raw) = near().await;
    let one = leased_log("killed", 50_000, HOUR, millis(400));
    let mut charges = Vec::new();
    for is_killed in [true, false] {
        let name = "unit_leases::fleet::worker_that_is_killed";
        let mut worker = start_worker(name, &server.url);
        let output = BufReader::new(worker.stdout.take().expect("is piped"));
        let lines = tokio::task::spawn_blocking(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.take_while(|line| !line.starts_with("used")).count();
        });
        // The worker says its number once; read until then, and ask the server for the rest.
        eventually("it says its number", async || lines.is_finished()).await;
        if !is_killed {
            sleep(millis(1_200)).await;
        }
        worker.kill().expect("our child");
        worker.wait().expect("our child");
        sleep(millis(900)).await;
        let charged = charged(&raw, &one).await;
        charges.push(charged);
    }
    // Both did the same; the first one lost its leases.
    let used = charges[1] - charges[0];
    let lost = charges[0].saturating_sub(used);
    assert!(used >= 201, "{used}");
    assert!(lost <= 3 * used, "{lost} of {used} are lost");
}
