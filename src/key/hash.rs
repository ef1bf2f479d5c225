use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Random in every process, so that no client can choose keys with equal hashes.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The hash of a text, for the maps of this process.
pub(crate) fn hash(text: &str) -> u64 {
    SEED.hash_one(text)
}
