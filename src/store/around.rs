//! What a store around a store does before and after a question, apart from asking it: several of
//! them together need one future.

use smallvec::SmallVec;

use super::{StoreFuture, Take};
use crate::decision::Decisions;
use crate::error::StoreError;

pub(super) type Answer = Result<Decisions, StoreError>;

/// A store around a store, without the store inside.
pub(super) trait Around {
    /// The state that is kept while the question is asked.
    type Asking: Send + 'static;

    /// # Errors
    ///
    /// The answer, if the store inside is not to be asked.
    fn begin(&self, takes: &[Take]) -> Result<Self::Asking, Answer>;

    /// The answer that is given after the store inside has given this one.
    fn end(asking: Self::Asking, takes: &[Take], answer: Answer) -> Answer;

    /// Asks the store inside.
    fn ask(
        &self,
        takes: &[Take],
        ask: impl FnOnce() -> StoreFuture<Decisions>,
    ) -> StoreFuture<Decisions> {
        let asking = match self.begin(takes) {
            Ok(asking) => asking,
            Err(answer) => return StoreFuture::ready(answer),
        };
        let pending = ask();
        if pending.answer().is_none() {
            // One take, nearly always.
            let takes = SmallVec::<[Take; 1]>::from(takes);
            return StoreFuture::boxed(async move {
                let answer = pending.await;
                Self::end(asking, &takes, answer)
            });
        }
        match pending.now() {
            Ok(answer) => StoreFuture::ready(Self::end(asking, takes, answer)),
            Err(pending) => pending,
        }
    }
}

impl<A: Around> Around for Option<A> {
    type Asking = Option<A::Asking>;

    fn begin(&self, takes: &[Take]) -> Result<Self::Asking, Answer> {
        self.as_ref().map(|around| around.begin(takes)).transpose()
    }

    fn end(asking: Self::Asking, takes: &[Take], answer: Answer) -> Answer {
        match asking {
            Some(asking) => A::end(asking, takes, answer),
            None => answer,
        }
    }
}

/// The first is around the second.
impl<A: Around, B: Around> Around for (A, B) {
    type Asking = (A::Asking, B::Asking);

    fn begin(&self, takes: &[Take]) -> Result<Self::Asking, Answer> {
        let outer = self.0.begin(takes)?;
        match self.1.begin(takes) {
            Ok(inner) => Ok((outer, inner)),
            Err(answer) => Err(A::end(outer, takes, answer)),
        }
    }

    fn end((outer, inner): Self::Asking, takes: &[Take], answer: Answer) -> Answer {
        A::end(outer, takes, B::end(inner, takes, answer))
    }
}
