//! As much of RESP as it takes to lose a reply, or to edit one.

/// How long the reply is that these bytes begin with; none if it does not end in them.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let number = std::str::from_utf8(bytes.get(1..line)?);
    let number = || number.ok().and_then(|number| number.parse::<usize>().ok());
    let mut end = line + 2;
    let parts = match bytes[0] {
        b'$' | b'=' | b'!' => {
            // A null has a negative length, and nothing behind it.
            end += number().map_or(0, |length| length + 2);
            0
        }
        b'*' | b'~' | b'>' => number().unwrap_or(0),
        b'%' => 2 * number().unwrap_or(0),
        _ => 0,
    };
    for _ in 0..parts {
        end += length(bytes.get(end..)?)?;
    }
    (end <= bytes.len()).then_some(end)
}

/// What a reply says that is a string.
pub(super) fn contents(reply: &[u8]) -> Option<Vec<u8>> {
    let line = reply.windows(2).position(|two| two == b"\r\n")?;
    let contents = reply.get(line + 2..reply.len().checked_sub(2)?)?;
    (reply[0] == b'$').then(|| contents.to_vec())
}

/// A reply that is this string.
pub(super) fn string(contents: &[u8]) -> Vec<u8> {
    let mut reply = format!("${}\r\n", contents.len()).into_bytes();
    reply.extend_from_slice(contents);
    reply.extend_from_slice(b"\r\n");
    reply
}
