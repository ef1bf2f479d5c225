use std::fmt;

use sha2::{Digest, Sha256};

/// The SHA-256 of a configuration's text, to tell whether two texts are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentHash([u8; 32]);

impl ContentHash {
    pub(crate) fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

/// The first 16 of the digits that `sha256sum` prints.
impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_digits_are_those_of_sha256sum() {
        assert_eq!(ContentHash::of("abc").to_string(), "ba7816bf8f01cfea");
    }
}
