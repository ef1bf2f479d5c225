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
    /// `None` if no subscriber listens.
    #[cfg(feature = "tracing")]
    span: Option<Box<tracing::Span>>,
}

impl TakeSpan {
    /// The span of a call about a rule's path.
    #[inline]
    pub(crate) fn new(path: &str, store: impl FnOnce() -> String) -> Self {
        #[cfg(feature = "tracing")]
        {
            use tracing::level_filters::LevelFilter;
            let is_wanted = LevelFilter::current() >= LevelFilter::DEBUG;
            let span = is_wanted.then(|| wanted(path, store)).flatten();
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
        let _entered = self.span.as_ref().map(|span| enter(span));
        work()
    }

    /// Records the fields that this gives, if a subscriber listens.
    #[inline]
    pub(crate) fn record(&self, fields: impl FnOnce() -> Vec<(&'static str, String)>) {
        #[cfg(feature = "tracing")]
        if let Some(span) = &self.span {
            for (field, value) in fields() {
                span.record(field, value);
            }
        }
        #[cfg(not(feature = "tracing"))]
        let _ = fields;
    }
}

/// The span, if the subscriber of these events wants it.
#[cfg(feature = "tracing")]
#[cold]
fn wanted(path: &str, store: impl FnOnce() -> String) -> Option<Box<tracing::Span>> {
    use tracing::field::Empty;
    // The store's name is only made if a subscriber listens.
    tracing::enabled!(target: "tidegate", tracing::Level::DEBUG).then(|| {
        Box::new(tracing::debug_span!(
            target: "tidegate",
            "tidegate.take",
            path,
            store = store(),
            outcome = Empty,
            source = Empty,
            error = Empty
        ))
    })
}

#[cfg(feature = "tracing")]
#[cold]
fn enter(span: &tracing::Span) -> tracing::span::Entered<'_> {
    span.enter()
}
