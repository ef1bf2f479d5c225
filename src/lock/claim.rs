use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::hold::{Hold, Others};
use super::lock::Lock;
use super::owner::{Owner, next_number};
use super::reply::{Answer, Released, answer, released, yes_or_no};
use super::target::{Kind, Target};
use crate::connection::{
    AnswerFuture, LOCK_ACQUIRE, LOCK_RELEASE, LOCK_RENEW, SLOTS_ACQUIRE, SLOTS_RELEASE, SLOTS_RENEW,
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
    /// The owner and its hold, where the holder may have the lock by other requests too.
    owned: Option<(Owner, Hold)>,
}

impl Claim {
    /// A request by this owner, or by a holder that has no other requests.
    pub(super) fn new(target: &Arc<Target>, owner: Option<&Owner>, lease: Duration) -> Self {
        let request = format!("{}:{}", target.process(), next_number());
        let lock = || format!("{} {}", target.process(), target.names.key).into();
        Self {
            target: Arc::clone(target),
            lease,
            latch: target.names.latch(&request),
            owned: owner.map(|owner| (owner.clone(), Hold::new(owner.holds(), lock(), lease))),
            holder: owner.map_or(request, |owner| target.holder(owner)),
        }
    }

    /// Another request for the same.
    pub(super) fn again(&self) -> Self {
        let owner = self.owned.as_ref().map(|(owner, _)| owner);
        Self::new(&self.target, owner, self.lease)
    }

    pub(super) fn owner_number(&self) -> Option<u64> {
        self.owned.as_ref().map(|(owner, _)| owner.number())
    }

    /// Whether its owner has the lock by other requests.
    pub(super) fn is_nested(&self) -> bool {
        self.owned
            .as_ref()
            .is_some_and(|(_, hold)| hold.is_nested())
    }

    /// Redis has granted the request, up to an instant if it is not renewed.
    pub(super) fn taken(&self, token: u64, until: Option<Instant>) {
        if let Some((_, hold)) = &self.owned {
            hold.taken(token, until);
        }
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
                    cmd.arg(holder)
                        .arg(lease)
                        .arg(u8::from(self.owned.is_some()));
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
            Kind::Lock => self.send(Some(token), |others| {
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(token).arg(lease);
                    cmd.arg(u8::from(self.owned.is_some()));
                    cmd.arg(u8::from(others.are_of_same));
                };
                let keys = [&*names.key, &*names.tokens, &*self.latch];
                connection.call(&LOCK_RENEW, &keys, arguments)
            }),
            Kind::Slots { .. } => {
                let arguments = |cmd: &mut Cmd| {
                    cmd.arg(holder).arg(lease);
                };
                connection.call(&SLOTS_RENEW, &[&names.key], arguments)
            }
        };
        let reply = reply.await?;
        let is_held = yes_or_no(&reply);
        is_held.ok_or_else(|| self.target.connection.protocol_error(&reply))
    }

    /// Gives back what was taken with this token; without one, what may have been. The call is sent
    /// at once, before its reply is awaited: that says whether it was still held.
    ///
    /// `is_over` says that the lease has run out, as far as this process knows.
    pub(super) fn release(&self, token: Option<u64>, is_over: bool) -> AnswerFuture<Value> {
        let is_first = self.owned.as_ref().is_some_and(|(_, hold)| hold.end());
        self.send(token, |others| match self.target.kind() {
            Kind::Lock => self.release_lock(token, is_first && is_over, others),
            Kind::Slots { .. } => self.release_slot(token),
        })
    }

    fn release_lock(
        &self,
        token: Option<u64>,
        is_latch_over: bool,
        others: Others,
    ) -> AnswerFuture<Value> {
        let names = &self.target.names;
        let need = others.need.map(|need| millis(need).to_string());
        let token_text = token.map(|token| token.to_string());
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(&*self.holder).arg(token_text.unwrap_or_default());
            cmd.arg(u8::from(self.owned.is_some()));
            cmd.arg(millis(self.memory(token))).arg(&*names.channel);
            cmd.arg(u8::from(others.are_of_same))
                .arg(u8::from(is_latch_over));
            cmd.arg(need.unwrap_or_default());
        };
        let keys = [&*names.key, &*names.tokens, &*self.latch];
        self.target.connection.call(&LOCK_RELEASE, &keys, arguments)
    }

    fn release_slot(&self, token: Option<u64>) -> AnswerFuture<Value> {
        let names = &self.target.names;
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(&*self.holder).arg(u8::from(token.is_none()));
            cmd.arg(millis(self.memory(token))).arg(&*names.channel);
        };
        let keys = [&*names.key, &*self.latch];
        self.target
            .connection
            .call(&SLOTS_RELEASE, &keys, arguments)
    }

    /// What a reply to a release says.
    pub(super) fn read(&self, reply: &Value) -> Result<Released, StoreError> {
        released(reply).ok_or_else(|| self.target.connection.protocol_error(reply))
    }

    fn send<T>(&self, token: Option<u64>, send: impl FnOnce(Others) -> T) -> T {
        match &self.owned {
            Some((_, hold)) => hold.send(token, send),
            None => send(Others::NONE),
        }
    }

    /// For how long the same release may be tried by somebody who waits for it.
    pub(super) const MAX_RELEASE: Duration = Duration::from_secs(10);

    /// How long Redis has to know what became of the request: a release, while somebody may wait for
    /// its reply; a request that was given up, as long as it may come late, over a connection of
    /// which nobody knows any more.
    fn memory(&self, token: Option<u64>) -> Duration {
        let timeout = self.target.connection.timeout();
        match token {
            Some(_) => Self::MAX_RELEASE + timeout.min(Self::MAX_RELEASE),
            None => {
                let memory = self.lease.max(Self::MAX_RELEASE);
                memory.saturating_add(timeout).min(Lock::MAX_LEASE)
            }
        }
    }
}

/// Rounded up: a lease is not shorter than what was asked for.
fn millis(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX).max(1)
}
