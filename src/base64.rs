//! Base64, as fields of gRPC and of HTTP Basic have it.

const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Without padding, as gRPC wants it.
pub(crate) fn encoded(bytes: &[u8]) -> Vec<u8> {
    let chunks = bytes.chunks(3).flat_map(|chunk| {
        let bits = chunk
            .iter()
            .fold(0, |bits, byte| bits << 8 | usize::from(*byte));
        let bits = bits << (24 - 8 * chunk.len());
        (0..=chunk.len()).map(move |at| DIGITS[bits >> (18 - 6 * at) & 63])
    });
    chunks.collect()
}

/// With or without padding.
pub(crate) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: &u8| DIGITS.iter().position(|known| known == digit);
    let mut bytes = Vec::new();
    for chunk in text.split(|digit| *digit == b'=').next()?.chunks(4) {
        let mut digits = chunk.iter();
        let bits = digits.try_fold(0, |bits, digit| Some(bits << 6 | value(digit)?))?;
        let bits = (bits << (24 - 6 * chunk.len())) as u32;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let all: Vec<u8> = (0..=255).collect();
        for end in 0..=255 {
            assert_eq!(decoded(&encoded(&all[..end])), Some(all[..end].to_vec()));
        }
        assert_eq!(encoded(b"\x00\x10\x83\xfb\xff"), b"ABCD+/8");
        assert_eq!(decoded(b"YQ=="), Some(b"a".to_vec()));
        for wrong in ["a b", "_-", "\u{e4}", "YQ==="] {
            let is_known = wrong == "YQ===";
            assert_eq!(decoded(wrong.as_bytes()).is_some(), is_known, "{wrong}");
        }
    }
}
