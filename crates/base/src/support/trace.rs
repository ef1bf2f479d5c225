//! Events for `tracing`, if the feature of that name is on.

/// Calls the macro of `tracing` that is named like the level, such as `tracing::error!`. Without
/// the feature `tracing` of this crate it does nothing.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! event {
    ($level:ident: $message:literal) => {
        $crate::tracing::$level!($message)
    };
    ($level:ident: $($field:ident),+, $message:literal) => {
        $crate::tracing::$level!($($field),+, $message)
    };
}

/// Does nothing: the feature `tracing` of this crate is off.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! event {
    ($level:ident: $message:literal) => {{}};
    ($level:ident: $($field:ident),+, $message:literal) => {{
        let _ = ($(&$field),+);
    }};
}

pub use crate::event;

/// The warning that a Redis evicts keys: stores give it, and each connection logs it. It stands here
/// because `tidegate` lists its warnings also without connections.
pub const EVICTS: &str = "this Redis evicts keys when its memory is full, and an evicted \
                          count begins again at zero: set maxmemory-policy to noeviction";
