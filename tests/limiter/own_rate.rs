//! Limiters that carry their rate: it is set where it is missing, a deploy with another number
//! takes effect, and old and new processes do not fight, whatever happens to Redis meanwhile.

use kit::Redis as Server;

use crate::*;

on_both!(a_missing_rate_is_set, a_deleted_rate_is_set_again);

/// A limiter with a rate of so many permits in a minute.
fn with(on: impl Into<LimiterBackend>, permits: u64) -> RateLimiter {
    let limiter = RateLimiter::new(on, "partner");
    limiter.rate(overall(permits, MINUTE))
}

/// Each of these takes a permit, and whatever it sets, the rate of so many stands.
async fn stands(permits: u64, limiters: &[&RateLimiter]) {
    for limiter in limiters {
        assert!(limiter.takes(1).await);
        assert_eq!(limiter.stored().await, permits);
    }
}

async fn a_missing_rate_is_set(on: &Home) {
    for way in 0..4 {
        let limiter = RateLimiter::new(on, format!("way {way}"));
        let rate = overall(3, MINUTE).with_keep_alive(HOUR).expect("valid");
        let limiter = limiter.rate(rate);
        match way {
            0 => assert!(limiter.takes(2).await),
            1 => assert!(limiter.takes_within(2, PATIENT).await),
            way => limiter.fair_if(way == 3).waits(2).await,
        }
        let set = limiter.stored_rate().await.expect("an answer");
        assert_eq!(set, Some(rate));
        assert_eq!(limiter.free().await, 1);
    }
}

async fn a_deleted_rate_is_set_again(on: &Home) {
    let limiter = with(on, 1);
    for _ in 0..3 {
        assert!(limiter.takes(1).await);
        let waiting = waiting(&limiter, 1);
        sleep(millis(20)).await;
        assert!(limiter.delete().await.expect("an answer"));
        let waited = timeout(PATIENT, waiting).await;
        waited
            .expect("it asks again")
            .expect("the rate is set again");
        assert_eq!(limiter.stored().await, 1);
        assert!(limiter.delete().await.expect("an answer"));
    }
}

/// In all generations; with the first process that uses it, a limiter is declared as shared.
#[tokio::test]
async fn generations_and_redisson() {
    use Generation::{First, Second, Third};
    let server = Server::start();
    let redis = handle(&server.url).await;
    for generation in [First, Second, Third] {
        for is_shared in [false, true] {
            let name = format!("{generation:?}-{is_shared}");
            let limiter = RateLimiter::new(&redis, &*name).generation(generation);
            let mut limiter = limiter.rate(overall(3, MINUTE));
            if is_shared {
                assert!(limiter.takes(1).await);
                limiter = limiter.shared_with_redisson();
            }
            for _ in 0..2 {
                assert!(limiter.takes(1).await, "{name}");
                let shared = limiter.is_shared().await.expect("an answer");
                assert_eq!(shared, Some(is_shared), "{name}");
                run(&server, &format!("DEL {name}"));
            }
            // Redisson sets another rate where there is none.
            run(
                &server,
                &format!("HSET {name} rate 1 interval 60000 type 0"),
            );
            let _ = limiter.takes(1).await;
            assert_eq!(limiter.stored().await, 3, "{name}");
        }
    }
}

#[tokio::test]
async fn it_costs_one_call_of_each_process() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let before = server.script_calls();
    let limiter = with(&redis, 1_000);
    for _ in 0..50 {
        assert!(limiter.takes(1).await);
        // A limiter that is made for each call, too.
        assert!(with(&redis, 1_000).takes(1).await);
    }
    // One sets the rate, and one is the check behind the scripts.
    assert_eq!(server.script_calls() - before, 100 + 2);
}

/// The map of names does not grow with each name that was ever used.
#[tokio::test]
async fn a_process_remembers_its_rate_while_it_may_need_it() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let limiter = with(&redis, 5);
    assert!(limiter.takes(1).await);
    limiter.sets(overall(6, MINUTE)).await;
    for number in 0..300 {
        let other = RateLimiter::new(&redis, format!("other {number}"));
        assert!(other.rate(overall(1, MINUTE)).takes(1).await);
    }
    assert!(limiter.takes(1).await);
    assert_eq!(limiter.stored().await, 6, "it was not its first use");
}

#[tokio::test]
async fn a_job_outlives_a_server_that_was_restarted_empty() {
    let mut server = Server::start();
    let limiter = with(&handle(&server.url).await, 1);
    let fair = limiter.clone().fair();
    assert!(limiter.takes(1).await);
    let waiting = [&limiter, &fair].map(|limiter| waiting(limiter, 1));
    sleep(millis(100)).await;
    server.kill();
    server.restart();
    // One of them has the only permit, and the other one waits on.
    let is_served = async || waiting.iter().any(|waits| waits.is_finished());
    eventually("one is served", is_served).await;
    sleep(millis(300)).await;
    let [first, second] = waiting;
    assert!(first.is_finished() != second.is_finished());
    for waits in [first, second] {
        match waits.is_finished() {
            true => waits.await.expect("no panic"),
            false => waits.abort(),
        }
    }
    // A call that does not wait finds the rate missing, and sets it.
    run(&server, "FLUSHALL");
    assert!(limiter.takes(1).await);
    run(&server, "FLUSHALL");
    assert!(fair.takes_within(1, millis(10)).await);
}

/// Four processes are replaced one by one. Whatever is lost, and whoever is first to set its rate
/// again, the new rate stands in the end.
#[tokio::test]
async fn a_deploy_takes_effect_and_nobody_fights() {
    for lost_after in 0..=4 {
        for first_old in [true, false] {
            let server = Server::start();
            let redis = join_all((0..8).map(|_| handle(&server.url))).await;
            let mut olds: Vec<_> = redis[..4].iter().map(|redis| with(redis, 1_000)).collect();
            let mut news: Vec<RateLimiter> = Vec::new();
            for old in &olds {
                assert!(old.takes(1).await);
            }
            for number in 0..=4 {
                if number == lost_after {
                    run(&server, "FLUSHALL");
                }
                let (one, other) = match first_old {
                    true => (&olds, &news),
                    false => (&news, &olds),
                };
                for limiter in one.iter().chain(other).chain(one) {
                    assert!(limiter.takes(1).await);
                }
                if !news.is_empty() {
                    assert_eq!(news[0].stored().await, 2_000, "{lost_after} {first_old}");
                }
                if number < 4 {
                    news.push(with(&redis[4 + number], 2_000));
                    assert!(news[number].takes(1).await);
                    assert_eq!(news[0].stored().await, 2_000);
                    olds.remove(0);
                }
            }
        }
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
    assert!(old.takes(1).await);
    hour(9.0);
    let new = with(two, 2_000);
    stands(2_000, &[&new, &old, &new, &old]).await;
    lose();
    for limiter in [&old, &new, &old] {
        assert!(limiter.takes(1).await);
    }
    assert_eq!(new.stored().await, 2_000);
    hour(8.5);
    let newest = with(three, 3_000);
    stands(3_000, &[&newest, &old, &new, &newest]).await;
    hour(11.0);
    stands(3_000, &[&old, &new, &newest]).await;
}

#[tokio::test]
async fn a_clock_that_goes_back_on_redis() {
    let server = Server::start();
    let clock = ManualClock::default();
    let process = async || {
        let redis = handle(&server.url).await;
        LimiterBackend::redis_with_clock(&redis, clock.clone())
    };
    let processes = [process().await, process().await, process().await];
    let clock = clock.clone();
    a_clock_that_goes_back(clock, processes, || run(&server, "FLUSHALL")).await;
}

#[tokio::test]
async fn a_clock_that_goes_back_in_memory() {
    let clock = ManualClock::default();
    let one = MemoryLimiters::with_clock(clock.clone());
    let processes = [one.another_client(), one.another_client(), one].map(LimiterBackend::from);
    a_clock_that_goes_back(clock, processes, || {}).await;
}
