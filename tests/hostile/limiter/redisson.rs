//! What Redisson may have left of a limiter.

use crate::*;

/// A value that is too low for what is granted, as such a loss leaves it, is mended by us when all
/// has left.
#[tokio::test]
async fn a_value_that_is_too_low_is_mended() {
    let server = kit::Redis::start();
    let redis = handle(&server.url).await;
    let limiter = limiter(&redis, "partner", 10, millis(500)).await;
    assert!(limiter.takes(1).await);
    run(&server, "SET {partner}:value 0");
    // Who asks for one at a time, now and then, is never denied, and still it is seen.
    for _ in 0..4 {
        sleep(millis(600)).await;
        assert!(limiter.takes(1).await);
    }
    assert_eq!(limiter.free().await, 9);
}
