//! Leases and runtimes: none, one without timers, one that ends.

use super::*;

/// Outside of a runtime, takes are answered all the same, and the quota is kept.
#[test]
fn without_a_runtime() {
    let (_memory, store) = leasing_memory();
    let one = leased_log("none", 500, HOUR, millis(50));
    let (mut allowed, began) = (0, Instant::now());
    while began.elapsed() < millis(300) {
        let answer = store.take(&one).now_or_never().expect("memory is ready");
        allowed += u64::from(is_allowed(&answer));
    }
    assert_eq!(allowed, 500);
    let done = store.reset(&one).now_or_never().expect("memory is ready");
    done.expect("done");
    let answer = store.take(&one).now_or_never().expect("memory is ready");
    assert!(is_allowed(&answer));
}

/// In a runtime without timers: no take panics, and no unit is lost to leases that cannot end.
#[test]
fn in_a_runtime_without_timers() {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let (_memory, store) = leasing_memory();
    let one = leased_log("timers", 2_000, HOUR, millis(50));
    let (mut allowed, mut last) = (0, Instant::now());
    while last.elapsed() < millis(300) {
        let (store, one) = (store.clone(), one.clone());
        let task = runtime.spawn(async move { store.take(&one).await });
        let answer = runtime.block_on(task).expect("no panic");
        if is_allowed(&answer) {
            (allowed, last) = (allowed + 1, Instant::now());
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    assert!(allowed <= 2_000, "law 1: {allowed}");
    assert_eq!(allowed, 2_000, "law 14: leases that cannot end");
}

/// A runtime ends while leases are held, and while one is asked for: the others go on, have leases
/// of their own, and never more than the quota.
#[test]
fn a_runtime_ends_while_leases_are_held() {
    const MAX: u64 = 20_000;
    for ways in [0, 4] {
        let memory = Arc::new(MemoryStore::new());
        let inner = Distant::new(Arc::clone(&memory)).ways(ways, ways);
        let store = Resilient::bare(inner);
        let one = leased_log("ends", MAX, HOUR, millis(80));
        let home = runtime();
        let mut used = 0;
        for round in 0..6_u64 {
            let guest = runtime();
            let (mine, asked) = (store.clone(), one.clone());
            used += guest.block_on(async move {
                let mut used = until_leased(&mine, &asked).await.len() as u64;
                let began = Instant::now();
                while began.elapsed() < millis(7 * round) {
                    used += u64::from(is_allowed(&mine.take(&asked).await));
                    sleep(Duration::from_micros(200)).await;
                }
                used
            });
            drop(guest);
            let (mine, asked) = (store.clone(), one.clone());
            used += home.block_on(async move {
                // Without a guest's leases, after one that it asked for was lost.
                let began = Instant::now();
                let (mut used, mut by_lease) = (0, 0);
                while by_lease < 20 {
                    for decision in join_all((0..8).map(|_| decide(&mine, &asked))).await {
                        assert!(decision.is_allowed());
                        used += 1;
                        if began.elapsed() > millis(200) {
                            by_lease += u32::from(decision.source() == Source::Lease);
                        }
                    }
                    let is_right = began.elapsed() < Duration::from_secs(3);
                    assert!(is_right, "no lease in round {round}");
                    sleep(Duration::from_micros(200)).await;
                }
                used
            });
        }
        std::thread::sleep(millis(300));
        let peek = home.block_on(memory.peek(&one)).expect("a decision");
        let charged = MAX - peek.remaining();
        assert!(charged >= used, "law 1: {used} used, {charged} charged");
    }
}
