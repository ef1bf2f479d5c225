//! What a server does, is told to do, or is told of who calls it.

use tidegate::store::StoreErrorKind::{OutOfMemory, ReadOnly, Refused, Timeout, Unavailable};

use crate::fault::Fault;
use crate::*;

const NOBODY: &str = "redis://127.0.0.1:1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_empty() {
    let mut server = Redis::start();
    let fault = Fault::at("killed with -9, restarted empty", &server.url).await;
    let fault = fault.gives(&[Unavailable]).forgets(1).begins();
    server.kill();
    fault.lasts(WHILE).await;
    server.restart();
    fault.ends().await;
}

/// Others have all the connections that the server takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_clients() {
    let server = Redis::start();
    let mut admin = server.connection();
    let others: Vec<_> = (0..9).map(|_| server.connection()).collect();
    let mut set = cmd("CONFIG");
    let set = set.arg("SET").arg("maxclients").arg(10);
    set.exec(&mut admin).expect("is set");
    let store = RedisStore::connect_lazy(&server.url).expect("a valid address");
    let fault = Fault::before("maxclients", store).gives(&[Unavailable]);
    fault.lasts(WHILE).await;
    drop(others);
    fault.ends().await;
    cmd("PING").exec(&mut admin).expect("an answer");
}

/// Memory is used up where keys may be evicted. Counts that are evicted start afresh, each time;
/// nothing of it is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_evicted() {
    let server = Redis::start();
    let fault = Fault::at("maxmemory, allkeys-lru under a flood", &server.url).await;
    let fault = fault.forgets(u64::MAX).or(&[OutOfMemory]).begins();
    let mut flood = server.connection();
    run(&server, "CONFIG SET maxmemory-policy allkeys-lru");
    run(&server, "CONFIG SET maxmemory 6mb");
    for key in 0..20_000 {
        let value = "x".repeat(1_000);
        let set = cmd("SET").arg(key).arg(value).exec(&mut flood);
        set.expect("something is evicted");
        if key % 1_000 == 0 {
            fault.lasts(millis(10)).await;
        }
    }
    // Now there is no room for anything: all counts go.
    run(&server, "CONFIG SET maxmemory 1");
    fault.lasts(millis(20)).await;
    run(&server, "CONFIG SET maxmemory 6mb");
    fault.ends().await;
    let info: redis::InfoDict = server.run("INFO stats");
    assert!(info.get::<u64>("evicted_keys").expect("a number") > 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_there_at_the_start() {
    let mut server = Redis::start();
    server.kill();
    let store = RedisStore::connect_lazy(&server.url).expect("a valid address");
    let fault = Fault::before("refused from the start", store).gives(&[Unavailable]);
    fault.lasts(WHILE).await;
    server.restart();
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_for_a_while() {
    let (server, master) = (Redis::start(), Redis::start());
    let fault = Fault::at("READONLY, by REPLICAOF", &server.url).await;
    // While it is filled from its master, it is loading.
    let fault = fault.gives(&[ReadOnly, Unavailable]).forgets(1).begins();
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
    let fault = fault.gives(&[ReadOnly, Unavailable]).forgets(1).begins();
    // Nobody is there, so that nothing else breaks the connection.
    old.follow(NOBODY);
    fault.lasts(Duration::ZERO).await;
    proxy.lead_to(&new.url);
    fault.ends().await;
}

/// Past its threshold the server answers BUSY; until then it does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_elses_script_does_not_end() {
    let server = Redis::start_with(&["--busy-reply-threshold", "100"]);
    let fault = Fault::at("a busy script, SCRIPT KILL", &server.url).await;
    // Connecting takes commands that are not answered meanwhile.
    let (mut other, mut admin) = (server.connection(), server.connection());
    let fault = fault.gives(&[Unavailable]).begins();
    let busy = std::thread::spawn(move || {
        let endless = cmd("EVAL").arg("while true do end").arg(0).exec(&mut other);
        endless.expect_err("it is killed");
    });
    fault.lasts(WHILE).await;
    let kill = cmd("SCRIPT").arg("KILL").exec(&mut admin);
    kill.expect("kills");
    busy.join().expect("no panic");
    fault.ends().await;
}

/// One command begins it, and another one ends it, if it does not end by itself. That one is also
/// done beforehand. Callers may be a `user:password@`.
async fn commands(
    name: &'static str,
    (user, arguments): (&str, &[&str]),
    [begin, end]: [&str; 2],
    kinds: &[StoreErrorKind],
) {
    let server = Redis::start_with(arguments);
    run(&server, end);
    let url = server.url.replace("//", &format!("//{user}"));
    let fault = Fault::at(name, &url).await.gives(kinds).begins();
    run(&server, begin);
    fault.lasts(WHILE).await;
    run(&server, end);
    fault.ends().await;
}

/// It is commanded so often, with a pause before each time.
async fn again(
    name: &'static str,
    command: &str,
    times: u32,
    pause: Duration,
    or: &[StoreErrorKind],
) {
    let server = Redis::start();
    let fault = Fault::at(name, &server.url).await.or(or).begins();
    for _ in 0..times {
        fault.lasts(pause).await;
        run(&server, command);
    }
    fault.ends().await;
}

const PAUSE: &str = "CLIENT PAUSE 400 ALL";

kit::cases! {
    // The first command answers when it is over.
    busy_with_a_slow_command: commands(
        "DEBUG SLEEP", ("", &[]), ["DEBUG SLEEP 0.4", "PING"], &[Timeout]);
    all_clients_are_paused: commands(PAUSE, ("", &[]), [PAUSE, "PING"], &[Timeout]);
    // A replica that may not answer with what is stale, of a master that is gone.
    a_replica_without_its_master: commands(
        "MASTERDOWN", ("", &["--replica-serve-stale-data", "no"]),
        ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"], &[Unavailable, ReadOnly]);
    a_user_that_is_deleted: commands(
        "ACL DELUSER", ("limiter:s3cret@", &[]),
        ["ACL DELUSER limiter", "ACL SETUSER limiter on >s3cret allkeys +@all"],
        &[Refused, Unavailable]);
    // Each call may find its script gone.
    scripts_are_flushed: again("SCRIPT FLUSH, 200 times", "SCRIPT FLUSH", 200, millis(2), &[]);
    // A connection that is closed between two calls is replaced without a word.
    killed_by_the_server: again("CLIENT KILL, 5 times", "CLIENT KILL TYPE normal SKIPME yes", 5,
        WHILE / 2, &[Unavailable]);
}
