use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::owner::{Owner, next_number};
use super::reply::{Answer, answer, yes_or_no};
use super::target::{Kind, Target};
use crate::connection::{
    LOCK_ACQUIRE, LOCK_RELEASE, LOCK_RENEW, SLOTS_ACQUIRE, SLOTS_RELEASE, SLOTS_RENEW,
};
use crate::error::StoreError;

/// One request for it, and all that follows from that: the lease, and its end.
///
/// It is the same script call each time, and any of them may be made again when its reply was lost.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) target: Arc<Target>,
    pub(super) lease: Duration,
    /// Who asks, as the lock's hash has it.
    holder: String,
    /// Where it stands what became of the request.
    latch: String,
    /// Whether the holder may hold it by other requests too.
    has_others: bool,
}

impl Claim {
    /// For a holder that has nothing else, or for this one, which may.
    pub(super) fn new(target: &Arc<Target>, owner: Option<&Owner>, lease: Duration) -> Self {
        let request = format!("{}:{}", target.process(), next_number());
        Self {
            target: Arc::clone(target),
            lease,
            latch: target.names.latch(&request),
            holder: owner.map_or(request, |owner| target.holder(owner)),
            has_others: owner.is_some(),
        }
    }

    /// Whether the holder may hold it by other requests too.
    pub(super) const fn has_others(&self) -> bool {
        self.has_others
    }

    /// None if the request was given up before it came to Redis.
    pub(super) async fn acquire(&self) -> Result<Option<Answer>, StoreError> {
        let Target {
            connection, names, ..
        } = &*self.target;
        let (holder, lease) = (&*self.holder, millis(self.lease));
        let reply = match self.target.kind() {
            Kind::Lock => {
                let keys = [&*names.key, &*names.tokens, &*self.latch];
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(lease).arg(u8::from(self.has_others));
                };
                connection.call(&LOCK_ACQUIRE, &keys, arguments).await?
            }
            Kind::Slots { permits } => {
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(lease).arg(permits);
                };
                let keys = [&*names.key, &*self.latch];
                connection.call(&SLOTS_ACQUIRE, &keys, arguments).await?
            }
        };
        answer(&reply).ok_or_else(|| connection.protocol_error(&reply))
    }

    /// Whether it is still held.
    pub(super) async fn renew(&self, token: u64) -> Result<bool, StoreError> {
        let Target {
            connection, names, ..
        } = &*self.target;
        let (holder, lease) = (&*self.holder, millis(self.lease));
        let reply = match self.target.kind() {
            Kind::Lock => {
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(token).arg(lease);
                };
                let keys = [&*names.key, &*names.tokens];
                connection.call(&LOCK_RENEW, &keys, arguments).await?
            }
            Kind::Slots { .. } => {
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(lease);
                };
                connection
                    .call(&SLOTS_RENEW, &[&names.key], arguments)
                    .await?
            }
        };
        yes_or_no(&reply).ok_or_else(|| connection.protocol_error(&reply))
    }

    /// Gives back what was taken with this token; without one, what may have been. Whether it was still held.
    pub(super) async fn release(&self, token: Option<u64>) -> Result<bool, StoreError> {
        let Target {
            connection, names, ..
        } = &*self.target;
        let (holder, channel) = (&*self.holder, &*names.channel);
        let life = millis(self.memory(token));
        let reply = match self.target.kind() {
            Kind::Lock => {
                let token = token.map_or_else(String::new, |token| token.to_string());
                let keys = [&*names.key, &*names.tokens, &*self.latch];
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(&token);
                    cmd.arg(u8::from(self.has_others)).arg(life).arg(channel);
                };
                connection.call(&LOCK_RELEASE, &keys, arguments).await?
            }
            Kind::Slots { .. } => {
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(u8::from(token.is_none()));
                    cmd.arg(life).arg(channel);
                };
                let keys = [&*names.key, &*self.latch];
                connection.call(&SLOTS_RELEASE, &keys, arguments).await?
            }
        };
        yes_or_no(&reply).ok_or_else(|| connection.protocol_error(&reply))
    }

    /// For how long the same release may be tried by somebody who waits for it.
    pub(super) const LONGEST_RELEASE: Duration = Duration::from_secs(10);

    /// For how long Redis is to know what became of the request: as long as a call for it may come. One that was given
    /// up may come when its connection is long gone, and one of several holds must not be released twice.
    fn memory(&self, token: Option<u64>) -> Duration {
        let timeout = self.target.connection.timeout();
        match token {
            Some(_) if !self.has_others => self.lease.min(Self::LONGEST_RELEASE) + timeout,
            _ => self.lease.max(Self::LONGEST_RELEASE) + timeout,
        }
    }
}

/// Rounded up: a lease is not shorter than what was asked for.
fn millis(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX).max(1)
}
