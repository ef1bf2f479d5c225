//! Leases around and inside other wrappers: fallbacks, cached denials, breakers, clones, several
//! wrappers of one store.

use tokio::time::Instant;

use super::{units, until_leased};
use crate::prelude::*;

const LEASE: Duration = millis(60);

/// What a fallback decides is not leased: every answer says that the fallback gave it, and the
/// fallback's share is kept, over several outages.
#[tokio::test(start_paused = true)]
async fn a_fallback_is_not_leased() {
    const MAX: u64 = 20_000;
    let (memory, inner) = distant_memory();
    let store = Resilient::new(inner.clone())
        .fallback(Share::of_processes(4))
        .probe_every(millis(10))
        .tokio_clock();
    assert!(store.capabilities().has_fallback);
    assert_eq!(store.name(), memory.name());
    let one = leased_log("outage", MAX, HOUR, LEASE);
    let (mut used, mut by_fallback) = (0, 0);
    for _ in 0..3 {
        used += units(&until_leased(&store, &one).await);
        inner.takes_are(Fate::QuestionLost);
        inner.refunds_are(Fate::QuestionLost);
        let gone = Instant::now();
        while gone.elapsed() < millis(400) {
            let decision = decide(&store, &one).await;
            match decision.source() {
                Source::Lease => {
                    assert!(gone.elapsed() < LEASE + millis(40), "a lease in an outage");
                    used += 1;
                }
                _ => {
                    assert_eq!(decision.source(), Source::Fallback);
                    assert!(decision.failure().is_some());
                    by_fallback += u64::from(decision.is_allowed());
                }
            }
            sleep(millis(1)).await;
        }
        inner.takes_are(Fate::Answered);
        inner.refunds_are(Fate::Answered);
        let back = Instant::now();
        while decide(&store, &one).await.source() == Source::Fallback {
            assert!(back.elapsed() < Duration::from_secs(1));
            sleep(millis(2)).await;
        }
    }
    assert!(by_fallback > 100, "{by_fallback}");
    assert!(by_fallback <= MAX / 4, "law 11: {by_fallback}");
    sleep(3 * LEASE).await;
    let peek = memory.peek(&one).await.expect("a decision");
    assert!(MAX - peek.remaining() >= used, "law 1");
}

/// A leased unit is refunded during an outage: an error, or the units once, but never the
/// fallback's; afterwards once.
#[tokio::test(start_paused = true)]
async fn a_refund_in_an_outage() {
    let (memory, inner) = distant_memory();
    let store = Resilient::new(inner.clone())
        .fallback(Share::of_processes(1))
        .probe_every(millis(10))
        .tokio_clock();
    let one = leased_log("back", 10_000, HOUR, LEASE);
    let decisions = until_leased(&store, &one).await;
    let used = units(&decisions);
    let receipt = decisions.last().expect("one").receipt().expect("charged");
    inner.takes_are(Fate::QuestionLost);
    inner.refunds_are(Fate::QuestionLost);
    let given_back = store.refund(&one, &receipt).await;
    assert!(given_back.is_err(), "the question is lost");
    inner.takes_are(Fate::Answered);
    inner.refunds_are(Fate::Answered);
    sleep(millis(300)).await;
    let given_back = refund(&store, &one, &receipt).await;
    assert_eq!(given_back, 1, "law 15");
    sleep(3 * LEASE).await;
    let peek = memory.peek(&one).await.expect("a decision");
    assert!(10_000 - peek.remaining() >= used - 1);
}

/// Cached denials inside, as documented: what an ended lease gives back is granted at once, and the
/// quota is used to the last unit.
#[tokio::test(start_paused = true)]
async fn cached_denials_inside_and_outside() {
    const MAX: u64 = 3_000;
    for is_inside in [true, false] {
        let (_memory, inner) = distant_memory();
        let store: Arc<dyn Store> = match is_inside {
            true => Resilient::new(inner).tokio_clock().build(),
            false => {
                let leases = Resilient::bare(inner).tokio_clock();
                Resilient::new(leases).tokio_clock().build()
            }
        };
        let one = leased_log("denials", MAX, HOUR, LEASE);
        let (mut allowed, mut denied_since, mut by_lease) = (0, None, 0);
        loop {
            let decision = decide(&store, &one).await;
            by_lease += u32::from(decision.source() == Source::Lease);
            if decision.is_allowed() {
                (allowed, denied_since) = (allowed + 1, None);
                continue;
            }
            let since: Instant = *denied_since.get_or_insert_with(Instant::now);
            if since.elapsed() > 3 * LEASE + millis(200) {
                break;
            }
            sleep(millis(1)).await;
        }
        assert!(by_lease > 100, "inside {is_inside}: {by_lease}");
        assert_eq!(allowed, MAX, "inside {is_inside}");
    }
}

/// The end of a lease frees units that the process's own cache was told are denied: they are
/// granted at once (law 14), not at the cache's next question.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_voids_denials() {
    let memory = Arc::new(MemoryStore::new().tokio_clock());
    let store = Resilient::bare(Arc::clone(&memory))
        .denial_cache(Duration::MAX)
        .tokio_clock();
    let one = leased_log("voids", 1_000, HOUR, LEASE);
    let mut used = units(&until_leased(&store, &one).await);
    // Larger than what the lease leaves.
    let large = one.clone().with_cost(1_000 - used - 1);
    let mut is_denied = false;
    let began = Instant::now();
    while began.elapsed() < millis(600) {
        let decision = decide(&store, &large).await;
        match decision.is_allowed() {
            true => {
                used += large.cost();
                break;
            }
            false => is_denied = true,
        }
        sleep(millis(2)).await;
    }
    assert!(is_denied, "the lease holds more than one unit");
    assert_eq!(used, 999, "law 14: the units of the lease that ended");
}

/// Clones, an `Arc` of it, and a second wrapper over one store: together the quota and no more,
/// and receipts of one are good in the other.
#[tokio::test(start_paused = true)]
async fn clones_and_several_wrappers() {
    const MAX: u64 = 8_000;
    let memory = Arc::new(MemoryStore::new().tokio_clock());
    let first = Resilient::bare(Arc::clone(&memory)).tokio_clock();
    let second = Resilient::bare(Arc::clone(&memory) as Arc<dyn Store>).tokio_clock();
    // Leases of leases.
    let nested = Resilient::bare(Arc::clone(&memory)).tokio_clock();
    let nested = Resilient::bare(nested).tokio_clock();
    let stores: Vec<Arc<dyn Store>> = vec![
        Arc::new(first.clone()),
        Arc::new(first),
        Arc::new(second),
        Arc::new(nested),
    ];
    let one = leased_log("clones", MAX, HOUR, LEASE);
    let (mut used, mut denied, mut receipts) = (0_u64, 0, Vec::new());
    let mut at = 0;
    while denied < 400 {
        at += 1;
        let decision = decide(&stores[at % 4], &one).await;
        match decision.receipt() {
            Some(receipt) => {
                receipts.push(receipt);
                (used, denied) = (used + 1, 0);
            }
            None => {
                denied += 1;
                sleep(millis(1)).await;
            }
        }
        assert!(used <= MAX, "law 1");
    }
    assert_eq!(used, MAX);
    sleep(4 * LEASE).await;
    let mut back = 0;
    for (at, receipt) in receipts.iter().enumerate().step_by(7) {
        back += refund(&stores[at % 4], &one, receipt).await;
    }
    assert_eq!(back, receipts.iter().step_by(7).count() as u64, "law 15");
    let peek = memory.peek(&one).await.expect("a decision");
    assert_eq!(MAX - peek.remaining(), used - back);
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
    inner.takes_are(Fate::QuestionLost);
    inner.refunds_are(Fate::QuestionLost);
    let gone = Instant::now();
    while gone.elapsed() < millis(300) {
        match store.take(&one).await {
            Ok(decision) => {
                assert_eq!(decision.source(), Source::Lease);
                assert!(gone.elapsed() < LEASE + millis(40));
                used += 1;
            }
            Err(error) => assert!(
                [StoreErrorKind::Timeout, StoreErrorKind::Unavailable].contains(&error.kind()),
                "{error}"
            ),
        }
        sleep(millis(1)).await;
    }
    inner.takes_are(Fate::Answered);
    inner.refunds_are(Fate::Answered);
    let back = Instant::now();
    while !is_allowed(&store.take(&one).await) {
        assert!(back.elapsed() < Duration::from_secs(1));
        sleep(millis(2)).await;
    }
    used += 1;
    let peek = memory.peek(&one).await.expect("a decision");
    assert!(10_000 - peek.remaining() >= used, "law 1");
}
