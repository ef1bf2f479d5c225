//! Callers that keep the future of a lone take and do not poll it: whatever becomes of their
//! question, everybody else is answered.

use super::*;

/// One after the other is polled once and kept: each is executed at once, none holds a place, and
/// when it is polled at last, it has its own answer.
#[tokio::test]
async fn two_hundred_one_after_the_other() {
    const KEPT: u64 = 200;
    let (server, proxy, store, mut bystander) = beside(PATIENT).await;
    let steady = Steady::watch(&proxy).await;
    let rule = rule("kept", MAX, HOUR);
    let mut kept = Vec::new();
    for key in 0..KEPT {
        let mine = take(&rule, key).with_cost(key + 1);
        kept.push(executed_once(&server, &store, &mine).await);
        if key % 4 == 0 {
            bystander.ask(&store).await;
        }
    }
    join_all((0..50).map(|_| store.take(&bystander.take))).await;
    for (key, pending) in kept.into_iter().enumerate().rev() {
        assert_eq!(spent_by(pending.await), key as u64 + 1);
    }
    steady.check();
}

/// Locks and limiters of the same handle go on beside a take that nobody polls.
#[tokio::test]
async fn beside_locks_and_limiters() {
    let server = Redis::start();
    let proxy = behind(&server, millis(6)).await;
    let redis = kit::handle(&proxy.url).await;
    let store = RedisStore::of(&redis);
    let limiter = RateLimiter::new(&redis, "limiter");
    limiter.sets(kit::overall(1_000, HOUR)).await;
    let lock = Lock::new(&redis, "lock");
    let mine = take(&rule("kept", MAX, HOUR), "x");
    for round in 1..=15 {
        let kept = polled_once(&store, &mine);
        let (is_granted, guard) = tokio::join!(limiter.takes(1), lock.tries());
        assert!(is_granted);
        frees(guard.expect("nobody else wants it")).await;
        assert_eq!(spent_by(kept.await), round);
    }
}

/// Polled again only after its time is over: an answer or a time-out, and at once.
#[tokio::test]
async fn beyond_the_deadline() {
    let (server, proxy, store, mut bystander) = beside(TIMEOUT).await;
    let patient = store.clone().timeout(PATIENT);
    let mine = take(&rule("kept", MAX, HOUR), "x");
    let mut certain = 0;
    for round in 0..8_u64 {
        let kept = if round % 2 == 0 {
            // The reply comes after the deadline.
            let (calls, replies) = (Duration::ZERO, 2 * TIMEOUT);
            proxy.all(Mode::Delay { calls, replies });
            polled_once(&store, &mine)
        } else {
            executed_once(&server, &store, &mine).await
        };
        sleep(3 * TIMEOUT).await;
        proxy.all(Mode::Pass);
        let began = server.stopwatch();
        match kept.await {
            Ok(decision) => {
                assert!(decision.is_allowed());
                certain += 1;
            }
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}"),
        }
        assert!(began.waited() < TIMEOUT, "law 6: {:?}", began.waited());
        bystander.ask_until_answered(&patient, PATIENT / 4).await;
    }
    let charged = charged(&store, &mine).await;
    assert!((certain..=8).contains(&charged), "{certain} <= {charged}");
}
