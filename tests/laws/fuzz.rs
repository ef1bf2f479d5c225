//! The fuzz targets without a fuzzer: each over the inputs that are checked in, and over some
//! thousand more that are made of them, the same in every run. `fuzz/run.sh` looks for new ones.
#![allow(
    unreachable_pub,
    missing_docs,
    reason = "they are a crate of their own, too"
)]

#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

thread_local! {
    /// Of everything in this thread that panicked, also in tasks that nobody waits for.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// No input may take longer, three times in a row: once, something else may have kept the machine
/// busy. From the second time on it is the time of the processor that counts.
const LONGEST: Duration = Duration::from_secs(1);

fn check(name: &str, made: usize, target: fn(&[u8])) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.set(PANICS.get() + 1);
            usual(panic);
        }));
    });
    let corpus = corpus(name);
    for input in &corpus {
        is_fine(name, target, input);
    }
    let mut random = Random(kit::random::seed(0x9E37_79B9_7F4A_7C15));
    for _ in 0..made {
        is_fine(name, target, &random.input(&corpus));
    }
}

fn is_fine(name: &str, target: fn(&[u8]), input: &[u8]) {
    let mut took = Duration::MAX;
    for attempt in 0..3 {
        let before = (attempt > 0).then(thread_time).flatten();
        let (started, panics) = (Instant::now(), PANICS.get());
        let ended = catch_unwind(AssertUnwindSafe(|| target(input)));
        let is_quiet = PANICS.get() == panics;
        assert!(
            ended.is_ok() && is_quiet,
            "{name}: {}",
            input.escape_ascii()
        );
        let ran = before.and_then(|before| thread_time()?.checked_sub(before));
        took = took.min(ran.unwrap_or_else(|| started.elapsed()));
        if took < LONGEST {
            return;
        }
    }
    panic!("{name} took {took:?}: {}", input.escape_ascii());
}

/// For how long this thread has had a processor, where the system says so.
fn thread_time() -> Option<Duration> {
    let times = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = times.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// In the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = kit::root().join("fuzz/corpus").join(name);
    let files = fs::read_dir(&folder).expect("a corpus is checked in");
    let mut files: Vec<_> = files
        .map(|file| file.expect("it can be listed").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
        .iter()
        .map(|file| fs::read(file).expect("it can be read"))
        .collect()
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % most.max(1)
    }

    /// One that is checked in with a few changes, or with the end of another one; or any bytes.
    fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        if self.below(8) == 0 {
            let length = self.below(200);
            return (0..length).map(|_| self.below(256) as u8).collect();
        }
        let mut input = corpus[self.below(corpus.len())].clone();
        if self.below(4) == 0 {
            let other = &corpus[self.below(corpus.len())];
            input.truncate(self.below(input.len() + 1));
            input.extend_from_slice(&other[self.below(other.len())..]);
        }
        for _ in 0..1 + self.below(6) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        let to = at + self.below((input.len() - at).min(16));
        let any = self.below(256) as u8;
        match self.below(6) {
            0 => input.insert(at, any),
            1 => drop(input.drain(at..to)),
            2 => {
                let again = input[at..to].to_vec();
                input.splice(at..at, again);
            }
            _ if input.is_empty() => {}
            3 => input[at] ^= 1 << (any % 8),
            4 => input[at] = input[at].wrapping_add(any % 9).wrapping_sub(4),
            _ => input[at] = any,
        }
    }
}

#[test]
fn client_ip() {
    check("client_ip", 15_000, targets::client_ip::run);
}

#[test]
fn config() {
    check("config", 10_000, targets::config::run);
}

#[test]
fn count() {
    check("count", 10_000, targets::count::run);
}

#[test]
fn fields() {
    check("fields", 15_000, targets::fields::run);
}

#[test]
fn key_names() {
    check("key_names", 3_000, targets::key_names::run);
}

#[test]
fn partner() {
    check("partner", 10_000, targets::partner::run);
}

#[test]
fn primitives() {
    check("primitives", 3_000, targets::primitives::run);
}

#[test]
fn replies() {
    check("replies", 4_000, targets::replies::run);
}
