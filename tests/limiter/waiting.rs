//! Waiting: in line, fair, in vain, and given up.

use futures_util::future::select;

use crate::*;

on_both!(
    permits_come_when_they_are_announced,
    a_wait_in_vain_ends_at_once,
    fair_waiters_are_served_in_order,
    who_gives_up_a_fair_wait_returns_the_slot,
    who_is_behind_one_that_gives_up_is_next,
    a_future_that_is_dropped_takes_nothing,
);

async fn permits_come_when_they_are_announced(on: &Home) {
    let limiter = limiter(on, 2, 300).await;
    let watch = on.watch();
    for _ in 0..6 {
        limiter.waits(1).await;
    }
    let (least, most) = (watch.elapsed(), watch.waited());
    let is_right = least >= millis(600) && most <= millis(900);
    assert!(is_right, "{least:?}, {most:?}");
}

async fn a_wait_in_vain_ends_at_once(on: &Home) {
    let limiter = limiter(on, 2, 60_000).await;
    assert!(limiter.takes(1).await);
    let (watch, ten) = (on.watch(), 10 * SECOND);
    assert!(!limiter.takes_within(2, ten).await);
    assert!(!limiter.clone().fair().takes_within(2, ten).await);
    // Behind one that waits for longer, too.
    let patient = waiting(&limiter, 2);
    sleep(millis(50)).await;
    assert!(!limiter.takes_within(2, ten).await);
    assert!(watch.waited() < 5 * SECOND);
    patient.abort();
    assert_eq!(limiter.free().await, 1);
}

async fn fair_waiters_are_served_in_order(on: &Home) {
    let limiter = limiter(on, 2, 200).await.fair();
    let monitor = on.server.as_ref().map(|server| Monitor::start(&server.url));
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for at in 0..8 {
        let (limiter, sender) = (limiter.clone(), sender.clone());
        tokio::spawn(async move {
            limiter.waits(1).await;
            sender.send((at, Instant::now())).expect("is awaited");
        });
        // Each reserves before the next one comes.
        sleep(millis(15)).await;
    }
    drop(sender);
    let mut served = Vec::new();
    while let Some(one) = receiver.recv().await {
        served.push(one);
    }
    let order: Vec<_> = served.iter().map(|(at, _)| *at).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    match (&on.server, monitor) {
        (Some(server), Some(monitor)) => {
            monitor.check(&server.url, "partner", 2, millis(200));
        }
        _ => {
            for pair in served.windows(3) {
                let apart = pair[2].1 - pair[0].1;
                assert!(apart >= millis(170), "{apart:?}");
            }
        }
    }
}

async fn who_gives_up_a_fair_wait_returns_the_slot(on: &Home) {
    let limiter = limiter(on, 1, 400).await;
    assert!(limiter.takes(1).await);
    let fair = limiter.clone().fair();
    let waits = join_all((0..20).map(|_| fair.try_acquire_for(1, 60 * SECOND)));
    let watch = on.watch();
    select(Box::pin(waits), Box::pin(sleep(millis(60)))).await;
    // Twenty slots of 400 ms are free again but for the one that counts.
    eventually("the slots are free", async || limiter.free().await == 1).await;
    assert!(watch.waited() < 3 * SECOND, "{:?}", watch.waited());
}

async fn who_is_behind_one_that_gives_up_is_next(on: &Home) {
    let limiter = limiter(on, 10, 60_000).await;
    assert!(limiter.takes(5).await);
    let fair = limiter.clone().fair();
    let first = waiting(&fair, 10);
    sleep(millis(50)).await;
    let behind = waiting(&fair, 5);
    sleep(millis(50)).await;
    assert!(!behind.is_finished());
    let watch = on.watch();
    first.abort();
    behind.await.expect("no panic");
    // It would ask each second anyway.
    assert!(watch.waited() < millis(600), "{:?}", watch.waited());
}

async fn a_future_that_is_dropped_takes_nothing(on: &Home) {
    let limiter = limiter(on, 1_000, 3_600_000).await;
    let mut taken = 0;
    for polls in 0..200 {
        let mut acquire = Box::pin(limiter.acquire(1));
        for _ in 0..polls % 5 {
            if futures_util::poll!(acquire.as_mut()).is_ready() {
                taken += 1;
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    eventually("nothing is kept", async || {
        limiter.free().await == 1_000 - taken
    })
    .await;
}

/// However many wait, they are served at the rate, and nobody for ever.
#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_are_served_at_the_rate() {
    let limiter = limiter(crate::in_memory(), 1_000, 1_000).await;
    let began = Instant::now();
    join_all((0..10_000).map(|_| limiter.waits(1))).await;
    let took = began.elapsed();
    assert!((9_000..=9_500).contains(&took.as_millis()), "{took:?}");
}

/// Two backends of one name in memory have nothing in common, clones everything.
#[tokio::test(start_paused = true)]
async fn clones_share_in_memory() {
    let limiters = MemoryLimiters::default();
    let one = limiter(&limiters, 1, 1_000).await;
    let other = RateLimiter::new(&limiters, "partner");
    assert!(one.takes(1).await);
    assert!(!other.takes(1).await);
    let apart = RateLimiter::new(MemoryLimiters::default(), "partner");
    assert!(apart.sets_first(overall(1, SECOND)).await);
}
