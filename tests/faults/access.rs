//! A server that lets nobody in, or lets nobody do it.

use std::time::Duration;

use kit::Redis;
use redis::cmd;
use tidegate::RedisStore;
use tidegate::store::StoreErrorKind as Kind;

use crate::fault::Fault;
use crate::{run, words};

const WHILE: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password() {
    let server = Redis::start();
    let fault = Fault::at("wrong password", &server.url).await;
    let mut fault = fault.gives(Kind::Refused).or(Kind::Unavailable);
    fault.begins();
    run(&server, "CONFIG SET requirepass s3cret");
    let mut admin = server.connection_with_password("s3cret");
    let kill = words("CLIENT KILL TYPE normal SKIPME yes").exec(&mut admin);
    kill.expect("kills");
    fault.lasts(WHILE).await;
    let mut set = words("CONFIG SET requirepass");
    set.arg("").exec(&mut admin).expect("is set");
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_is_deleted() {
    let server = Redis::start();
    let create = "ACL SETUSER limiter on >s3cret allkeys +@all";
    run(&server, create);
    let url = server.url.replace("//", "//limiter:s3cret@");
    let fault = Fault::at("ACL DELUSER", &url).await;
    let mut fault = fault.gives(Kind::Refused).or(Kind::Unavailable);
    fault.begins();
    run(&server, "ACL DELUSER limiter");
    fault.lasts(WHILE).await;
    run(&server, create);
    fault.ends().await;
}

/// Others have all the connections that the server takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_clients() {
    let server = Redis::start();
    let mut admin = server.connection();
    let mut set = |most: usize| {
        let mut set = words("CONFIG SET maxclients");
        set.arg(most).exec(&mut admin).expect("is set");
    };
    let others: Vec<_> = (0..9).map(|_| server.connection()).collect();
    set(10);
    let store = RedisStore::connect_lazy(&server.url).expect("a valid address");
    let fault = Fault::before("maxclients", store).gives(Kind::Unavailable);
    fault.lasts(WHILE).await;
    drop(others);
    fault.ends().await;
    cmd("PING").exec(&mut admin).expect("an answer");
}
