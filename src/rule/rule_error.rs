use super::outcomes::Outcomes;
use crate::quota::MAX_QUOTAS;

/// Why a [`Rule`](crate::Rule) cannot be made.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
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
    /// The name of a plan is the empty string.
    #[error("the plan has no name")]
    EmptyPlan,
    /// Two plans have the same name.
    #[error("two plans are named \"{0}\", expected a name of its own for each")]
    SamePlan(String),
    /// A lease under an algorithm that has none.
    #[error("no leases under {0}, expected sliding-log, sliding-window or fixed-window")]
    NoLeases(&'static str),
    /// A text that is not one of the outcomes of
    /// [`Rule::with_refund_on`](crate::Rule::with_refund_on).
    #[error("{0:?} is no outcome, expected {expected}", expected = Outcomes::EXPECTED)]
    NoOutcome(String),
    /// An empty list of outcomes.
    #[error("no outcome, expected {expected}", expected = Outcomes::EXPECTED)]
    NoOutcomes,
    /// A window with a lease is longer than a window may be.
    #[error("a window of ten years cannot be longer by a lease")]
    LeaseTooLong,
}

crate::error::debug_as_message!(RuleError);
