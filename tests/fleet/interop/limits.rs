//! How much the windows of a limiter hold that processes of both languages use.

use std::time::Duration;

use kit::Redis;
use kit::limiter_oracle::Monitor;
use kit::workers::number;
use tidegate::limiter::{Rate, RateLimiter};

use super::fleet::Language::{Java, Rust};
use super::fleet::{Language, Process};
use super::is_long;

const THREADS: u64 = 12;
/// Permits, and milliseconds.
const RATES: [(u64, u64); 2] = [(50, 200), (10, 1_000)];

/// What a fleet that asks for more than there is was granted: the fullest window, and in percent
/// what was used of the rate.
async fn saturate(fleet: &'static [Language], rate: u64, interval: u64) -> (u64, u64) {
    let server = Redis::start();
    let redis = tidegate::Redis::connect(&server.url)
        .await
        .expect("a running server");
    let limiter = RateLimiter::new(&redis, "partner");
    let limiter = match fleet.contains(&Java) {
        true => limiter.shared_with_redisson(),
        false => limiter,
    };
    let set =
        limiter.try_set_rate(Rate::overall(rate, Duration::from_millis(interval)).expect("valid"));
    assert!(set.await.expect("an answer"));
    let monitor = Monitor::start(&server.url);
    let url = server.url.clone();
    let play = move || {
        let words = format!(
            "partner {THREADS} {}",
            if is_long() { 4_000 } else { 2_500 }
        );
        let mut fleet = Process::start_all(fleet, "saturate", &url, &words);
        fleet.iter_mut().for_each(|process| process.tell("go"));
        fleet.into_iter().for_each(|process| drop(process.rest()));
    };
    tokio::task::spawn_blocking(play).await.expect("no panic");
    let all = monitor.grants(&server.url);
    let grants = &all["{partner}:permits"];
    (
        grants.fullest_by_calls(interval * 1_000),
        grants.use_of(rate, interval * 1_000),
    )
}

async fn median(fleet: &'static [Language], rate: u64, interval: u64) -> u64 {
    let runs = if is_long() { 5 } else { 1 };
    let (mut fullest, mut used) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let run = saturate(fleet, rate, interval).await;
        fullest.push(run.0);
        used.push(run.1);
    }
    let count = |language| fleet.iter().filter(|it| **it == language).count();
    println!(
        "{} Rust {} Java, {rate} in {interval} ms: fullest windows {fullest:?}, used {used:?} %",
        count(Rust),
        count(Java)
    );
    fullest.sort_unstable();
    fullest[runs / 2]
}

/// A fleet of Rust is never above the rate, a mixed one little more than one of Java.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/interop.sh builds the Java half"]
async fn windows_hold_the_rate() {
    println!();
    let rates = if is_long() { &RATES[..] } else { &RATES[..1] };
    for &(rate, interval) in rates {
        let rust = median(&[Rust, Rust, Rust], rate, interval).await;
        assert!(rust <= rate, "{rust}");
        let java = median(&[Java, Java, Java], rate, interval).await;
        let mixed = median(&[Rust, Java, Java], rate, interval).await;
        let most = rate + (java.saturating_sub(rate) * 5).div_ceil(4);
        // A single run says little: two grants more or less are chance.
        let chance = if is_long() { 0 } else { 2 + rate / 20 };
        assert!(mixed <= most + chance, "{mixed}, expected at most {most}");
    }
}

/// What 8 callers in each process are granted of 50 permits in 200 ms, in percent: the Rust
/// process, all others, and what is used of the rate. Redisson's timer has ticks of 100 ms.
fn share(fleet: &[Language]) -> [u64; 3] {
    let server = Redis::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let redis = tidegate::Redis::connect(&server.url).await;
        let redis = redis.expect("a running server");
        let limiter = RateLimiter::new(&redis, "partner").shared_with_redisson();
        let set =
            limiter.try_set_rate(Rate::overall(50, Duration::from_millis(200)).expect("valid"));
        assert!(set.await.expect("an answer"));
    });
    let lasts = if is_long() { 20_000 } else { 5_000 };
    let words = format!("partner 8 {lasts}");
    let mut processes = Process::start_all(fleet, "saturate", &server.url, &words);
    for process in &mut processes {
        process.tell("go");
    }
    let (mut rust, mut all) = (0, 0);
    for process in processes {
        let language = process.language;
        let granted = number(&process.rest().join("\n"), "granted ");
        all += granted;
        if language == Rust {
            rust += granted;
        }
    }
    let shares = [
        100 * rust / all,
        100 - 100 * rust / all,
        100 * all / (50 * lasts / 200),
    ];
    println!("{fleet:?}: Rust, Java, used: {shares:?} %");
    shares
}

#[test]
#[ignore = "tests/interop.sh builds the Java half"]
fn each_language_has_a_share() {
    println!();
    share(&[Rust, Rust]);
    share(&[Java]);
    let [rust, java, _] = share(&[Rust, Java]);
    // In the short form, the first seconds of a JVM are a large part.
    let least = if is_long() { 25 } else { 10 };
    assert!(
        rust >= least && java >= least,
        "Rust {rust} %, Java {java} %"
    );
}
