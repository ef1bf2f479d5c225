//! Law 15: a release returns what this caller was granted and still counts, and nothing else.

use tidegate::limiter::Permit;

use crate::*;

const RATE: u64 = 1_000;

/// What one process has been granted and has not given back.
struct Client {
    limiter: RateLimiter,
    permits: Vec<Permit>,
    held: u64,
}

impl Client {
    async fn new(url: &str) -> Self {
        Self {
            limiter: RateLimiter::new(&handle(url).await, "shared"),
            permits: Vec::new(),
            held: 0,
        }
    }

    async fn acquire(&mut self, permits: u64, keeps: bool) {
        if keeps {
            let permit = self.limiter.try_acquire_permit(permits).await;
            if let Ok(permit) = permit.expect("an answer") {
                self.permits.push(permit);
                self.held += permits;
            }
        } else if self.limiter.takes(permits).await {
            self.held += permits;
        }
    }

    async fn release_number(&mut self, permits: u64) {
        let released = self.limiter.gives_back(permits).await;
        let expected = permits.min(self.held);
        assert_eq!(
            released, expected,
            "law 15: of {permits}, {} held",
            self.held
        );
        self.held -= released;
    }

    async fn release_permit(&mut self, place: usize) {
        let permit = self.permits.swap_remove(place);
        let permits = permit.permits();
        let released = permit.release().await.expect("an answer");
        // A release by number may have given back some of them before.
        assert!(released <= permits.min(self.held), "law 15: {released}");
        self.held -= released;
    }
}

/// Three processes take and give back at random; the count is right after each step.
#[tokio::test]
async fn every_release_is_accounted_for() {
    let server = Server::start();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::new(&server.url).await);
    }
    clients[0].limiter.sets(overall(RATE, HOUR)).await;
    let mut numbers = Random::new(88_172_645_463_325_252);
    for step in 0..1_500 {
        let client = &mut clients[numbers.below(3) as usize];
        let number = numbers.below(40) + 1;
        match numbers.below(6) {
            0 | 1 => client.acquire(number, true).await,
            2 => client.acquire(number, false).await,
            3 => client.release_number(number / 3).await,
            4 if numbers.below(20) == 0 => client.release_number(u64::MAX).await,
            _ if client.permits.is_empty() => {}
            _ => {
                let place = numbers.below(client.permits.len() as u64);
                client.release_permit(place as usize).await;
            }
        }
        let held: u64 = clients.iter().map(|client| client.held).sum();
        let free = clients[step % 3].limiter.free().await;
        assert_eq!(free, RATE - held, "after step {step}");
    }
    check_expiries(&server, &["shared"]);
}

/// Two processes release by number at the same time, far more than one of them has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_release_at_once() {
    let (server, _proxy, ours) = far_server(millis(2)).await;
    let theirs = handle(&server.url).await;
    let ours = limiter(&ours, "shared", RATE, HOUR).await;
    let theirs = RateLimiter::new(&theirs, "shared");
    for _ in 0..50 {
        assert!(ours.takes(2).await);
    }
    assert!(theirs.takes(7).await);
    let releases = join_all((0..200).map(|_| ours.release(1)));
    let others = join_all((0..200).map(|_| theirs.release(3)));
    let (releases, others) = tokio::join!(releases, others);
    let sum = |answers: Vec<Result<u64, _>>| -> u64 {
        answers
            .into_iter()
            .map(|answer| answer.expect("an answer"))
            .sum()
    };
    assert_eq!((sum(releases), sum(others)), (100, 7));
    assert_eq!(ours.free().await, RATE);
}

/// Releases that are given up at every moment happen once or not at all, to one's own permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_are_given_up() {
    let (server, _proxy, ours) = far_server(millis(2)).await;
    let theirs = handle(&server.url).await;
    let ours = limiter(&ours, "shared", RATE, HOUR).await;
    let theirs = RateLimiter::new(&theirs, "shared");
    assert!(theirs.takes(500).await);
    let attempts = join_all((0..100_u64).map(|at| {
        let ours = ours.clone();
        tokio::spawn(async move {
            let permit = ours.acquire_permit(3).await.expect("a permit");
            let patience = Duration::from_micros(at * 61 % 6_000);
            let released = timeout(patience, permit.release()).await;
            released.map_or(0, |released| released.expect("an answer"))
        })
    }));
    let attempts = attempts.await.into_iter();
    let heard: u64 = attempts.map(|attempt| attempt.expect("no panic")).sum();
    sleep(millis(100)).await;
    let free = ours.free().await;
    let is_right = (200 + heard..=500).contains(&free);
    assert!(is_right, "law 15: {free}, {heard} were heard of");
    // All the rest is ours, too, and can be had back exactly once.
    let rest = ours.gives_back(u64::MAX).await;
    assert_eq!(free + rest, 500);
    assert_eq!(ours.gives_back(u64::MAX).await, 0);
    assert_eq!(theirs.free().await, 500);
}

/// What has left the interval, or was granted under another rate, comes back no second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_come_late() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let limiter = limiter(&redis, "late", 10, millis(400)).await;
    let left = limiter.acquire_permit(5).await.expect("a permit");
    sleep(millis(410)).await;
    let _kept = limiter.acquire_permit(10).await.expect("a permit");
    let seen = left.release().await.expect("an answer");
    assert_eq!(seen, 0, "law 15: it has left");
    limiter.sets(overall(10, HOUR)).await;
    let old = limiter.acquire_permit(4).await.expect("a permit");
    limiter.sets(overall(10, HOUR)).await;
    let new = limiter.acquire_permit(10).await.expect("a permit");
    let seen = old.release().await.expect("an answer");
    assert_eq!(seen, 0, "of the old rate");
    assert!(!limiter.takes(1).await);
    assert!(limiter.delete().await.expect("an answer"));
    let of_nothing = new.release().await;
    assert!(of_nothing.is_err() || of_nothing.is_ok_and(|released| released == 0));
    check_expiries(&server, &[]);
}

/// Law 1 with releases: grants that are given back and taken again at once never make an
/// interval too full of those that are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_that_are_passed_around() {
    const INTERVAL: Duration = millis(100);
    let (server, _proxy, far) = far_server(millis(2)).await;
    let handles = [far, handle(&server.url).await];
    let first = limiter(&handles[0], "passed", 6, INTERVAL).await;
    let monitor = Monitor::start(&server.url);
    crowd(24, |at| {
        let limiter = RateLimiter::new(&handles[at as usize % 2], "passed").fair_if(at % 3 == 0);
        async move {
            let mut kept = 0;
            for round in 0..6 {
                let permits = (at + round) % 3 + 1;
                let permit = limiter.acquire_permit(permits).await;
                let permit = permit.expect("a permit");
                if (at + round) % 2 == 0 {
                    permit.release().await.expect("an answer");
                } else if round % 4 == 0 {
                    limiter.gives_back(1).await;
                } else {
                    kept += permits;
                }
            }
            kept
        }
    })
    .await;
    monitor.check(&server.url, "passed", 6, INTERVAL);
    becomes_available(&first, 6, 2 * SECOND).await;
}
