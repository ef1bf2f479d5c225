//! Events for `tracing`, where that feature is on.

/// `tracing::error!` or another level's macro, by its name; or nothing.
macro_rules! event {
    ($level:ident: $($field:ident),+, $message:literal) => {{
        #[cfg(feature = "tracing")]
        tracing::$level!($($field),+, $message);
        #[cfg(not(feature = "tracing"))]
        let _ = ($($field),+);
    }};
}

pub(crate) use event;
