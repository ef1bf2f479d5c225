//! As much of RESP as it takes to lose a reply, to edit one, or to tell whose it is.

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

/// How many messages answer this command: one, but to a subscription one for each channel.
pub(super) fn messages(command: &[u8]) -> usize {
    let mut words = words(command);
    let name = words.next().map(<[u8]>::to_ascii_uppercase);
    match name.as_deref() {
        Some(b"SUBSCRIBE" | b"UNSUBSCRIBE" | b"PSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SSUBSCRIBE") => {
            words.count().max(1)
        }
        _ => 1,
    }
}

/// Whether this was pushed by the server, and is no answer to a subscription.
pub(super) fn is_message(reply: &[u8]) -> bool {
    let kind = || words(reply).next().map(<[u8]>::to_ascii_lowercase);
    reply[0] == b'>' && !kind().is_some_and(|kind| kind.ends_with(b"subscribe"))
}

/// The strings at the beginning of an array.
fn words(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let begin = array.windows(2).position(|two| two == b"\r\n");
    let mut rest = begin.map_or(&[][..], |begin| &array[begin + 2..]);
    std::iter::from_fn(move || {
        let end = length(rest)?;
        let (word, others) = rest.split_at(end);
        rest = others;
        let line = word.windows(2).position(|two| two == b"\r\n")?;
        (word[0] == b'$').then(|| word.get(line + 2..end - 2))?
    })
}
