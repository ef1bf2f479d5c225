//! Runtimes that end while permits are renewed, and servers that hang while thousands go back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kit::stub::Stub;
use tidegate::StoreError;
use tidegate::decision::{Decision, Receipt};
use tidegate::store::{Capabilities, StoreErrorKind, StoreFuture};

use super::*;

/// Its first renewal never ends.
#[derive(Debug)]
struct FirstRenewalHangs {
    memory: MemoryStore,
    renewals: Arc<AtomicUsize>,
}

impl Store for FirstRenewalHangs {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.memory.take(take)
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.memory.refund(take, receipt)
    }

    fn renew(&self, take: &Take, holder: &Receipt) -> StoreFuture<()> {
        match self.renewals.fetch_add(1, Ordering::Relaxed) {
            0 => StoreFuture::boxed(std::future::pending()),
            _ => self.memory.renew(take, holder),
        }
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        self.memory.reset(take)
    }

    fn name(&self) -> String {
        self.memory.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
}

/// A runtime ends in the middle of a renewal: the permit is renewed by another one.
#[test]
fn a_runtime_that_ends_in_a_renewal() {
    let renewals = Arc::<AtomicUsize>::default();
    let limits = limits(
        leased(2, SECOND),
        FirstRenewalHangs {
            memory: MemoryStore::new(),
            renewals: Arc::clone(&renewals),
        },
    );
    let [first, second] = [kit::runtime(), kit::runtime()];
    let long = first.block_on(admitted(&limits, "k"));
    while renewals.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(millis(1));
    }
    first.shutdown_background();
    let other = second.block_on(admitted(&limits, "k"));
    let until = std::time::Instant::now() + 3 * SECOND;
    while std::time::Instant::now() < until {
        std::thread::sleep(millis(50));
        let more = second.block_on(check(&limits, "k"));
        assert!(more.is_err(), "a third one runs beside two");
    }
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
