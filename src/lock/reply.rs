//! The replies of the scripts. A reply that no script gives is read as `None`.

use std::time::Duration;

use redis::Value;

/// The reply to a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseReply {
    /// The request was granted. The fencing token of a semaphore is 0.
    Granted { token: u64 },
    /// Another holder has the lock. Its lease ends after this time; `None` if it never ends.
    Held { ends_after: Option<Duration> },
    /// The request was given up before Redis received it.
    GivenUp,
}

impl LeaseReply {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::Array(items) = reply else {
            return None;
        };
        match items[..] {
            [Value::Int(1), Value::Int(token)] => {
                let token = u64::try_from(token).ok()?;
                Some(Self::Granted { token })
            }
            [Value::Int(0), Value::Int(millis)] => {
                let ends_after = u64::try_from(millis).ok().map(Duration::from_millis);
                Some(Self::Held { ends_after })
            }
            [Value::Int(-1), Value::Int(_)] => Some(Self::GivenUp),
            _ => None,
        }
    }
}

/// The reply to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReleaseReply {
    pub(super) was_held: bool,
    /// How many clients received the message that the lock is free; `None` if this call did not
    /// free it.
    pub(super) listeners: Option<u32>,
}

impl ReleaseReply {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::Int(reply) = *reply else {
            return None;
        };
        let reply = u32::try_from(reply).ok()?;
        Some(Self {
            was_held: reply > 0,
            listeners: reply.checked_sub(2),
        })
    }
}

/// The state of a lock.
pub(super) struct LockStatus {
    pub(super) is_held: bool,
    pub(super) remaining: Option<Duration>,
    pub(super) holds: u64,
}

impl LockStatus {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::Array(items) = reply else {
            return None;
        };
        let [Value::Int(is_held), Value::Int(millis), Value::Int(holds)] = items[..] else {
            return None;
        };
        let millis = u64::try_from(millis).ok();
        Some(Self {
            is_held: is_held == 1,
            remaining: millis.filter(|_| is_held == 1).map(Duration::from_millis),
            holds: u64::try_from(holds).ok()?,
        })
    }
}

/// A reply of 0 or 1.
pub(super) fn read_bool(reply: &Value) -> Option<bool> {
    match reply {
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        _ => None,
    }
}
