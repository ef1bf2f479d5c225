//! Which slot a key is of, and which slot a command is about.

use redis::{Arg, Cmd};

pub(crate) const SLOTS: usize = 16_384;

/// The slot that decides where a command goes: its first key's. `None` if it has no key.
///
/// What is taken for a key and is none does no harm: a server that is asked for a key of another one says so.
pub(super) fn slot_of(command: &Cmd) -> Option<u16> {
    let mut arguments = command.args_iter().map(|argument| match argument {
        Arg::Simple(argument) => argument,
        _ => b"0".as_slice(),
    });
    let name = arguments.next()?;
    let is_call = [
        "EVAL",
        "EVALSHA",
        "EVAL_RO",
        "EVALSHA_RO",
        "FCALL",
        "FCALL_RO",
    ]
    .iter()
    .any(|call| name.eq_ignore_ascii_case(call.as_bytes()));
    if !is_call {
        return arguments.next().map(slot);
    }
    match arguments.nth(1)? {
        b"0" => None,
        _ => arguments.next().map(slot),
    }
}

/// The slot of a key: of what stands between its braces, if there is something between them.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let of = |byte, bytes: &[u8]| bytes.iter().position(|other| *other == byte);
    let tag = of(b'{', key).and_then(|open| {
        let behind = &key[open + 1..];
        of(b'}', behind).map(|length| &behind[..length])
    });
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed) % SLOTS as u16
}

/// CRC16 in the variant XMODEM, as the cluster specification has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let at = (crc >> 8) ^ u16::from(*byte);
        (crc << 8) ^ TABLE[usize::from(at)]
    })
}

static TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = match crc & 0x8000 {
                0 => crc << 1,
                _ => (crc << 1) ^ 0x1021,
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use redis::cmd;

    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % 16_384);
    }

    #[test]
    fn commands_go_by_their_first_key() {
        let foo = Some(slot(b"foo"));
        assert_eq!(slot_of(cmd("GET").arg("foo")), foo);
        assert_eq!(
            slot_of(cmd("EVALSHA").arg("sha").arg(2).arg("foo").arg("bar")),
            foo
        );
        assert_eq!(slot_of(cmd("eval").arg("return 1").arg(1).arg("foo")), foo);
        assert_eq!(slot_of(cmd("EVAL").arg("return 1").arg(0).arg("foo")), None);
        assert_eq!(slot_of(&cmd("PING")), None);
    }
}
