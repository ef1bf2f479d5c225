//! Units that processes take ahead: never more than the quota, and what is not used comes back.

use std::collections::VecDeque;

use kit::COUNTING as LEASED;
use tokio::time::Instant;

use crate::prelude::*;

const LEASE: Duration = millis(50);
/// A fiftieth of the window.
const SHORT_LEASE: Duration = millis(20);

fn rule(max: u64, algorithm: Algorithm) -> Arc<Rule> {
    let rule = owned_rule("feed", max, SECOND).with_algorithm(algorithm);
    Arc::new(rule.with_lease(LEASE).expect("leases"))
}

fn take(rule: &Arc<Rule>) -> Take {
    Take::new(Arc::clone(rule), Key::from("hot"))
}

/// A store behind a network, and how many questions of any kind it was asked.
fn remote(inner: Arc<dyn Store>, one_way: Duration) -> (Stub, Arc<AtomicU64>) {
    let calls = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&calls);
    let ways = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        (one_way, one_way)
    };
    (Stub::delayed(inner, ways), calls)
}

/// A store on tokio's clock, and a process that leases units of it.
fn leasing() -> (Arc<MemoryStore>, Resilient<Arc<MemoryStore>>) {
    let store = Arc::new(MemoryStore::new().tokio_clock());
    (store.clone(), Resilient::bare(store).tokio_clock())
}

/// The same where every question takes so long each way, and how many there were.
fn leasing_over(one_way: Duration) -> (Resilient<Stub>, Arc<AtomicU64>) {
    let (remote, calls) = remote(Arc::new(MemoryStore::new().tokio_clock()), one_way);
    (Resilient::bare(remote).tokio_clock(), calls)
}

async fn ask(store: &dyn Store, rule: &Arc<Rule>) -> Decision {
    crate::ask(store, &take(rule)).await
}

/// Grants, and the most of them in any window.
struct Grants {
    window: Duration,
    recent: VecDeque<(Instant, u64)>,
    in_window: u64,
    most: u64,
    all: u64,
}

impl Grants {
    fn new(window: Duration) -> Self {
        Self {
            window,
            recent: VecDeque::new(),
            in_window: 0,
            most: 0,
            all: 0,
        }
    }

    fn add(&mut self, units: u64) {
        let now = Instant::now();
        while self
            .recent
            .front()
            .is_some_and(|(at, _)| now - *at >= self.window)
        {
            self.in_window -= self.recent.pop_front().expect("one").1;
        }
        self.recent.push_back((now, units));
        self.in_window += units;
        self.all += units;
        self.most = self.most.max(self.in_window);
    }
}

/// Processes that lease and some that do not, with bursts, pauses and costs, on one store.
async fn fleet(algorithm: Algorithm, max: u64, seed: u64) -> (Grants, u64, u64) {
    let redis: Arc<dyn Store> = Arc::new(MemoryStore::new().tokio_clock());
    let (remote, _) = remote(redis, Duration::from_micros(300));
    let rule = rule(max, algorithm);
    let of_lease = |lease| {
        let rule = rule.as_ref().clone().with_lease(lease);
        Arc::new(rule.expect("leases"))
    };
    let (without, shorter) = (of_lease(Duration::ZERO), of_lease(SHORT_LEASE / 2));
    let leasing = [(); 3].map(|()| Resilient::bare(remote.clone()).tokio_clock());
    let mut grants = Grants::new(SECOND);
    let (mut random, mut leased, mut asked) = (Random::new(seed), 0, 0);
    let begin = Instant::now();
    while begin.elapsed() < 5 * SECOND {
        let pause = 1 + random.below(6);
        sleep(millis(pause)).await;
        // Around twice the rate, a fifth of it, or nothing.
        let phase = begin.elapsed().as_millis() / 700 % 4;
        let units = max * pause * [20, 2, 20, 0][phase as usize] / 10_000;
        let takes = (0..units).map(|_| {
            let cost = 1 + random.below(20) / 19 * random.below(5);
            let process = random.below(5) as usize;
            let rule = [&rule, &without, &rule, &rule, &shorter][process];
            (take(rule).with_cost(cost), process)
        });
        let takes: Vec<_> = takes.collect();
        let answers = takes.iter().map(|(take, process)| async {
            let decision = match process.checked_sub(2) {
                None => remote.take(take).await,
                Some(process) => leasing[process].take(take).await,
            };
            (take.cost(), decision.expect("decides"))
        });
        for (cost, decision) in join_all(answers).await {
            asked += 1;
            if decision.is_allowed() {
                grants.add(cost);
                leased += u64::from(decision.source() == Source::Lease);
            }
        }
    }
    (grants, leased, asked)
}

#[tokio::test(start_paused = true)]
async fn no_window_ever_holds_more_than_max() {
    for algorithm in [Algorithm::SlidingLog, Algorithm::SlidingWindow] {
        for (max, seed) in [(2_000, 1), (2_000, 2), (5_000, 3)] {
            let (grants, leased, asked) = fleet(algorithm, max, seed).await;
            let most = grants.most;
            assert!(most <= max, "{algorithm:?}, {seed}: {most} of {max}");
            let is_right = leased > asked / 20;
            assert!(is_right, "{algorithm:?}: {leased} of {asked} by leases");
        }
    }
}

/// A window that ends takes its leases along: two windows meet at an edge, but never three.
#[tokio::test(start_paused = true)]
async fn a_lease_of_a_fixed_window_ends_with_it() {
    let (grants, leased, asked) = fleet(Algorithm::FixedWindow, 2_000, 4).await;
    assert!(leased > asked / 20, "{leased} of {asked}");
    assert!(grants.most <= 4_000, "{}", grants.most);

    let leases = Resilient::bare(MemoryStore::new().tokio_clock()).tokio_clock();
    let rule = rule(1_000, Algorithm::FixedWindow);
    // The window begins with the first take.
    for _ in 0..48 {
        for _ in 0..10 {
            assert!(ask(&leases, &rule).await.is_allowed());
        }
        sleep(SHORT_LEASE).await;
    }
    sleep(millis(35)).await;
    for _ in 0..20 {
        ask(&leases, &rule).await;
    }
    sleep(millis(6)).await;
    let decision = ask(&leases, &rule).await;
    assert_eq!(decision.source(), Source::Local, "1,001 ms: a new window");
}

/// A hot key costs a few calls for each lease, and is answered at once.
#[tokio::test(start_paused = true)]
async fn a_hot_key_is_answered_from_leases() {
    let (leases, calls) = leasing_over(Duration::from_micros(300));
    let rule = rule(10_000_000, Algorithm::SlidingLog);
    let (mut leased, mut all) = (0_u64, 0_u64);
    for _ in 0..2_000 {
        for _ in 0..10 {
            let decision = ask(&leases, &rule).await;
            assert!(decision.is_allowed());
            leased += u64::from(decision.source() == Source::Lease);
            all += 1;
        }
        sleep(millis(1)).await;
    }
    assert!(leased * 100 > all * 97, "{leased} of {all}");
    // Leases of 20 ms for 2 s, each a take and a refund, and takes while there was none.
    let calls = calls.load(Ordering::Relaxed);
    assert!(calls < 700, "{calls} calls");
}

/// Leases are asked for at any moment; nothing is served of the last one once its time is over.
#[tokio::test(start_paused = true)]
async fn a_lease_ends_in_time() {
    for hot in 60..110 {
        let (_, leases) = leasing();
        let rule = rule(100_000, Algorithm::SlidingLog);
        let mut leased = 0;
        for _ in 0..hot {
            for _ in 0..10 {
                let source = ask(&leases, &rule).await.source();
                leased += u32::from(source == Source::Lease);
            }
            sleep(millis(1)).await;
        }
        assert!(leased > 0, "{hot} ms");
        // The last take was a millisecond ago.
        sleep(SHORT_LEASE - millis(1)).await;
        let source = ask(&leases, &rule).await.source();
        assert_ne!(source, Source::Lease, "after {hot} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_used_is_given_back() {
    for algorithm in LEASED {
        let (store, leases) = leasing();
        let rule = rule(10_000, algorithm);
        let mut granted = 0;
        for _ in 0..4 {
            for _ in 0..37 {
                granted += 1;
                assert!(ask(&leases, &rule).await.is_allowed());
            }
            sleep(millis(10)).await;
        }
        let held = remaining(&store, &take(&rule)).await;
        assert!(held < 10_000 - granted, "units are leased: {held}");
        sleep(2 * LEASE).await;
        let left = remaining(&store, &take(&rule)).await;
        assert_eq!(left, 10_000 - granted, "{algorithm:?}");
    }
}

/// A leased unit has a receipt, as if the store had been asked for it.
#[tokio::test(start_paused = true)]
async fn leased_units_can_be_refunded() {
    for algorithm in LEASED {
        let (store, leases) = leasing();
        let rule = rule(10_000, algorithm);
        let (mut granted, mut receipts) = (0, Vec::new());
        for number in 0..120 {
            let take = take(&rule).with_cost(1 + number % 3);
            let decision = leases.take(&take).await.expect("decides");
            granted += take.cost();
            if decision.source() == Source::Lease {
                receipts.push((take, decision.receipt().expect("charged")));
            }
            if number % 40 == 39 {
                sleep(millis(5)).await;
            }
        }
        assert!(receipts.len() > 20, "{}", receipts.len());
        sleep(2 * LEASE).await;
        for (take, receipt) in &receipts {
            let refunded = leases.refund(take, receipt).await.expect("decides");
            assert_eq!(refunded, take.cost(), "{algorithm:?}");
            granted -= refunded;
        }
        let left = remaining(&store, &take(&rule)).await;
        assert_eq!(left, 10_000 - granted, "{algorithm:?}");
    }
}

/// The last units are exact, and no take waits for a lease.
#[tokio::test(start_paused = true)]
async fn near_the_limit_takes_are_plain() {
    let (leases, _) = leasing_over(Duration::from_micros(300));
    let rule = rule(1_000, Algorithm::SlidingLog);
    let mut allowed = 0;
    for _ in 0..3_000 {
        let began = Instant::now();
        let decision = ask(&leases, &rule).await;
        let took = began.elapsed();
        assert!(took <= millis(3), "{took:?}");
        allowed += u64::from(decision.is_allowed());
        if !decision.is_allowed() {
            assert_ne!(decision.source(), Source::Lease);
        }
        sleep(Duration::from_micros(100)).await;
    }
    assert!((980..=3_900).contains(&allowed), "{allowed}");
}

#[tokio::test(start_paused = true)]
async fn a_reset_and_a_changed_rule_void_leases() {
    let (store, leases) = leasing();
    let large = rule(10_000, Algorithm::SlidingLog);
    let fill = async || {
        for _ in 0..100 {
            ask(&leases, &large).await;
        }
        tokio::task::yield_now().await;
        let decision = ask(&leases, &large).await;
        assert_eq!(decision.source(), Source::Lease);
    };
    fill().await;
    // One unit in the new rule's window: none that an old lease has left.
    let small = rule(1, Algorithm::SlidingLog);
    let decision = ask(&leases, &small).await;
    assert!(!decision.is_allowed());
    sleep(3 * SECOND).await;

    fill().await;
    leases.reset(&take(&large)).await.expect("resets");
    let decision = ask(&leases, &large).await;
    assert_eq!(decision.source(), Source::Local);
    sleep(2 * LEASE).await;
    let left = remaining(&store, &take(&large)).await;
    let least = 9_999 - 200;
    let is_right = left >= least;
    assert!(
        is_right,
        "nothing of before the reset counts, or is given back: {left}"
    );
}

/// The store forgets what it charged for it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_asked_for_before_a_reset_is_void() {
    let (leases, calls) = leasing_over(millis(2));
    let take = take(&rule(10_000, Algorithm::SlidingLog));
    join_all((0..20).map(|_| leases.take(&take))).await;
    let before = calls.load(Ordering::Relaxed);
    let asked = leases.take(&take);
    let asked_store = calls.load(Ordering::Relaxed) - before;
    assert_eq!(asked_store, 2, "a take and a lease");
    tokio::task::yield_now().await;
    let reset = leases.reset(&take);
    let (asked, reset) = tokio::join!(asked, reset);
    assert!(asked.expect("decides").is_allowed());
    reset.expect("forgotten");
    sleep(millis(1)).await;
    let next = leases.take(&take).poll_now();
    assert!(next.is_none(), "it is not held: {next:?}");
}

/// A fallback's units are this process's alone: to hold them for the fleet would be a lie.
#[tokio::test(start_paused = true)]
async fn what_a_fallback_admits_is_not_leased() {
    let leases = Resilient::bare(Stub::down()).fallback(Share::of_processes(1));
    let leases = leases.tokio_clock();
    let rule = rule(10_000, Algorithm::SlidingLog);
    for _ in 0..500 {
        let decision = ask(&leases, &rule).await;
        assert_eq!(decision.source(), Source::Fallback);
        sleep(Duration::from_micros(200)).await;
    }
    let leases = Resilient::bare(Stub::down()).tokio_clock();
    for _ in 0..500 {
        assert!(leases.take(&take(&rule)).await.is_err());
    }
}

/// A store that fails from now on.
fn failing(fails: Arc<AtomicBool>) -> Stub {
    Stub::in_memory().take_fn(move |memory, take| match fails.load(Ordering::Relaxed) {
        true => Stub::down().take(take),
        false => memory.take(take),
    })
}

/// The demand is the fleet's, and the answer about the lease is a fallback's.
#[tokio::test(start_paused = true)]
async fn a_lease_that_a_fallback_answers_is_not_held() {
    let fails = Arc::<AtomicBool>::default();
    let store = failing(Arc::clone(&fails));
    let store = Resilient::bare(store).fallback(Share::of_processes(1));
    let leases = store.tokio_clock();
    let take = take(&rule(10_000, Algorithm::SlidingLog));
    for _ in 0..8 {
        let decision = leases.take(&take).await.expect("decides");
        assert_eq!(decision.source(), Source::Local);
    }
    fails.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let decision = leases.take(&take).await.expect("decides");
        assert_eq!(decision.source(), Source::Fallback);
        sleep(millis(1)).await;
    }
}

/// On a real server, with threads: everything that was charged was granted or given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_redis() {
    let (_server, redis) = started().await;
    let rule = owned_rule("feed", 1_000_000, 600 * SECOND).with_lease(LEASE);
    let rule = Arc::new(rule.expect("leases"));
    let counts = crowd(3, |_| {
        let (leases, rule) = (Resilient::bare(redis.clone()), Arc::clone(&rule));
        async move {
            let (mut allowed, mut leased) = (0_u64, 0_u64);
            for number in 0..30_000 {
                let decision = ask(&leases, &rule).await;
                allowed += u64::from(decision.is_allowed());
                leased += u64::from(decision.source() == Source::Lease);
                if number % 500 == 0 {
                    sleep(millis(2)).await;
                }
            }
            (allowed, leased)
        }
    })
    .await;
    let allowed: u64 = counts.iter().map(|counts| counts.0).sum();
    let leased: u64 = counts.iter().map(|counts| counts.1).sum();
    assert_eq!(allowed, 90_000);
    assert!(leased > 45_000, "{leased}");
    let take = take(&rule);
    let is_given_back = async || remaining(&redis, &take).await == 1_000_000 - allowed;
    eventually("no units are missing", is_given_back).await;
}

#[test]
fn rules_with_leases() {
    let rule = || Rule::new("a", [Quota::per_second(10), Quota::per_minute(100)]).expect("valid");
    let leased = rule().with_lease(SECOND).expect("leases");
    assert_eq!(leased.lease(), Some(millis(20)), "a fiftieth of a second");
    assert_eq!(leased.quotas()[1].window().as_millis(), 60_000);
    let lease = |lease| rule().with_lease(lease).expect("leases").lease();
    assert_eq!(lease(Duration::from_micros(1_999)), Some(millis(1)));
    let short = Quota::new(millis(49), 10).expect("valid");
    let short = Rule::new("a", [short]).expect("valid").with_lease(SECOND);
    assert_eq!(short.expect("none").lease(), None);
    let seen = rule().with_lease(Duration::ZERO).expect("none").lease();
    assert_eq!(seen, None);

    let fixed = rule().with_algorithm(Algorithm::FixedWindow);
    let fixed = fixed.with_lease(LEASE);
    assert_eq!(fixed.expect("leases").quotas()[0].window(), SECOND);
    let gcra = rule().with_algorithm(Algorithm::Gcra).with_lease(LEASE);
    assert_eq!(gcra.expect_err("none"), RuleError::NoLeases("gcra"));
    assert_eq!(leased.with_algorithm(Algorithm::Gcra).lease(), None);
    let longest = Quota::new(Quota::MAX_WINDOW, 1).expect("valid");
    let longest = Rule::new("a", [longest]).expect("valid").with_lease(LEASE);
    assert_eq!(longest.expect_err("too long"), RuleError::LeaseTooLong);
}
