//! Meters: the drop is the end in any case, and what is lost is counted.

use super::*;

/// Units of many threads, a meter to which nothing was added, and meters beside other settlements of
/// the charge. Numbers at their ends are in `layer owed`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_added_is_settled_once() {
    let scene = Scene::new(per_hour("p", 100_000));
    let meter = Arc::new(scene.charge("threads").await.meter());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..1_000).for_each(|_| meter.add(3)));
        }
    });
    assert_eq!(meter.used(), 48_000);
    drop(meter);
    assert_eq!(scene.used("threads").await, 48_000);
    assert_eq!(counted(&scene.limits, "p"), (47_990, 0, 0));

    // Nothing: the reservation stays, and the store is not asked.
    let asked = scene.asked();
    scene.charge("nothing").await.meter().add(0);
    assert_eq!((scene.used("nothing").await, scene.asked()), (10, asked));

    // Two meters, and a settlement before the drop: whatever comes first counts.
    let one = scene.charge("twice").await;
    let meters = [one.meter(), one.meter()];
    meters[0].add(15);
    meters[1].add(500);
    drop(meters);
    assert_eq!(scene.used("twice").await, 15);
    let one = scene.charge("before").await;
    let meter = one.meter();
    meter.add(500);
    assert_eq!(settle(&one, 12).await, (0, 2, 0));
    drop(meter);
    assert_eq!(scene.used("before").await, 12);
    // The charge is dropped first.
    let one = scene.charge("dropped").await;
    let meter = one.meter();
    drop(one);
    meter.add(4);
    drop(meter);
    assert_eq!(scene.used("dropped").await, 4);
}

/// In a panic, and outside of any runtime: a memory store is charged at once; what needs a server
/// is charged or counted as lost, and nothing panics, also not unseen: in a process that aborts on
/// panics it would be the end of all requests.
#[test]
fn dropped_in_a_panic_and_outside_of_a_runtime() {
    const NAME: &str = "drops a meter";
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_here = std::thread::current().name() == Some(NAME);
        PANICS.fetch_add(usize::from(is_here), Ordering::Relaxed);
        hook(info);
    }));
    let (home, server) = (runtime(), Redis::start());
    let redis: Arc<dyn Store> = Arc::new(home.block_on(connect(&server.url, PATIENT)));
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rule = per_hour("p", 100);
    for (name, store) in [("memory", memory), ("redis", redis)] {
        let limits = limits([rule.clone()], Arc::clone(&store));
        let used = |key| home.block_on(used(&*store, &rule, key));
        let in_panic = home.block_on(charge(&limits, "p", "panic", 1));
        let task = home.spawn(async move {
            let meter = in_panic.meter();
            meter.add(31);
            tokio::task::yield_now().await;
            panic!("a handler of a test");
        });
        home.block_on(task).expect_err("it panics");
        home.block_on(flushed(&limits));
        assert_eq!(used("panic"), 31, "{name}");
        assert_eq!(counted(&limits, "p"), (30, 0, 0), "{name}");

        let outside = home.block_on(meter(&limits, "p", "outside", 1, 41));
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        let thread = thread.spawn(move || drop(outside)).expect("a thread");
        thread.join().expect("no panic");
        home.block_on(flushed(&limits));
        let units = used("outside");
        let (owed, _, lost) = counted(&limits, "p");
        let is_told = (units, owed, lost) == (41, 70, 0) || lost == 1 && [1, 41].contains(&units);
        assert!(is_told, "{name}: {units} used, {owed} owed, {lost} lost");
        assert!(name == "redis" || units == 41, "{name} needs no runtime");
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}
