use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use sha2::{Digest, Sha256};

use crate::sync::lock;

type ShowKey = fn(&str) -> String;

/// This process as a member of its fleet, or alone. Clones of `Limits` share it.
pub(crate) struct Member {
    /// This process: 16 hexadecimal digits.
    pub(crate) process: Arc<str>,
    /// How the first page shows keys, if it does; empty without a page.
    pub(crate) shown: OnceLock<Option<ShowKey>>,
    state: Mutex<MemberState>,
}

#[derive(Default)]
pub(crate) struct MemberState {
    /// Whether a task watches this process.
    pub(crate) has_started: bool,
    /// Rises with all that a view of a page shows beside the seconds.
    pub(crate) changes: u64,
    /// Keys are hashed with it. It is that of the service once the fleet has one.
    pub(crate) secret: [u8; 16],
    /// The version of the keys that operators let through, block or raise.
    pub(crate) version: u64,
    /// How often this process has changed that list by itself.
    pub(crate) own_changes: u64,
    /// Whether the store accepted the last report. `None` before the first one and without a
    /// fleet.
    pub(crate) is_accepted: Option<bool>,
    /// How many reports in a row have found more processes than the store's fallback is for.
    pub(crate) crowded: u64,
}

impl Default for Member {
    fn default() -> Self {
        Self {
            process: hex(&random()[..8]).into(),
            shown: OnceLock::new(),
            state: Mutex::new(MemberState {
                secret: random(),
                ..MemberState::default()
            }),
        }
    }
}

/// Without the secret.
impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({})", self.process)
    }
}

impl Member {
    pub(crate) fn state(&self) -> MutexGuard<'_, MemberState> {
        lock(&self.state)
    }

    /// How the log names a key of a rule: as the first page shows it, if it shows keys, and by its
    /// [hash](Self::hashed_key).
    pub(crate) fn named_key(&self, path: &str, key: &str) -> (Option<String>, String) {
        let shown = self.shown.get().copied().flatten();
        (shown.map(|shown| shown(key)), self.hashed_key(path, key))
    }

    /// What logs and pages call a key of a rule: 32 hexadecimal digits, the same in all processes.
    /// Without the secret they tell nothing of the key.
    pub(crate) fn hashed_key(&self, path: &str, key: &str) -> String {
        let secret = self.state().secret;
        let mut hash = Sha256::new();
        hash.update(secret);
        hash.update(path.len().to_be_bytes());
        hash.update(path);
        hash.update(key);
        hex(&hash.finalize()[..16])
    }
}

/// Random bits of the operating system, which seeds the maps of the standard library.
fn random() -> [u8; 16] {
    let (one, other) = (RandomState::new(), RandomState::new());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&one.hash_one(0_u8).to_be_bytes());
    bytes[8..].copy_from_slice(&other.hash_one(1_u8).to_be_bytes());
    bytes
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_not_printed() {
        let member = Member::default();
        let secret = format!("{:?}", member.state().secret);
        let printed = format!("{member:?}");
        assert!(!printed.contains(&secret), "{printed}");
    }
}
