//! Parts of the crate `tidegate` that know no rule, no algorithm and no take. They are for that
//! crate and for `tidegate-redisson`: what stands here may change with any version. Users depend on
//! `tidegate`, which re-exports what is theirs.
// Types that travel inside of a connection are shown to nobody.
#![allow(missing_debug_implementations)]
// Its docs are read with those of private items.
#![allow(rustdoc::private_intra_doc_links)]

#[cfg(feature = "redis")]
pub mod connection;
mod support;

pub use support::{
    clock, deadline, error, in_flight_counter, jitter, log_on_change, named, regular_file,
    swept_map, sync, trace, unawaited, unseen,
};

/// What [`event!`] expands to.
#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;
