//! Whoever waits alone for a process of the other language.

use std::time::Duration;

use super::fleet::Language::{Java, Rust};
use super::fleet::{Language, Process};
use super::is_long;
use kit::Redis;

/// When a call began and ended, in microseconds.
fn times(line: &str) -> (u64, u64) {
    let mut words = line.split('\t').skip(1);
    let mut time = || words.next()?.parse().ok();
    time().zip(time()).expect("two times")
}

/// Makes a call and waits for its answer.
pub(crate) fn call(process: &mut Process, call: &str) -> String {
    process.tell(&format!("1 {call}"));
    process.line(|line| line.starts_with("1\t"))
}

/// How long the waiter of one process takes to have the lock that another process releases: in
/// microseconds, at the median, of 99 in 100, and at most.
pub(crate) fn wake_ups(url: &str, lock: &str, holds: Language, waits: Language) -> [u64; 3] {
    let rounds = if is_long() { 1_000 } else { 150 };
    let mut holder = Process::start(holds, "serve", url, "");
    let mut waiter = Process::start(waits, "serve", url, "");
    let (takes, frees) = (format!("lock {lock}"), format!("unlock {lock}"));
    let round = |_| {
        call(&mut holder, &takes);
        waiter.tell(&format!("1 {takes}"));
        std::thread::sleep(Duration::from_millis(15));
        let (released, _) = times(&call(&mut holder, &frees));
        let line = waiter.line(|line| line.starts_with("1\t"));
        assert!(line.ends_with("\tok"), "{line}");
        call(&mut waiter, &frees);
        times(&line).1.saturating_sub(released)
    };
    // The first ones are slow: a JVM compiles what it does often.
    let mut woken: Vec<u64> = (0..rounds + 20).map(round).skip(20).collect();
    woken.sort_unstable();
    let figures = [50, 99, 100].map(|share| woken[(rounds * share / 100).min(rounds - 1)]);
    let [half, nearly_all, last] = figures;
    println!(
        "{lock}: {holds:?} releases, {waits:?} wakes up: p50 {half} us, p99 {nearly_all} us, \
         at most {last} us"
    );
    figures
}

/// Most are woken as soon as by the other way, and nobody waits for the end of a lease. A busy
/// machine delays some for long.
pub(crate) fn assert_woken([half, nearly_all, _]: [u64; 3], [other_half, ..]: [u64; 3]) {
    let bound = 20_000.max(3 * other_half);
    assert!(half <= bound, "{half} us, expected {bound} us");
    assert!(nearly_all <= 1_000_000, "{nearly_all} us");
}

/// A release of the other language wakes a waiter at once.
#[test]
#[ignore = "tests/interop.sh builds the Java half"]
fn a_waiter_is_woken() {
    println!();
    let server = Redis::start();
    let among_java = wake_ups(&server.url, "l", Java, Java);
    for (holds, waits) in [(Java, Rust), (Rust, Java)] {
        assert_woken(wake_ups(&server.url, "l", holds, waits), among_java);
    }
}

/// The lock of a process that is killed is free after its lease of 10 s.
#[test]
#[ignore = "tests/interop.sh builds the Java half"]
fn a_holder_is_killed() {
    println!();
    for (holds, waits) in [(Java, Rust), (Rust, Java)] {
        let server = Redis::start();
        let mut holder = Process::start(holds, "serve", &server.url, "");
        let mut waiter = Process::start(waits, "serve", &server.url, "");
        call(&mut holder, "lock l");
        waiter.tell("1 lock l");
        // It is renewed meanwhile.
        std::thread::sleep(Duration::from_secs(12));
        holder.kill();
        let killed = kit::unix_micros();
        let line = waiter.line(|line| line.starts_with("1\t"));
        let free = Duration::from_micros(times(&line).1.saturating_sub(killed));
        println!("{holds:?} is killed, {waits:?} has its lock after {free:.1?}");
        assert!(line.ends_with("\tok"), "{line}");
        let expected = Duration::from_secs(5)..Duration::from_secs(15);
        assert!(expected.contains(&free), "{free:?}");
    }
}
