//! A question that its caller sends by itself, in a flight of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
// Its first poll has to write, whatever else the caller's task has done.
#[allow(
    deprecated,
    reason = "newer versions have it in a module that older ones lack"
)]
use tokio::task::unconstrained;

use super::node::NodeCore;
use super::queue::Queue;
use crate::in_flight_counter::InFlight;
use crate::sync::lock;

/// A flight of one question that its caller drives: no task stands between the caller and the
/// client.
///
/// A take that comes to an empty queue waits there without notice to the dispatcher. If it is still
/// alone when its future is polled for the first time, few questions are [in
/// progress](Gathering), and every earlier one is written, the caller takes it out again and sends
/// it. So nobody is overtaken, and takes that are asked together travel together.
///
/// The caller drives the flight while it waits. The dispatcher takes over when the caller leaves,
/// and when the connection looks silent, because the caller may just not poll. The answer goes to
/// the question's sender in either case.
pub(super) struct DirectFlight {
    state: Mutex<DirectState>,
    queue: Arc<Queue>,
}

struct DirectState {
    /// `None` when it has ended.
    flight: Option<(BoxFuture<'static, ()>, InFlight)>,
    /// The wakers of its drivers, by [`Driver`]. The flight wakes the one that polled it last, and
    /// that one wakes the other at the end.
    wakers: [Option<Waker>; 2],
}

/// The task that drives a flight.
#[derive(Debug, Clone, Copy)]
pub enum Driver {
    /// That of the caller: its future sends the question itself, if nothing else waits.
    Caller,
    /// The node's.
    Dispatcher,
}

impl DirectFlight {
    /// A flight of a question of this queue.
    pub(super) fn new(
        flight: BoxFuture<'static, ()>,
        in_flight: InFlight,
        queue: &Arc<Queue>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(DirectState {
                flight: Some((flight, in_flight)),
                wakers: [None, None],
            }),
            queue: Arc::clone(queue),
        })
    }

    /// Drives it. The caller is not woken for what it sees here: a task that wakes itself is
    /// scheduled behind others, and wakes another thread.
    pub(super) fn poll(&self, driver: Driver, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        let Some((flight, _)) = &mut state.flight else {
            return Poll::Ready(());
        };
        // A panic is nobody else's, as in the dispatcher.
        let poll = AssertUnwindSafe(|| unconstrained(flight).poll_unpin(cx));
        if let Ok(Poll::Pending) = catch_unwind(poll) {
            match &mut state.wakers[driver as usize] {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        state.flight = None;
        let other = state.wakers[1 - driver as usize].take();
        drop(state);
        other.into_iter().for_each(Waker::wake);
        Poll::Ready(())
    }

    fn is_over(&self) -> bool {
        lock(&self.state).flight.is_none()
    }
}

/// The most questions in progress over a connection of which the last one was sent by its caller.
///
/// Below so many, a flight carries too few questions to pay for the dispatcher's task, which wakes
/// another thread: see the table in `benches/README.md`.
pub(super) const MAX_OWN_CALLS: usize = 8;

/// Whether questions gather for flights of the dispatcher while fewer than [`MAX_OWN_CALLS`] are in
/// progress, which they are between two flights at any rate of questions.
///
/// They begin to gather when a caller finds so many in progress, and end when flights carry fewer
/// than 2.5 questions on average.
#[derive(Default)]
pub(super) struct Gathering {
    /// The mean of questions in a flight, in sixteenths; 0 while they do not gather.
    mean: AtomicUsize,
}

impl Gathering {
    const PARTS: usize = 16;
    const END: usize = 5 * Self::PARTS / 2;
    /// The weight of a flight in the mean is one in so many.
    const FLIGHTS: usize = 16;
    /// A large flight counts as so many, so that its weight is gone after a while.
    const MAX_COUNTED: usize = 64;

    /// Beside how many questions in progress, with its own, a caller may send one.
    pub(super) fn max_in_progress(&self) -> usize {
        match self.mean.load(Ordering::Relaxed) {
            0 => MAX_OWN_CALLS,
            _ => 1,
        }
    }

    /// A caller found too many questions in progress.
    pub(super) fn begin(&self) {
        let (relaxed, mean) = (Ordering::Relaxed, MAX_OWN_CALLS * Self::PARTS);
        let _ = self.mean.compare_exchange(0, mean, relaxed, relaxed);
    }

    /// The dispatcher sends a flight of so many questions. Only the dispatcher calls it.
    pub(super) fn flight_departs(&self, questions: usize) {
        let mean = self.mean.load(Ordering::Relaxed);
        if mean > 0 {
            let questions = questions.min(Self::MAX_COUNTED) * Self::PARTS;
            let mean = (mean * (Self::FLIGHTS - 1) + questions) / Self::FLIGHTS;
            let mean = if mean < Self::END { 0 } else { mean };
            self.mean.store(mean, Ordering::Relaxed);
        }
    }
}

/// How a question is sent.
pub(super) enum SendPath {
    /// It waits in the queue alone, or did so. The dispatcher has had no notice of it.
    Alone { node: Arc<NodeCore>, ticket: u64 },
    /// The caller drives its flight.
    Direct(Arc<DirectFlight>),
    /// The dispatcher does the rest.
    Queued,
}

impl SendPath {
    /// Goes on. Ready if the dispatcher does the rest, or the flight has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = match self {
            Self::Alone { node, ticket } => match node.direct_flight(*ticket, cx) {
                Some((flight, polled)) => {
                    *self = Self::Direct(flight);
                    polled
                }
                None => Poll::Ready(()),
            },
            Self::Direct(flight) => flight.poll(Driver::Caller, cx),
            Self::Queued => return Poll::Ready(()),
        };
        if polled.is_ready() {
            *self = Self::Queued;
        }
        polled
    }
}

/// The caller has left, or waits no longer: the dispatcher drives what is under way.
impl Drop for SendPath {
    fn drop(&mut self) {
        if let Self::Direct(flight) = self
            && !flight.is_over()
        {
            flight.queue.adopt(Arc::clone(flight));
        }
    }
}
