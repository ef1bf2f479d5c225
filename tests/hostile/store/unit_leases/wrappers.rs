//! Leases around and inside other wrappers: fallbacks, cached denials, breakers.

use tokio::time::Instant;

use super::*;

const LEASE: Duration = millis(60);

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
