/// Why bytes are no [`Count`](super::Count).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// A later version of this crate wrote them, or they were never written by this crate.
    #[error("version {0} of the format of counts, expected 1")]
    UnknownVersion(u8),
    /// They are the count of an algorithm that this version does not have.
    #[error("an unknown algorithm, number {0}")]
    UnknownAlgorithm(u8),
    /// They end too early.
    #[error("the count is cut off")]
    CutOff,
    /// They do not end where the count does.
    #[error("{0} bytes behind the count")]
    TooLong(usize),
    /// A number in them cannot be.
    #[error("{0} cannot be as the count says")]
    Impossible(&'static str),
}
