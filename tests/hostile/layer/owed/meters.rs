//! Meters: the drop is the end in any case, and what is lost is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kit::Redis;
use kit::proxy::{Mode, Proxy};
use tidegate::store::Charges;
use tidegate::{Limits, MemoryStore, RedisStore};
use tokio::runtime::Builder;

use super::{Counted, charge, counted, flushed, per_hour, secs, settled, used};
use kit::stub::Stub;
use kit::{PATIENT, behind, connect, millis};

/// Units of many threads, numbers at their ends, a meter to which nothing was added, and meters
/// beside other settlements of the charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_added_is_settled_once() {
    let store = Arc::new(Counted::default());
    let limits = Limits::new([per_hour("p", 100_000)]).store(Arc::clone(&store));
    let rule = per_hour("p", 100_000);
    // Of 16 threads.
    let meter = Arc::new(charge(&limits, "p", "threads", 10).await.meter());
    let threads = (0..16).map(|_| {
        let meter = Arc::clone(&meter);
        std::thread::spawn(move || (0..1_000).for_each(|_| meter.add(3)))
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("no panic");
    }
    assert_eq!(meter.used(), 48_000);
    drop(meter);
    flushed(&limits).await;
    assert_eq!(used(&*store, &rule, "threads").await, 48_000);
    assert_eq!(counted(&limits, "p"), (47_990, 0, 0));

    // Twice the largest number.
    let meter = charge(&limits, "p", "largest", 10).await.meter();
    meter.add(u64::MAX);
    meter.add(u64::MAX);
    meter.add(1);
    assert_eq!(meter.used(), u64::MAX);
    drop(meter);
    flushed(&limits).await;
    assert_eq!(used(&*store, &rule, "largest").await, 200_000);
    assert!(limits.check("p", "largest").await.is_err());

    // Nothing, by no call and by a call: the reservation stays.
    for adds in [false, true] {
        let key = format!("nothing{adds}");
        let asked = store.asked();
        let meter = charge(&limits, "p", &key, 10).await.meter();
        if adds {
            meter.add(0);
        }
        drop(meter);
        flushed(&limits).await;
        assert_eq!(used(&*store, &rule, &key).await, 10);
        assert_eq!(store.asked(), asked);
    }

    // Two meters, and a settlement before the drop: whatever comes first counts.
    let one = charge(&limits, "p", "twice", 10).await;
    let meters = [one.meter(), one.meter()];
    meters[0].add(15);
    meters[1].add(500);
    drop(meters);
    flushed(&limits).await;
    assert_eq!(used(&*store, &rule, "twice").await, 15);
    let one = charge(&limits, "p", "before", 10).await;
    let meter = one.meter();
    meter.add(500);
    assert_eq!(one.settle(12).await.expect("an answer"), settled(0, 2, 0));
    drop(meter);
    flushed(&limits).await;
    assert_eq!(used(&*store, &rule, "before").await, 12);
    // The charge is dropped first.
    let one = charge(&limits, "p", "dropped", 10).await;
    let meter = one.meter();
    drop(one);
    meter.add(4);
    drop(meter);
    flushed(&limits).await;
    assert_eq!(used(&*store, &rule, "dropped").await, 4);
}

/// Counters of what was forgiven only grow, also when more is forgiven than they can hold.
#[tokio::test]
async fn counters_do_not_go_back() {
    let limits = Limits::new([per_hour("p", 10)]);
    let mut before = 0;
    for key in ["a", "b", "c"] {
        let charge = charge(&limits, "p", key, 1).await;
        let settled = charge.settle(u64::MAX).await.expect("an answer");
        assert_eq!(settled.charged + settled.forgiven, u64::MAX - 1);
        let (_, forgiven, _) = counted(&limits, "p");
        assert!(forgiven >= before, "{forgiven} after {before}");
        before = forgiven;
    }
}

/// In a panic, and outside of any runtime: a memory store is charged at once; what needs a server
/// is charged or counted as lost, and nothing panics.
#[test]
fn dropped_in_a_panic_and_outside_of_a_runtime() {
    let home = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let (home, server) = (home.expect("a runtime"), Redis::start());
    let redis = home.block_on(connect(&server.url, PATIENT));
    let rule = per_hour("p", 100);
    for (name, limits) in [
        ("memory", Limits::new([rule.clone()])),
        ("redis", Limits::new([rule.clone()]).store(redis)),
    ] {
        let store = Arc::clone(limits.shared_store());
        let in_panic = home.block_on(charge(&limits, "p", "panic", 1));
        let task = home.spawn(async move {
            let meter = in_panic.meter();
            meter.add(31);
            tokio::task::yield_now().await;
            panic!("a handler of a test");
        });
        home.block_on(task).expect_err("it panics");
        home.block_on(flushed(&limits));
        assert_eq!(home.block_on(used(&*store, &rule, "panic")), 31, "{name}");
        assert_eq!(counted(&limits, "p"), (30, 0, 0), "{name}");

        let outside = home.block_on(charge(&limits, "p", "outside", 1)).meter();
        outside.add(41);
        std::thread::spawn(move || drop(outside))
            .join()
            .expect("no panic");
        home.block_on(flushed(&limits));
        let units = home.block_on(used(&*store, &rule, "outside"));
        let (owed, _, lost) = counted(&limits, "p");
        println!("{name}: {units} are used, {lost} lost");
        assert!(
            units == 41 || (units == 1 && lost == 1),
            "{name}: {units} used, {lost} lost"
        );
        assert!(
            (owed, lost) == (70, 0) || lost == 1,
            "{name}: {owed}, {lost}"
        );
        assert!(name == "redis" || units == 41, "{name} needs no runtime");
    }
}

/// A drop outside of a runtime does not panic: in a process that aborts on panics it would be the
/// end of all requests.
#[test]
fn a_drop_outside_of_a_runtime_does_not_panic() {
    const NAME: &str = "drops a meter";
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let home = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let (home, server) = (home.expect("a runtime"), Redis::start());
    let redis = home.block_on(connect(&server.url, PATIENT));
    let limits = Limits::new([per_hour("p", 100)]).store(redis);
    let meter = home.block_on(charge(&limits, "p", "x", 1)).meter();
    meter.add(5);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_here = std::thread::current().name() == Some(NAME);
        PANICS.fetch_add(usize::from(is_here), Ordering::Relaxed);
        hook(info);
    }));
    let thread = std::thread::Builder::new().name(NAME.to_owned());
    let thread = thread.spawn(move || drop(meter)).expect("a thread");
    thread.join().expect("no panic");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

/// 10,000 meters are dropped at once while Redis stands still: none of them waits, a flush ends by
/// its bound, each is charged, or lost and counted, and none is charged twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_while_the_server_stands_still() {
    let server = Redis::start();
    let store = RedisStore::connect(&*server.url).await.expect("a server");
    let patient = store.clone().timeout(PATIENT);
    let limits = Limits::new([per_hour("p", 1_000_000)]).store(store.timeout(millis(1_500)));
    let mut meters = Vec::new();
    for at in 0..10_000 {
        let key = format!("k{}", at % 100);
        let admitted = limits.check("p", key.as_str()).await;
        let meter = admitted.expect("room").charge.expect("charged").meter();
        meter.add(3);
        meters.push(meter);
    }
    server.signal("STOP");
    let began = Instant::now();
    drop(meters);
    let took = began.elapsed();
    assert!(took < secs(5), "a drop waits for nobody: {took:?}");
    assert!(!limits.flush(millis(50)).await);
    let in_time = limits.flush(secs(60)).await;
    server.signal("CONT");
    assert!(in_time, "law 6");
    let (owed, _, lost) = counted(&limits, "p");
    println!("{took:?}, {owed} units charged, {lost} lost");
    assert_eq!(owed / 2 + lost, 10_000, "each is counted");
    // A connection that was given up is made anew.
    let began = Instant::now();
    while limits.peek("p", "later").await.is_err() {
        assert!(began.elapsed() < PATIENT, "it goes on");
        tokio::time::sleep(millis(10)).await;
    }
    let mut units = 0;
    for at in 0..100 {
        units += used(&patient, &per_hour("p", 1), &format!("k{at}")).await;
    }
    assert!(units >= 10_000 + owed, "{units} are used");
    assert!(units <= 30_000, "{units}: none is charged twice");
    // And what comes later is served.
    let later = charge(&limits, "p", "later", 1).await.meter();
    later.add(8);
    drop(later);
    flushed(&limits).await;
    assert_eq!(used(&patient, &per_hour("p", 1), "later").await, 8);
}

/// A reply that is lost is not asked for again, and counts as lost; a store that cannot charge
/// beyond counts as losing it.
#[tokio::test]
async fn what_is_lost_is_counted() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let plain = connect(&server.url, PATIENT).await;
    let limits = Limits::new([per_hour("p", 100)]);
    let limits = limits.store(connect(&proxy.url, millis(300)).await);
    let meter = charge(&limits, "p", "x", 1).await.meter();
    meter.add(31);
    proxy.present(Mode::LoseReplies(1));
    drop(meter);
    flushed(&limits).await;
    tokio::time::sleep(millis(400)).await;
    assert_eq!(used(&plain, &per_hour("p", 100), "x").await, 31, "once");
    assert_eq!(counted(&limits, "p").2, 1);

    let limits = Limits::new([per_hour("p", 100)]).store(Stub::that_cannot_owe());
    let meter = charge(&limits, "p", "x", 1).await.meter();
    meter.add(31);
    drop(meter);
    flushed(&limits).await;
    assert_eq!(counted(&limits, "p"), (0, 0, 1));
}

/// The runtime ends with settlements under way: they are charged, or lost and counted, and those of
/// another runtime arrive.
#[test]
fn a_runtime_that_ends() {
    let runtime = || {
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let (home, server) = (runtime(), Redis::start());
    let proxy = home.block_on(behind(&server, millis(40)));
    let limits = Limits::new([per_hour("p", 10_000)]);
    let limits = limits.store(home.block_on(connect(&proxy.url, PATIENT)));
    for round in 0..4 {
        let guest = runtime();
        guest.block_on(async {
            for _ in 0..5 {
                let meter = charge(&limits, "p", "x", 1).await.meter();
                meter.add(2);
                drop(meter);
            }
            tokio::time::sleep(millis(round * 15)).await;
        });
        drop(guest);
        home.block_on(async {
            let meter = charge(&limits, "p", "x", 1).await.meter();
            meter.add(2);
            drop(meter);
            flushed(&limits).await;
            let (owed, _, lost) = counted(&limits, "p");
            assert_eq!(
                owed + lost,
                6 * (round + 1),
                "round {round}: {owed}, {lost}"
            );
            tokio::time::sleep(millis(100)).await;
            let store = limits.shared_store();
            let units = used(&**store, &per_hour("p", 1), "x").await - 6 * (round + 1);
            assert!(
                (owed..=owed + lost).contains(&units),
                "{units}: {owed}, {lost}"
            );
        });
    }
}

/// The charges of all rules are never charged beyond; those of one path are, if it is one.
#[tokio::test]
async fn charges_of_several_rules() {
    let store = Arc::new(MemoryStore::new());
    let limits = Limits::new([per_hour("a", 10), per_hour("b", 100)]).store(Arc::clone(&store));
    let both = async || {
        let (a, b) = (
            charge(&limits, "a", "x", 3).await,
            charge(&limits, "b", "x", 3).await,
        );
        [a, b].into_iter().collect::<Charges>()
    };
    let units = async || {
        let (a, b) = (per_hour("a", 10), per_hour("b", 100));
        (used(&*store, &a, "x").await, used(&*store, &b, "x").await)
    };
    assert_eq!(
        both().await.settle(9).await.expect("an answer"),
        settled(0, 0, 0)
    );
    assert_eq!(units().await, (3, 3));
    let meter = both().await.meter();
    meter.add(9);
    drop(meter);
    flushed(&limits).await;
    assert_eq!(units().await, (6, 6));
    let charges = both().await;
    assert_eq!(
        charges.of("b").settle(9).await.expect("an answer"),
        settled(0, 6, 0)
    );
    assert_eq!(units().await, (9, 15));
    assert_eq!(
        charges.settle(1).await.expect("an answer"),
        settled(2, 0, 0),
        "of a alone"
    );
    assert_eq!(units().await, (7, 15));
    let charges = both().await;
    for path in ["c", ""] {
        assert_eq!(
            charges.of(path).settle(9).await.expect("an answer"),
            settled(0, 0, 0)
        );
        let meter = charges.of(path).meter();
        meter.add(9);
        drop(meter);
    }
    flushed(&limits).await;
    assert_eq!(units().await, (10, 18));
    // Two layers of one path: nobody knows which one is meant.
    let two = [
        charge(&limits, "b", "x", 1).await,
        charge(&limits, "b", "x", 1).await,
    ];
    let two = two.into_iter().collect::<Charges>();
    assert_eq!(
        two.of("b").settle(9).await.expect("an answer"),
        settled(0, 0, 0)
    );
    let meter = two.of("b").meter();
    meter.add(9);
    drop(meter);
    flushed(&limits).await;
    assert_eq!(units().await, (10, 20));
    // None at all.
    let none = Charges::from_iter([]);
    assert_eq!(
        none.of("a").settle(9).await.expect("an answer"),
        settled(0, 0, 0)
    );
    assert_eq!(
        none.settle(u64::MAX).await.expect("an answer"),
        settled(0, 0, 0)
    );
    none.meter().add(9);
}
