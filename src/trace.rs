//! Events for `tracing`, if that feature is on.

/// Calls the macro of `tracing` that is named like the level, such as `tracing::error!`. Without
/// the feature `tracing` it does nothing.
macro_rules! event {
    ($level:ident: $($field:ident),+, $message:literal) => {{
        #[cfg(feature = "tracing")]
        tracing::$level!($($field),+, $message);
        #[cfg(not(feature = "tracing"))]
        let _ = ($($field),+);
    }};
}

pub(crate) use event;
