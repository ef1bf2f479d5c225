//! Events for `tracing`, where that feature is on.

/// `tracing::error!`, or nothing.
macro_rules! error {
    ($($field:ident),+, $message:literal) => {{
        #[cfg(feature = "tracing")]
        tracing::error!($($field),+, $message);
        #[cfg(not(feature = "tracing"))]
        let _ = ($($field),+);
    }};
}

/// `tracing::warn!`, or nothing.
macro_rules! warning {
    ($($field:ident),+, $message:literal) => {{
        #[cfg(feature = "tracing")]
        tracing::warn!($($field),+, $message);
        #[cfg(not(feature = "tracing"))]
        let _ = ($($field),+);
    }};
}

pub(crate) use {error, warning};
