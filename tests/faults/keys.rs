//! Memory that is used up where keys may be evicted.

use std::time::Duration;

use kit::Redis;
use redis::cmd;
use tidegate::store::StoreErrorKind as Kind;

use crate::fault::Fault;
use crate::{run, words};

/// Counts that are evicted start afresh, each time; nothing of it is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_evicted() {
    let server = Redis::start();
    let fault = Fault::at("maxmemory, allkeys-lru under a flood", &server.url).await;
    let mut fault = fault.forgets(u64::MAX).or(Kind::OutOfMemory);
    let mut flood = server.connection();
    fault.begins();
    run(&server, "CONFIG SET maxmemory-policy allkeys-lru");
    run(&server, "CONFIG SET maxmemory 6mb");
    for key in 0..20_000 {
        let value = "x".repeat(1_000);
        let set = cmd("SET").arg(key).arg(value).exec(&mut flood);
        set.expect("something is evicted");
        if key % 1_000 == 0 {
            fault.lasts(Duration::from_millis(10)).await;
        }
    }
    // Now there is no room for anything: all counts go.
    run(&server, "CONFIG SET maxmemory 1");
    fault.lasts(Duration::from_millis(20)).await;
    run(&server, "CONFIG SET maxmemory 6mb");
    fault.ends().await;
    let info = words("INFO stats").query(&mut server.connection());
    let info: redis::InfoDict = info.expect("an answer");
    assert!(info.get::<u64>("evicted_keys").expect("a number") > 10_000);
}
