//! Refunds that fail: what is not given back stays charged and is counted, and requests go on.

use super::*;

/// Lost on the way there, and lost on the way back: each is asked once, whatever becomes of it.
#[tokio::test(start_paused = true)]
async fn refunds_that_are_lost() {
    for (fate, expected) in [(Fate::QuestionLost, 90), (Fate::ReplyLost, 100)] {
        let distant = Distant::new(MemoryStore::new()).ways(5, 5);
        let (limits, service) = world(of("a", 100, &["2xx"]), distant.clone());
        distant.refunds_are(fate);
        pass(&service, 200, 10).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a"), (0, 0, 10), "{fate:?}");
        distant.refunds_are(Fate::Answered);
        sleep(30 * SECOND).await;
        assert_eq!(left(&limits, "a").await, expected, "{fate:?}");
    }
}

/// Redis goes between the take and the refund, and comes back: answers are whole and in time, what
/// is lost is counted, and later refunds arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_goes_between_take_and_refund() {
    let garbage = Mode::Garbage(b"-ERR no\r\n");
    for mode in [Mode::BlackHole, Mode::Reset, garbage, Mode::HalfClosed] {
        let server = Redis::start();
        let proxy = Proxy::start(&server.url).await;
        let store = RedisStore::connect(&*proxy.url).await.expect("a server");
        let (limits, service) = world(of("a", 1_000, &["2xx"]), store.timeout(SECOND));
        pass(&service, 200, 1).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a"), (1, 1, 0));
        let slow: Vec<_> = (0..20).map(|_| start(&service, "x-sleep: 500")).collect();
        until_left(&limits, "a", 980).await;
        proxy.all(mode);
        let began = Instant::now();
        assert_eq!(done(slow).await, [200; 20], "{mode:?}");
        assert!(began.elapsed() < PATIENT / 2);
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a"), (1, 1, 20), "{mode:?}");
        proxy.all(Mode::Pass);
        until(200, async || send(&service, 200).await).await;
        flushed(&limits).await;
        let left = left(&limits, "a").await;
        assert!((980..=1_000).contains(&left), "{mode:?}: {left}");
        assert_eq!(counted(&limits, "a").0, 2, "{mode:?}");
    }
}
