//! A server that stands still at load: nothing of what was given up meanwhile is charged when it
//! goes on. `TIDEGATE_HANG_SECONDS` says for how long; from 5 on, its memory is looked at as well.

use std::sync::atomic::Ordering::Relaxed;

use redis::InfoDict;

use crate::load::TIMEOUT;
use crate::*;

const CALLERS: u64 = 200;
const PAUSE: Duration = Duration::from_millis(25);
const MAX: u64 = 100_000_000;
/// When a take was asked for, which is its key: while the server answered, while it stood still,
/// and around its going on, when a take may find it either way.
const PHASES: [&str; 3] = ["before", "meanwhile", "after"];

#[derive(Default)]
struct Counts {
    phase: AtomicUsize,
    is_over: AtomicBool,
    allowed: [AtomicU64; 3],
    failed: [AtomicU64; 3],
}

fn take(phase: usize) -> Take {
    Take::new(
        kit::rule("late", MAX, 24 * kit::HOUR),
        Key::from(PHASES[phase]),
    )
}

async fn calls(store: RedisStore, counts: Arc<Counts>) {
    while !counts.is_over.load(Relaxed) {
        let phase = counts.phase.load(Relaxed);
        match store.take(&take(phase)).await {
            Ok(_) => counts.allowed[phase].fetch_add(1, Relaxed),
            Err(_) => counts.failed[phase].fetch_add(1, Relaxed),
        };
        sleep(PAUSE).await;
    }
}

fn used_memory(server: &Redis) -> u64 {
    let info: InfoDict = server.run("INFO memory");
    info.get("used_memory").expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_is_not_charged() {
    let seconds = from_env("TIDEGATE_HANG_SECONDS", 1.5);
    let server = Redis::start();
    let store = store_on(&server).await.timeout(TIMEOUT);
    let counts = Arc::<Counts>::default();
    let callers = (0..CALLERS).map(|_| calls(store.clone(), counts.clone()));
    let callers = tokio::spawn(in_tasks(callers.collect::<Vec<_>>()));
    sleep(SECOND).await;
    let memory = used_memory(&server);

    server.signal("STOP");
    sleep(millis(20)).await;
    counts.phase.store(1, Relaxed);
    sleep(Duration::from_secs_f64(seconds)).await;
    counts.phase.store(2, Relaxed);
    // What was asked for until now has been given up by then, on a busy machine, too.
    sleep(TIMEOUT + SECOND).await;
    server.signal("CONT");
    sleep(millis(300)).await;
    counts.is_over.store(true, Relaxed);
    callers.await.expect("no panic");
    sleep(SECOND).await;

    for (phase, name) in PHASES.into_iter().enumerate() {
        let allowed = counts.allowed[phase].load(Relaxed);
        let failed = counts.failed[phase].load(Relaxed);
        let counted = charged(&store, &take(phase)).await;
        assert!(counted >= allowed, "{name}: {counted} of {allowed}");
        let late = counted - allowed;
        println!("late charges, asked for {name}: {late} ({allowed} allowed, {failed} failed)");
        match name {
            "meanwhile" => assert_eq!((allowed, counted), (0, 0), "charged late"),
            // Those that were decided in time and told too late.
            _ => assert!(late <= failed, "{name}: {late}"),
        }
    }
    assert!(counts.failed[1].load(Relaxed) > 0, "nobody gave up");

    if seconds >= 5.0 {
        sleep(10 * SECOND).await;
        let (before, after) = (memory as f64, used_memory(&server) as f64);
        println!("used_memory: {before} before, {after} after");
        assert!(after <= 1.05 * before, "{before} {after}");
    }
}
