use redis::{Cmd, Value};

use crate::decision::Token;

/// Asks to give back up to `max` units of what was charged with this token.
pub(crate) fn write_refund(command: &mut Cmd, now: Option<u64>, token: &Token, max: u64) {
    let mut bytes = Vec::with_capacity(21);
    for number in [token.stamp(), token.serial(), token.units()] {
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
    }
    command.arg("refund").arg(bytes).arg(max);
    if let Some(now) = now {
        command.arg(now);
    }
}

/// The units that were given back, at most `max`.
pub(crate) fn read_refund(reply: &Value, max: u64) -> Option<u64> {
    match reply {
        Value::Int(units @ 0..) => Some(units.unsigned_abs()).filter(|units| *units <= max),
        _ => None,
    }
}
