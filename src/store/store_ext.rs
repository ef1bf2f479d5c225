use super::{Store, Take};
use crate::decision::{Decision, Decisions};
use crate::error::{StoreError, StoreErrorKind};

/// Questions that every [`Store`] answers by [`Store::take`].
pub trait StoreExt: Store {
    /// Decides one take.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no decision.
    fn take_one(&self, take: &Take) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        let decisions = self.take(std::slice::from_ref(take));
        async { single(decisions.await?) }
    }

    /// The state of this rule and key: the decision on the same take at a cost of 0, which charges
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no decision.
    fn peek(&self, take: &Take) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        let decisions = self.take(&[take.clone().with_cost(0)]);
        async { single(decisions.await?) }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// The answer to a single take.
pub(crate) fn single(decisions: Decisions) -> Result<Decision, StoreError> {
    let number = decisions.len();
    decisions.into_single().ok_or_else(|| {
        let message = format!("the store gave {number} answers to one take");
        StoreError::new(StoreErrorKind::Protocol, message)
    })
}
