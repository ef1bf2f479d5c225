use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::node::NodeCore;
use crate::sync::lock;

/// A flight of one take that its caller drives: no task stands between the caller and the client.
///
/// A take that comes to an empty queue waits there without notice to the dispatcher. If it is still
/// alone when its future is polled for the first time, and no flight is under way, the caller takes
/// it out again and sends it. So nobody is overtaken, and takes that are asked together travel
/// together.
///
/// The caller drives the flight while it waits. The dispatcher takes over when the caller leaves,
/// and when the connection looks silent, because the caller may just not poll. The answer goes to
/// the question's sender in either case.
pub(super) struct DirectFlight(Mutex<DirectState>);

struct DirectState {
    /// `None` when it has ended.
    flight: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The wakers of its drivers, by [`Driver`]. The flight wakes the one that polled it last, and
    /// that one wakes the other at the end.
    wakers: [Option<Waker>; 2],
}

/// The task that drives a flight.
#[derive(Debug, Clone, Copy)]
pub(super) enum Driver {
    Caller,
    Dispatcher,
}

impl DirectFlight {
    pub(super) fn new(flight: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        Arc::new(Self(Mutex::new(DirectState {
            flight: Some(Box::pin(flight)),
            wakers: [None, None],
        })))
    }

    /// Drives it. Whoever does so is not woken for what it sees here: a task that wakes itself is
    /// scheduled behind others, and wakes another thread.
    pub(super) fn poll(&self, driver: Driver, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        let Some(flight) = &mut state.flight else {
            return Poll::Ready(());
        };
        if flight.as_mut().poll(cx).is_pending() {
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
        lock(&self.0).flight.is_none()
    }
}

impl std::fmt::Debug for DirectFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DirectFlight")
    }
}

/// How a question goes on when its future is polled.
#[derive(Debug)]
pub(super) enum Way {
    /// It waits in the queue alone, or did so. The dispatcher has had no notice of it.
    Alone { node: Arc<NodeCore>, ticket: u64 },
    /// The caller drives its flight.
    Direct {
        node: Arc<NodeCore>,
        flight: Arc<DirectFlight>,
    },
    /// The dispatcher does the rest.
    Queued,
}

impl Way {
    /// Goes on. Ready if the dispatcher does the rest, or the flight has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let polled = match self {
            Self::Alone { node, ticket } => {
                let node = Arc::clone(node);
                let Some((flight, polled)) = node.direct_flight(*ticket, cx) else {
                    *self = Self::Queued;
                    return Poll::Ready(());
                };
                *self = Self::Direct { node, flight };
                polled
            }
            Self::Direct { flight, .. } => flight.poll(Driver::Caller, cx),
            Self::Queued => Poll::Ready(()),
        };
        if polled.is_ready() {
            *self = Self::Queued;
        }
        polled
    }
}

/// The caller has left, or waits no longer: the dispatcher drives what is under way.
impl Drop for Way {
    fn drop(&mut self) {
        if let Self::Direct { node, flight } = self
            && !flight.is_over()
        {
            node.endpoint.queue.adopt(Arc::clone(flight));
        }
    }
}
