//! The primitives that the threads of this store meet at.
//!
//! They are those of the standard library. `tests/model.sh` builds with `--cfg tidegate_model`, and
//! gets those of `shuttle`: the same, but each use of them is a point at which another thread may
//! get its turn.

#[cfg(not(tidegate_model))]
pub(super) use std::{
    sync::{Mutex, MutexGuard, PoisonError, atomic},
    thread::available_parallelism,
};

#[cfg(tidegate_model)]
pub(super) use shuttle::sync::{Mutex, MutexGuard, PoisonError, atomic};

/// The same on every machine, and few: each shard that is looked through is one more turn to
/// choose.
#[cfg(tidegate_model)]
pub(super) fn available_parallelism() -> std::io::Result<std::num::NonZeroUsize> {
    Ok(std::num::NonZeroUsize::MIN)
}
