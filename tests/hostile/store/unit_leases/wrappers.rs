//! Leases around and inside other wrappers: fallbacks, cached denials, breakers, clones, several
//! wrappers of one store.

use tokio::time::Instant;

use super::*;

const LEASE: Duration = millis(60);

/// What a fallback decides is not leased: every answer says that the fallback gave it, and the
/// fallback's share is kept, over several outages.
#[tokio::test(start_paused = true)]
async fn a_fallback_is_not_leased() {
    const MAX: u64 = 20_000;
    let (memory, inner) = distant_memory();
    let store = Resilient::new(inner.clone()).processes(4);
    let store = store.probe_every(millis(10)).tokio_clock();
    assert!(store.capabilities().has_fallback);
    assert_eq!(store.name(), memory.name());
    let one = leased_log("outage", MAX, HOUR, LEASE);
    let (mut used, mut by_fallback) = (0, 0);
    for _ in 0..3 {
        used += units(&until_leased(&store, &one).await);
        go_away(&inner);
        let gone = Instant::now();
        while gone.elapsed() < millis(400) {
            let decision = decide(&store, &one).await;
            if decision.source() == Source::Lease {
                assert!(gone.elapsed() < LEASE + millis(40), "a lease in an outage");
                used += 1;
            } else {
                assert_eq!(decision.source(), Source::Fallback);
                assert!(decision.failure().is_some());
                by_fallback += u64::from(decision.is_allowed());
            }
            sleep(millis(1)).await;
        }
        come_back(&inner);
        let is_back = async || decide(&store, &one).await.source() != Source::Fallback;
        within(Duration::from_secs(1), "the store decides", is_back).await;
    }
    assert!(by_fallback > 100, "{by_fallback}");
    assert!(by_fallback <= MAX / 4, "law 11: {by_fallback}");
    sleep(3 * LEASE).await;
    assert!(spent(&memory, &one).await >= used, "law 1");
}

/// A leased unit is refunded in an outage: an error, or the units once; afterwards once.
#[tokio::test(start_paused = true)]
async fn a_refund_in_an_outage() {
    let (memory, inner) = distant_memory();
    let store = Resilient::new(inner.clone()).processes(1);
    let store = store.probe_every(millis(10)).tokio_clock();
    let one = leased_log("back", 10_000, HOUR, LEASE);
    let decisions = until_leased(&store, &one).await;
    let receipt = decisions.last().expect("one").receipt().expect("charged");
    go_away(&inner);
    let given_back = store.refund(&one, &receipt).await;
    assert!(given_back.is_err(), "the question is lost");
    come_back(&inner);
    sleep(millis(300)).await;
    assert_eq!(refund(&store, &one, &receipt).await, 1, "law 15");
    sleep(3 * LEASE).await;
    assert!(spent(&memory, &one).await >= units(&decisions) - 1);
}

/// Cached denials inside and outside: what an ended lease gives back is granted at once.
#[tokio::test(start_paused = true)]
async fn cached_denials_inside_and_outside() {
    const MAX: u64 = 3_000;
    for is_inside in [true, false] {
        let (_memory, inner) = distant_memory();
        let leases = Resilient::bare(inner.clone()).tokio_clock();
        let store: Arc<dyn Store> = match is_inside {
            true => Resilient::new(inner).tokio_clock().build(),
            false => Resilient::new(leases).tokio_clock().build(),
        };
        let one = leased_log("denials", MAX, HOUR, LEASE);
        let allowed = use_up(&store, &one, 3 * LEASE + millis(200)).await;
        let by_lease = by_lease(&allowed);
        assert!(by_lease > 100, "inside {is_inside}: {by_lease}");
        assert_eq!(allowed.len() as u64, MAX, "inside {is_inside}");
    }
}

/// The end of a lease frees units that the process's own cache was told are denied: they are
/// granted at once (law 14), not at the cache's next question.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_voids_denials() {
    let memory = MemoryStore::new().tokio_clock();
    let store = Resilient::bare(memory).denial_cache(Duration::MAX);
    let store = store.tokio_clock();
    let one = leased_log("voids", 1_000, HOUR, LEASE);
    let used = units(&until_leased(&store, &one).await);
    // Larger than what the lease leaves.
    let large = one.clone().with_cost(1_000 - used - 1);
    let mut is_denied = false;
    let is_granted = async || {
        let is_allowed = decide(&store, &large).await.is_allowed();
        is_denied |= !is_allowed;
        is_allowed
    };
    let what = "law 14: the units of the lease that ended";
    within(millis(600), what, is_granted).await;
    assert!(is_denied, "the lease holds more than one unit");
}

/// Clones, an `Arc` of it, and a second wrapper over one store: together the quota and no more,
/// and receipts of one are good in the other.
#[tokio::test(start_paused = true)]
async fn clones_and_several_wrappers() {
    const MAX: u64 = 8_000;
    let memory = Arc::new(MemoryStore::new().tokio_clock());
    let [first, nested] = [0, 1].map(|_| Resilient::bare(Arc::clone(&memory)).tokio_clock());
    let second = Resilient::bare(Arc::clone(&memory) as Arc<dyn Store>).tokio_clock();
    let stores: Vec<Arc<dyn Store>> = vec![
        Arc::new(first.clone()),
        Arc::new(first),
        Arc::new(second),
        // Leases of leases.
        Arc::new(Resilient::bare(nested).tokio_clock()),
    ];
    let one = leased_log("clones", MAX, HOUR, LEASE);
    let (mut denied, mut receipts) = (0, Vec::new());
    for at in 1.. {
        let decision = decide(&stores[at % 4], &one).await;
        if let Some(receipt) = decision.receipt() {
            receipts.push(receipt);
            denied = 0;
        } else {
            denied += 1;
            sleep(millis(1)).await;
        }
        assert!(receipts.len() as u64 <= MAX, "law 1");
        if denied == 400 {
            break;
        }
    }
    assert_eq!(receipts.len() as u64, MAX);
    sleep(4 * LEASE).await;
    let mut back = 0;
    for (at, receipt) in receipts.iter().enumerate().step_by(7) {
        back += refund(&stores[at % 4], &one, receipt).await;
    }
    assert_eq!(back, receipts.iter().step_by(7).count() as u64, "law 15");
    assert_eq!(spent(&memory, &one).await, MAX - back);
}

/// The breaker outside: its probes and what it refuses leave leases alone, and while it is open
/// nothing is answered but by its rules.
#[tokio::test(start_paused = true)]
async fn a_breaker_outside() {
    let (memory, inner) = distant_memory();
    let leases = Resilient::bare(inner.clone()).tokio_clock();
    let store = Resilient::new(leases).probe_every(millis(10));
    let store = store.tokio_clock().build();
    let one = leased_log("breaker", 10_000, HOUR, LEASE);
    let mut used = units(&until_leased(&store, &one).await);
    go_away(&inner);
    let gone = Instant::now();
    while gone.elapsed() < millis(300) {
        let answer = store.take(&one).await;
        if let Ok(decision) = answer {
            assert_eq!(decision.source(), Source::Lease);
            assert!(gone.elapsed() < LEASE + millis(40));
            used += 1;
        } else {
            assert_unanswered(&answer, "an outage");
        }
        sleep(millis(1)).await;
    }
    come_back(&inner);
    let is_back = async || is_allowed(&store.take(&one).await);
    within(Duration::from_secs(1), "the store decides", is_back).await;
    assert!(spent(&memory, &one).await > used, "law 1");
}
