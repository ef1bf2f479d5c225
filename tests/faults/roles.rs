//! A server that takes no writes, for a while.

use std::time::Duration;

use kit::Redis;
use kit::proxy::Proxy;
use tidegate::store::StoreErrorKind as Kind;

use crate::fault::Fault;
use crate::run;

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
