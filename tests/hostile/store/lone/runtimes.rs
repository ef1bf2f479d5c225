//! Lone takes and runtimes: one that ends with a take under way, one that is not driven, and a
//! future that goes from one to another.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Asks within a runtime: a take needs its timer.
fn ask(runtime: &Runtime, store: &RedisStore, take: &Take) -> Pending {
    let _inside = runtime.enter();
    Box::pin(store.take(take))
}

/// The same, which its runtime has polled once.
fn asked_once(runtime: &Runtime, store: &RedisStore, take: &Take) -> Pending {
    let mut pending = ask(runtime, store, take);
    runtime.block_on(async { poll_and_keep(&mut pending) });
    pending
}

/// A server, a line of so many milliseconds, and a store whose home this runtime is.
fn far_from(home: &Runtime, round_trip: u64) -> (Redis, Proxy, RedisStore) {
    home.block_on(far(millis(round_trip)))
}

/// A guest's runtime ends at each moment of its take's round trip: the others lose nothing.
#[test]
fn a_guest_ends_with_a_take_under_way() {
    const ROUNDS: u64 = 40;
    let home = runtime();
    let (_server, proxy, store) = far_from(&home, 6);
    let steady = home.block_on(Steady::watch(&proxy));
    let guests = take(&rule("guest", MAX, HOUR), "x");
    let mut bystander = Bystander::new("bystander");
    for round in 0..ROUNDS {
        let (is_driven, patience) = (round % 2 == 0, Duration::from_micros(round * 200));
        let guest = [still_runtime, runtime][usize::from(is_driven)]();
        let asked = ask(&guest, &store, &guests);
        if is_driven {
            guest.spawn(asked);
            std::thread::sleep(patience);
        } else {
            guest.block_on(leave_after(asked, patience));
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
    let home = runtime();
    let (_server, proxy, store) = far_from(&home, 4);
    let steady = home.block_on(Steady::watch(&proxy));
    let mine = take(&rule("guest", MAX, HOUR), "x");
    let mut bystander = Bystander::new("bystander");
    let guest = still_runtime();
    for round in 1..=15 {
        let pending = asked_once(&guest, &store, &mine);
        for _ in 0..3 {
            home.block_on(bystander.ask(&store));
        }
        assert_eq!(spent_by(guest.block_on(pending)), round);
    }
    home.block_on(async { steady.check() });
}

/// A future that was polled in a runtime that has ended since, and is awaited in another one. It has
/// an answer, an error, or what tokio's timers do in such a case; whoever asks after that is fine.
#[test]
fn a_future_that_outlives_its_runtime() {
    let home = runtime();
    let (_server, _proxy, store) = far_from(&home, 4);
    let mine = take(&rule("outlives", MAX, HOUR), "x");
    let mut bystander = Bystander::new("bystander");
    let (mut answers, mut panics) = (0, 0);
    for round in 0..4 {
        let guest = still_runtime();
        let pending = asked_once(&guest, &store, &mine);
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
    let (home, guest, server) = (still_runtime(), runtime(), Redis::start());
    let store = home.block_on(connect(&server.url, millis(300)));
    let mut bystander = Bystander::new("bystander");
    for _ in 0..3 {
        let began = Instant::now();
        let asked = ask(&guest, &store, &take(&rule("guest", MAX, HOUR), "x"));
        let task = guest.spawn(asked);
        let answer = guest.block_on(task).expect("no panic");
        assert_eq!(kind(&answer), Some(StoreErrorKind::Timeout));
        assert!(began.elapsed() < PATIENT / 4, "law 6");
        home.block_on(bystander.ask_until_answered(&store, PATIENT / 4));
    }
}

/// The store's runtime ends while a lone take is under way: its caller hears of it.
#[test]
fn the_home_ends_with_a_take_under_way() {
    for wait in [0, 3, 12] {
        let (home, network, guest) = (runtime(), runtime(), runtime());
        let server = Redis::start();
        let proxy = network.block_on(behind(&server, millis(8)));
        let store = home.block_on(connect(&proxy.url, PATIENT));
        let mine = take(&rule("orphan", MAX, HOUR), "x");
        let pending = asked_once(&guest, &store, &mine);
        std::thread::sleep(millis(wait));
        drop(home);
        let answer = guest.block_on(in_time(pending));
        let later = ask(&guest, &store, &mine);
        let later = guest.block_on(in_time(later));
        let unavailable = Some(StoreErrorKind::Unavailable);
        assert!(answer.is_ok() || kind(&answer) == unavailable, "{answer:?}");
        assert_eq!(kind(&later), unavailable);
    }
}
