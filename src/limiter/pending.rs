use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::LimiterError;
use super::backend::Id;
use super::permit::Claim;
use crate::jitter;

/// Callers in one call, which holds the server for about 100 us then.
const MAX_BATCH: usize = 64;
/// Calls in progress with first questions; more only for full batches. Repeats have one.
const MAX_CALLS: usize = 2;
/// From this number of repeats on, they are asked no earlier than this after a denial, so that
/// permits that come back one by one are granted together.
const MANY: usize = 128;
const MIN_PAUSE_OF_MANY: Duration = Duration::from_millis(10);
/// The server counts in milliseconds.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// The questions that wait for a call.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By the arrival of their callers: the questions that were denied before, and the others.
    repeats: BTreeMap<u64, Question>,
    firsts: BTreeMap<u64, Question>,
    /// Until then none of the repeats is asked.
    denied: Option<Instant>,
    /// Whether a task sleeps until then.
    has_timer: bool,
    arrivals: u64,
    /// In progress.
    calls: usize,
    /// How often the name has changed: a denial from before says nothing.
    changes: u64,
}

#[derive(Debug)]
pub(super) struct Question {
    pub(super) id: Id,
    /// The caller waits up to this instant, or as long as it takes.
    pub(super) until: Option<Instant>,
    is_repeat: bool,
    answer: oneshot::Sender<Result<Answer, LimiterError>>,
}

pub(super) type AnswerReceiver = oneshot::Receiver<Result<Answer, LimiterError>>;

#[derive(Debug)]
pub(super) enum Answer {
    /// Given back if nobody takes it out of this.
    Granted(Claim),
    /// The permits are not to be had before this time has passed. If the caller waits that long,
    /// its question is asked again without its help, and `repeat` gets the answer.
    Denied {
        wait: Duration,
        repeat: Option<AnswerReceiver>,
    },
}

impl Question {
    pub(super) fn new(id: Id, until: Option<Instant>) -> (Self, AnswerReceiver) {
        let (sender, receiver) = oneshot::channel();
        let question = Self {
            id,
            until,
            is_repeat: false,
            answer: sender,
        };
        (question, receiver)
    }

    pub(super) fn answer(self, answer: Result<Answer, LimiterError>) {
        // A caller that has left hears nothing.
        let _ = self.answer.send(answer);
    }

    fn may_wait(&self, wait: Duration) -> bool {
        self.until
            .is_none_or(|until| until.saturating_duration_since(Instant::now()) >= wait)
    }
}

/// Questions with the arrivals of their callers.
pub(super) type Questions = Vec<(u64, Question)>;

impl Pending {
    pub(super) fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    pub(super) fn add(&mut self, arrival: u64, question: Question) {
        self.firsts.insert(arrival, question);
    }

    pub(super) fn changed(&mut self) {
        self.changes += 1;
        self.denied = None;
    }

    /// The questions of the next call, which begins now, and how often the name has changed.
    pub(super) fn next_batch(&mut self, is_fair: bool) -> Option<(Questions, u64)> {
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
        if batch.is_empty() {
            return None;
        }
        self.calls += 1;
        Some((batch, self.changes))
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

    pub(super) fn call_ended(&mut self) {
        self.calls -= 1;
    }

    /// The server cannot grant anything to these before `wait` has passed. Returns the callers that
    /// have left.
    ///
    /// `changes` is how often the name had changed when the call began.
    pub(super) fn denied(
        &mut self,
        batch: Questions,
        wait: Duration,
        changes: u64,
        is_fair: bool,
    ) -> Vec<Id> {
        self.drop_first_that_left();
        // What a fair caller at the end is told says nothing about the first.
        let has_first = match self.repeats.first_key_value() {
            Some((first, _)) if is_fair => batch[0].0 < *first,
            _ => true,
        };
        if self.changes == changes && has_first {
            let min = match self.repeats.len() {
                MANY.. => MIN_PAUSE_OF_MANY,
                _ => MIN_PAUSE,
            };
            self.denied = Some(Instant::now() + jitter::pause_before_repeat(wait, min));
        }
        let mut have_left = Vec::new();
        for (arrival, question) in batch {
            match question.is_repeat {
                _ if question.answer.is_closed() => have_left.push(question.id),
                true => drop(self.repeats.insert(arrival, question)),
                false => {
                    let repeat = question.may_wait(wait).then(|| {
                        let (mut repeat, receiver) = Question::new(question.id, question.until);
                        repeat.is_repeat = true;
                        self.repeats.insert(arrival, repeat);
                        receiver
                    });
                    question.answer(Ok(Answer::Denied { wait, repeat }));
                }
            }
        }
        have_left
    }

    fn drop_first_that_left(&mut self) {
        while let Some(first) = self.repeats.first_entry()
            && first.get().answer.is_closed()
        {
            first.remove();
        }
    }

    /// Whether a timer has to be started for the repeats.
    pub(super) fn needs_timer(&mut self) -> bool {
        let is_waiting = self.denied.is_some() && !self.repeats.is_empty();
        is_waiting && !std::mem::replace(&mut self.has_timer, true)
    }

    pub(super) fn timer_ended(&mut self) {
        self.has_timer = false;
    }

    /// The instant at which repeats may be asked, if it has not come.
    pub(super) fn asleep_until(&self) -> Option<Instant> {
        self.denied.filter(|until| *until > Instant::now())
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (u64, Question)> + use<> {
        let repeats = std::mem::take(&mut self.repeats);
        repeats.into_iter().chain(std::mem::take(&mut self.firsts))
    }
}
