//! Refunds and resets of leased units (law 15): once, only what still counts, by whomever; and what
//! becomes of a lease when its rule changes.

use super::*;

const LEASE: Duration = millis(60);
const MAX: u64 = 10_000;

/// A leased unit is given back once, while its lease is held and afterwards, by its process, by
/// another one, and by the store itself.
#[tokio::test]
async fn a_leased_unit_is_given_back_once() {
    for algorithm in LEASED {
        for pause in [Duration::ZERO, LEASE / 2, 3 * LEASE] {
            let (memory, mine) = leasing_memory();
            let other = Resilient::bare(Arc::clone(&memory));
            let one = leased_take(algorithm, "once", MAX, HOUR, LEASE);
            let five = one.clone().with_cost(5);
            let mut used = units(&until_leased(&mine, &one).await);
            used += units(&until_leased(&other, &one).await);
            let mut receipts = Vec::new();
            while receipts.len() < 4 {
                let decision = decide(&mine, &five).await;
                yield_now().await;
                assert!(decision.is_allowed(), "{algorithm:?}: {decision:?}");
                used += 5;
                if decision.source() == Source::Lease {
                    receipts.push(decision.receipt().expect("charged"));
                }
            }
            sleep(pause).await;
            // A part is given back of the last one.
            let two = one.clone().with_cost(2);
            let ways: [(&str, &dyn Store, &Take); 4] = [
                ("its own", &mine, &five),
                ("by another process", &other, &five),
                ("by the store", &memory, &five),
                ("a part", &mine, &two),
            ];
            for ((way, store, some), receipt) in ways.into_iter().zip(&receipts) {
                let back = refund(store, some, receipt).await;
                assert_eq!(back, some.cost(), "{algorithm:?}, after {pause:?}: {way}");
            }
            sleep(3 * LEASE).await;
            let counted = spent(&memory, &one).await;
            assert_eq!(counted, used - 17, "{algorithm:?}, after {pause:?}");
        }
    }
}

/// A take that claims a larger cost gets what its receipt says, and a refund while the lease is
/// held takes nothing from its other units.
#[tokio::test]
async fn a_refund_claims_too_much() {
    for algorithm in LEASED {
        let (memory, store) = leasing_memory();
        let one = leased_take(algorithm, "much", MAX, HOUR, LEASE);
        let mut used = units(&until_leased(&store, &one).await);
        for _ in 0..300 {
            let decision = decide(&store, &one).await;
            used += 1;
            let receipt = decision.receipt().expect("charged");
            let claim = one.clone().with_cost(MAX);
            let by_store = refund(&memory, &claim, &receipt).await;
            assert_eq!(by_store, 1, "{algorithm:?}: {:?}", decision.source());
            used -= by_store;
        }
        sleep(3 * LEASE).await;
        assert_eq!(spent(&memory, &one).await, used);
    }
}

/// All is refunded while leases come and go: nothing is left charged, the quota is there again.
#[tokio::test]
async fn all_is_given_back() {
    for algorithm in LEASED {
        let memory = Arc::new(MemoryStore::new());
        let stores = [0, 1].map(|_| Resilient::bare(Arc::clone(&memory)));
        let one = leased_take(algorithm, "all", 3_000, HOUR, millis(20));
        let (mut receipts, mut by_lease) = (Vec::new(), 0);
        for round in 0..2_600_usize {
            let decision = decide(&stores[round % 2], &one).await;
            by_lease += u32::from(decision.source() == Source::Lease);
            receipts.extend(decision.receipt());
            if round % 3 == 0 {
                let receipt = receipts.swap_remove(round % receipts.len());
                assert_eq!(refund(&stores[1 - round % 2], &one, &receipt).await, 1);
            }
            if round % 20 == 0 {
                sleep(millis(1)).await;
            }
        }
        assert!(by_lease > 300, "{algorithm:?}: {by_lease}");
        sleep(millis(100)).await;
        let counted = spent(&memory, &one).await;
        assert_eq!(counted, receipts.len() as u64, "{algorithm:?}");
        for receipt in &receipts {
            assert_eq!(refund(&stores[0], &one, receipt).await, 1, "{algorithm:?}");
        }
        assert_eq!(spent(&memory, &one).await, 0, "{algorithm:?}");
    }
}

/// Another process resets while leases are held: what this process holds is at most one lease,
/// and its end gives back nothing of what was charged after the reset.
#[tokio::test]
async fn a_reset_by_another_process() {
    for algorithm in LEASED {
        let (memory, store) = leasing_memory();
        let one = leased_take(algorithm, "others", MAX, HOUR, millis(200));
        until_leased(&store, &one).await;
        let held = spent(&memory, &one).await;
        reset(&memory, &one).await;
        let mut used = 0;
        for _ in 0..3_000 {
            used += u64::from(is_allowed(&memory.take(&one).await));
        }
        sleep(millis(600)).await;
        let is_right = spent(&memory, &one).await >= used;
        assert!(is_right, "law 15: {algorithm:?}, {held} held");
    }
}

/// The lease of a rule changes, or is added or removed: at last the store counts what was used.
#[tokio::test]
async fn a_lease_that_changes() {
    for leases in [[30, 200], [200, 30], [0, 60], [60, 0]] {
        for algorithm in LEASED {
            check_change(algorithm, leases).await;
        }
    }
}

async fn check_change(algorithm: Algorithm, leases: [u64; 2]) {
    let (memory, store) = leasing_memory();
    let rules = leases.map(|lease| match lease {
        0 => by(algorithm, "changes", MAX, HOUR),
        _ => leased(algorithm, "changes", MAX, HOUR, millis(lease)),
    });
    let (mut used, mut by_lease) = (0, 0);
    for rule in &rules {
        let one = take(rule, "x");
        for _ in 0..400 {
            let decision = decide(&store, &one).await;
            by_lease += u32::from(decision.source() == Source::Lease);
            used += u64::from(decision.is_allowed());
            yield_now().await;
        }
        for _ in 0..8 {
            used += u64::from(is_allowed(&store.take(&one).await));
            sleep(millis(30)).await;
        }
    }
    assert!(by_lease > 100, "{by_lease}");
    sleep(millis(700)).await;
    let charged = spent(&memory, &take(&rules[1], "x")).await;
    assert_eq!(charged, used, "{algorithm:?}: {leases:?} ms");
}
