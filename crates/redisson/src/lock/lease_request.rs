use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::owner::{OtherHolds, Owner, Ownership, unique_number};
use super::scripts::{LOCK_ACQUIRE, LOCK_RELEASE, LOCK_RENEW};
use crate::connection::{Connection, Redis, ReplyFuture, publish_command};
use crate::error::StoreError;
use crate::tagged;

/// One request for a lease of a lock, and the calls that acquire, renew and release it.
///
/// Each call may be repeated when its reply was lost: it counts once.
#[derive(Debug)]
pub(super) struct LeaseRequest {
    pub(super) resource: Arc<Resource>,
    pub(super) lease: Duration,
    /// The field in the lock's hash.
    holder: String,
    /// The key of the request's latch.
    latch: String,
    /// The hold of the owner, if the request has one that may hold the lock several times.
    hold: Option<Ownership>,
}

impl LeaseRequest {
    /// How long a release that a caller waits for is repeated at most.
    pub(super) const MAX_RELEASE: Duration = Duration::from_secs(10);
    /// The longest expiry of a latch: ten years, as the longest lease.
    const MAX_LATCH_EXPIRY: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

    /// A request by this owner. Without an owner, the request is a holder of its own.
    pub(super) fn new(resource: &Arc<Resource>, owner: Option<&Owner>, lease: Duration) -> Self {
        let request = format!("{}:{}", resource.process, unique_number());
        let lock = || format!("{} {}", resource.process, resource.keys.name).into();
        Self {
            resource: Arc::clone(resource),
            lease,
            latch: resource.keys.latch(&request),
            hold: owner.map(|owner| Ownership::new(owner, lock(), lease)),
            holder: owner.map_or(request, |owner| resource.holder(owner)),
        }
    }

    /// Another request for the same lease.
    pub(super) fn new_request(&self) -> Self {
        let owner = self.hold.as_ref().map(|hold| &hold.owner);
        Self::new(&self.resource, owner, self.lease)
    }

    pub(super) fn owner_number(&self) -> Option<u64> {
        self.hold.as_ref().map(|hold| hold.owner.number)
    }

    pub(super) fn channel(&self) -> &str {
        &self.resource.keys.channel
    }

    /// Whether its owner holds the lock by other requests.
    pub(super) fn is_nested(&self) -> bool {
        self.hold.as_ref().is_some_and(Ownership::is_nested)
    }

    /// Notes that Redis has granted the request, until an instant or for as long as it is renewed.
    pub(super) fn granted(&self, token: u64, until: Option<Instant>) {
        if let Some(hold) = &self.hold {
            hold.granted(token, until);
        }
    }

    /// Makes one call. `may_be_sent` becomes true, also if the future is dropped, unless it is
    /// certain that the call was not sent and will not be.
    pub(super) async fn acquire(&self, may_be_sent: &mut bool) -> Result<LeaseReply, StoreError> {
        let (connection, keys) = (&self.resource.connection, &self.resource.keys);
        let keys = [&*keys.name, &*keys.token, &*self.latch];
        let reply = connection.call(&LOCK_ACQUIRE, &keys, |cmd: &mut Cmd| {
            cmd.arg(&self.holder).arg(millis(self.lease));
            cmd.arg(u8::from(self.hold.is_some()));
        });
        let _withdrawal = reply.withdrawal(may_be_sent);
        self.resource.read(&reply.await?, LeaseReply::read)
    }

    /// The connection for a call about a lease that ends at this instant: until then it is sent,
    /// however late this process is.
    fn connection_until(&self, until: Instant) -> Connection {
        let (connection, left) = (self.resource.connection.clone(), until - Instant::now());
        let timeout = left.max(connection.timeout());
        connection.with_timeout(timeout)
    }

    /// Renews the lease, which ends at `until`. Returns whether it was still held.
    pub(super) async fn renew(&self, token: u64, until: Instant) -> Result<bool, StoreError> {
        let (connection, keys) = (self.connection_until(until), &self.resource.keys);
        let keys = [&*keys.name, &*keys.token, &*self.latch];
        let reply = self.with_other_holds(Some(token), |others| {
            connection.call(&LOCK_RENEW, &keys, |cmd: &mut Cmd| {
                cmd.arg(&self.holder).arg(token).arg(millis(self.lease));
                cmd.arg(u8::from(self.hold.is_some()));
                cmd.arg(u8::from(others.have_same_token));
            })
        });
        self.resource.read(&reply.await?, read_bool)
    }

    /// Releases the lease, which ends at `until`, or gives the request up if it has no token: Redis
    /// may have granted it, or may still grant it. The call is sent before its reply is awaited.
    pub(super) fn release(&self, token: Option<u64>, until: Instant) -> ReplyFuture<Value> {
        let (connection, keys) = (self.connection_until(until), &self.resource.keys);
        let is_lease_over = until <= Instant::now();

        let is_first = self.hold.as_ref().is_some_and(Ownership::end);
        self.with_other_holds(token, |others| {
            let needed_for = others.needed_for.map(|need| millis(need).to_string());
            let token_text = token.map(|token| token.to_string());
            let arguments = |cmd: &mut Cmd| {
                cmd.arg(&self.holder).arg(token_text.unwrap_or_default());
                cmd.arg(u8::from(self.hold.is_some()));
                cmd.arg(millis(self.latch_expiry(token)))
                    .arg(&*keys.channel);
                cmd.arg(u8::from(others.have_same_token));
                cmd.arg(u8::from(is_first && is_lease_over));
                cmd.arg(needed_for.unwrap_or_default());
                cmd.arg(publish_command(connection.is_cluster()));
            };
            let keys = [&*keys.name, &*keys.token, &*self.latch];
            connection.call(&LOCK_RELEASE, &keys, arguments)
        })
    }

    /// Reads the reply to a release.
    pub(super) fn read_release(&self, reply: &Value) -> Result<ReleaseReply, StoreError> {
        self.resource.read(reply, ReleaseReply::read)
    }

    fn with_other_holds<T>(&self, token: Option<u64>, send: impl FnOnce(OtherHolds) -> T) -> T {
        match &self.hold {
            Some(hold) => hold.with_others(token, send),
            None => send(OtherHolds::NONE),
        }
    }

    /// How long the latch outlives a release: while a caller may wait for its reply. After a
    /// request was given up: while the request may still arrive over an old connection.
    fn latch_expiry(&self, token: Option<u64>) -> Duration {
        let timeout = self.resource.connection.timeout();
        match token {
            Some(_) => Self::MAX_RELEASE + timeout.min(Self::MAX_RELEASE),
            None => {
                let expiry = self.lease.max(Self::MAX_RELEASE);
                expiry.saturating_add(timeout).min(Self::MAX_LATCH_EXPIRY)
            }
        }
    }
}

/// Rounded up: a lease is never shorter than the caller asked for.
fn millis(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX).max(1)
}

// The replies of the scripts. A reply that no script gives is read as `None`.

/// The reply to a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseReply {
    /// The request was granted, with this fencing token.
    Granted { token: u64 },
    /// Another holder has the lock. Its lease ends after this time; `None` if it never ends.
    Held { ends_after: Option<Duration> },
    /// The request was given up before Redis received it.
    GivenUp,
}

impl LeaseReply {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::Array(items) = reply else {
            return None;
        };
        match items[..] {
            [Value::Int(1), Value::Int(token)] => {
                let token = u64::try_from(token).ok()?;
                Some(Self::Granted { token })
            }
            [Value::Int(0), Value::Int(millis)] => {
                let ends_after = u64::try_from(millis).ok().map(Duration::from_millis);
                Some(Self::Held { ends_after })
            }
            [Value::Int(-1), Value::Int(_)] => Some(Self::GivenUp),
            _ => None,
        }
    }
}

/// The reply to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReleaseReply {
    pub(super) was_held: bool,
    /// How many clients received the message that the lock is free; `None` if this call did not
    /// free it.
    pub(super) listeners: Option<u32>,
}

impl ReleaseReply {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::Int(reply) = *reply else {
            return None;
        };
        let reply = u32::try_from(reply).ok()?;
        Some(Self {
            was_held: reply > 0,
            listeners: reply.checked_sub(2),
        })
    }
}

/// The state of a lock.
pub(super) struct LockStatus {
    pub(super) is_held: bool,
    pub(super) remaining: Option<Duration>,
    pub(super) holds: u64,
}

impl LockStatus {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::Array(items) = reply else {
            return None;
        };
        let [Value::Int(is_held), Value::Int(millis), Value::Int(holds)] = items[..] else {
            return None;
        };
        let millis = u64::try_from(millis).ok();
        Some(Self {
            is_held: is_held == 1,
            remaining: millis.filter(|_| is_held == 1).map(Duration::from_millis),
            holds: u64::try_from(holds).ok()?,
        })
    }
}

/// A reply of 0 or 1.
pub(super) fn read_bool(reply: &Value) -> Option<bool> {
    match reply {
        Value::Int(0) => Some(false),
        Value::Int(1) => Some(true),
        _ => None,
    }
}

/// A lock: its keys, and the connection to its server.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) connection: Connection,
    pub(super) keys: LockKeys,
    /// The id of this process, in the fields of a lock's hash.
    pub(super) process: Box<str>,
}

impl Resource {
    pub(super) fn new(redis: &Redis, name: &str) -> Arc<Self> {
        Arc::new(Self {
            connection: redis.connection().clone(),
            keys: LockKeys::new(name),
            process: redis.id().into(),
        })
    }

    /// The field of this owner in a lock's hash.
    pub(super) fn holder(&self, owner: &Owner) -> String {
        format!("{}:{}", self.process, owner.number)
    }

    /// Reads a script's reply.
    pub(super) fn read<T>(
        &self,
        reply: &Value,
        read: fn(&Value) -> Option<T>,
    ) -> Result<T, StoreError> {
        read(reply).ok_or_else(|| self.connection.protocol_error(reply))
    }
}

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
