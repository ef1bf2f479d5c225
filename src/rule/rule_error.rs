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
}
