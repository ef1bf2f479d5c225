//! A question that its caller sends by itself, in a flight of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::node::NodeCore;
use super::queue::Questions;

/// The task that sends a question.
#[derive(Debug, Clone, Copy)]
pub enum Driver {
    /// That of its caller, when it polls the reply first, if nothing else waits.
    Caller,
    /// That of the node.
    Dispatcher,
}

/// A question that waits in the queue alone, or did so. The dispatcher has had no notice of it.
///
/// A take that comes to an empty queue waits there without notice to the dispatcher. If it is still
/// alone when its future is polled for the first time, few questions are [in
/// progress](Gathering), and every earlier one is written, the caller takes it out again and sends
/// it. So nobody is overtaken, takes that are asked together travel together, and no task stands
/// between a lone caller and the client. From then on it is a flight like any other.
pub(super) struct Alone {
    pub(super) node: Arc<NodeCore>,
    pub(super) ticket: u64,
}

impl Alone {
    /// Sends the question, or gives the dispatcher notice of it.
    pub(super) fn send(self) {
        let Self { node, ticket } = self;
        let taken = node.endpoint.queue.take_alone(ticket, || node.claim());
        let Some((mut question, (link, in_flight), _departing)) = taken else {
            return;
        };
        question.departs();
        let questions = Questions::from_buf([question]);
        node.endpoint.fly(questions, link, in_flight);
    }
}

/// The maximum number of questions of any callers in progress over a connection, with its own, for
/// a caller to send its question.
///
/// Below so many, a flight carries too few questions to pay for the dispatcher's task, which wakes
/// another thread: see the table in `benches/README.md`. It is also the mean with which
/// [`Gathering`] begins, and the docs of `Limits::check` name it.
const MAX_IN_PROGRESS: usize = 8;

/// Whether questions gather for flights of the dispatcher while fewer than [`MAX_IN_PROGRESS`] are
/// in progress, which they are between two flights at any rate of questions.
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
            0 => MAX_IN_PROGRESS,
            _ => 1,
        }
    }

    /// A caller found too many questions in progress.
    pub(super) fn begin(&self) {
        let (relaxed, mean) = (Ordering::Relaxed, MAX_IN_PROGRESS * Self::PARTS);
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
