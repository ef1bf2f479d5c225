//! Runtimes that end while requests wait in them.

use super::*;
use tokio::runtime::Builder;

/// Requests of two runtimes wait for one key; the runtime of those who came first ends.
#[test]
fn a_runtime_that_ends_holds_up_nobody() {
    for rule in [units_a_minute(1).with_settling(true), logins(1)] {
        let limits = limits([rule], MemoryStore::new());
        let app = app([limits.layer("p").wait(20 * SECOND)]);
        let runtime = || {
            Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
        };
        let [first, second] = [runtime(), runtime()].map(|it| it.expect("a runtime"));
        let held = second.block_on(async { limits.check("p", "k").await.expect("a unit") });
        let gone: Vec<_> = (0..5)
            .map(|_| {
                let app = app.clone();
                first.spawn(async move { ask(&app, "").await })
            })
            .collect();
        while waiting(&limits) < 5 {
            std::thread::sleep(millis(1));
        }
        let asked: Vec<_> = (0..5)
            .map(|_| {
                let app = app.clone();
                second.spawn(async move { ask(&app, "x-used: 0").await })
            })
            .collect();
        while waiting(&limits) < 10 {
            std::thread::sleep(millis(1));
        }
        first.shutdown_background();
        while waiting(&limits) > 5 {
            std::thread::sleep(millis(1));
        }
        second.block_on(async {
            let charge = held.charge.expect("charged");
            assert_eq!(charge.refund().await.expect("an answer"), 1);
            for asked in asked {
                let answer = asked.await.expect("no panic");
                assert_eq!(answer.status, OK, "after {} ms", answer.after);
            }
            check_rest(&limits).await;
        });
        drop(gone);
    }
}
