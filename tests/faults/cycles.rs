//! The way back, again and again: how long after the server accepts the first decision comes.
//! `TIDEGATE_CYCLES` says how often.

use kit::faults::{Fault, Site};
use tokio::time::Instant;

use crate::load::{Load, TIMEOUT};
use crate::*;

/// What is promised. Of a hundred times, a busy machine is to blame for ten at most.
const PROMISED: Duration = Duration::from_millis(500);
const ON_A_BUSY_MACHINE: Duration = Duration::from_secs(5);

/// Breaks it, waits until it is told, mends it, and waits for a decision; again and again.
async fn recovers(name: &str, fault: Fault) {
    let mut site = Site::start(fault).await;
    let store = kit::load::store(site.url()).await.timeout(TIMEOUT);
    let (mut took, mut random) = (Vec::new(), Random::new(1));
    for _ in 0..from_env("TIDEGATE_CYCLES", 3) {
        let mut load = Load::start(&store);
        load.is_whole().await;
        let begun = Instant::now();
        site.begin(&[]).await;
        while !load.failed_since(begun, |_| true) {
            assert!(begun.elapsed() < PATIENT, "{name}: not told");
            sleep(millis(1)).await;
        }
        // At any moment between two attempts to connect.
        sleep(millis(300 + random.below(200))).await;
        site.end().await;
        let accepts = Instant::now();
        load.is_whole().await;
        load.stop().await;
        let mut answers = load.log().answers.clone().into_iter();
        let back = answers.find(|answer| answer.answered >= accepts && answer.allowed.is_ok());
        took.push(back.expect("it is whole").answered - accepts);
    }
    took.sort();
    let (half, slowest) = (took[took.len() / 2], took[took.len() - 1]);
    let times = took.len();
    let within = took.iter().filter(|&&took| took <= PROMISED).count();
    println!("| {name} | {half:.1?} | {slowest:.1?} | {within} of {times} |");
    assert!(slowest <= ON_A_BUSY_MACHINE, "{name}: {slowest:?}");
    assert!(times < 100 || within >= times * 9 / 10, "{name}: {within}");
}

kit::cases! {
    killed: recovers("killed and restarted", Fault::Gone);
    stopped: recovers("SIGSTOP, SIGCONT", Fault::Stopped);
    black_hole: recovers("a black hole", Fault::Mute);
    wrong_password: recovers("wrong password", Fault::LockedOut);
    read_only: recovers("READONLY", Fault::ReadOnly);
    loading: recovers("LOADING", Fault::Loading);
}
