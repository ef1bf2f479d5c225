//! A flood of keys that were never seen before, in memory: no more are held than allowed, in no
//! more bytes than said, and a limited key stays limited.
//!
//! Short by default. `TIDEGATE_FLOOD=10000000 bash tests/run.sh --release --test store --
//! --nocapture flood::` sends that many keys by each algorithm, at three caps, and prints a table.

use std::net::Ipv6Addr;

use allocation_counter::measure;

use crate::prelude::*;

/// What a key may take, in bytes, and a store besides.
const A_KEY: usize = 144;
const FIXED: usize = 256 * 1_024;

/// In microseconds.
const WINDOW: u64 = 10_000_000;

/// Keys that are limited before the flood, and all the time.
const LIMITED: u32 = 50;

/// How many keys are sent, if it is not to be the short form.
fn long() -> Option<u32> {
    let keys = std::env::var("TIDEGATE_FLOOD").ok()?;
    Some(keys.parse().expect("a number of keys"))
}

/// A quota whose units each count for a window, by every algorithm.
fn bursting(path: &str, algorithm: Algorithm, window: Duration) -> Arc<Rule> {
    let quota = Quota::new(window, 1).expect("valid");
    let quota = quota.with_burst(2).expect("valid");
    let rule = Rule::new(path, [quota]).expect("valid");
    Arc::new(rule.with_algorithm(algorithm))
}

/// As `PeerIp` makes them of networks, the longest it makes: with the rule's path a name of about
/// 40 bytes.
fn key(number: u32) -> Key {
    let [high, low] = [(number >> 16) as u16 | 0x8000, number as u16];
    let network = Ipv6Addr::new(0x2001, 0x1db8, high, low, 0, 0, 0, 0);
    Key::from(&*format!("{network}/64"))
}

fn answer(store: &MemoryStore, take: &Take) -> Result<Decision, StoreError> {
    let answer = store.take(take).now_or_never();
    answer.expect("memory answers at once")
}

fn ask(store: &MemoryStore, rule: &Arc<Rule>, key: Key) -> Result<Decision, StoreError> {
    let take = Take::new(Arc::clone(rule), key);
    answer(store, &take)
}

/// Keys whose count is used up for a day.
struct Limited(Arc<Rule>);

impl Limited {
    fn new(store: &MemoryStore, algorithm: Algorithm) -> Self {
        let rule = bursting("login", algorithm, Duration::from_secs(86_400));
        for number in 0..LIMITED {
            let cost = if algorithm == Algorithm::Gcra { 2 } else { 1 };
            let take = Take::new(Arc::clone(&rule), key(number)).with_cost(cost);
            let decision = answer(store, &take).expect("there is room");
            assert!(decision.is_allowed());
        }
        Self(rule)
    }

    /// They are denied until the hour is over, whatever else was asked.
    fn expect_denied(&self, store: &MemoryStore) {
        for number in 0..LIMITED {
            let decision = ask(store, &self.0, key(number)).expect("it is known");
            assert!(!decision.is_allowed(), "a limited key was dropped");
        }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    most_held: usize,
    refused: u32,
    /// In bytes.
    peak: usize,
}

/// In a window half as many again come as there is room for.
fn flood(algorithm: Algorithm, cap: usize, keys: u32) -> Outcome {
    let mut outcome = Outcome::default();
    let allocated = measure(|| send(algorithm, cap, keys, &mut outcome));
    // While something moves to a larger place, both places.
    outcome.peak = allocated.bytes_max as usize;
    assert!(outcome.most_held <= cap, "{outcome:?}");
    assert!(outcome.most_held > cap / 2, "{outcome:?}: no flood");
    assert!(outcome.refused > keys / 10, "{outcome:?}: no flood");
    assert!(outcome.peak <= cap * A_KEY + FIXED, "{outcome:?}");
    outcome
}

fn send(algorithm: Algorithm, cap: usize, keys: u32, outcome: &mut Outcome) {
    let clock = ManualClock::default();
    let store = MemoryStore::with_max_keys(cap).clock(clock.clone());
    let limited = Limited::new(&store, algorithm);
    let rule = bursting("getId", algorithm, Duration::from_micros(WINDOW));
    for number in 0..keys {
        let now = u64::from(number) * WINDOW * 2 / (3 * cap as u64);
        clock.set(now);
        match ask(&store, &rule, key(number)) {
            Ok(decision) => assert!(decision.is_allowed(), "{number} was never seen before"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Full);
                outcome.refused += 1;
            }
        }
        if number % 10_007 == 0 || number == keys - 1 {
            limited.expect_denied(&store);
            outcome.most_held = outcome.most_held.max(store.len());
        }
    }
}

/// What an empty store of this cap takes, in bytes.
fn empty(cap: usize) -> usize {
    let mut store = None;
    let allocated = measure(|| store = Some(MemoryStore::with_max_keys(cap)));
    allocated.bytes_max as usize
}

#[test]
fn keys_are_bounded_in_number_and_bytes() {
    let (caps, keys) = match long() {
        None => (&[2_000][..], 15_000),
        // At 120,000 the tables have just been doubled.
        Some(keys) => (&[100_000, 120_000, 1_000_000][..], keys),
    };
    println!("| algorithm | cap | keys sent | most held | refused | bytes / key (peak) | fixed |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for &cap in caps {
        for algorithm in Algorithm::ALL {
            let outcome = flood(algorithm, cap, keys);
            let (most_held, refused) = (outcome.most_held, outcome.refused);
            let empty = empty(cap);
            let each = (outcome.peak - empty) as f64 / cap as f64;
            let name = algorithm.name();
            println!("| {name} | {cap} | {keys} | {most_held} | {refused} | {each:.1} | {empty} |");
        }
    }
}

/// Threads that all need room at once get no more than there is, in the store's own time.
#[test]
fn threads_share_the_room() {
    const THREADS: u32 = 4;
    const REAL_WINDOW: Duration = millis(500);
    let (cap, keys) = match long() {
        None => (5_000, 40_000),
        Some(keys) => (100_000, keys),
    };
    let mut made = None;
    let before = measure(|| {
        let store = MemoryStore::with_max_keys(cap);
        let limited = Limited::new(&store, Algorithm::SlidingLog);
        made = Some((store, limited));
    });
    let (store, limited) = made.expect("was made");
    let rule = bursting("getId", Algorithm::SlidingLog, REAL_WINDOW);
    let flood = |thread: u32| {
        for number in (thread..keys).step_by(THREADS as usize) {
            match ask(&store, &rule, key(number)) {
                Ok(decision) => assert!(decision.is_allowed()),
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Full),
            }
            if number % 1_009 == 0 {
                assert!(store.len() <= cap);
                limited.expect_denied(&store);
            }
        }
    };
    // What one thread allocates another one may free: together it is what the store holds.
    let held = std::thread::scope(|scope| {
        let measured = |thread| measure(|| flood(thread)).bytes_current;
        let threads = (0..THREADS).map(|thread| scope.spawn(move || measured(thread)));
        let threads: Vec<_> = threads.collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("no panic"))
            .sum::<i64>()
    });
    let held = before.bytes_current + held;
    assert!(held <= (cap * A_KEY + FIXED) as i64, "{held}");
    std::thread::sleep(2 * REAL_WINDOW);
    assert_eq!(store.len(), LIMITED as usize, "only they are left");
}
