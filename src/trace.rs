//! Events and spans for `tracing`, if that feature is on.

use std::time::SystemTime;

pub(crate) use tidegate_base::trace::{EVICTS, event};

/// An instant as RFC 3339 has it, for the log.
pub(crate) fn date(at: SystemTime) -> String {
    #[cfg(feature = "tracing")]
    return humantime::format_rfc3339_seconds(at).to_string();
    #[cfg(not(feature = "tracing"))]
    {
        let _ = at;
        String::new()
    }
}

/// The span around a call of a store: `tidegate.take`, of the level debug. Without the feature
/// `tracing` it is nothing.
#[derive(Debug)]
pub(crate) struct TakeSpan {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl TakeSpan {
    /// The span of a call about a rule's path.
    #[inline]
    pub(crate) fn new(path: &str, store: impl FnOnce() -> String) -> Self {
        #[cfg(feature = "tracing")]
        {
            use tracing::field::Empty;
            // The store's name is only made if a subscriber listens.
            let is_enabled = tracing::enabled!(target: "tidegate", tracing::Level::DEBUG);
            let span = if is_enabled {
                tracing::debug_span!(
                    target: "tidegate",
                    "tidegate.take",
                    path,
                    store = store(),
                    outcome = Empty,
                    source = Empty,
                    error = Empty
                )
            } else {
                tracing::Span::none()
            };
            Self { span }
        }
        #[cfg(not(feature = "tracing"))]
        {
            let _ = (path, store);
            Self {}
        }
    }

    /// Does something inside of the span.
    #[inline]
    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        return self.span.in_scope(work);
        #[cfg(not(feature = "tracing"))]
        work()
    }

    /// Records a field. The value is only made if a subscriber listens.
    #[inline]
    pub(crate) fn record(&self, field: &'static str, value: impl FnOnce() -> String) {
        #[cfg(feature = "tracing")]
        if !self.span.is_disabled() {
            self.span.record(field, value());
        }
        #[cfg(not(feature = "tracing"))]
        let _ = (field, value);
    }
}
