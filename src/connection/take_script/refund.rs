use redis::{Cmd, Value};

use crate::decision::Receipt;

/// Asks to give back up to `max` units of what was charged with this receipt.
///
/// The script keeps these bytes of the receipt as they are, and compares them, to give back once.
/// So the format must not change from one release to the next: while a fleet is updated, a charge
/// that one release has refunded could be refunded again by the other.
pub(crate) fn write_refund(command: &mut Cmd, now: Option<u64>, receipt: &Receipt, max: u64) {
    let mut bytes = Vec::with_capacity(21);
    for number in [receipt.stamp(), receipt.serial(), receipt.units()] {
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
    }
    command.arg(bytes).arg(max);
    if let Some(now) = now {
        command.arg(now);
    }
}

/// The units that were given back, at most `max`.
///
/// A greater number is no answer: nobody gets back more than was charged.
pub(crate) fn read_refund(reply: &Value, max: u64) -> Option<u64> {
    match reply {
        Value::Int(units @ 0..) => Some(units.unsigned_abs()).filter(|units| *units <= max),
        _ => None,
    }
}
