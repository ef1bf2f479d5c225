//! What a store around another store does before and after it asks the inner one. Several wrappers
//! together need only one future.

use super::{StoreFuture, Take};
use crate::decision::Decision;
use crate::error::StoreError;

pub(super) type Answer = Result<Decision, StoreError>;

/// A store around another store, without that store.
pub(super) trait Wrapper {
    /// What the wrapper keeps while the inner store is asked.
    type Pending: Send + 'static;

    /// # Errors
    ///
    /// The answer, if the wrapper gives it without asking the inner store.
    fn before(&self, take: &Take) -> Result<Self::Pending, Answer>;

    /// The wrapper's answer, made of the inner store's.
    fn after(asking: Self::Pending, take: &Take, answer: Answer) -> Answer;

    /// Asks the inner store.
    fn ask(
        &self,
        take: &Take,
        ask: impl FnOnce() -> StoreFuture<Decision>,
    ) -> StoreFuture<Decision> {
        let asking = match self.before(take) {
            Ok(asking) => asking,
            Err(answer) => return StoreFuture::ready(answer),
        };
        let pending = ask();
        if pending.answer().is_none() {
            let take = take.clone();
            return StoreFuture::boxed(async move {
                let answer = pending.await;
                Self::after(asking, &take, answer)
            });
        }
        match pending.now() {
            Ok(answer) => StoreFuture::ready(Self::after(asking, take, answer)),
            Err(pending) => pending,
        }
    }
}

impl<A: Wrapper> Wrapper for Option<A> {
    type Pending = Option<A::Pending>;

    fn before(&self, take: &Take) -> Result<Self::Pending, Answer> {
        self.as_ref().map(|around| around.before(take)).transpose()
    }

    fn after(asking: Self::Pending, take: &Take, answer: Answer) -> Answer {
        match asking {
            Some(asking) => A::after(asking, take, answer),
            None => answer,
        }
    }
}

/// Two wrappers, the first around the second.
impl<A: Wrapper, B: Wrapper> Wrapper for (A, B) {
    type Pending = (A::Pending, B::Pending);

    fn before(&self, take: &Take) -> Result<Self::Pending, Answer> {
        let outer = self.0.before(take)?;
        match self.1.before(take) {
            Ok(inner) => Ok((outer, inner)),
            Err(answer) => Err(A::after(outer, take, answer)),
        }
    }

    fn after((outer, inner): Self::Pending, take: &Take, answer: Answer) -> Answer {
        A::after(outer, take, B::after(inner, take, answer))
    }
}
