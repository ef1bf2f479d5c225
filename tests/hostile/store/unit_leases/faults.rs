//! Leases of units of a real server that is killed or stopped.

use super::*;

/// What a busy machine takes to wake up.
const SLACK: Duration = Duration::from_millis(400);

/// Law 6: the server is stopped, or killed, while a lease is held. Its units are handed out until
/// it ends, at once; then there are errors, in time. When the server is back, so are leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_goes_while_a_lease_is_held() {
    const LEASE: Duration = millis(300);
    for is_killed in [false, true] {
        let mut server = Redis::start();
        let raw = connect(&server.url, TIMEOUT).await;
        let store = Resilient::bare(raw.clone());
        let one = leased_log("gone", 1_000_000, HOUR, LEASE);
        let mut used = units(&until_leased(&store, &one).await);
        for _ in 0..5_000 {
            used += u64::from(is_allowed(&store.take(&one).await));
        }
        server.go_away(is_killed);
        let gone = Instant::now();
        let (mut leases, mut errors) = (0_u64, 0);
        while gone.elapsed() < millis(1_500) {
            let asked = Instant::now();
            let answer = store.take(&one).await;
            let took = asked.elapsed();
            assert!(took < TIMEOUT + SLACK, "law 6: {took:?}");
            if let Ok(decision) = answer {
                assert_eq!(decision.source(), Source::Lease);
                assert!(gone.elapsed() < LEASE + SLACK, "a lease that does not end");
                leases += 1;
            } else {
                errors += 1;
            }
            sleep(millis(1)).await;
        }
        used += leases;
        assert!(leases > 0 && errors > 5, "{leases} and {errors}");
        server.come_back(is_killed);
        let is_back = async || store.take(&one).await.is_ok();
        within(millis(3_000), "the server is back", is_back).await;
        until_leased(&store, &one).await;
        sleep(2 * LEASE).await;
        let charged = charged(&raw, &one).await;
        assert!(is_killed || charged >= used, "law 1: {used}, {charged}");
    }
}

/// Law 4: after leases, refunds and denials nothing stays in the server. Law 2: denials under a
/// used quota charge nothing and extend no expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays() {
    const WINDOW: Duration = Duration::from_secs(2);
    let (server, raw) = near().await;
    let expiries = || -> Vec<i64> {
        let names = server.names().into_iter();
        let names = names.filter(|name| name.contains("stays"));
        names.map(|name| server.life(&name)).collect()
    };
    let of = |algorithm: Algorithm| {
        let path = format!("stays-{}", algorithm.name());
        leased_take(algorithm, &path, 1_000, WINDOW, millis(40))
    };
    let store = Resilient::bare(raw.clone());
    for algorithm in LEASED {
        let one = of(algorithm);
        let (mut denied_since, mut receipts) = (None, Vec::new());
        loop {
            let decision = decide(&store, &one).await;
            receipts.extend(decision.receipt());
            let now = Instant::now();
            if !decision.is_allowed() && now - *denied_since.get_or_insert(now) > millis(120) {
                break;
            }
            if receipts.len() % 10 == 0 {
                sleep(Duration::from_micros(300)).await;
            }
        }
        for receipt in receipts.iter().rev().take(5) {
            refund(&store, &one, receipt).await;
        }
    }
    let (bound, lives) = (4 * WINDOW.as_millis() as i64, expiries());
    let is_right = lives.iter().all(|life| (1..=bound).contains(life));
    assert!(is_right && !lives.is_empty(), "law 4: {lives:?}");
    // Five are free; then denials and looks.
    let flooded = Instant::now();
    let rules = LEASED.map(|algorithm| of(algorithm).with_cost(900));
    let before = expiries();
    while flooded.elapsed() < millis(300) {
        for one in &rules {
            let _ = store.take(one).await;
            let _ = store.peek(one).await;
        }
    }
    println!("{before:?}, then {:?}", expiries());
    sleep(4 * WINDOW + millis(500)).await;
    assert!(expiries().is_empty(), "law 4: {:?}", expiries());
}

/// Law 3: a retry-after of a rule with leases is true, when nobody else asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_retry_after_is_true() {
    const WINDOW: Duration = Duration::from_secs(3);
    let (_server, _proxy, raw) = far(millis(1)).await;
    let checks = LEASED.map(|algorithm| {
        let store = Resilient::bare(raw.clone());
        async move {
            let path = format!("honest-{}", algorithm.name());
            let one = leased_take(algorithm, &path, 250, WINDOW, millis(60));
            for cost in [1, 7, 1, 50] {
                let one = one.clone().with_cost(cost);
                let mut denials = 0;
                let retry_after = loop {
                    let decision = decide(&store, &one).await;
                    match decision.retry_after() {
                        Some(retry_after) if denials > 10 => break retry_after,
                        Some(_) => denials += 1,
                        None => {}
                    }
                };
                sleep(retry_after).await;
                let answer = decide(&store, &one).await;
                let what = format!("{algorithm:?} after {retry_after:?}");
                assert!(answer.is_allowed(), "law 3: {what}: {answer:?}");
            }
        }
    });
    join_all(checks).await;
}

/// How long processes work: until an instant, and on a busy machine until leases were of use.
#[derive(Debug, Clone)]
pub(super) struct Shift {
    end: Instant,
    /// How many takes of all processes are to be answered by leases.
    wanted: u64,
    by_lease: Arc<AtomicU64>,
}

impl Shift {
    pub(super) fn new(time: Duration, wanted: u64) -> Self {
        Self {
            end: Instant::now() + time,
            wanted,
            by_lease: Arc::default(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let now = Instant::now();
        let enough = self.by_lease() > self.wanted || now >= self.end + 3 * PATIENT;
        now >= self.end && enough
    }

    pub(super) fn by_lease(&self) -> u64 {
        self.by_lease.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self) {
        let by_lease = self.by_lease();
        assert!(by_lease > self.wanted, "{by_lease} by leases");
    }
}

/// A process's worth of work: takes for a while, from several tasks.
pub(super) async fn work(
    store: Arc<dyn Store>,
    one: Take,
    tasks: usize,
    pause: Duration,
    shift: Shift,
) -> Vec<Allowed> {
    let each = (Arc::clone(&store), one.clone(), shift.clone());
    let tasks = spawn_each(0..tasks, each, |_, (store, one, shift)| async move {
        let mut allowed = Vec::new();
        while !shift.is_over() {
            let asked = Instant::now();
            if let Ok(decision) = store.take(&one).await
                && decision.is_allowed()
            {
                allowed.push(allowed_since(asked));
                let by_lease = u64::from(decision.source() == Source::Lease);
                shift.by_lease.fetch_add(by_lease, Ordering::Relaxed);
            }
            sleep(pause).await;
        }
        allowed
    });
    done(tasks).await.concat()
}
