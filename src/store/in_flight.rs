use std::sync::Arc;
use std::time::Duration;

use super::taking::Answering;
use super::{Refunding, Store, Take, Taking};
use crate::crowd::{Crowd, Place};
use crate::decision::{Decision, Token};
use crate::error::{StoreError, StoreErrorKind};

/// A bound on how many questions are under way: those beyond are not asked.
///
/// They are answered at once with a [`StoreError`] of the kind [`Overloaded`](StoreErrorKind::Overloaded), so that a store
/// that has become slow does not gather a crowd of requests, each of which would be too late. A question is a call of
/// [`Store::take`], be it of one take or of a batch, or of [`Store::refund`]; what the store inside answers at once needs
/// no place. A future that is dropped gives its place back. Clones share the places.
///
/// ```
/// use tidegate::{InFlight, MemoryStore};
///
/// let store = InFlight::new(MemoryStore::new(), 1_024);
/// # let _ = store;
/// ```
#[derive(Debug, Clone)]
pub struct InFlight<S> {
    inner: S,
    most: usize,
    under_way: Arc<Crowd>,
    overloaded: StoreError,
}

impl<S: Store> InFlight<S> {
    /// How many it is good to have: at a time-out of 50 ms, a store that answers in the last moment still gives
    /// 20,000 answers a second.
    pub const DEFAULT_MOST: usize = 1_024;

    /// At most so many questions under way; with 0 there are none.
    #[must_use]
    pub fn new(inner: S, most: usize) -> Self {
        let name = inner.name();
        let message = format!("{name} was not asked, it still has {most} questions to answer");
        Self {
            inner,
            most,
            under_way: Arc::default(),
            overloaded: StoreError::new(StoreErrorKind::Overloaded, message),
        }
    }

    /// How many questions are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.number()
    }

    fn enter(&self) -> Result<Place<'_>, StoreError> {
        let place = self.under_way.enter(self.most);
        place.ok_or_else(|| self.overloaded.clone())
    }

    fn one_of<'a, T>(&'a self, answering: Answering<'a, T>) -> Answering<'a, T>
    where
        T: Send + 'a,
    {
        match answering.now() {
            Ok(answer) => Answering::ready(answer),
            Err(later) => Answering::later(async move {
                let _place = self.enter()?;
                later.await
            }),
        }
    }
}

impl<S: Store> Store for InFlight<S> {
    fn take<'a>(&'a self, takes: &'a [Take]) -> Taking<'a> {
        self.one_of(self.inner.take(takes))
    }

    fn try_take(&self, take: &Take) -> Option<Result<Decision, StoreError>> {
        self.inner.try_take(take)
    }

    fn refund<'a>(&'a self, take: &'a Take, token: &'a Token) -> Refunding<'a> {
        self.one_of(self.inner.refund(take, token))
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn give_up_after(self, timeout: Duration) -> Self {
        Self {
            inner: self.inner.give_up_after(timeout),
            ..self
        }
    }

    fn has_fallback(&self) -> bool {
        self.inner.has_fallback()
    }
}
