//! Callers that wait for a lock, with subscriptions on the same connection, while flights are lost:
//! one holder at a time, and everybody gets the lock in the end.

use tidegate::lock::LockError;

use super::callers::connected;
use super::*;

const WAITERS: usize = 6;
/// Until each waiter has had the lock again: it asks at least every second, and a call that nobody
/// answers is repeated.
const BOUND: Duration = Duration::from_secs(10);

/// Tells whether two have the lock, by more than their word: each holder counts up and down.
#[derive(Default)]
struct Holders {
    now: AtomicU64,
    token: AtomicU64,
    entries: [AtomicU64; WAITERS + 1],
    /// Waits that ended without the lock.
    errors: Mutex<Vec<LockError>>,
}

impl Holders {
    fn enter(&self, who: usize, token: u64) {
        let others = self.now.fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "{who} has it, and another one, too");
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(token > before, "{who}: {token} after {before}");
    }

    fn leave(&self, who: usize) {
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.entries[who].fetch_add(1, Ordering::SeqCst);
    }

    fn entries(&self) -> Vec<u64> {
        let entries = self.entries.iter();
        entries.map(|one| one.load(Ordering::SeqCst)).collect()
    }
}

async fn hold(lock: Lock, who: usize, holders: Arc<Holders>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let guard = match lock.lock().await {
            Ok(guard) => guard,
            Err(error) => {
                holders.errors.lock().expect("nobody panics").push(error);
                sleep(millis(1)).await;
                continue;
            }
        };
        holders.enter(who, guard.fencing_token());
        sleep(millis(2)).await;
        holders.leave(who);
        match guard.release().await {
            Err(error) if error.kind() == LockErrorKind::NotHeld => panic!("{who}: {error}"),
            // The background task goes on.
            _ => {}
        }
        sleep(millis(1)).await;
    }
}

/// Breaks one flight after the other that contains this, while all wait. Returns the errors that
/// ended a wait.
async fn broken_under_waiters(contains: &str, faults: &[FlightFault]) -> Vec<LockError> {
    let server = Server::start();
    let proxy = Proxy::start_with_flights(&server.url).await;
    let redis = connected(&proxy.url).await;
    let redis = redis.timeout(TIMEOUT);
    let other = handle(&server.url).await;
    let (holders, stop) = (Arc::<Holders>::default(), Arc::<AtomicBool>::default());
    let mut all = JoinSet::new();
    for (at, &fault) in faults.iter().enumerate() {
        proxy.break_flight(fault, contains, 0);
        if at == 0 {
            for who in 0..=WAITERS {
                let of = if who == WAITERS { &other } else { &redis };
                let lock = Lock::new(of, "contended");
                all.spawn(hold(lock, who, Arc::clone(&holders), Arc::clone(&stop)));
            }
        }
        let _ = traced(&proxy).await;
        let (before, began) = (holders.entries(), Instant::now());
        let is_served = || {
            let mut pairs = before.iter().zip(holders.entries());
            pairs.all(|(before, now)| *before + 2 <= now)
        };
        while !is_served() {
            let after = began.elapsed();
            let now = holders.entries();
            let is_right = after < BOUND;
            assert!(is_right, "{fault:?}: {before:?}, after {after:?} {now:?}");
            if let Some(ended) = all.try_join_next() {
                ended.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            }
            sleep(millis(5)).await;
        }
        let (hit, took) = (proxy.fault_trace().hit.is_some(), began.elapsed());
        println!("{fault:?}: hit: {hit}, all are served after {took:?}");
    }
    stop.store(true, Ordering::Relaxed);
    let ended = timeout(BOUND, async {
        while let Some(ended) = all.join_next().await {
            ended.expect("no panic");
        }
    });
    ended.await.expect("all are served");
    std::mem::take(&mut *holders.errors.lock().expect("nobody panics"))
}

/// As long as it takes: `Lock::lock` ends with an error if Redis refuses, or does not answer for
/// 5 s, and neither is so.
#[tokio::test]
async fn a_lost_flight_ends_no_wait() {
    let errors = broken_under_waiters("contended", &LOSSES).await;
    assert!(errors.is_empty(), "{}: {:?}", errors.len(), errors.first());
}

#[tokio::test]
async fn a_reply_too_many_under_waiters() {
    // All but an error.
    let faults = [Spot::Before, Spot::Within, Spot::After].map(|spot| extras(spot)[..5].to_vec());
    drop(broken_under_waiters("contended", &faults.concat()).await);
}

#[tokio::test]
async fn a_lost_subscription() {
    let lost = [FlightFault::Lose(Part::All)];
    drop(broken_under_waiters("SUBSCRIBE", &lost).await);
}

#[tokio::test]
async fn a_reply_too_many_before_a_subscription() {
    for extra in [Extra::Integer, Extra::EarlierReply, Extra::Error] {
        let fault = FlightFault::Add(extra, Spot::Before);
        drop(broken_under_waiters("SUBSCRIBE", &[fault]).await);
    }
}
