//! The way back, again and again: how long after the server accepts the first decision comes.
//! `TIDEGATE_CYCLES` says how often; in the long form none may take longer than half a second.

use std::cell::RefCell;
use std::time::Duration;

use kit::proxy::{Mode, Proxy};
use kit::random::Random;
use kit::workers::from_env;
use kit::{PATIENT, Redis, let_in, lock_out, millis, run};
use redis::cmd;
use tokio::time::{Instant, sleep};

use crate::load::{Load, TIMEOUT};

/// What is promised, and is asked for where the machine has nothing else to do.
const PROMISED: Duration = Duration::from_millis(500);
const ON_A_BUSY_MACHINE: Duration = Duration::from_secs(5);

/// Breaks it, waits until it is told, mends it, and waits for a decision; again and again.
async fn recovers(
    name: &str,
    url: &str,
    mut break_it: impl AsyncFnMut(),
    mut mend_it: impl AsyncFnMut(),
) {
    let store = kit::load::store(url).await.timeout(TIMEOUT);
    let (mut took, mut random) = (Vec::new(), Random::new(1));
    for _ in 0..from_env("TIDEGATE_CYCLES", 3) {
        let mut load = Load::start(&store);
        load.is_whole().await;
        let begun = Instant::now();
        break_it().await;
        while !load.failed_since(begun, |_| true) {
            assert!(begun.elapsed() < PATIENT, "{name}: not told");
            sleep(millis(1)).await;
        }
        // At any moment between two attempts to connect.
        sleep(millis(300 + random.below(200))).await;
        mend_it().await;
        let accepts = Instant::now();
        load.is_whole().await;
        load.stop().await;
        let mut answers = load.answers().into_iter();
        let back = answers.find(|answer| answer.answered >= accepts && answer.allowed.is_ok());
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
    let server = RefCell::new(Redis::start());
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
    let admin = RefCell::new(None);
    let lock = async || drop(admin.replace(Some(lock_out(&server))));
    let unlock = async || let_in(admin.borrow_mut().as_mut().expect("locked"));
    recovers("wrong password", &server.url, lock, unlock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only() {
    let server = Redis::start();
    let demote = async || server.follow("redis://127.0.0.1:1");
    let promote = async || run(&server, "REPLICAOF NO ONE");
    recovers("READONLY", &server.url, demote, promote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading() {
    // Its dump takes about a second to load.
    let server = Redis::start_with(&[
        "--key-load-delay",
        "500",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    run(&server, "DEBUG POPULATE 2000");
    run(&server, "SAVE");
    let server = RefCell::new(server);
    let url = server.borrow().url.clone();
    let restart = async || {
        let mut server = server.borrow_mut();
        server.kill();
        server.restart();
    };
    let load = async || {
        let (started, mut connection) = (Instant::now(), server.borrow().connection());
        while let Err(error) = cmd("PING").exec(&mut connection) {
            assert!(started.elapsed() < PATIENT, "{error}");
            sleep(millis(1)).await;
        }
    };
    recovers("LOADING", &url, restart, load).await;
}
