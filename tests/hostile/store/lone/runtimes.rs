//! Lone takes and runtimes: one that ends with a take under way, one that is not driven, and a
//! future that goes from one to another.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::{Builder, Runtime};

use super::*;

fn of_one_thread() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn of_a_worker() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Asks within a runtime: a take needs its timer.
fn ask(runtime: &Runtime, store: &RedisStore, take: &Take) -> StoreFuture<Decision> {
    let _inside = runtime.enter();
    store.take(take)
}

/// A guest's runtime ends with its lone take at each moment of the round trip: the others lose
/// nothing.
#[test]
fn a_guest_ends_with_a_take_under_way() {
    const ROUNDS: u64 = 40;
    let (home, server) = (of_a_worker(), Redis::start());
    let proxy = home.block_on(behind(&server, millis(6)));
    let store = home.block_on(connect(&proxy.url, PATIENT));
    let steady = home.block_on(Steady::watch(&proxy));
    let guests = take(&rule("guest", MAX, HOUR), "x");
    let mut bystander = Bystander::new("bystander");
    for round in 0..ROUNDS {
        let guest = if round % 2 == 0 {
            of_a_worker()
        } else {
            of_one_thread()
        };
        let asked = ask(&guest, &store, &guests);
        if round % 2 == 0 {
            guest.spawn(asked);
            std::thread::sleep(Duration::from_micros(round * 200));
        } else {
            guest.block_on(leave_after(
                Box::pin(asked),
                Duration::from_micros(round * 200),
            ));
        }
        // At once, and again when the guest is gone.
        home.block_on(bystander.ask(&store));
        guest.shutdown_background();
        home.block_on(bystander.ask(&store));
    }
    assert!(home.block_on(charged(&store, &guests)) <= ROUNDS);
    home.block_on(async { steady.check() });
}

/// A guest's runtime of one thread has polled its take and then does something else for long: the
/// others go on, and it finds its answer when it looks again.
#[test]
fn a_guest_that_is_not_driven() {
    let (home, server) = (of_a_worker(), Redis::start());
    let proxy = home.block_on(behind(&server, millis(4)));
    let store = home.block_on(connect(&proxy.url, PATIENT));
    let steady = home.block_on(Steady::watch(&proxy));
    let mine = take(&rule("guest", MAX, HOUR), "x");
    let mut bystander = Bystander::new("bystander");
    let guest = of_one_thread();
    for round in 1..=15 {
        let mut pending = Box::pin(ask(&guest, &store, &mine));
        guest.block_on(leave_once(&mut pending));
        for _ in 0..3 {
            home.block_on(bystander.ask(&store));
        }
        let decision = guest.block_on(pending).expect("a decision");
        assert_eq!(MAX - decision.remaining(), round);
    }
    home.block_on(async { steady.check() });
}

async fn leave_once(pending: &mut Pending) {
    poll_and_keep(pending);
}

/// A future is polled in one runtime and awaited in another, while the first one is still there.
#[test]
fn a_future_that_changes_its_runtime() {
    let (home, server) = (of_a_worker(), Redis::start());
    let proxy = home.block_on(behind(&server, millis(4)));
    let store = home.block_on(connect(&proxy.url, PATIENT));
    let mine = take(&rule("moves", MAX, HOUR), "x");
    let guests = [of_one_thread(), of_a_worker(), of_one_thread()];
    for round in 0..30 {
        let mut pending = Box::pin(ask(&home, &store, &mine));
        for guest in &guests[..round % 3] {
            guest.block_on(leave_after_some(&mut pending, round));
        }
        let last = &guests[round % 3];
        let answer = last.block_on(async { timeout(PATIENT / 2, pending).await });
        let decision = answer.expect("a lost wake-up").expect("a decision");
        assert_eq!(MAX - decision.remaining(), round as u64 + 1);
    }
}

async fn leave_after_some(pending: &mut Pending, round: usize) {
    if futures_util::poll!(&mut *pending).is_pending() {
        sleep(Duration::from_micros(round as u64 % 5 * 100)).await;
    }
}

/// A future that was polled in a runtime that has ended since, and is awaited in another one. It has
/// an answer, an error, or what tokio's timers do in such a case; whoever asks after that is fine.
#[test]
fn a_future_that_outlives_its_runtime() {
    let (home, server) = (of_a_worker(), Redis::start());
    let proxy = home.block_on(behind(&server, millis(4)));
    let store = home.block_on(connect(&proxy.url, PATIENT));
    let mine = take(&rule("outlives", MAX, HOUR), "x");
    let mut bystander = Bystander::new("bystander");
    let (mut answers, mut panics) = (0, 0);
    for round in 0..4 {
        let guest = of_one_thread();
        let mut pending = Box::pin(ask(&guest, &store, &mine));
        guest.block_on(leave_once(&mut pending));
        drop(guest);
        if round % 2 == 0 {
            std::thread::sleep(millis(10));
        }
        let awaited = || home.block_on(async { timeout(PATIENT / 2, pending).await });
        match catch_unwind(AssertUnwindSafe(awaited)) {
            Ok(answer) => {
                assert!(is_allowed(&answer.expect("law 6: it hangs")));
                answers += 1;
            }
            Err(_) => panics += 1,
        }
        home.block_on(bystander.ask(&store));
    }
    println!("{answers} answers, {panics} panics of tokio's timer");
    assert!(home.block_on(charged(&store, &mine)) <= 4);
}

/// The runtime in which the store was made is not driven: a guest's lone take ends in time, and all
/// is well once it is driven again.
#[test]
fn a_home_that_is_not_driven() {
    let (home, guest, server) = (of_one_thread(), of_a_worker(), Redis::start());
    let store = home.block_on(connect(&server.url, millis(300)));
    let mut bystander = Bystander::new("bystander");
    for _ in 0..3 {
        let began = Instant::now();
        let asked = ask(&guest, &store, &take(&rule("guest", MAX, HOUR), "x"));
        let task = guest.spawn(asked);
        let answer = guest.block_on(task).expect("no panic");
        let kind = answer.map_err(|error| error.kind());
        assert_eq!(kind.err(), Some(StoreErrorKind::Timeout));
        let is_right = began.elapsed() < PATIENT / 4;
        assert!(is_right, "law 6: {:?}", began.elapsed());
        home.block_on(bystander.ask_until_answered(&store, PATIENT / 4));
    }
}

/// The store's runtime ends while a lone take is under way: its caller hears of it.
#[test]
fn the_home_ends_with_a_take_under_way() {
    for wait in [0, 3, 12] {
        let (home, network, guest) = (of_a_worker(), of_a_worker(), of_a_worker());
        let server = Redis::start();
        let proxy = network.block_on(behind(&server, millis(8)));
        let store = home.block_on(connect(&proxy.url, PATIENT));
        let mine = take(&rule("orphan", MAX, HOUR), "x");
        let mut pending = Box::pin(ask(&guest, &store, &mine));
        guest.block_on(leave_once(&mut pending));
        std::thread::sleep(millis(wait));
        drop(home);
        let answer = guest.block_on(async { timeout(PATIENT / 4, pending).await });
        if let Err(error) = answer.expect("law 6: it hangs") {
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
        let later = ask(&guest, &store, &mine);
        let later = guest.block_on(async { timeout(PATIENT / 4, later).await });
        let kind = later
            .expect("law 6: it hangs")
            .map_err(|error| error.kind());
        assert_eq!(kind.err(), Some(StoreErrorKind::Unavailable));
    }
}
