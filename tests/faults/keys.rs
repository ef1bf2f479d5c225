//! Memory that is used up, and keys that hold something else.

use std::time::Duration;

use kit::Redis;
use redis::cmd;
use tidegate::store::StoreErrorKind as Kind;

use crate::fault::Fault;
use crate::{run, words};

const WHILE: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_memory_is_left() {
    let server = Redis::start();
    let fault = Fault::at("maxmemory, noeviction", &server.url).await;
    let mut fault = fault.gives(Kind::OutOfMemory);
    fault.begins();
    run(&server, "CONFIG SET maxmemory 1");
    fault.lasts(WHILE).await;
    run(&server, "CONFIG SET maxmemory 0");
    fault.ends().await;
}

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

/// Something else is put under the key that all callers share.
async fn taken_by(name: &'static str, put: &str) {
    const KEY: &str = "CurrentLimiter:shared";
    let server = Redis::start();
    let fault = Fault::at(name, &server.url).await;
    let mut fault = fault.gives(Kind::WrongType).forgets(1);
    fault.begins();
    let (command, rest) = put.split_once(' ').expect("a command");
    let mut swap = redis::pipe();
    swap.atomic().cmd("DEL").arg(KEY).cmd(command).arg(KEY);
    for word in rest.split(' ') {
        swap.arg(word);
    }
    let swapped = swap.exec(&mut server.connection());
    swapped.expect("it is put there");
    fault.lasts(WHILE).await;
    run(&server, &format!("DEL {KEY}"));
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_string_under_the_key() {
    taken_by("a string under the key", "SET text").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hash_under_the_key() {
    taken_by("a hash under the key", "HSET field text").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_under_the_key() {
    taken_by("a list under the key", "RPUSH text").await;
}
