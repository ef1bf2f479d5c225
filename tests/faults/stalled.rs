//! A server that is there and does not get to answer.

use std::time::Duration;

use kit::Redis;
use redis::cmd;
use tidegate::store::StoreErrorKind as Kind;

use crate::fault::Fault;
use crate::run;

const WHILE: Duration = Duration::from_millis(400);

async fn clients_are_paused(name: &'static str) {
    let server = Redis::start();
    let fault = Fault::at(name, &server.url).await;
    let mut fault = fault.gives(Kind::Timeout);
    fault.begins();
    run(&server, name);
    fault.lasts(WHILE).await;
    fault.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_clients_are_paused() {
    clients_are_paused("CLIENT PAUSE 400 ALL").await;
}

/// Past its threshold the server answers BUSY; until then it does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_elses_script_does_not_end() {
    let server = Redis::start_with(&["--busy-reply-threshold", "100"]);
    let fault = Fault::at("a busy script, SCRIPT KILL", &server.url).await;
    let mut fault = fault.gives(Kind::Unavailable);
    let mut other = server.connection();
    // Connecting takes commands that are not answered meanwhile.
    let mut admin = server.connection();
    fault.begins();
    let busy = std::thread::spawn(move || {
        let endless = cmd("EVAL").arg("while true do end").arg(0).exec(&mut other);
        endless.expect_err("it is killed");
    });
    fault.lasts(WHILE).await;
    let mut kill = cmd("SCRIPT");
    kill.arg("KILL").exec(&mut admin).expect("kills");
    busy.join().expect("no panic");
    fault.ends().await;
}

/// A flood of flushes: each call may find its script gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_flushed() {
    let server = Redis::start();
    let mut fault = Fault::at("SCRIPT FLUSH, 200 times", &server.url).await;
    fault.begins();
    for _ in 0..200 {
        run(&server, "SCRIPT FLUSH");
        fault.lasts(Duration::from_millis(2)).await;
    }
    fault.ends().await;
}
