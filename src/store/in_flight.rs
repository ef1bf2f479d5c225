use super::wrapper::{Asked, Wrapped, Wrapper};
use super::{Store, Take};
use crate::error::{StoreError, StoreErrorKind};
use crate::in_flight_counter::{InFlightCounter, Permit};

/// Bounds how many questions wait for a store's answer at once: it does not ask more.
///
/// They are answered immediately with a [`StoreError`] of the kind
/// [`Overloaded`](StoreErrorKind::Overloaded), so that a store that has become slow does not gather
/// requests that would all be too late. A question is a take, a refund or a reset. Each
/// needs a permit, also where the store inside answers immediately, except [repeats](Take::repeat)
/// of callers that wait and takes of [shadow rules](crate::Rule::into_shadow). A future that is
/// dropped gives its permit back. Clones share the permits.
///
/// ```
/// use tidegate::MemoryStore;
/// use tidegate::store::InFlight;
///
/// let store = InFlight::new(MemoryStore::new(), 1_024);
/// # let _ = store;
/// ```
#[derive(Debug, Clone)]
pub struct InFlight<S> {
    wrapped: Wrapped<S>,
    under_way: InFlightCounter,
}

/// The bound on questions under way.
#[derive(Debug, Clone)]
pub(super) struct QuestionLimit {
    max: usize,
    under_way: InFlightCounter,
    overloaded: StoreError,
}

impl<S: Store> InFlight<S> {
    /// The default of [`Resilient`](crate::Resilient): 1,024. At a time-out of 50 ms, a store that
    /// answers in the last moment still gives 20,000 answers a second.
    pub const DEFAULT_MAX: usize = 1_024;

    /// At max `max` questions under way; with 0 only repeats are asked.
    #[must_use]
    pub fn new(inner: S, max: usize) -> Self {
        let limit = QuestionLimit::new(&inner.name(), max);
        Self {
            under_way: limit.under_way.clone(),
            wrapped: Wrapped {
                in_flight: Some(limit),
                ..Wrapped::bare(inner)
            },
        }
    }

    /// How many questions wait for an answer now.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.number()
    }
}

impl<S: Store> Wrapper for InFlight<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        &self.wrapped
    }
}

impl QuestionLimit {
    /// At max `max` questions under way to the store of this name.
    pub(super) fn new(name: &str, max: usize) -> Self {
        let message = format!("{name} was not asked, it still has {max} questions to answer");
        Self {
            max,
            under_way: InFlightCounter::default(),
            overloaded: StoreError::new(StoreErrorKind::Overloaded, message),
        }
    }

    /// Questions of callers that wait need none, nor do those of shadow rules: no request may be
    /// refused because of them, and the layer bounds their number.
    pub(super) fn permit(&self, take: &Take, asked: Asked) -> Result<Option<Permit>, StoreError> {
        if asked == Asked::Take && (take.is_repeat() || take.rule().is_shadow()) {
            return Ok(None);
        }
        let permit = self.under_way.try_acquire(self.max);
        permit.map(Some).ok_or_else(|| self.overloaded.clone())
    }
}
