use std::sync::Weak;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::time::sleep;

use super::Shared;
use super::layout::NodeAddress;
use crate::connection::flight::Home;
use crate::connection::question::Question;
use crate::error::{StoreError, StoreErrorKind};
use crate::jitter;

/// A question is asked again so often at most: the nodes of a cluster contradict each other for
/// some milliseconds at the end of a move.
const MAX_HOPS: u8 = 16;
/// The pause before a question is asked again that was sent on in vain, and up to twice that.
const PAUSE: Duration = Duration::from_millis(10);

/// What a node says instead of doing what it was asked for. Nothing was done.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::connection) enum Redirect {
    /// Another node serves the slot.
    Moved(NodeAddress),
    /// Another node has the key by now, and serves it to those who say `ASKING`.
    Ask(NodeAddress),
    /// Some of the keys are at this node and some at the other one.
    TryAgain,
}

/// Sends questions on to other nodes of the cluster.
#[derive(Clone)]
pub(in crate::connection) struct Redirects {
    cluster: Weak<Shared>,
    by: NodeAddress,
}

impl Redirects {
    pub(super) fn new(cluster: Weak<Shared>, by: NodeAddress) -> Self {
        Self { cluster, by }
    }

    pub(in crate::connection) fn of(&self, error: &RedisError) -> Option<Redirect> {
        let to = || NodeAddress::redirected(&self.by, error.redirect_node()?.0);
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => to().map(Redirect::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => to().map(Redirect::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Redirect::TryAgain),
            ErrorKind::Server(ServerErrorKind::ClusterDown) => {
                self.look();
                None
            }
            _ => None,
        }
    }

    fn look(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.doubt.notify_one();
        }
    }

    /// Asks the questions of a refused call again: one by one where it had several keys.
    pub(in crate::connection) fn follow(
        &self,
        redirect: &Redirect,
        questions: Vec<Question>,
        is_shared: bool,
        home: &Home,
    ) {
        if matches!(redirect, Redirect::Moved(_)) {
            self.look();
        }
        for mut question in questions {
            let (was_sent_on, was_asking) = (question.hops > 0, question.way.is_asking);
            question.hops += 1;
            if question.hops > MAX_HOPS {
                question.fail(self.unresolved(redirect));
                continue;
            }
            (question.way.is_alone, question.way.is_asking) = (true, false);
            match redirect {
                // Not the keys of one call: each may be at another node.
                Redirect::Ask(_) | Redirect::TryAgain if is_shared => home.queue.push(question),
                Redirect::Ask(to) => {
                    question.way.is_asking = true;
                    self.send(question, Some(to), was_asking);
                }
                Redirect::Moved(to) => self.send(question, Some(to), was_sent_on),
                Redirect::TryAgain => self.send(question, None, true),
            }
        }
    }

    /// To this node, or to the master of the slot; after a pause if the question was sent on
    /// before.
    fn send(&self, question: Question, to: Option<&NodeAddress>, pauses: bool) {
        let (cluster, to) = (self.cluster.clone(), to.cloned());
        let send = move |question| match (cluster.upgrade(), to) {
            (Some(cluster), Some(to)) => cluster.node(&to).ask(question),
            (Some(cluster), None) => cluster.ask(question),
            (None, _) => {}
        };
        if !pauses {
            return send(question);
        }
        tokio::spawn(async move {
            sleep(PAUSE + jitter::up_to(PAUSE)).await;
            send(question);
        });
    }

    fn unresolved(&self, redirect: &Redirect) -> StoreError {
        let last = match redirect {
            Redirect::Moved(to) | Redirect::Ask(to) => format!("at last {to} was named"),
            Redirect::TryAgain => "its keys are being moved".to_owned(),
        };
        let by = &self.by;
        let message = format!(
            "{by} is not available: the nodes of the cluster do not agree on who serves this slot, {last}"
        );
        StoreError::new(StoreErrorKind::Unavailable, message)
    }
}
