use std::sync::Arc;

use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::lease_request::LeaseRequest;
use super::subscriber::Channels;
use crate::connection::AnswerFuture;
use crate::error::StoreError;

/// A lease that was granted, shared by its guard and the watchdog.
#[derive(Debug)]
pub(super) struct HeldLease {
    pub(super) request: LeaseRequest,
    /// The fencing token; 0 for a semaphore.
    pub(super) token: u64,
    state: watch::Sender<LeaseState>,
    /// When the request was sent.
    acquired: Instant,
    /// For other callers of this process that wait for the lock.
    channels: Arc<Channels>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// Held until this instant: one lease from before the last successful call was sent.
    Until(Instant),
    Lost,
    /// The guard has ended the lease. Until this instant Redis may still hold it.
    Ended(Instant),
}

impl HeldLease {
    pub(super) fn new(
        channels: Arc<Channels>,
        request: LeaseRequest,
        token: u64,
        sent: Instant,
    ) -> Arc<Self> {
        let until = sent + request.lease;
        request.granted(token, Some(until));
        channels.acquired(request.channel());
        Arc::new(Self {
            request,
            token,
            state: watch::Sender::new(LeaseState::Until(until)),
            acquired: sent,
            channels,
        })
    }

    /// When the lease runs out; `None` if it is over.
    pub(super) fn until(&self) -> Option<Instant> {
        match *self.state.borrow() {
            LeaseState::Until(until) if Instant::now() < until => Some(until),
            _ => None,
        }
    }

    /// Completes when the lease has run out, is lost, or was ended.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut state = self.state.subscribe();
        async move {
            loop {
                let LeaseState::Until(until) = *state.borrow_and_update() else {
                    return;
                };
                tokio::select! {
                    biased;
                    changed = state.changed() => if changed.is_err() { return },
                    () = sleep_until(until) => return,
                }
            }
        }
    }

    /// Ends the renewals. Returns the instant at which the lease runs out.
    pub(super) fn end(&self) -> Instant {
        let mut until = Instant::now();
        self.state.send_modify(|state| {
            if let LeaseState::Until(at) | LeaseState::Ended(at) = *state {
                until = at;
            }
            *state = LeaseState::Ended(until);
        });
        until
    }

    /// When to renew the lease next: a third of the lease after the last call. `None` if the lease
    /// is over.
    pub(super) fn next_renewal(&self) -> Option<Instant> {
        Some(self.until()? - self.request.lease * 2 / 3)
    }

    /// Renews the lease. Returns when to renew it again; `None` if it is over.
    pub(super) async fn renew(&self) -> Option<Instant> {
        let Some(until) = self.until() else {
            self.set_state(LeaseState::Lost);
            return None;
        };
        let sent = Instant::now();
        match timeout_at(until, self.request.renew(self.token)).await {
            Ok(Ok(true)) => {
                self.set_state(LeaseState::Until(sent + self.request.lease));
                self.next_renewal()
            }
            // Several more attempts fit into the lease. The guard notices its end by itself.
            Ok(Err(_)) => Some((Instant::now() + self.request.lease / 12).min(until)),
            Ok(Ok(false)) | Err(_) => {
                self.set_state(LeaseState::Lost);
                None
            }
        }
    }

    /// Sends the release before its reply is awaited, and wakes the next caller of this process:
    /// its call follows the release on the same connection. [`read`](Self::read) reads the reply.
    pub(super) fn release(&self) -> AnswerFuture<Value> {
        let until = self.end();
        let reply = self.request.release(self.token, until);
        let channel = self.request.channel();
        match self.request.is_nested() {
            true => self.channels.wake_one(channel),
            false => self.channels.release_sent(channel),
        }
        reply
    }

    /// Reads the reply to the release. Returns whether the lease was still held.
    pub(super) fn read(&self, reply: &Value) -> Result<bool, StoreError> {
        let reply = self.request.read_release(reply)?;
        if let Some(listeners) = reply.listeners {
            let channel = self.request.channel();
            self.channels.released(channel, listeners, self.acquired);
        }
        Ok(reply.was_held)
    }

    /// Does nothing once the guard has ended the lease.
    fn set_state(&self, to: LeaseState) {
        self.state.send_if_modified(|state| {
            let is_active = matches!(*state, LeaseState::Until(_));
            if is_active {
                *state = to;
            }
            is_active
        });
    }
}
