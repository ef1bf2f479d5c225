//! Questions for permits: those of many callers of one name travel in one call.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::backend::{Backend, Grant, Id, Wanted};
use super::permit::Claim;
use super::{Generation, LimiterError};
use crate::jitter;

/// Callers in one call, which holds the server for about 100 us then.
const MAX_BATCH: usize = 64;
/// Calls in progress with first questions; more only for full batches. Repeats have one.
const MAX_CALLS: usize = 2;
/// So many callers ask again no earlier than this after a denial, so that permits that come back
/// one by one are granted together.
const MANY: usize = 128;
const MIN_PAUSE_OF_MANY: Duration = Duration::from_millis(10);
/// The server counts in milliseconds.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// Callers of different processes do not ask at the same moment: at most so much later than
/// necessary, and at most this part of the wait.
const MAX_LATER: Duration = Duration::from_millis(5);
const LATER_PART: u32 = 20;
/// A denial is believed for at most this long: another process may have changed something.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The names that callers of one client ask for permits of.
#[derive(Debug)]
pub(super) struct Names {
    /// The first half of all identities.
    client: [u8; 8],
    number: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    names: HashMap<Arc<str>, Vec<Weak<Asking>>>,
    /// At so many names, those are dropped that nobody asks for any more.
    limit: usize,
}

/// The callers that want as many permits of one name in the same way.
#[derive(Debug)]
pub(super) struct Asking {
    backend: Arc<dyn Backend>,
    what: Wanted,
    state: Mutex<State>,
    /// Repeats may be asked at another instant than before.
    retimed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The questions that wait for a call, by arrival of their callers: of those that were denied
    /// before, and of the others.
    repeats: BTreeMap<u64, Question>,
    firsts: BTreeMap<u64, Question>,
    /// Until then none of the repeats is asked.
    denied: Option<Instant>,
    /// Whether a task sleeps until then.
    has_timer: bool,
    arrivals: u64,
    calls: usize,
    /// How often the name has changed: a denial from before says nothing.
    changes: u64,
    leaving: Vec<Grant>,
    is_giving_back: bool,
}

#[derive(Debug)]
struct Question {
    id: Id,
    is_repeat: bool,
    answer: oneshot::Sender<Result<Answer, LimiterError>>,
}

#[derive(Debug)]
pub(super) enum Answer {
    /// Given back if nobody takes it out of this.
    Granted(Claim),
    /// The permits are not to be had before this time has passed.
    Wait(Duration),
}

impl Names {
    const MIN_LIMIT: usize = 64;

    pub(super) fn new(client: [u8; 8]) -> Self {
        Self {
            client,
            number: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }

    #[cfg(feature = "redis")]
    pub(super) const fn client(&self) -> [u8; 8] {
        self.client
    }

    pub(super) fn next_id(&self) -> Id {
        let number = self.number.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.client);
        id[8..].copy_from_slice(&number);
        id
    }

    pub(super) fn asking(&self, what: &Wanted, backend: &Arc<dyn Backend>) -> Arc<Asking> {
        let mut known = self.known();
        if known.names.len() >= known.limit {
            known.names.retain(|_, of_name| is_asked_for(of_name));
            known.limit = Self::MIN_LIMIT.max(2 * known.names.len());
            let limit = known.limit;
            known.names.shrink_to(limit);
        }
        let of_name = known.names.entry(Arc::clone(&what.name)).or_default();
        let mut living = of_name.iter().filter_map(Weak::upgrade);
        if let Some(asking) = living.find(|asking| asking.what == *what) {
            return asking;
        }
        of_name.retain(|asking| asking.strong_count() > 0);
        let asking = Arc::new(Asking {
            backend: Arc::clone(backend),
            what: what.clone(),
            state: Mutex::default(),
            retimed: Notify::new(),
        });
        of_name.push(Arc::downgrade(&asking));
        asking
    }

    /// The rate is another one, or permits came back: whoever waits asks again.
    pub(super) fn changed(&self, name: &str) {
        let of_name = self.known().names.get(name).cloned().unwrap_or_default();
        for asking in of_name.iter().filter_map(Weak::upgrade) {
            let mut state = asking.state();
            state.changes += 1;
            state.denied = None;
            drop(state);
            asking.depart();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_asked_for(of_name: &[Weak<Asking>]) -> bool {
    of_name.iter().any(|asking| asking.strong_count() > 0)
}

impl Asking {
    /// The number of a new caller.
    pub(super) fn arrive(&self) -> u64 {
        let mut state = self.state();
        state.arrivals += 1;
        state.arrivals
    }

    /// May this caller have its permits now? A caller that was denied before hears of it when it may,
    /// and of errors.
    pub(super) async fn ask(
        self: &Arc<Self>,
        arrival: u64,
        id: Id,
        is_repeat: bool,
    ) -> Result<Answer, LimiterError> {
        /// A runtime that ends takes its calls along, also those with questions of other runtimes.
        const ATTEMPTS: usize = 4;
        for _ in 0..ATTEMPTS {
            let (sender, answer) = oneshot::channel();
            let question = Question {
                id,
                is_repeat,
                answer: sender,
            };
            self.state().add(arrival, question);
            self.depart();
            match answer.await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        Err(LimiterError::runtime_ended())
    }

    /// Sends what waits, as far as calls may be made, and sees to it that repeats are sent later.
    fn depart(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            // Nothing is sent any more, and the callers hear of it.
            drop(self.state().take_all());
            return;
        };
        loop {
            let mut state = self.state();
            let batch = state.next_batch(self.what.is_fair);
            if batch.is_empty() {
                let is_waiting = state.denied.is_some() && !state.repeats.is_empty();
                let needs_timer = is_waiting && !std::mem::replace(&mut state.has_timer, true);
                // A runtime that has ended drops at once what it is given to run, and that needs
                // the state.
                drop(state);
                if needs_timer {
                    let timer = Timer(Arc::clone(self)).run();
                    runtime.spawn(Arc::clone(self).then_depart(timer));
                }
                return;
            }
            state.calls += 1;
            let changes = state.changes;
            drop(state);
            let call = Call(Arc::clone(self)).run(batch, changes);
            runtime.spawn(Arc::clone(self).then_depart(call));
        }
    }

    async fn then_depart(self: Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let mut closing = Closing(Some(Arc::clone(&self)));
        task.await;
        closing.0 = None;
        self.depart();
    }

    /// Gives back what a caller may have been granted, or ends its fair waiting.
    pub(super) fn give_back(self: &Arc<Self>, grant: Grant, runtime: &Handle) {
        let mut state = self.state();
        state.leaving.push(grant);
        let is_first = !std::mem::replace(&mut state.is_giving_back, true);
        drop(state);
        if is_first {
            runtime.spawn(GivingBack(Arc::clone(self)).run());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, arrival: u64, question: Question) {
        match question.is_repeat {
            true => self.repeats.insert(arrival, question),
            false => self.firsts.insert(arrival, question),
        };
    }

    fn next_batch(&mut self, is_fair: bool) -> Vec<(u64, Question)> {
        let max_calls = match self.firsts.len() {
            // The server sees fair callers in the order in which they came.
            _ if is_fair => 1,
            0 => 1,
            MAX_BATCH.. => 8 * MAX_CALLS,
            _ => MAX_CALLS,
        };
        if self.denied.is_some_and(|until| until <= Instant::now()) {
            self.denied = None;
        }
        let mut batch = Vec::new();
        while self.calls < max_calls
            && batch.len() < MAX_BATCH
            && let Some((arrival, question)) = self.pop(is_fair)
        {
            if !question.answer.is_closed() {
                batch.push((arrival, question));
            }
        }
        batch
    }

    fn pop(&mut self, is_fair: bool) -> Option<(u64, Question)> {
        if self.denied.is_some() {
            return self.firsts.pop_first();
        }
        // Fair callers that were denied came before all that were not.
        let (before, behind) = match is_fair {
            true => (&mut self.repeats, &mut self.firsts),
            false => (&mut self.firsts, &mut self.repeats),
        };
        before.pop_first().or_else(|| behind.pop_first())
    }

    fn drop_first_that_left(&mut self) {
        while let Some(first) = self.repeats.first_entry()
            && first.get().answer.is_closed()
        {
            first.remove();
        }
    }

    fn take_all(&mut self) -> impl Iterator<Item = (u64, Question)> + use<> {
        let repeats = std::mem::take(&mut self.repeats);
        repeats.into_iter().chain(std::mem::take(&mut self.firsts))
    }
}

/// A call in progress.
struct Call(Arc<Asking>);

impl Call {
    async fn run(self, batch: Vec<(u64, Question)>, changes: u64) {
        let asking = &self.0;
        let ids = batch.iter().map(|(_, question)| question.id).collect();
        let reply = match asking.backend.ask(asking.what.clone(), ids).await {
            Ok(reply) => reply,
            Err(error) => {
                // The others hear of it at once: thousands would find out 64 at a time, each with a
                // time-out of its own.
                let others = asking.state().take_all();
                for (_, question) in batch.into_iter().chain(others) {
                    let _ = question.answer.send(Err(error.clone()));
                }
                return;
            }
        };
        let mut denied = Vec::new();
        for (place, (arrival, question)) in batch.into_iter().enumerate() {
            match reply.granted.contains(&place) {
                true => {
                    let claim = asking.claim(question.id, reply.stamp);
                    let _ = question.answer.send(Ok(Answer::Granted(claim)));
                }
                false => denied.push((arrival, question)),
            }
        }
        if !denied.is_empty() {
            asking.denied(denied, reply.wait, changes);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.state().calls -= 1;
    }
}

/// If a task ends before its time, its runtime has ended: nothing is sent any more, and the callers
/// hear of it.
struct Closing(Option<Arc<Asking>>);

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(asking) = self.0.take() {
            drop(asking.state().take_all());
        }
    }
}

impl Asking {
    /// A claim that is given back when it is dropped.
    fn claim(self: &Arc<Self>, id: Id, stamp: u64) -> Claim {
        let grant = Grant {
            id,
            stamp,
            permits: self.what.permits,
        };
        let mut claim = Claim::new(self, grant);
        claim.is_open = self.what.generation == Generation::Third;
        claim
    }

    fn denied(self: &Arc<Self>, batch: Vec<(u64, Question)>, wait: Duration, changes: u64) {
        let mut state = self.state();
        state.drop_first_that_left();
        // What a fair caller at the end is told says nothing about the first.
        let has_first = match state.repeats.first_key_value() {
            Some((first, _)) if self.what.is_fair => batch[0].0 < *first,
            _ => true,
        };
        if state.changes == changes && has_first {
            let are_many = state.repeats.len() >= MANY;
            let pause = if are_many {
                MIN_PAUSE_OF_MANY
            } else {
                MIN_PAUSE
            };
            let wait = wait.clamp(pause, MAX_SLEEP);
            let later = jitter::up_to(MAX_LATER.min(wait / LATER_PART));
            state.denied = Some(Instant::now() + wait + later);
        }
        let (mut firsts, mut have_left) = (Vec::new(), Vec::new());
        for (arrival, question) in batch {
            match question.is_repeat {
                _ if question.answer.is_closed() => have_left.push(question.id),
                true => state.add(arrival, question),
                false => firsts.push(question),
            }
        }
        drop(state);
        // Whoever left while it was asked for may have given up a place that it had only then.
        if self.what.is_fair {
            have_left.into_iter().for_each(|id| drop(self.claim(id, 0)));
        }
        self.retimed.notify_one();
        for question in firsts {
            let _ = question.answer.send(Ok(Answer::Wait(wait)));
        }
    }
}

/// A task that sleeps until the repeats may be asked.
struct Timer(Arc<Asking>);

impl Timer {
    async fn run(self) {
        loop {
            let denied = self.0.state().denied;
            match denied {
                Some(until) if until > Instant::now() => tokio::select! {
                    () = sleep_until(until) => {}
                    () = self.0.retimed.notified() => {}
                },
                _ => return,
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.state().has_timer = false;
    }
}

/// The task that gives back grants, and places of fair callers, that nobody wants.
struct GivingBack(Arc<Asking>);

impl GivingBack {
    /// No caller is left to be told of an error. A server that does not answer is asked again for a
    /// while; what is not given back leaves after the interval.
    async fn run(self) {
        while let Some(grants) = self.next() {
            self.give_back(grants).await;
        }
    }

    fn next(&self) -> Option<Vec<Grant>> {
        let mut state = self.0.state();
        let from = state.leaving.len().saturating_sub(MAX_BATCH);
        let grants = state.leaving.split_off(from);
        // Whatever comes from now on starts another task.
        state.is_giving_back = !grants.is_empty();
        (!grants.is_empty()).then_some(grants)
    }

    async fn give_back(&self, grants: Vec<Grant>) {
        const ATTEMPTS: u32 = 12;
        const PAUSE: Duration = Duration::from_millis(250);
        let Asking { backend, what, .. } = &*self.0;
        for _ in 0..ATTEMPTS {
            let given_back = backend.give_back(Arc::clone(&what.name), grants.clone());
            match given_back.await {
                Err(error) if error.of_store().is_some() => tokio::time::sleep(PAUSE).await,
                // A place that was given up is the next caller's.
                Ok(permits) if permits > 0 || what.is_fair => {
                    return backend.names().changed(&what.name);
                }
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Also if its runtime ends before the task has run: the next one takes what is left.
impl Drop for GivingBack {
    fn drop(&mut self) {
        self.0.state().is_giving_back = false;
    }
}
