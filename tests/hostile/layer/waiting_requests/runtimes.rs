//! Runtimes that end while requests wait in them.

use super::*;

/// Requests of two runtimes wait for one key; the runtime of those who came first ends.
#[test]
fn a_runtime_that_ends_holds_up_nobody() {
    for rule in [units(1), logins(1)] {
        let (limits, app) = world(rule, MemoryStore::new(), 20 * SECOND);
        let [first, second] = [kit::runtime(), kit::runtime()];
        let until = |is_so: fn(u64) -> bool| {
            while !is_so(waiting(&limits)) {
                std::thread::sleep(millis(1));
            }
        };
        let held = second.block_on(charge(&limits));
        let gone = first.block_on(async { start_all(5, &app, 0, "") });
        until(|waiting| waiting >= 5);
        let asked = second.block_on(async { start_all(5, &app, 0, "x-used: 0") });
        until(|waiting| waiting >= 10);
        first.shutdown_background();
        until(|waiting| waiting <= 5);
        second.block_on(async {
            assert_eq!(refund(held).await, 1);
            served(asked).await;
            check_rest(&limits).await;
        });
        drop(gone);
    }
}
