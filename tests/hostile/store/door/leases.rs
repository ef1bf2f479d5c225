//! A rule's lease through the whole door: never beyond max, and never more than one's own.

use super::*;

const LEASE: Duration = millis(60);
/// Longer than leases hold units.
const DENIED: Duration = millis(200);

/// It remembers denials for ever.
fn remembering(inner: Distant) -> Resilient<Distant> {
    let store = Resilient::new(inner).denial_cache(Duration::MAX);
    store.tokio_clock()
}

/// Law 14: a cached denial of a large cost, which lasts for ever, denies nothing that a lease still
/// holds, and the quota is used to the last unit.
#[tokio::test(start_paused = true)]
async fn a_cached_denial_stands_behind_a_lease() {
    const MAX: u64 = 4_000;
    let (_memory, inner) = distant_memory();
    let store = remembering(inner);
    let one = leased_log("behind", MAX, HOUR, LEASE);
    let mut used = units(&until_leased(&store, &one).await);
    let large = one.clone().with_cost(MAX - used);
    assert!(!decide(&store, &large).await.is_allowed());
    assert_eq!(decide(&store, &large).await.source(), Source::Cache);
    let leased = store.take(&one).poll_now().expect("law 14: it is held");
    let leased = leased.expect("a decision");
    assert!(leased.is_allowed() && leased.source() == Source::Lease);
    used += 1 + use_up(&store, &one, DENIED).await.len() as u64;
    assert_eq!(used, MAX, "laws 1 and 14");
}

/// Law 11: a reset through two doors forgets the lease, the denial and the counts; earlier receipts
/// give nothing back, and what is then used is max, to the unit.
#[tokio::test(start_paused = true)]
async fn a_reset_through_two_doors() {
    const MAX: u64 = 3_000;
    let (memory, inner) = distant_memory();
    let door = |store: Arc<dyn Store>| {
        let store = Resilient::new(store).processes(2);
        store.denial_cache(Duration::MAX).tokio_clock().build()
    };
    let store = door(door(Arc::new(inner)));
    let one = leased_log("resets", MAX, HOUR, LEASE);
    let before = until_leased(&store, &one).await;
    let large = one.clone().with_cost(MAX - 1);
    assert!(!decide(&store, &large).await.is_allowed());
    assert!(reset(&store, &one).await);
    assert_eq!(spent(&memory, &one).await, 0, "all is forgotten");
    let held = store.take(&large).poll_now();
    assert!(held.is_none(), "law 11: {held:?}");
    drop(held);
    sleep(3 * LEASE).await;
    for receipt in before.iter().filter_map(Decision::receipt) {
        assert_eq!(refund(&store, &one, &receipt).await, 0, "law 15");
    }
    reset(&store, &one).await;
    let first = decide(&store, &one).await;
    assert_ne!(first.source(), Source::Lease, "law 11");
    let used = 1 + use_up(&store, &one, DENIED).await.len() as u64;
    assert_eq!(used, MAX, "laws 1 and 14");
}

/// A reset while takes and a lease are on their way, again and again: never more than max is used
/// of what the store counts, and in the end nothing is missing.
#[tokio::test(start_paused = true)]
async fn resets_beside_questions_on_their_way() {
    const MAX: u64 = 5_000;
    let memory = Arc::new(MemoryStore::new().tokio_clock());
    let inner = Distant::new(Arc::clone(&memory)).ways(2, 3);
    let store = Resilient::new(inner).processes(2).tokio_clock();
    let one = leased_log("beside", MAX, HOUR, LEASE);
    for round in 0..40 {
        until_leased(&store, &one).await;
        let asked: Vec<_> = (0..20).map(|_| tokio::spawn(store.take(&one))).collect();
        sleep(millis(round % 7)).await;
        let reset = store.reset(&one);
        let (answers, reset) = tokio::join!(join_all(asked), reset);
        reset.expect("an answer");
        for answer in answers {
            assert!(is_allowed(&answer.expect("no panic")));
        }
    }
    sleep(3 * LEASE).await;
    reset(&store, &one).await;
    let used = use_up(&store, &one, DENIED).await.len() as u64;
    assert_eq!(used, MAX, "laws 1 and 14");
    assert_eq!(spent(&memory, &one).await, MAX);
}
