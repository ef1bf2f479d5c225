use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::callback::{DegradeCallback, ErrorCallback};
use crate::connection::Redis;
use crate::key::{Key, KeyExtractor};
use crate::lock::slots::Slots;
use crate::quota::Quota;
use crate::rule::Rule;

/// What a layer was told, shared by all services that it made.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) redis: Redis,
    /// What callbacks are told: a quota of the permits.
    pub(super) rule: Arc<Rule>,
    pub(super) prefix: Arc<str>,
    pub(super) permits: u32,
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) key: Option<Arc<dyn KeyExtractor>>,
    pub(super) degrade: Option<Arc<dyn DegradeCallback>>,
    pub(super) on_error: Option<Arc<dyn ErrorCallback>>,
}

impl Settings {
    /// As rate limits are named: the prefix, the path, and the parts of the key.
    pub(super) fn slots(&self, key: &Key) -> Slots {
        let (prefix, id) = (&self.prefix, self.rule.id());
        let name = match key.is_empty() {
            true => format!("{prefix}{id}"),
            false => format!("{prefix}{id}:{key}"),
        };
        Slots::new(&self.redis, &name, self.permits, self.lease)
    }
}

/// The rule of so many permits, which come back after a lease at the latest.
///
/// # Panics
///
/// If the path is empty.
pub(super) fn rule(path: &str, permits: u32, lease: Duration) -> Arc<Rule> {
    let quota = Quota::new(permits.into(), lease.min(Quota::LONGEST_WINDOW));
    let quota =
        quota.expect("the lease is checked, and there are fewer permits than quotas may have");
    let rule = Rule::new(path, [quota]).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(rule)
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("redis", &self.redis)
            .field("path", &self.rule.path())
            .field("permits", &self.permits)
            .field("lease", &self.lease)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
