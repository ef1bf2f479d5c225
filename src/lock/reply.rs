//! What the scripts answer; none where that makes no sense.

use std::time::Duration;

use redis::Value;

/// What Redis says to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It has it; the fencing token is 0 where there is none.
    Taken { token: u64 },
    /// Others have it, and their lease ends then; none if it never does.
    Held { ends_after: Option<Duration> },
}

/// How a lock stands.
pub(super) struct Sight {
    pub(super) is_held: bool,
    pub(super) remaining: Option<Duration>,
    pub(super) holds: u64,
}

impl Sight {
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

/// None inside if the request was given up before it came.
pub(super) fn answer(reply: &Value) -> Option<Option<Answer>> {
    let Value::Array(items) = reply else {
        return None;
    };
    match items[..] {
        [Value::Int(1), Value::Int(token)] => {
            let token = u64::try_from(token).ok()?;
            Some(Some(Answer::Taken { token }))
        }
        [Value::Int(0), Value::Int(millis)] => {
            let ends_after = u64::try_from(millis).ok().map(Duration::from_millis);
            Some(Some(Answer::Held { ends_after }))
        }
        [Value::Int(-1), Value::Int(_)] => Some(None),
        _ => None,
    }
}

/// What a script says to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) was_held: bool,
    /// How many clients were told that it is free, if it is so because of this call.
    pub(super) listeners: Option<u32>,
}

pub(super) fn released(reply: &Value) -> Option<Released> {
    let Value::Int(reply) = *reply else {
        return None;
    };
    let reply = u32::try_from(reply).ok()?;
    Some(Released {
        was_held: reply > 0,
        listeners: reply.checked_sub(2),
    })
}

pub(super) fn yes_or_no(reply: &Value) -> Option<bool> {
    match reply {
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        _ => None,
    }
}
