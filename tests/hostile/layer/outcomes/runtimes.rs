//! Runtimes that end with refunds under way, others that go on, and requests outside of any.

use super::*;

/// The runtime that first gave something back ends, with refunds under way. Those are given back or
/// lost and counted; in another runtime, refunds arrive.
#[test]
fn the_first_runtime_ends() {
    let (home, server) = (runtime(), Redis::start());
    let proxy = home.block_on(behind(&server, millis(40)));
    let store = home.block_on(connect(&proxy.url, PATIENT));
    let (limits, service) = world(of("a", 1_000, &["2xx"]), store);
    for round in 0..5 {
        let guest = runtime();
        guest.block_on(async {
            pass(&service, 200, 4).await;
            sleep(millis(round * 12)).await;
        });
        drop(guest);
        home.block_on(async {
            pass(&service, 200, 1).await;
            flushed(&limits).await;
            let (refunds, units, lost) = counted(&limits, "a");
            let sent = 5 * (round + 1);
            assert_eq!((refunds + lost, units), (sent, refunds), "round {round}");
            // The store may have given back those whose answers were lost.
            sleep(millis(100)).await;
            let used = 1_000 - left(&limits, "a").await;
            assert!(used <= lost, "{used} of {lost}");
        });
    }
    let (refunds, ..) = counted(&limits, "a");
    assert!(refunds >= 5, "the home runtime gave nothing back");
}

/// A flush in one runtime, while the refunds are those of another one that has ended.
#[test]
fn a_flush_elsewhere() {
    let distant = Distant::new(MemoryStore::new()).ways(0, 30);
    let (limits, service) = world(of("a", 1_000, &["2xx"]), distant);
    let guest = runtime();
    guest.block_on(pass(&service, 200, 10));
    guest.shutdown_background();
    std::thread::sleep(millis(100));
    let done = runtime().block_on(limits.flush(15 * SECOND));
    assert!(done, "nothing can be under way any more");
    let (refunds, _, lost) = counted(&limits, "a");
    assert_eq!(refunds + lost, 10);
}

/// Five requests in a runtime without a timer, and one without any runtime.
fn send_without_timers(service: &Wrapped) -> Runtime {
    let bare = Builder::new_current_thread().build().expect("a runtime");
    bare.block_on(pass(service, 200, 5));
    bare.block_on(async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(send(service, 200).now_or_never(), Some(200));
    bare
}

/// A memory store gives back all the same.
#[test]
fn without_timers_and_without_a_runtime() {
    let (limits, service) = world(of("a", 1_000, &["2xx"]), MemoryStore::new());
    send_without_timers(&service);
    runtime().block_on(flushed(&limits));
    assert_eq!(runtime().block_on(left(&limits, "a")), 1_000);
    assert_eq!(counted(&limits, "a"), (6, 6, 0));
}

/// A store that takes time: the request is answered, the refund is given back or counted, and
/// nothing panics.
#[test]
fn a_store_that_takes_time_without_a_timer() {
    let yields = Stub::in_memory().refund_fn(|memory, take, receipt| {
        let answer = memory.refund(take, receipt);
        StoreFuture::boxed(async move {
            tokio::task::yield_now().await;
            answer.await
        })
    });
    let (limits, service) = world(of("a", 1_000, &["2xx"]), yields);
    drop(send_without_timers(&service));
    runtime().block_on(async {
        flushed(&limits).await;
        let (refunds, _, lost) = counted(&limits, "a");
        assert_eq!(refunds + lost, 6);
        let used = 1_000 - left(&limits, "a").await;
        assert!(used <= lost, "{used} of {lost}");
        pass(&service, 200, 1).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a").0, refunds + 1);
    });
}

/// Two runtimes at work on one store all the time, and one of them ends in the midst of it.
#[test]
fn two_runtimes_at_work() {
    let (home, server) = (runtime(), Redis::start());
    let store = home.block_on(connect(&server.url, PATIENT));
    let (limits, service) = world(of("a", 1_000_000, &["2xx"]), store);
    let guest = runtime();
    let work = |runtime: &Runtime| -> Vec<_> {
        let start = |_| {
            let service = service.clone();
            runtime.spawn(async move { pass(&service, 200, 100).await })
        };
        (0..8).map(start).collect()
    };
    let (at_home, of_guest) = (work(&home), work(&guest));
    std::thread::sleep(millis(30));
    drop(guest);
    home.block_on(async {
        // Requests at home are not harmed.
        done(at_home).await;
        drop(of_guest);
        flushed(&limits).await;
        let (refunds, units, lost) = counted(&limits, "a");
        assert_eq!(refunds, units);
        assert!(refunds + lost >= 800);
        until(true, async || send(&service, 200).await == 200).await;
        flushed(&limits).await;
        assert_eq!(counted(&limits, "a").0, refunds + 1);
    });
}
