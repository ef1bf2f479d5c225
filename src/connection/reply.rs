//! Reading the values in replies.

use redis::Value;

/// A value that is a text.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// The microseconds since 1970 in what `TIME` returns. `None` for anything else.
pub(super) fn micros(time: &[Value]) -> Option<u64> {
    let number = |part: &Value| text(part)?.parse::<u64>().ok();
    match time {
        [seconds, micros] => number(seconds)?
            .checked_mul(1_000_000)?
            .checked_add(number(micros)?),
        _ => None,
    }
}
