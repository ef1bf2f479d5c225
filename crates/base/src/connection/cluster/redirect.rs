use std::sync::Weak;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::time::sleep;

use super::Router;
use super::layout::NodeAddress;
use crate::connection::question::Question;
use crate::connection::queue::Queue;
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter;

/// A question is sent again at most this often: at the end of a slot's move, the nodes of a cluster
/// contradict each other for some milliseconds.
///
/// With pauses of 10 to 20 ms that is about 250 ms. A question's deadline may end it before.
const MAX_REDIRECTS: u8 = 16;
/// The pause before a question is sent again that was redirected without success. Up to the same
/// time is added at random.
const PAUSE: Duration = Duration::from_millis(10);

/// A refusal of a node, which says where the question has to be sent. Nothing of the refused call
/// was executed.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::connection) enum Redirect {
    /// Another node serves the slot.
    Moved(NodeAddress),
    /// The slot is being moved to another node, which has the key already and serves it behind
    /// `ASKING`.
    Ask(NodeAddress),
    /// The slot is being moved. Some of the keys are at this node and some at the other one.
    TryAgain,
}

/// Sends questions that one node has refused to other nodes of the cluster.
#[derive(Clone)]
pub(in crate::connection) struct Redirects {
    /// The node that refuses.
    pub(super) refusing: NodeAddress,
    /// Once the connection is dropped, so are the questions.
    pub(super) router: Weak<Router>,
}

impl Redirects {
    /// The redirect that an error says, if it is one.
    pub(in crate::connection) fn redirect_in(&self, error: &RedisError) -> Option<Redirect> {
        let named = || NodeAddress::named_by(&self.refusing, error.redirect_node()?.0);
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => named().map(Redirect::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => named().map(Redirect::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Redirect::TryAgain),
            ErrorKind::Server(ServerErrorKind::ClusterDown) => {
                self.notify_watcher();
                None
            }
            _ => None,
        }
    }

    /// Sends the questions of a refused call again, one by one. If the call had several keys
    /// (`is_shared`), `ASK` and `TRYAGAIN` do not say where each of its keys is, so its questions
    /// go back into the queue of the same node.
    pub(in crate::connection) fn follow(
        &self,
        redirect: &Redirect,
        questions: Vec<Question>,
        is_shared: bool,
        queue: &Queue,
    ) {
        if matches!(redirect, Redirect::Moved(_)) {
            self.notify_watcher();
        }
        for mut question in questions {
            let (was_resent, was_asking) = (question.resends > 0, question.options.is_asking);
            question.resends += 1;
            if question.resends > MAX_REDIRECTS {
                question.fail(self.unresolved(redirect));
                continue;
            }
            (question.options.is_alone, question.options.is_asking) = (true, false);
            match redirect {
                Redirect::Ask(_) | Redirect::TryAgain if is_shared => queue.push(question),
                Redirect::Ask(to) => {
                    question.options.is_asking = true;
                    self.send(question, Some(to), was_asking);
                }
                Redirect::Moved(to) => self.send(question, Some(to), was_resent),
                Redirect::TryAgain => self.send(question, None, true),
            }
        }
    }

    /// Sends a question to a node, or to the master of its slot; after a pause if `pauses`.
    fn send(&self, question: Question, to: Option<&NodeAddress>, pauses: bool) {
        let (router, to) = (Weak::clone(&self.router), to.cloned());
        let send = move || {
            if let Some(router) = router.upgrade() {
                router.ask_again(question, to.as_ref());
            }
        };
        if !pauses {
            return send();
        }
        tokio::spawn(async move {
            sleep(PAUSE + jitter::up_to(PAUSE)).await;
            send();
        });
    }

    /// The layout may have changed.
    fn notify_watcher(&self) {
        if let Some(router) = self.router.upgrade() {
            router.layout_changed.notify_one();
        }
    }

    /// The error of a question that was redirected too often.
    fn unresolved(&self, redirect: &Redirect) -> StoreError {
        let last = match redirect {
            Redirect::Moved(to) | Redirect::Ask(to) => format!("at last {to} was named"),
            Redirect::TryAgain => "its keys are being moved".to_owned(),
        };
        let refusing = &self.refusing;
        let message = format!(
            "{refusing} is not available: the nodes of the cluster do not agree on who serves \
             this slot, {last}"
        );
        StoreError::new(StoreErrorKind::Unavailable, message)
    }
}
