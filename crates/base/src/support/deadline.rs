use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::{StoreError, StoreErrorKind};
use crate::sync::lock;

/// Until when an answer is waited for.
///
/// A process that comes to a deadline late was slow itself, and perhaps the answer was not. The
/// deadline gets the time back by which the process is late: together at most the time-out. So a
/// process that runs waits for the time-out, and one that was slow for twice the time-out at most,
/// counted from when it ran again.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    /// When the wait ends.
    pub at: Instant,
    /// The time-out that ends then.
    pub timeout: Duration,
    /// By how much it may still be extended: the time-out as long as it was not.
    pub grace: Duration,
}

/// Until when answers are waited for because this process was late.
///
/// All questions over a connection share it. In a process that is slow some timers are late, and
/// others fire in time while the task that sends the question or reads the reply is late.
pub type Lag = Mutex<Option<Instant>>;

/// By how much a process may be late that is not slow. Timers fire with the next millisecond.
const TOLERATED: Duration = Duration::from_millis(3);

impl Deadline {
    /// Longer time-outs are cut to this one, so that every deadline is an instant that the clock
    /// can show.
    const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// The deadline of a wait that begins now and lasts for `timeout`, at most a year.
    pub fn after(timeout: Duration) -> Self {
        let timeout = timeout.min(Self::MAX_TIMEOUT);
        let at = Instant::now() + timeout;
        let grace = timeout;
        Self { at, timeout, grace }
    }

    /// This one or the other, whichever is earlier.
    pub fn or_earlier(self, other: Option<Self>) -> Self {
        other.filter(|other| other.at < self.at).unwrap_or(self)
    }

    /// Gives the time back by which this process is late now, or was for a neighbour. Returns
    /// whether it did.
    pub fn extend(&mut self, lag: &Lag) -> bool {
        let now = Instant::now();
        let late = now.saturating_duration_since(self.at);
        let mut until = lock(lag);
        if late > TOLERATED {
            *until = (*until).max(Some(now + late.min(self.timeout)));
        }
        let from = now.max(self.at);
        self.at = until.map_or(from, |it| it.clamp(from, from + self.grace));
        self.grace -= self.at - from;
        self.at > from
    }

    /// Whether this process was late, so that the wait goes on beyond the time-out.
    #[cfg(feature = "redis")]
    pub fn was_extended(&self) -> bool {
        self.grace < self.timeout
    }

    /// The error of the store or server of this name, which did not answer by then.
    pub fn missed(&self, name: &str) -> StoreError {
        let message = format!("{name} did not answer within {:?}", self.timeout);
        StoreError::new(StoreErrorKind::Timeout, message)
    }

    /// The answer, if it comes by then.
    pub async fn wait_for<T>(self, answer: impl Future<Output = T>) -> Option<T> {
        let (mut timer, lag) = (pin!(DeadlineTimer::new(self)), Lag::default());
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = poll_fn(|cx| timer.as_mut().poll(cx, &lag)) => None,
        }
    }
}

pin_project! {
    /// The end of a wait for an answer. The caller polls the answer first, each time.
    #[derive(Debug)]
    pub struct DeadlineTimer {
        #[pin]
        sleep: Sleep,
        deadline: Deadline,
        turns: u8,
    }
}

/// How often the other tasks run before a wait ends, because the reply may be there and nobody has
/// read it yet: one task reads it, one hands out the answers, and one is to spare.
const TURNS: u8 = 3;

impl DeadlineTimer {
    /// The end of a wait until this deadline.
    pub fn new(deadline: Deadline) -> Self {
        Self {
            sleep: sleep_until(deadline.at),
            deadline,
            turns: TURNS,
        }
    }

    /// What ends the wait. It may have been extended.
    pub const fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Ready when the wait is over.
    pub fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, lag: &Lag) -> Poll<()> {
        let mut this = self.project();
        loop {
            ready!(this.sleep.as_mut().poll(cx));
            if this.deadline.extend(lag) {
                this.sleep.as_mut().reset(this.deadline.at);
                *this.turns = TURNS;
            } else if *this.turns == 0 {
                return Poll::Ready(());
            } else {
                *this.turns -= 1;
                // It wakes this task when the runtime has looked for replies and run other tasks.
                return pin!(yield_now()).poll(cx);
            }
        }
    }
}
