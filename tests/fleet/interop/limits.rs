//! How much the windows of a limiter hold that processes of both languages use.

use kit::limiter_oracle::Monitor;
use kit::workers::number;
use kit::{Redis, handle, millis, overall};
use tidegate::limiter::RateLimiter;

use super::fleet::Language::{Java, Rust};
use super::fleet::{Language, Process};
use super::is_long;

const THREADS: u64 = 12;
/// Permits, and milliseconds.
const RATES: [(u64, u64); 2] = [(50, 200), (10, 1_000)];

/// A server with a limiter of this rate, whom Java clients share if some are in the fleet.
async fn server(fleet: &[Language], rate: u64, interval: u64) -> Redis {
    let server = Redis::start();
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner");
    let limiter = match fleet.contains(&Java) {
        true => limiter.shared_with_redisson(),
        false => limiter,
    };
    let set = limiter.try_set_rate(overall(rate, millis(interval)));
    assert!(set.await.expect("an answer"));
    server
}

/// Has the fleet ask for more than there is. Returns what each process was granted.
async fn play(
    fleet: &'static [Language],
    server: &Redis,
    threads: u64,
    lasts: u64,
) -> Vec<(Language, u64)> {
    let url = server.url.clone();
    let play = move || {
        let words = format!("partner {threads} {lasts}");
        let mut fleet = Process::start_all(fleet, "saturate", &url, &words);
        fleet.iter_mut().for_each(|process| process.tell("go"));
        let granted = |process: Process| {
            let language = process.who;
            (language, number(&process.rest().join("\n"), "granted "))
        };
        fleet.into_iter().map(granted).collect()
    };
    tokio::task::spawn_blocking(play).await.expect("no panic")
}

/// What a fleet was granted: the fullest window, and in percent what was used of the rate.
async fn saturate(fleet: &'static [Language], rate: u64, interval: u64) -> (u64, u64) {
    let server = server(fleet, rate, interval).await;
    let monitor = Monitor::start(&server.url);
    let lasts = if is_long() { 4_000 } else { 2_500 };
    play(fleet, &server, THREADS, lasts).await;
    let grants = monitor.grants_of(&server.url, "partner");
    let interval = interval * 1_000;
    (
        grants.fullest_by_calls(interval),
        grants.use_of(rate, interval),
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
        // Two grants above it are chance; a JVM that pauses between clock and call gives more.
        let chance = if is_long() { 0 } else { 2 + rate / 20 };
        for pair in 1..=3 {
            let java = median(&[Java, Java, Java], rate, interval).await;
            let mixed = median(&[Rust, Java, Java], rate, interval).await;
            let most = rate + (java.saturating_sub(rate) * 5).div_ceil(4) + chance;
            if mixed <= most {
                break;
            }
            assert!(pair < 3, "{mixed}, expected at most {most}");
        }
    }
}

/// What 8 callers in each process are granted of 50 permits in 200 ms, in percent: the Rust
/// process, all others, and what is used of the rate. Redisson's timer has ticks of 100 ms.
async fn share(fleet: &'static [Language]) -> [u64; 3] {
    let lasts = if is_long() { 20_000 } else { 5_000 };
    let server = server(&[Java], 50, 200).await;
    let granted = play(fleet, &server, 8, lasts).await;
    let all: u64 = granted.iter().map(|(_, granted)| granted).sum();
    let rust = granted.iter().filter(|(language, _)| *language == Rust);
    let rust: u64 = rust.map(|(_, granted)| granted).sum();
    let shares = [
        100 * rust / all,
        100 - 100 * rust / all,
        100 * all / (50 * lasts / 200),
    ];
    println!("{fleet:?}: Rust, Java, used: {shares:?} %");
    shares
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/interop.sh builds the Java half"]
async fn each_language_has_a_share() {
    println!();
    share(&[Rust, Rust]).await;
    share(&[Java]).await;
    let [rust, java, _] = share(&[Rust, Java]).await;
    // In the short form, the first seconds of a JVM are a large part.
    let least = if is_long() { 25 } else { 10 };
    assert!(rust.min(java) >= least, "Rust {rust} %, Java {java} %");
}
