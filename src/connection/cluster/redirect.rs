use std::time::Duration;

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time::sleep;

use super::map::Node;
use crate::jitter;

/// How often a call waits for keys that are on their way between two nodes, or for nodes that contradict each other.
const MOST_WAITS: u32 = 10;
/// How long such a wait is, and up to twice that.
const WAIT: Duration = Duration::from_millis(10);

/// What a node says instead of doing what it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// Another one serves the slot.
    Moved(Node),
    /// Another one has the key by now, or is to have it, and serves it to who says `ASKING`.
    Ask(Node),
    /// Some of the keys are here and some there.
    Wait,
}

impl Redirect {
    pub(super) fn of(reply: &RedisResult<Value>, by: &Node) -> Option<Self> {
        match reply {
            Ok(value) => Self::of_value(value, by),
            Err(error) => Self::of_error(error, by),
        }
    }

    pub(super) fn of_value(reply: &Value, by: &Node) -> Option<Self> {
        match reply {
            Value::ServerError(error) => Self::of_error(&RedisError::from(error.clone()), by),
            _ => None,
        }
    }

    fn of_error(error: &RedisError, by: &Node) -> Option<Self> {
        let to = || Node::redirected(by, error.redirect_node()?.0);
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => to().map(Self::Moved),
            ErrorKind::Server(ServerErrorKind::Ask) => to().map(Self::Ask),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Self::Wait),
            _ => None,
        }
    }
}

/// How often a call was sent on.
#[derive(Default)]
pub(super) struct Hops {
    was_moved: bool,
    /// The last time it was.
    was_asked: bool,
    waits: u32,
}

impl Hops {
    /// Whether the call is sent on once more, after a pause if that has led nowhere: at the end of a move its two nodes
    /// each name the other one for some milliseconds.
    pub(super) async fn has_another(&mut self, redirect: &Redirect) -> bool {
        let is_straight = match redirect {
            Redirect::Moved(_) => !self.was_moved,
            Redirect::Ask(_) => !self.was_asked,
            Redirect::Wait => false,
        };
        self.was_moved |= matches!(redirect, Redirect::Moved(_));
        self.was_asked = matches!(redirect, Redirect::Ask(_));
        if is_straight {
            return true;
        }
        self.waits += 1;
        if self.waits <= MOST_WAITS {
            sleep(WAIT + jitter::up_to(WAIT)).await;
        }
        self.waits <= MOST_WAITS
    }
}

/// What the call gets that was sent on in vain: it was not done, and may be soon.
pub(super) fn unresolved(redirect: &Redirect, reply: RedisResult<Value>) -> RedisResult<Value> {
    let to = match redirect {
        Redirect::Moved(to) | Redirect::Ask(to) => to,
        Redirect::Wait => return reply,
    };
    let what = "the nodes of the cluster do not agree on who serves this slot";
    let detail = format!("at last {to} was named");
    Err(RedisError::from((
        ErrorKind::ClusterConnectionNotFound,
        what,
        detail,
    )))
}
