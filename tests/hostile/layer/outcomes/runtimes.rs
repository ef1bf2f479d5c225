//! Runtimes that end with refunds under way, others that go on, and requests outside of any.

use std::sync::Arc;
use std::time::Duration;

use kit::Redis;
use tidegate::{Limits, MemoryStore};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

use super::{ask, counted, flushed, left_of, limits, of, request, send, until, wrap};
use kit::distant::Distant;
use kit::{PATIENT, behind, connect, millis};

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_all();
    builder.build().expect("a runtime")
}

/// The runtime that first gave something back ends, with refunds under way. Those are given back or
/// lost and counted; in another runtime, refunds arrive.
#[test]
fn the_first_runtime_ends() {
    let (home, server) = (runtime(), Redis::start());
    let proxy = home.block_on(behind(&server, millis(40)));
    let store = home.block_on(connect(&proxy.url, PATIENT));
    let limits = Arc::new(limits(of("a", 1_000, &["2xx"]), store));
    let service = wrap(&limits.layer("a"));
    let mut sent = 0;
    for round in 0..5 {
        let guest = runtime();
        guest.block_on(async {
            for _ in 0..4 {
                assert_eq!(send(&service, 200).await, 200);
            }
            sent += 4;
            sleep(millis(round * 12)).await;
        });
        drop(guest);
        home.block_on(async {
            assert_eq!(send(&service, 200).await, 200, "round {round}");
            sent += 1;
            flushed(&limits).await;
            let (refunds, units, lost) = counted(&limits, "a");
            println!("round {round}: {refunds} given back, {lost} lost of {sent}");
            assert_eq!((refunds + lost, units), (sent, refunds), "round {round}");
            // The store may have given back those whose answers were lost.
            sleep(millis(100)).await;
            let used = 1_000 - left_of(&limits, "a", "x").await;
            assert!(used <= lost, "{used} of {lost}");
        });
    }
    let (refunds, ..) = counted(&limits, "a");
    assert!(refunds >= 5, "the home runtime gave nothing back");
}

/// A flush in one runtime, while the refunds are those of another one that has ended.
#[test]
fn a_flush_elsewhere() {
    let limits = Arc::new(limits(
        of("a", 1_000, &["2xx"]),
        Distant::new(MemoryStore::new()).ways(0, 30),
    ));
    let service = wrap(&limits.layer("a"));
    let guest = runtime();
    guest.block_on(async {
        for _ in 0..10 {
            assert_eq!(send(&service, 200).await, 200);
        }
    });
    guest.shutdown_background();
    std::thread::sleep(millis(100));
    runtime().block_on(async {
        let done = limits.flush(Duration::from_secs(15)).await;
        assert!(done, "nothing can be under way any more");
        let (refunds, _, lost) = counted(&limits, "a");
        assert_eq!(refunds + lost, 10);
    });
}

/// A runtime without a timer, and none at all: a memory store gives back all the same.
#[test]
fn without_timers_and_without_a_runtime() {
    let limits = Limits::new([of("a", 1_000, &["2xx"])]);
    let service = wrap(&limits.layer("a"));
    let bare = Builder::new_current_thread().build().expect("a runtime");
    for _ in 0..5 {
        assert_eq!(bare.block_on(send(&service, 200)), 200);
    }
    assert_eq!(
        futures_util::FutureExt::now_or_never(send(&service, 200)),
        Some(200)
    );
    runtime().block_on(async {
        flushed(&limits).await;
        assert_eq!(left_of(&limits, "a", "x").await, 1_000);
    });
    assert_eq!(counted(&limits, "a"), (6, 6, 0));
}

/// A store that takes time, in a runtime without a timer: the request is answered, the refund is
/// given back or counted, and nothing panics.
#[test]
fn a_store_that_takes_time_without_a_timer() {
    #[derive(Debug)]
    struct Yields(MemoryStore);
    impl tidegate::Store for Yields {
        fn take(&self, take: &tidegate::Take) -> tidegate::store::StoreFuture<tidegate::Decision> {
            self.0.take(take)
        }
        fn refund(
            &self,
            take: &tidegate::Take,
            receipt: &tidegate::decision::Receipt,
        ) -> tidegate::store::StoreFuture<u64> {
            let answer = self.0.refund(take, receipt);
            tidegate::store::StoreFuture::boxed(async move {
                tokio::task::yield_now().await;
                answer.await
            })
        }
        fn reset(&self, take: &tidegate::Take) -> tidegate::store::StoreFuture<bool> {
            self.0.reset(take)
        }
        fn name(&self) -> String {
            "yields".to_owned()
        }
    }
    let limits = Limits::new([of("a", 1_000, &["2xx"])]).store(Yields(MemoryStore::new()));
    let service = wrap(&limits.layer("a"));
    let bare = Builder::new_current_thread().build().expect("a runtime");
    for _ in 0..5 {
        assert_eq!(bare.block_on(send(&service, 200)), 200);
    }
    bare.block_on(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    // Outside of any runtime.
    assert_eq!(
        futures_util::FutureExt::now_or_never(send(&service, 200)),
        Some(200)
    );
    drop(bare);
    runtime().block_on(async {
        flushed(&limits).await;
        let (refunds, _, lost) = counted(&limits, "a");
        println!("{refunds} given back, {lost} lost");
        assert_eq!(refunds + lost, 6);
        let used = 1_000 - left_of(&limits, "a", "x").await;
        assert!(used <= lost, "{used} of {lost}");
        assert_eq!(send(&service, 200).await, 200);
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a").0, refunds + 1);
    });
}

/// Two runtimes at work on one store all the time, and one of them ends in the midst of it.
#[test]
fn two_runtimes_at_work() {
    let (home, server) = (runtime(), Redis::start());
    let store = home.block_on(connect(&server.url, PATIENT));
    let limits = Arc::new(limits(of("a", 1_000_000, &["2xx"]), store));
    let service = wrap(&limits.layer("a"));
    let guest = runtime();
    let work = |runtime: &Runtime| {
        (0..8)
            .map(|_| {
                let service = service.clone();
                runtime.spawn(async move {
                    for _ in 0..100 {
                        assert_eq!(ask(&service, request(&[])).await, 200);
                    }
                })
            })
            .collect::<Vec<_>>()
    };
    let (at_home, of_guest) = (work(&home), work(&guest));
    std::thread::sleep(millis(30));
    drop(guest);
    home.block_on(async {
        for task in at_home {
            task.await.expect("requests at home are not harmed");
        }
        drop(of_guest);
        flushed(&limits).await;
        let (refunds, units, lost) = counted(&limits, "a");
        println!("{refunds} given back, {lost} lost");
        assert_eq!(refunds, units);
        assert!(refunds + lost >= 800);
        until(true, async || send(&service, 200).await == 200).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a").0, refunds + 1);
    });
}
