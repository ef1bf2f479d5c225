//! The cache around a real server that is far away, and is asked by others.

use crate::prelude::*;

const AGE: Duration = Duration::from_millis(100);
/// Law 14, strictly: once a window has passed since the answer of the take that is charged, no
/// denial is told. The server is far away, and many ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_denial_outlives_the_window() {
    const WINDOW: Duration = millis(300);
    let server = Redis::start();
    for round_trip in [millis(1), millis(20), millis(80)] {
        let proxy = behind(&server, round_trip).await;
        let store = connect(&proxy.url, PATIENT).await;
        for age in [AGE, Duration::MAX] {
            let store = Arc::new(Resilient::bare(store.clone()).denial_cache(age));
            let path = format!("window-{round_trip:?}-{age:?}");
            let one = take(&rule(&path, 1, WINDOW), "x");
            let (mut denied, began) = (0, Instant::now());
            let mut free = began;
            while began.elapsed() < 5 * WINDOW {
                let asked = Instant::now();
                let told = decide(&store, &one).await;
                if told.is_allowed() {
                    free = Instant::now() + WINDOW;
                    continue;
                }
                assert!(asked < free, "law 14: {told:?} at {round_trip:?}, {age:?}");
                denied += u32::from(told.source() == Source::Cache);
                sleep(millis(1)).await;
            }
            // A denial that is heard too late is asked about again at once.
            let is_heard_in_time = round_trip < age / 2;
            assert!(denied > 0 || !is_heard_in_time, "{round_trip:?}, {age:?}");
        }
    }
}

/// Law 1 and 14 through many caches, as in many processes: the whole quota is admitted, no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_caches_admit_the_quota() {
    const MAX: u64 = 50;
    // So long that it matters little by how much a busy machine is late.
    const WINDOW: Duration = millis(500);
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let shared = rule("fleet", MAX, WINDOW);
    let end = Instant::now() + Duration::from_secs(4);
    let processes = (0..4).map(|_| {
        let (url, one) = (proxy.url.clone(), take(&shared, "x"));
        async move {
            let store = Arc::new(Resilient::bare(connect(&url, PATIENT).await).denial_cache(AGE));
            let each = (Arc::clone(&store), one.clone());
            let tasks = spawn_each(0..8, each, |_, (store, one)| async move {
                let mut allowed = Vec::new();
                while Instant::now() < end {
                    let asked = Instant::now();
                    if is_allowed(&store.take(&one).await) {
                        allowed.push(allowed_since(asked));
                    }
                    sleep(millis(1)).await;
                }
                allowed
            });
            done(tasks).await.concat()
        }
    });
    let allowed = join_all(processes).await.concat();
    kit::check_windows(&allowed, MAX, WINDOW);
    let windows = 4_000 / 500;
    let number = allowed.len() as u64;
    assert!(number >= windows * MAX * 6 / 10, "law 14: {number}");
}

/// Law 9: a runtime ends while its tasks ask again; those of another one are told as ever.
#[test]
fn a_runtime_ends() {
    let runtime = || Runtime::new().expect("a runtime");
    let home = runtime();
    let (_server, _proxy, store) = home.block_on(far_within(millis(30), millis(500)));
    let store = Arc::new(Resilient::bare(store).denial_cache(AGE));
    let one = take(&rule("ends", 1, HOUR), "x");
    for round in 0..8 {
        let guest = runtime();
        for _ in 0..20 {
            let (store, one) = (Arc::clone(&store), one.clone());
            guest.spawn(async move {
                loop {
                    let _ = store.take(&one).await;
                    sleep(millis(1)).await;
                }
            });
        }
        std::thread::sleep(millis(120 + 7 * round));
        guest.shutdown_background();
        let asked = Instant::now();
        home.block_on(async {
            reset(&store, &one).await;
            // A late task of the guest may have taken it.
            decide(&store, &one).await;
        });
        assert!(asked.elapsed() < millis(500), "law 6");
    }
    let one_more = take(&rule("ends", 1, HOUR), "y");
    assert!(home.block_on(async { is_allowed(&store.take(&one_more).await) }));
}

/// A rule that two processes see at different times: the one with the larger quota is granted it.
#[tokio::test]
async fn a_quota_that_is_raised_elsewhere() {
    let (server, old) = near().await;
    let new = connect(&server.url, PATIENT).await;
    let [old, new] = [old, new].map(|store| Resilient::bare(store).denial_cache(AGE));
    let (small, large) = (rule("raised", 2, HOUR), rule("raised", 5, HOUR));
    let ask = async |store: &Resilient<_>, one: &Take| is_allowed(&store.take(one).await);
    let mut allowed = 0;
    for _ in 0..10 {
        allowed += u32::from(ask(&old, &take(&small, "x")).await);
        allowed += u32::from(ask(&new, &take(&small, "x")).await);
    }
    assert_eq!(allowed, 2);
    for _ in 0..10 {
        allowed += u32::from(ask(&new, &take(&large, "x")).await);
        assert!(!ask(&old, &take(&small, "x")).await);
    }
    assert_eq!(allowed, 5);
}
