//! Costs and quotas at their ends, many keys, callers that leave.

use super::*;

const LEASE: Duration = millis(40);

/// Each algorithm with leases, in each of these ways.
fn each_with<T: Copy>(ways: &[T]) -> impl Iterator<Item = (Algorithm, T)> {
    LEASED
        .into_iter()
        .flat_map(move |it| ways.iter().map(move |way| (it, *way)))
}

/// Max 0, 1 and the largest; costs of 0, above max and the largest, in between takes of 1.
#[tokio::test]
async fn quotas_and_costs_at_their_ends() {
    const MAXES: [u64; 4] = [0, 1, 1_000, Quota::MAX_UNITS];
    let ways = MAXES.map(|max| [(max, millis(1)), (max, HOUR)]).concat();
    for (algorithm, (max, window)) in each_with(&ways) {
        let (_memory, store) = leasing_memory();
        let one = leased_take(algorithm, "ends", max, window, Duration::MAX);
        let mut used = 0_u64;
        for round in 0..400_u64 {
            for cost in [0, 1, max.saturating_add(1), u64::MAX, 1 << 52, 1 << 63] {
                let decision = decide(&store, &one.clone().with_cost(cost)).await;
                if cost > max {
                    assert_eq!(decision.verdict(), Verdict::Never, "{cost} of {max}");
                    assert_eq!(decision.receipt(), None);
                } else if cost == 0 {
                    assert_eq!(decision.is_allowed(), max > 0);
                } else {
                    used += u64::from(decision.is_allowed());
                }
            }
            if round % 100 == 0 {
                sleep(millis(1)).await;
            }
        }
        if window == HOUR {
            assert_eq!(used, max.min(400), "{algorithm:?}, max {max}");
        }
    }
}

/// Law 13: takes that cost more than max, so that none is ever allowed, are no demand: when the
/// leases from before have ended, their process takes no units ahead that others could have.
#[tokio::test]
async fn costs_that_never_fit_are_no_demand() {
    for huge in [1_001, 2_000, u64::MAX] {
        let (memory, store) = leasing_memory();
        let one = leased_log("huge", 1_000, HOUR, LEASE);
        let used = units(&until_leased(&store, &one).await);
        let (began, mut most) = (Instant::now(), 0);
        while began.elapsed() < 12 * LEASE {
            let decision = decide(&store, &one.clone().with_cost(huge)).await;
            assert_eq!(decision.verdict(), Verdict::Never);
            if began.elapsed() > 6 * LEASE {
                most = most.max(spent(&memory, &one).await);
            }
            sleep(millis(1)).await;
        }
        let held = most - used;
        assert_eq!(held, 0, "units that no take can get: {huge}");
    }
}

/// Law 13: takes that are denied, as they cost more than what is left, make their process hold
/// nothing that another process could have.
#[tokio::test]
async fn costs_that_are_denied_are_no_demand() {
    let (memory, store) = leasing_memory();
    let one = leased_log("large", 1_000, HOUR, LEASE);
    let used = units(&until_leased(&store, &one).await);
    decide(&memory, &one.clone().with_cost(150 - used)).await;
    let (began, mut denied, mut asked) = (Instant::now(), 0, 0);
    while began.elapsed() < 16 * LEASE {
        let large = decide(&store, &one.clone().with_cost(900)).await;
        assert!(!large.is_allowed());
        sleep(millis(1)).await;
        if began.elapsed() < 6 * LEASE {
            continue;
        }
        // Another process, of 850 units that nobody uses.
        let eight = one.clone().with_cost(800);
        let other = decide(&memory, &eight).await;
        asked += 1;
        match other.receipt() {
            None => denied += 1,
            Some(receipt) => assert_eq!(refund(&memory, &eight, &receipt).await, 800),
        }
    }
    assert_eq!(denied, 0, "law 13: of {asked}; 850 units are free");
}

/// Law 14: a take that fits is allowed as soon as the lease from before has ended, and is not kept
/// out by leases that its own repetition leads to. Nobody else asks.
#[tokio::test]
async fn a_large_cost_is_not_starved_by_leases() {
    for algorithm in LEASED {
        let (_memory, store) = leasing_memory();
        let one = leased_take(algorithm, "large", 1_000, HOUR, LEASE);
        let used = units(&until_leased(&store, &one).await);
        let large = one.clone().with_cost(1_000 - used - 1);
        let is_granted = async || decide(&store, &large).await.is_allowed();
        let what = format!("law 14: {algorithm:?}: all units are free");
        within(15 * LEASE, &what, is_granted).await;
    }
}

/// More hot keys than there are places: each has its quota, to the unit.
#[tokio::test]
async fn more_hot_keys_than_places() {
    let (memory, store) = leasing_memory();
    let shared = leased(Algorithm::SlidingWindow, "hot", 1_000, HOUR, millis(400));
    let mut used = HashMap::<u64, u64>::new();
    let mut by_lease = 0;
    for _ in 0..2 {
        for key in 0..3_000 {
            for ask in 0..40 {
                let decision = decide(&store, &take(&shared, key)).await;
                assert!(decision.is_allowed());
                by_lease += u64::from(decision.source() == Source::Lease);
                *used.entry(key).or_default() += 1;
                if ask == 20 {
                    yield_now().await;
                }
            }
        }
    }
    sleep(millis(1_500)).await;
    assert!(by_lease > 0);
    for (key, used) in used {
        assert_eq!(spent(&memory, &take(&shared, key)).await, used, "key {key}");
    }
}

/// Law 9: callers that drop their futures, before and after they are polled, whatever they led to.
#[tokio::test]
async fn callers_that_leave() {
    let memory = Arc::new(MemoryStore::new());
    let inner = Distant::new(Arc::clone(&memory)).ways(3, 3);
    let store = Resilient::bare(inner.clone());
    let one = leased_log("leave", 100_000, HOUR, millis(100));
    let (mut used, mut unheard) = (0, 0);
    for round in 0..3_000_u64 {
        let mut pending = store.take(&one);
        let answer = match (pending.poll_now(), round % 4) {
            (Some(answer), _) => Some(answer),
            (None, 0) => None,
            (None, 1) => timeout(millis(1), pending).await.ok(),
            (None, 2) => timeout(millis(4), pending).await.ok(),
            (None, _) => Some(pending.await),
        };
        match answer {
            Some(answer) => used += u64::from(answer.expect("a decision").is_allowed()),
            None => unheard += 1,
        }
        if round % 64 == 0 {
            sleep(millis(1)).await;
        }
    }
    // One of four waits for its answer.
    assert!(used >= 750, "{used}");
    sleep(millis(300)).await;
    let charged = spent(&memory, &one).await;
    let is_right = (used..=used + unheard).contains(&charged);
    assert!(is_right, "{used}, {unheard} unheard, {charged}");
}

/// Law 6: a lease that nobody answers holds up nobody.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_answered() {
    let inner = Distant::new(MemoryStore::new()).ways(1, 1);
    let store = Arc::new(Resilient::bare(inner.clone()).tokio_clock());
    let one = leased_log("mute", 100_000, HOUR, millis(100));
    for _ in 0..50 {
        decide(&*store, &one).await;
    }
    inner.takes_are(Fate::Silence);
    let mute = (0..100).map(|_| {
        let (store, one) = (Arc::clone(&store), one.clone());
        tokio::spawn(async move { timeout(millis(500), store.take(&one)).await })
    });
    let mute: Vec<_> = mute.collect();
    sleep(millis(250)).await;
    inner.takes_are(Fate::Answered);
    for _ in 0..200 {
        let answer = timeout(millis(10), store.take(&one)).await;
        let answer = answer.expect("law 6: nobody waits for a lease");
        assert!(is_allowed(&answer));
    }
    join_all(mute).await;
    // And a lease that is asked for later works.
    let began = tokio::time::Instant::now();
    let mut leases = 0;
    while began.elapsed() < PATIENT {
        leases += u64::from(decide(&*store, &one).await.source() == Source::Lease);
        sleep(Duration::from_micros(500)).await;
        if leases > 100 {
            return;
        }
    }
    println!("{leases} leased takes after a question that nobody answers");
}

/// Two rules of one path and key, of which one is stricter: neither is answered by the other's
/// lease where its own quota is used up.
#[tokio::test]
async fn rules_that_take_turns_on_one_key() {
    for algorithm in LEASED {
        let (_memory, store) = leasing_memory();
        let large = leased_take(algorithm, "turns", 10_000, HOUR, millis(300));
        let small = leased_take(algorithm, "turns", 5, HOUR, millis(300));
        until_leased(&store, &large).await;
        for _ in 0..50 {
            let told = decide(&store, &small).await;
            assert!(!told.is_allowed(), "law 11: {algorithm:?}: {told:?}");
            assert!(decide(&store, &large).await.is_allowed());
        }
        let without = take(&by(algorithm, "turns", 5, HOUR), "x");
        let told = decide(&store, &without).await;
        assert!(!told.is_allowed(), "law 11: {algorithm:?}: {told:?}");
    }
}
