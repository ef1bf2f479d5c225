use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use super::map::Node;

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
