//! The details of a gRPC status: a `google.rpc.Status` in the encoding of protobuf, as base64 in the
//! field `grpc-status-details-bin`. Denials get them, and those of partners are read.

use std::time::Duration;

use crate::base64;

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &[u8] = b"type.googleapis.com/google.rpc.QuotaFailure";

/// So much of the details is read.
const MAX_LENGTH: usize = 8_192;

/// The details of a status 8 with this text: in how many seconds to come again, and the names of the
/// quotas that are used up. `None` if there is nothing to say.
pub(super) fn encoded<'a>(
    text: &[u8],
    retry_after: Option<u64>,
    quotas: impl Iterator<Item = &'a str>,
) -> Option<Vec<u8>> {
    let detail = |kind, value: &[u8]| message(3, &[message(1, kind), message(2, value)].concat());
    let delay = retry_after.map(|seconds| message(1, &number(1, 0, seconds)));
    let retry_info = delay.map(|delay| detail(RETRY_INFO, &delay));
    // Older clients know no `quota_id`, so the name is the description, too.
    let violation = |name| [message(2, name), message(5, name)].concat();
    let violations = quotas.flat_map(|name| message(1, &violation(name.as_bytes())));
    let violations = Some(violations.collect::<Vec<_>>()).filter(|it| !it.is_empty());
    let quota_failure = violations.map(|it| detail(QUOTA_FAILURE, &it));
    let details = [retry_info, quota_failure]
        .map(Option::unwrap_or_default)
        .concat();
    let status = [number(1, 0, 8), message(2, text)].concat();
    (!details.is_empty()).then(|| base64::encoded(&[status, details].concat()))
}

/// When to come again, as these details say; `None` if they do not, or cannot be read.
pub(crate) fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = base64::decoded(details.get(..MAX_LENGTH).unwrap_or(details))?;
    let mut details = fields(&status).filter(|(field, ..)| *field == 3);
    details.find_map(|(_, _, detail)| {
        let (_, kind) = last(detail, 1)?;
        let (_, value) = last(detail, 2).filter(|_| kind == RETRY_INFO)?;
        let (_, delay) = last(value, 1)?;
        let part = |field| last(delay, field).map_or(0, |(number, _)| number);
        // A negative number has 64 bits.
        let seconds = i64::try_from(part(1)).ok()?.unsigned_abs();
        let nanos = u32::try_from(part(2)).ok()?.min(999_999_999);
        Some(Duration::new(seconds, nanos))
    })
}

/// A field of a message that is a message, a text or bytes.
fn message(field: u8, value: &[u8]) -> Vec<u8> {
    let length = number(field, 2, value.len() as u64);
    [&length, value].concat()
}

/// A field of a message with a number, or the beginning of one with so many bytes.
fn number(field: u8, kind: u8, mut value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3 | kind];
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// The fields of a message: the number of each, and its value as a number or as bytes. They end
/// where there is neither.
fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, u64, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, number) = (varint(&mut message)?, varint(&mut message)?);
        let length = if tag & 7 == 2 {
            usize::try_from(number).ok()?
        } else {
            0
        };
        let (bytes, rest) = message.split_at_checked(length)?;
        message = rest;
        [0, 2]
            .contains(&(tag & 7))
            .then_some((tag >> 3, number, bytes))
    })
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let end = message.iter().take(10).position(|byte| *byte < 0x80)?;
    let (bytes, rest) = message.split_at(end + 1);
    *message = rest;
    let bits = bytes.iter().rev().map(|byte| u64::from(byte & 0x7f));
    Some(bits.fold(0, |number, bits| number << 7 | bits))
}

/// The last value of a field, which is the one that counts.
fn last(message: &[u8], field: u64) -> Option<(u64, &[u8])> {
    let values = fields(message).filter(|(known, ..)| *known == field);
    values.last().map(|(_, number, bytes)| (number, bytes))
}
