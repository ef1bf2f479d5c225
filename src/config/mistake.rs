use std::ops::Range;

/// A mistake in a file, and the bytes of the text where it is.
///
/// The message says what is wrong and what was expected. It names neither the line nor the key: a
/// [`ConfigError`](super::config_error::ConfigError) finds both from the span.
#[derive(Debug)]
pub(super) struct Mistake {
    /// The name or the value of a key, or the whole of a table.
    pub(super) span: Range<usize>,
    /// Lowercase, and without a full stop.
    pub(super) message: String,
}

/// `Err` with a mistake at these bytes.
pub(super) fn mistake<T>(span: Range<usize>, message: impl ToString) -> Result<T, Mistake> {
    let message = message.to_string();
    Err(Mistake { span, message })
}
