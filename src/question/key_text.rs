use std::sync::Arc;

/// As long as fits beside a length into the size of a shared text.
const MAX_SHORT: usize = 22;

/// The text of a key, which is ASCII. A short one lies in it: neither making nor cloning it
/// allocates.
#[derive(Debug, Clone)]
pub(crate) enum KeyText {
    Short { length: u8, bytes: [u8; MAX_SHORT] },
    Long(Arc<str>),
}

impl KeyText {
    #[inline]
    pub(crate) fn new(text: &[u8]) -> Self {
        if text.len() > MAX_SHORT {
            return Self::Long(as_str(text).into());
        }
        let mut bytes = [0; MAX_SHORT];
        bytes[..text.len()].copy_from_slice(text);
        let length = text.len() as u8;
        Self::Short { length, bytes }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(text) => text.as_bytes(),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Short { .. } => as_str(self.as_bytes()),
            Self::Long(text) => text,
        }
    }
}

pub(crate) fn as_str(text: &[u8]) -> &str {
    str::from_utf8(text).expect("it is ASCII")
}

impl Default for KeyText {
    fn default() -> Self {
        Self::new(b"")
    }
}
