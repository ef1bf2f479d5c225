use std::sync::Arc;

use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::claim::Claim;
use super::subscriber::Channels;
use crate::connection::AnswerFuture;
use crate::error::StoreError;

/// What was taken, as its guard and the watchdog know it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) claim: Claim,
    pub(super) token: u64,
    state: watch::Sender<State>,
    /// When it was asked for.
    taken: Instant,
    /// Where others of this process wait for it.
    channels: Arc<Channels>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// By what this process knows, counted from before the request was sent.
    Until(Instant),
    Lost,
    /// Its guard has ended it; until then Redis may have it all the same.
    Ended(Instant),
}

impl Held {
    /// By a request that was sent then.
    pub(super) fn new(
        channels: Arc<Channels>,
        claim: Claim,
        token: u64,
        sent: Instant,
    ) -> Arc<Self> {
        let until = sent + claim.lease;
        claim.taken(token, Some(until));
        channels.taken(&claim.target.names.channel);
        Arc::new(Self {
            claim,
            token,
            state: watch::Sender::new(State::Until(until)),
            taken: sent,
            channels,
        })
    }

    /// When the lease runs out; none if it is over.
    pub(super) fn until(&self) -> Option<Instant> {
        match *self.state.borrow() {
            State::Until(until) if Instant::now() < until => Some(until),
            _ => None,
        }
    }

    /// Completes when it is over, in whatever way.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + Sync + use<> {
        let mut state = self.state.subscribe();
        async move {
            loop {
                let State::Until(until) = *state.borrow_and_update() else {
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

    /// From now on nothing is renewed. The instant at which the lease runs out.
    pub(super) fn end(&self) -> Instant {
        let mut until = Instant::now();
        self.state.send_modify(|state| {
            if let State::Until(at) | State::Ended(at) = *state {
                until = at;
            }
            *state = State::Ended(until);
        });
        until
    }

    /// When to renew it next: at a third of the lease. None if it is over.
    pub(super) fn first_renewal(&self) -> Option<Instant> {
        Some(self.until()? - self.claim.lease * 2 / 3)
    }

    /// Renews it; when to do that again, if at all.
    pub(super) async fn renew(&self) -> Option<Instant> {
        let Some(until) = self.until() else {
            self.change(State::Lost);
            return None;
        };
        let sent = Instant::now();
        match timeout_at(until, self.claim.renew(self.token)).await {
            Ok(Ok(true)) => {
                self.change(State::Until(sent + self.claim.lease));
                self.first_renewal()
            }
            // Several more tries until the lease runs out; that is told to the guard by its own clock.
            Ok(Err(_)) => Some((Instant::now() + self.claim.lease / 12).min(until)),
            Ok(Ok(false)) | Err(_) => {
                self.change(State::Lost);
                None
            }
        }
    }

    /// Gives it back, once. The call is sent at once, and whoever waits for it in this process asks
    /// right behind it, unless others go first. [`Held::read`] reads the reply.
    pub(super) fn release(&self) -> AnswerFuture<Value> {
        let is_over = self.end() <= Instant::now();
        let reply = self.claim.release(Some(self.token), is_over);
        let channel = &self.claim.target.names.channel;
        match self.claim.is_nested() {
            true => self.channels.wake_one(channel),
            false => self.channels.released(channel),
        }
        reply
    }

    /// Whether it was still held, by the reply to its release.
    pub(super) fn read(&self, reply: &Value) -> Result<bool, StoreError> {
        let released = self.claim.read(reply)?;
        if let Some(listeners) = released.listeners {
            let channel = &self.claim.target.names.channel;
            self.channels.told(channel, listeners, self.taken);
        }
        Ok(released.was_held)
    }

    /// Unless its guard has ended it.
    fn change(&self, to: State) {
        self.state.send_if_modified(|state| {
            let goes_on = matches!(*state, State::Until(_));
            if goes_on {
                *state = to;
            }
            goes_on
        });
    }
}
