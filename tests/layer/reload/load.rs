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
