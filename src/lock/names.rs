use std::fmt::Display;

use crate::connection::hash_tag::tagged;

/// What belongs to a lock in Redis, besides the key of its name: called as Redisson calls it, and in the same slot of
/// a cluster.
#[derive(Debug)]
pub(super) struct Names {
    /// The lock itself.
    pub(super) key: Box<str>,
    /// Where waiters are told of a release.
    pub(super) channel: Box<str>,
    /// The latest fencing token.
    pub(super) tokens: Box<str>,
    latch: Box<str>,
}

impl Names {
    pub(super) fn new(name: &str) -> Self {
        Self {
            key: name.into(),
            channel: prefixed("redisson_lock__channel", name),
            tokens: prefixed("redisson_lock_token", name),
            latch: prefixed("redisson_unlock_latch", name),
        }
    }

    /// Where it stands for a while what became of a request.
    pub(super) fn latch(&self, request: impl Display) -> String {
        format!("{}:{request}", self.latch)
    }
}

fn prefixed(prefix: &str, name: &str) -> Box<str> {
    format!("{prefix}:{}", tagged(name)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_redisson() {
        let names = Names::new("report");
        assert_eq!(&*names.channel, "redisson_lock__channel:{report}");
        assert_eq!(&*names.tokens, "redisson_lock_token:{report}");
        assert_eq!(names.latch("7"), "redisson_unlock_latch:{report}:7");
        let names = Names::new("{eu}:report");
        assert_eq!(&*names.channel, "redisson_lock__channel:{eu}:report");
    }
}
