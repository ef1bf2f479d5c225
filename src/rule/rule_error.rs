use crate::quota::MAX_QUOTAS;

/// Why a [`Rule`](crate::Rule) cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The path is the empty string.
    #[error("the path is empty, expected the name of what is limited")]
    EmptyPath,
    /// There are no quotas, or more than 16.
    #[error("{0} quotas, expected 1 to {MAX_QUOTAS}")]
    NumberOfQuotas(usize),
    /// Two quotas have the same name.
    #[error("two quotas are named \"{0}\", expected a name of its own for each")]
    SameName(String),
    /// A lease under an algorithm that has none.
    #[error("no leases under {0}, expected sliding-log, sliding-window or fixed-window")]
    NoLeases(&'static str),
    /// A window with a lease is longer than a window may be.
    #[error("a window of ten years cannot be longer by a lease")]
    LeaseTooLong,
}
