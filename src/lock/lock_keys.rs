use std::fmt::Display;

use crate::connection::hash_tag::tagged;

/// The keys and the channel of one lock in Redis: named as Redisson names them, and in one slot of
/// a cluster.
#[derive(Debug)]
pub(super) struct LockKeys {
    /// The key of the lock itself: its name.
    pub(super) name: Box<str>,
    /// The channel on which releases are announced.
    pub(super) channel: Box<str>,
    /// The key of the latest fencing token.
    pub(super) token: Box<str>,
    latch_prefix: Box<str>,
}

impl LockKeys {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            channel: prefixed("redisson_lock__channel", name),
            token: prefixed("redisson_lock_token", name),
            latch_prefix: prefixed("redisson_unlock_latch", name),
        }
    }

    /// The key of a request's latch: for a while it says whether the request was granted, released
    /// or given up, so that a repeated call counts once.
    pub(super) fn latch(&self, request: impl Display) -> String {
        format!("{}:{request}", self.latch_prefix)
    }
}

fn prefixed(prefix: &str, name: &str) -> Box<str> {
    format!("{prefix}:{}", tagged(name)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_redisson() {
        let keys = LockKeys::new("report");
        assert_eq!(&*keys.channel, "redisson_lock__channel:{report}");
        assert_eq!(&*keys.token, "redisson_lock_token:{report}");
        assert_eq!(keys.latch("7"), "redisson_unlock_latch:{report}:7");
        let keys = LockKeys::new("{eu}:report");
        assert_eq!(&*keys.channel, "redisson_lock__channel:{eu}:report");
    }
}
