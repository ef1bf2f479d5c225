use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::breaker::Breaker;
use super::denial_cache::Denials;
use super::fallback::LocalFallback;
use super::{Store, StoreFuture};
use crate::deadline::Deadline;
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::in_flight_counter::{InFlight, InFlightCounter};
use crate::jitter;
use crate::question::{Ask, Change};

/// A store and what guards it, from outside in. A question needs one future for all of it.
pub(super) struct Guarded<S> {
    pub(super) fallback: Option<Arc<LocalFallback>>,
    pub(super) denials: Option<Arc<Denials>>,
    pub(super) breaker: Option<Arc<Breaker<S>>>,
    pub(super) in_flight: Option<QuestionLimit>,
    pub(super) timeout: Option<Duration>,
    pub(super) inner: Arc<S>,
}

/// What the store inside is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionKind {
    Take,
    /// A refund or a reset.
    Change,
}

impl<S: Store> Guarded<S> {
    pub(super) fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        let looked = self.denials.as_ref().map(|denials| denials.look(ask));
        let pending = match looked.transpose() {
            Ok(pending) => pending.flatten(),
            Err(denial) => return StoreFuture::ready(Ok(denial)),
        };
        let fallback = self.fallback.clone();
        self.call(ask, QuestionKind::Take, S::take, move |ask, answer| {
            if let Some(pending) = pending {
                pending.answered(ask, &answer);
            }
            match fallback {
                Some(fallback) => fallback.answer(ask, answer),
                None => answer,
            }
        })
    }

    pub(super) fn change(self: &Arc<Self>, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let fallback = self.fallback.as_ref();
        if let Some(answer) = fallback.and_then(|it| it.change(ask, change)) {
            return answer;
        }
        match (change, fallback) {
            // It frees nothing, and waits for no room.
            (Change::Renew(_), _) => {
                let renew = |inner: &S, ask: &Ask| inner.change(ask, change);
                self.call(ask, QuestionKind::Change, renew, |_, answer| answer)
            }
            // The fallback holds the key, too, also while the store fails; and forgets it.
            (Change::Hold(_) | Change::Forget, Some(fallback)) => {
                let here = fallback.change_here(ask, change).poll_now();
                let changed = self.change_inside(ask, change);
                match (change, here) {
                    (Change::Forget, Some(Ok(here))) => changed.map(move |found| found.max(here)),
                    _ => changed,
                }
            }
            (Change::Failed { .. }, Some(fallback)) => {
                let (fallback, asked) = (Arc::clone(fallback), ask.clone());
                let failed = self.change_inside(ask, change);
                failed.map(move |step| fallback.failed(&asked, step))
            }
            _ => self.change_inside(ask, change),
        }
    }

    /// Asks something that may free units, be in their way, or change why a key is denied. Where
    /// there is no room, it asks again until its time-out is over.
    fn change_inside(self: &Arc<Self>, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let mut first = self.change_now(ask, change);
        let Some(mut answer) = first.poll_now() else {
            return first;
        };
        if !is_overloaded(&answer) {
            return StoreFuture::ready(answer);
        }
        let timeout = self.timeout.or_else(|| self.inner.capabilities().timeout);
        let ask = match timeout {
            _ if ask.is_unawaited() => ask.clone(),
            Some(timeout) => ask.clone().within(Deadline::after(timeout)),
            None => return StoreFuture::ready(answer),
        };
        let (guarded, change) = (Arc::clone(self), change.clone());
        StoreFuture::boxed(async move {
            while is_overloaded(&answer) {
                let next = Instant::now() + MIN_PAUSE + jitter::up_to(MAX_JITTER);
                if ask.deadline().is_some_and(|deadline| next >= deadline.at) {
                    break;
                }
                sleep_until(next).await;
                answer = guarded.change_now(&ask, &change).await;
            }
            answer
        })
    }

    /// Denials of the key are void.
    fn change_now(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let question = |inner: &S, ask: &Ask| inner.change(ask, change);
        let denials = self.denials.as_ref();
        let guard = denials.map(|denials| denials.begin_change(ask));
        self.call(ask, QuestionKind::Change, question, move |_, answer| {
            drop(guard);
            answer
        })
    }

    /// Asks the store inside if the breaker and the bound on questions in flight admit it, within
    /// the time-out. `after` makes the caller's answer of the store's.
    fn call<T: Send + 'static>(
        &self,
        ask: &Ask,
        kind: QuestionKind,
        question: impl FnOnce(&S, &Ask) -> StoreFuture<T>,
        after: impl FnOnce(&Ask, Result<T, StoreError>) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<T> {
        if let (QuestionKind::Take, Some(failure)) = (kind, ask.failure())
            && !self.inner.capabilities().has_fallback
        {
            return StoreFuture::ready(after(ask, Err(failure.clone())));
        }
        let call = self.breaker.as_ref().map(|breaker| breaker.admit(ask));
        let admitted = call.transpose().and_then(|call| {
            let place = self.in_flight.as_ref().map(|it| it.place(ask, kind));
            Ok((call, place.transpose()?.flatten()))
        });
        let (call, place) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return StoreFuture::ready(after(ask, Err(refusal))),
        };
        let answered = move |ask: &Ask, answer: Result<T, StoreError>| {
            drop(place);
            if let Some(call) = call {
                call.answered(ask, kind, &answer);
            }
            after(ask, answer)
        };
        let deadline = self.timeout.map(|timeout| match ask.deadline() {
            Some(deadline) if ask.is_unawaited() => deadline,
            deadline => Deadline::after(timeout).or_earlier(deadline),
        });
        let ask = deadline.map_or(Cow::Borrowed(ask), |deadline| {
            Cow::Owned(ask.clone().within(deadline))
        });
        let mut pending = question(&self.inner, &ask);
        if let Some(answer) = pending.poll_now() {
            return StoreFuture::ready(answered(&ask, answer));
        }
        let ask = ask.into_owned();
        let Some(deadline) = deadline.filter(|_| !pending.keeps_deadline()) else {
            return StoreFuture::boxed(async move { answered(&ask, pending.await) });
        };
        let inner = Arc::clone(&self.inner);
        StoreFuture::boxed(async move {
            let answer = deadline.wait_for(pending).await;
            let answer = answer.unwrap_or_else(|| Err(deadline.missed(&inner.name())));
            answered(&ask, answer)
        })
    }
}

/// How long a change for which there is no room pauses, and up to how much longer.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_JITTER: Duration = Duration::from_millis(40);

/// Whether the store was not asked because there was no room.
fn is_overloaded<T>(answer: &Result<T, StoreError>) -> bool {
    let error = answer.as_ref().err();
    error.is_some_and(|error| error.kind() == StoreErrorKind::Overloaded)
}

/// The bound on questions under way.
pub(super) struct QuestionLimit {
    max: usize,
    takes: InFlightCounter,
    /// Takes cannot fill the bound of what gives back, charges or holds.
    changes: InFlightCounter,
    overloaded: StoreError,
}

/// The most changes under way.
const MAX_CHANGES: usize = 16_384;

impl QuestionLimit {
    /// At most `max` questions under way to the store of this name.
    pub(super) fn new(name: &str, max: usize) -> Self {
        let message = format!("{name} was not asked, it still has {max} questions to answer");
        Self {
            max,
            takes: InFlightCounter::default(),
            changes: InFlightCounter::default(),
            overloaded: StoreError::new(StoreErrorKind::Overloaded, message),
        }
    }

    /// How many questions wait for an answer now.
    pub(super) fn under_way(&self) -> usize {
        self.takes.number() + self.changes.number()
    }

    /// Questions of callers that wait need none, nor do those of shadow rules and refunds for which
    /// nobody waits: no request may be refused because of them, and the layer bounds their number.
    fn place(&self, ask: &Ask, kind: QuestionKind) -> Result<Option<InFlight>, StoreError> {
        let is_free = match kind {
            QuestionKind::Take => ask.is_repeat() || ask.in_shadow(),
            QuestionKind::Change => ask.is_unawaited(),
        };
        if is_free {
            return Ok(None);
        }
        let place = match kind {
            // Callers that ask again leave a quarter of the bound to those that do not.
            QuestionKind::Take if ask.is_patient() => {
                self.takes.try_acquire(self.max - self.max / 4)
            }
            QuestionKind::Take => self.takes.try_acquire(self.max),
            // Each count of a joint take is a question of its own to the store.
            QuestionKind::Change => {
                let counts = ask.counts().len();
                self.changes.try_acquire_many(counts, MAX_CHANGES)
            }
        };
        place.map(Some).ok_or_else(|| self.overloaded.clone())
    }
}
