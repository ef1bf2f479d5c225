//! Leases of units of a real server that is killed or stopped.

use super::*;

/// What a busy machine takes to wake up.
const SLACK: Duration = Duration::from_millis(400);

/// Law 6: the server is stopped, or killed, while a lease is held. Its units are handed out until
/// it ends, at once; then there are errors, in time. When the server is back, so are leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_goes_while_a_lease_is_held() {
    const LEASE: Duration = millis(300);
    for is_killed in [false, true] {
        let mut server = Redis::start();
        let raw = connect(&server.url, TIMEOUT).await;
        let store = Resilient::bare(raw.clone());
        let one = leased_log("gone", 1_000_000, HOUR, LEASE);
        let mut used = units(&until_leased(&store, &one).await);
        for _ in 0..5_000 {
            used += u64::from(is_allowed(&store.take(&one).await));
        }
        server.go_away(is_killed);
        let gone = Instant::now();
        let (mut leases, mut errors) = (0_u64, 0);
        while gone.elapsed() < millis(1_500) {
            let asked = Instant::now();
            let answer = store.take(&one).await;
            let took = asked.elapsed();
            assert!(took < TIMEOUT + SLACK, "law 6: {took:?}");
            if let Ok(decision) = answer {
                assert_eq!(decision.source(), Source::Lease);
                assert!(gone.elapsed() < LEASE + SLACK, "a lease that does not end");
                leases += 1;
            } else {
                errors += 1;
            }
            sleep(millis(1)).await;
        }
        used += leases;
        assert!(leases > 0 && errors > 5, "{leases} and {errors}");
        server.come_back(is_killed);
        let is_back = async || store.take(&one).await.is_ok();
        within(millis(3_000), "the server is back", is_back).await;
        until_leased(&store, &one).await;
        sleep(2 * LEASE).await;
        let charged = charged(&raw, &one).await;
        assert!(is_killed || charged >= used, "law 1: {used}, {charged}");
    }
}
