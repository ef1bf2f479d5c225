//! A server that takes no writes, for a while.

use std::time::Duration;

use kit::Redis;
use kit::proxy::Proxy;
use tidegate::store::StoreErrorKind as Kind;
use tokio::time::{Instant, sleep};

use crate::fault::Fault;
use crate::{run, words};

const WHILE: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_for_a_while() {
    let (server, master) = (Redis::start(), Redis::start());
    let fault = Fault::at("READONLY, by REPLICAOF", &server.url).await;
    // While it is filled from its master, it is loading.
    let fault = fault.gives(Kind::ReadOnly).or(Kind::Unavailable);
    let mut fault = fault.forgets(1);
    fault.begins();
    server.follow(&master.url);
    fault.lasts(WHILE).await;
    run(&server, "REPLICAOF NO ONE");
    fault.ends().await;
}

/// After a failover the name of the master leads to another server: the one that says "read only"
/// is not asked for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_behind_the_same_name() {
    let (old, new) = (Redis::start(), Redis::start());
    let proxy = Proxy::start(&old.url).await;
    let fault = Fault::at("READONLY, another master behind the name", &proxy.url).await;
    let mut fault = fault.gives(Kind::ReadOnly).or(Kind::Unavailable).forgets(1);
    fault.begins();
    // Nobody is there, so that nothing else breaks the connection.
    old.follow("redis://127.0.0.1:1");
    fault.lasts(Duration::ZERO).await;
    proxy.lead_to(&new.url);
    fault.ends().await;
}

/// A replica that may not answer with what is stale, of a master that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_its_master() {
    let server = Redis::start_with(&["--replica-serve-stale-data", "no"]);
    let fault = Fault::at("MASTERDOWN", &server.url).await;
    let mut fault = fault.gives(Kind::Unavailable).or(Kind::ReadOnly);
    fault.begins();
    server.follow("redis://127.0.0.1:1");
    fault.lasts(WHILE).await;
    run(&server, "REPLICAOF NO ONE");
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas() {
    let server = Redis::start();
    let fault = Fault::at("NOREPLICAS", &server.url).await;
    let mut fault = fault.gives(Kind::ReadOnly);
    fault.begins();
    run(&server, "CONFIG SET min-replicas-to-write 1");
    fault.lasts(WHILE).await;
    run(&server, "CONFIG SET min-replicas-to-write 0");
    fault.ends().await;
}

/// A dump that cannot be written, as on a full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_that_fails() {
    let server = Redis::start_with(&["--enable-protected-configs", "yes"]);
    let fault = Fault::at("MISCONF, a dump fails", &server.url).await;
    let mut fault = fault.gives(Kind::ReadOnly);
    // A folder stands where the dump is to be written.
    run(&server, "CONFIG SET dbfilename folder");
    std::fs::create_dir(server.folder().join("folder")).expect("a folder");
    std::fs::write(server.folder().join("folder/in-it"), "").expect("a file");
    fault.begins();
    let mut save = words("CONFIG SET save");
    save.arg("3600 1")
        .exec(&mut server.connection())
        .expect("is set");
    run(&server, "BGSAVE");
    fault.lasts(WHILE).await;
    run(&server, "CONFIG SET dbfilename dump.rdb");
    run(&server, "BGSAVE");
    has_saved(&server).await;
    fault.ends().await;
}

async fn has_saved(server: &Redis) {
    let started = Instant::now();
    let mut connection = server.connection();
    loop {
        let info: redis::InfoDict = words("INFO persistence")
            .query(&mut connection)
            .expect("an answer");
        if info.get::<String>("rdb_last_bgsave_status").as_deref() == Some("ok") {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "no dump");
        sleep(Duration::from_millis(1)).await;
    }
}
