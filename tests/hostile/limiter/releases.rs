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
