use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Different in every process, so that nobody can choose keys that collide.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// For maps of this process.
pub(crate) fn hash(text: &str) -> u64 {
    SEED.hash_one(text)
}
