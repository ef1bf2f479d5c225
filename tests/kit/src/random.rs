//! Random numbers: the same in every run, unless `TIDEGATE_SEED` asks for others.

use std::sync::LazyLock;

use proptest::test_runner::{Config, RngSeed};

/// What `TIDEGATE_SEED` says. The long run sets it, and prints it.
static OF_THE_RUN: LazyLock<u64> = LazyLock::new(|| {
    let set = std::env::var("TIDEGATE_SEED").ok();
    set.map_or(0, |number| {
        number.parse().expect("TIDEGATE_SEED is a number")
    })
});

/// What `TIDEGATE_SEED` says, or 0.
pub fn of_the_run() -> u64 {
    *OF_THE_RUN
}

/// The seed to use instead of a test's own one, which it is unless the run has a seed.
pub fn seed(own: u64) -> u64 {
    own ^ OF_THE_RUN.wrapping_mul(0xd1b5_4a32_d192_ed03)
}

/// For all random histories.
pub fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed(1)),
        failure_persistence: None,
        ..Config::default()
    }
}

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed, in every run that has the same `TIDEGATE_SEED`.
    pub fn new(own: u64) -> Self {
        Self(seed(own))
    }

    /// From 0 to below this.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
