//! The details of a gRPC status: a `google.rpc.Status` in the encoding of protobuf, as base64 in the
//! field `grpc-status-details-bin`. Denials get them.

const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &[u8] = b"type.googleapis.com/google.rpc.QuotaFailure";
const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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
    (!details.is_empty()).then(|| base64(&[status, details].concat()))
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

/// Without padding, as gRPC wants it.
fn base64(bytes: &[u8]) -> Vec<u8> {
    let chunks = bytes.chunks(3).flat_map(|chunk| {
        let mut bits = [0; 4];
        bits[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(bits);
        (0..=chunk.len()).map(move |at| DIGITS[(bits >> (18 - 6 * at)) as usize & 63])
    });
    chunks.collect()
}
