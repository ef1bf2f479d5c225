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
