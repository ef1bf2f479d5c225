use std::ops::Range;

/// A mistake in a file, and the bytes of the text where it is.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// `Err` with a mistake at these bytes.
pub(super) fn mistake<T>(span: Range<usize>, message: impl ToString) -> Result<T, Mistake> {
    let message = message.to_string();
    Err(Mistake { span, message })
}
