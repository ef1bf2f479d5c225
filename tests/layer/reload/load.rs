//! Changes by the hundred, while requests run.

use super::{Service, quota, rules};
use crate::*;

const CHANGES: usize = 300;

/// One change of the file. `seed` decides which: whole, cut off, empty, broken, gone.
fn change(service: &Service, seed: usize) {
    let text = rules(if seed.is_multiple_of(2) { 5 } else { 7 });
    match seed % 7 {
        0 => service.write(&text),
        1 => service.rename_over(&text),
        2 => service.write(&text[..seed * 31 % text.len()]),
        3 => service.write(""),
        4 => service.write(text.replacen("max", "min", 1)),
        // It may be gone already.
        5 => _ = fs::remove_file(&service.file),
        _ => service.rename_over(&text[..text.rfind("[rules").expect("is there")]),
    }
}

/// Watched, with a request between any two changes.
#[tokio::test(start_paused = true)]
async fn changes_watched() {
    let service = Service::watched().await;
    for seed in 0..CHANGES {
        change(&service, seed);
        // From 0 to 3 s: some changes are seen by two readings, some by one, some by none.
        let pause = seed * seed * 37 % 3_000;
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(pause as u64 / 5)).await;
            for path in ["/getId", "/search"] {
                let max = quota(&service.app, path).await;
                let is_whole = max == Some(5) || max == Some(7);
                assert!(is_whole, "{path}: {max:?} at {seed}");
            }
        }
    }
    let status = service.limits.status();
    assert!(status.version > 15 && status.failures > 15, "{status:?}");
    service.check_applies(9).await;
}

/// Threads send requests while another one changes the file and reloads it, with a watcher beside.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn changes_reloaded_under_load() {
    let service = Service::start();
    service.limits.watch(&service.file).expect("a runtime");
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    let (is_over, requests) = (&IS_OVER, &REQUESTS);
    let clients: Vec<_> = ["/getId", "/search"]
        .into_iter()
        .map(|path| {
            let app = app_of(&service.limits, &["getId", "search"]);
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let max = quota(&app, path).await;
                    assert!(max == Some(5) || max == Some(7), "{path}: {max:?}");
                    requests.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let service = tokio::task::spawn_blocking(move || {
        let mut outcomes = [0; 2];
        for seed in 0..CHANGES {
            change(&service, seed);
            outcomes[usize::from(service.limits.reload(&service.file).is_ok())] += 1;
            // Requests are sent between any two changes.
            let sent = requests.load(Ordering::Relaxed);
            while requests.load(Ordering::Relaxed) < sent + 4 && !is_over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        assert!(outcomes.iter().all(|number| *number > 90), "{outcomes:?}");
        service
    });
    let service = tokio::time::timeout(Duration::from_secs(120), service).await;
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("every request was limited");
    }
    let service = service.expect("no client has stopped").expect("no panic");
    assert!(requests.load(Ordering::Relaxed) >= 4 * CHANGES as u64);
    service.reload(rules(9));
    service.check(9).await;
}
