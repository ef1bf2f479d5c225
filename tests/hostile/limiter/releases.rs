//! Law 15: a release returns what this caller was granted and still counts, and nothing else.

use crate::*;

const RATE: u64 = 1_000;

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
