use std::sync::Arc;

#[cfg(feature = "cluster")]
use super::cluster::Redirects;
use super::question::Question;
use super::queue::Queue;
use crate::error::{StoreError, StoreErrorKind};

/// A question is sent again at most this often because the server says that its deadline is over
/// while this process's clock says that it is not.
const MAX_LATE_RESENDS: u8 = 3;

/// What all flights to one server share: the name for its errors, and where questions go that have
/// to be sent again.
///
/// The dispatcher has one and clones it for each flight. It holds no link, so a question that is
/// sent again may travel over another one than before.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// How errors name the server.
    pub(super) label: Arc<str>,
    /// Questions that have to be sent again to the same server go in here.
    pub(super) queue: Arc<Queue>,
    /// Questions that another node of the cluster has to answer go through this.
    #[cfg(feature = "cluster")]
    pub(super) redirects: Option<Redirects>,
}

impl Endpoint {
    /// Sends a question again that is late by the server's clock and not by this process's: the
    /// server's clock was set, or another server took over. The reply has corrected what this
    /// process knows of that clock.
    pub(super) fn send_again(&self, mut question: Question) {
        question.resends += 1;
        match question.resends <= MAX_LATE_RESENDS {
            true => self.queue.push(question),
            false => question.fail(self.deadline_over()),
        }
    }

    /// The error of a question whose reply belongs to another question.
    pub(super) fn mismatched_reply(&self) -> StoreError {
        let label = &self.label;
        let message = format!("{label} gave an answer that is not the one to this question");
        StoreError::new(StoreErrorKind::Protocol, message)
    }

    /// The error of a question that reached the server after its deadline.
    pub(super) fn deadline_over(&self) -> StoreError {
        let label = &self.label;
        let message = format!("{label} did not answer in time: the deadline was over before");
        StoreError::new(StoreErrorKind::Timeout, message)
    }
}
