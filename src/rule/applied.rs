use std::sync::Arc;
use std::time::SystemTime;

use super::content_hash::ContentHash;

/// Describes the rules in force: their version, and where they come from.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    /// 1 for the rules that the service began with, and one more for each change.
    pub(crate) version: u64,
    pub(crate) at: SystemTime,
    /// The text that the rules were read from. `None` if code made them.
    pub(crate) hash: Option<ContentHash>,
    /// The paths whose rules are not in the text: they are in use, and were kept.
    pub(crate) kept: Arc<[String]>,
}

impl Applied {
    /// The first rules.
    pub(super) fn first(hash: Option<ContentHash>) -> Self {
        Self {
            version: 1,
            at: SystemTime::now(),
            hash,
            kept: Arc::default(),
        }
    }

    /// The rules that replace these.
    pub(super) fn next(&self, hash: Option<ContentHash>, kept: Vec<String>) -> Self {
        Self {
            version: self.version + 1,
            at: SystemTime::now(),
            hash,
            kept: kept.into(),
        }
    }
}
