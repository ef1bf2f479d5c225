//! Runtimes that end while permits are renewed, and servers that hang while thousands go back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use kit::stub::Stub;
use tidegate::StoreError;
use tidegate::decision::{Decision, Receipt};
use tidegate::store::{Capabilities, StoreErrorKind, StoreFuture};

use super::*;

/// Its first renewal never ends.
#[derive(Debug)]
struct FirstRenewalHangs {
    memory: MemoryStore,
    /// The holder of each renewal.
    renewals: Arc<Mutex<Vec<u64>>>,
}

impl Store for FirstRenewalHangs {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.memory.take(take)
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.memory.refund(take, receipt)
    }

    fn renew(&self, take: &Take, holder: &Receipt) -> StoreFuture<()> {
        let mut renewals = self.renewals.lock().expect("no panic");
        renewals.push(holder.serial());
        match renewals.len() {
            1 => StoreFuture::boxed(std::future::pending()),
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
    let renewals = Arc::<Mutex<Vec<u64>>>::default();
    let limits = limits(
        leased(2, SECOND),
        FirstRenewalHangs {
            memory: MemoryStore::new(),
            renewals: Arc::clone(&renewals),
        },
    );
    let of_the_first = || {
        let renewals = renewals.lock().expect("no panic");
        let first = renewals.first();
        renewals
            .iter()
            .filter(|holder| Some(*holder) == first)
            .count()
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
