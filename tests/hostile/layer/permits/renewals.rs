//! Runtimes that end while permits are renewed, and servers that hang while thousands go back.

use super::*;

/// A runtime ends in the middle of a renewal: the permit is renewed by another one.
#[test]
fn a_runtime_that_ends_in_a_renewal() {
    // The holder of each renewal; the first one never ends.
    let renewals = Arc::<Mutex<Vec<u64>>>::default();
    let renewed = Arc::clone(&renewals);
    let store = Stub::in_memory().capabilities_fn(|inner| inner.capabilities());
    let store = store.renew_fn(move |inner, take, holder| {
        let mut renewed = renewed.lock().expect("no panic");
        renewed.push(holder.serial());
        match renewed.len() {
            1 => StoreFuture::boxed(std::future::pending()),
            _ => inner.renew(take, holder),
        }
    });
    let limits = limits(leased(2, SECOND), store);
    let of_the_first = || {
        let renewals = renewals.lock().expect("no panic");
        let first = renewals.first();
        let of_it = renewals.iter().filter(|holder| Some(*holder) == first);
        of_it.count()
    };
    let until = |number| {
        while of_the_first() < number {
            std::thread::sleep(millis(1));
        }
    };
    let [first, second] = [kit::runtime(), kit::runtime()];
    let long = first.block_on(admitted(&limits, "k"));
    until(1);
    first.shutdown_timeout(PATIENT);
    let other = second.block_on(admitted(&limits, "k"));
    until(4);
    drop((long, other));
    second.block_on(until_free(&limits, "k", 2));
}

/// More permits go back while the store fails than may ask at a time: all come back with it.
#[tokio::test(start_paused = true)]
async fn thousands_that_go_back_while_the_store_fails() {
    const MANY: u64 = 6_000;
    let fails = Arc::<AtomicBool>::default();
    let is_down = Arc::clone(&fails);
    let memory = MemoryStore::new().tokio_clock();
    let store = Stub::around(memory).capabilities_fn(|inner| inner.capabilities());
    let store = store.refund_fn(move |memory, take, receipt| {
        if is_down.load(Ordering::Relaxed) {
            let error = StoreError::new(StoreErrorKind::Unavailable, "it is down");
            let late = async move {
                sleep(millis(50)).await;
                Err(error)
            };
            return StoreFuture::boxed(late);
        }
        memory.refund(take, receipt)
    });
    let limits = limits(at_a_time(MANY), store);
    let mut held = Vec::new();
    for _ in 0..MANY {
        held.push(admitted(&limits, "k").await);
    }
    fails.store(true, Ordering::Relaxed);
    drop(held);
    sleep(10 * SECOND).await;
    assert!(check(&limits, "k").await.is_err(), "none is back");
    fails.store(false, Ordering::Relaxed);
    sleep(10 * SECOND).await;
    until_free(&limits, "k", MANY).await;
    assert_eq!(limits.snapshot().rules[0].refunds_lost, 0);
}
