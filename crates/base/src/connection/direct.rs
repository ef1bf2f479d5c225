//! A question that its caller sends by itself, in a flight of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
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
use crate::in_flight_counter::Permit;
use crate::sync::lock;

/// A flight of one question that its caller drives: no task stands between the caller and the
/// client.
///
/// A take that comes to an empty queue waits there without notice to the dispatcher. If it is still
/// alone when its future is polled for the first time, and no flight is under way, the caller takes
/// it out again and sends it. So nobody is overtaken, and takes that are asked together travel
/// together.
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
    flight: Option<(BoxFuture<'static, ()>, Permit)>,
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
        permit: Permit,
        queue: &Arc<Queue>,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(DirectState {
                flight: Some((flight, permit)),
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
        self.queue.direct_flight_ended();
        other.into_iter().for_each(Waker::wake);
        Poll::Ready(())
    }

    fn is_over(&self) -> bool {
        lock(&self.state).flight.is_none()
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
