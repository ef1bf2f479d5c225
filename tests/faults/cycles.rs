//! The way back, again and again: how long after the server accepts the first decision comes.
//! `TIDEGATE_CYCLES` says how often; in the long form none may take longer than half a second.

use std::time::Duration;

use kit::Redis;
use kit::proxy::{Mode, Proxy};
use kit::random::Random;
use tidegate::RedisStore;
use tokio::time::{Instant, sleep};

use crate::load::{Load, TIMEOUT};
use crate::process::{has_loaded, slow_to_load};
use crate::{run, words};

/// What is promised, and is asked for where the machine has nothing else to do.
const PROMISED: Duration = Duration::from_millis(500);
const ON_A_BUSY_MACHINE: Duration = Duration::from_secs(5);

fn cycles() -> usize {
    let cycles = std::env::var("TIDEGATE_CYCLES");
    cycles.map_or(3, |cycles| cycles.parse().expect("a number"))
}

/// Breaks it, waits until it is told, mends it, and waits for a decision; again and again.
async fn recovers(
    name: &str,
    url: &str,
    mut break_it: impl AsyncFnMut(),
    mut mend_it: impl AsyncFnMut(),
) {
    let store = RedisStore::connect(url).await.expect("a running server");
    let store = store.timeout(TIMEOUT);
    let (mut took, mut random) = (Vec::new(), Random::new(1));
    for _ in 0..cycles() {
        let mut load = Load::start(&store);
        load.is_whole().await;
        let begun = Instant::now();
        break_it().await;
        while !load.failed_since(begun, |_| true) {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{name}: not told"
            );
            sleep(Duration::from_millis(1)).await;
        }
        // At any moment between two attempts to connect.
        sleep(Duration::from_millis(300 + random.below(200))).await;
        mend_it().await;
        let accepts = Instant::now();
        load.is_whole().await;
        load.stop().await;
        let back = load
            .answers()
            .into_iter()
            .find(|answer| answer.answered >= accepts && answer.allowed.is_ok());
        took.push(back.expect("it is whole").answered - accepts);
    }
    took.sort();
    let (half, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    let times = took.len();
    let within = took.iter().filter(|&&took| took <= PROMISED).count();
    println!("| {name} | {half:.1?} | {slowest:.1?} | {within} of {times} |");
    let most = if times < 100 {
        ON_A_BUSY_MACHINE
    } else {
        PROMISED
    };
    assert!(slowest <= most, "{name}: {slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed() {
    let server = std::cell::RefCell::new(Redis::start());
    let url = server.borrow().url.clone();
    let kill = async || server.borrow_mut().kill();
    let restart = async || server.borrow_mut().restart();
    recovers("killed and restarted", &url, kill, restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped() {
    let server = Redis::start();
    let stop = async || server.signal("STOP");
    let go_on = async || server.signal("CONT");
    recovers("SIGSTOP, SIGCONT", &server.url, stop, go_on).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn black_hole() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.url).await;
    let lose = async || proxy.all(Mode::BlackHole);
    let pass = async || proxy.all(Mode::Pass);
    recovers("a black hole", &proxy.url, lose, pass).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_password() {
    let server = Redis::start();
    let lock = async || {
        run(&server, "CONFIG SET requirepass s3cret");
        let mut admin = server.connection_with_password("s3cret");
        let kill = words("CLIENT KILL TYPE normal SKIPME yes").exec(&mut admin);
        kill.expect("kills");
    };
    let unlock = async || {
        let mut admin = server.connection_with_password("s3cret");
        let mut set = words("CONFIG SET requirepass");
        set.arg("").exec(&mut admin).expect("is set");
    };
    recovers("wrong password", &server.url, lock, unlock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only() {
    let server = Redis::start();
    let nobody = "redis://127.0.0.1:1";
    let demote = async || server.follow(nobody);
    let promote = async || run(&server, "REPLICAOF NO ONE");
    recovers("READONLY", &server.url, demote, promote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading() {
    let server = slow_to_load();
    run(&server, "SAVE");
    let server = std::cell::RefCell::new(server);
    let url = server.borrow().url.clone();
    let restart = async || {
        let mut server = server.borrow_mut();
        server.kill();
        server.restart();
    };
    let load = async || has_loaded(&url).await;
    recovers("LOADING", &url, restart, load).await;
}
