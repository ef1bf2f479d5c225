//! Waiting for what others have.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::attempt::Attempt;
use super::claim::Claim;
use super::error::may_pass;
use super::lease::Lease;
use super::reply::Answer;
use super::subscriber::Subscriber;
use super::watchdog::Watchdog;
use crate::connection::Redis;
use crate::error::StoreError;
use crate::lines::Lines;

/// Those who wait for locks, apart from those who wait for anything else.
#[derive(Debug, Default)]
struct LockLines {
    lines: Lines,
    outage: Mutex<Option<Outage>>,
}

/// Calls that fail one after the other, whoever makes them: those behind in a line need not find out anew.
#[derive(Debug)]
struct Outage {
    since: Instant,
    last: Instant,
}

impl LockLines {
    /// For how long calls have failed by now, with this one.
    fn failed(&self) -> Duration {
        let now = Instant::now();
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let known = outage
            .as_ref()
            .filter(|known| now - known.last < LONGEST_OUTAGE);
        let since = known.map_or(now, |known| known.since);
        *outage = Some(Outage { since, last: now });
        now - since
    }

    fn answered(&self) {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        *outage = None;
    }
}

/// A message that is lost costs no more than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// So long nobody answers, and it is an error.
const LONGEST_OUTAGE: Duration = Duration::from_secs(5);
/// From one call that failed to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// One round trip; none if others have it.
pub(super) async fn try_once(redis: &Redis, claim: Claim) -> Result<Option<Lease>, StoreError> {
    let watchdog = redis.keep(|_| Watchdog::start());
    let mut attempt = Attempt::new(&watchdog, claim);
    Ok(attempt.ask().await?.ok())
}

/// Waits until then, or as long as it takes. Of all that wait in this process only one asks, the one that came first.
pub(super) async fn wait(
    redis: &Redis,
    claim: Claim,
    until: Option<Instant>,
) -> Result<Option<Lease>, StoreError> {
    let watchdog = redis.keep(|_| Watchdog::start());
    let lines = redis.keep(|_| LockLines::default());
    let line = lines.lines.line(&claim.target.names.key);
    let may_have_it = claim.has_others();
    let mut waiter = Waiter {
        subscriber: redis.keep(Subscriber::start),
        channel: claim.target.names.channel.clone(),
        attempt: Attempt::new(&watchdog, claim),
        lines: &lines,
        failure: None,
    };
    // Who may have it already must not stand behind those who wait for its release.
    if may_have_it && let Some(lease) = waiter.ask().await?.ok() {
        return Ok(Some(lease));
    }
    let Some(_turn) = line.turn(until).await? else {
        return Ok(None);
    };
    match waiter.ask().await? {
        Ok(lease) => Ok(Some(lease)),
        Err(_) => match until {
            None => waiter.wait().await.map(Some),
            Some(until) => {
                let waited = timeout_at(until, waiter.wait()).await;
                waited.map_or_else(|_| waiter.in_vain(), |lease| lease.map(Some))
            }
        },
    }
}

/// The first of its line.
struct Waiter<'a> {
    attempt: Attempt<'a>,
    subscriber: Arc<Subscriber>,
    channel: Box<str>,
    lines: &'a LockLines,
    /// Of the last call, if it failed.
    failure: Option<StoreError>,
}

impl Waiter<'_> {
    /// Asks again whenever it may have become free.
    async fn wait(&mut self) -> Result<Lease, StoreError> {
        let mut news = self.subscriber.listen(&self.channel);
        news.begun(LONGEST_SLEEP).await;
        loop {
            news.seen();
            let sleep = match self.ask().await? {
                Ok(lease) => return Ok(lease),
                Err(sleep) => sleep.min(LONGEST_SLEEP),
            };
            let until = Instant::now() + sleep;
            tokio::select! {
                () = news.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// The lease, or how long to wait if nothing is heard. An outage is an error only if it lasts.
    async fn ask(&mut self) -> Result<Result<Lease, Duration>, StoreError> {
        let answer = self.attempt.ask().await;
        if answer.is_ok() {
            self.lines.answered();
            self.failure = None;
        }
        match answer {
            Ok(Ok(lease)) => Ok(Ok(lease)),
            Ok(Err(Answer::Held { ends_after })) => Ok(Err(ends_after.unwrap_or(LONGEST_SLEEP))),
            Ok(Err(Answer::Taken { .. })) => Ok(Err(PAUSE)),
            Err(error) if may_pass(&error) && self.lines.failed() < LONGEST_OUTAGE => {
                self.failure = Some(error);
                Ok(Err(PAUSE))
            }
            Err(error) => Err(error),
        }
    }

    /// The time is up: others have it, or nobody knows.
    fn in_vain(&mut self) -> Result<Option<Lease>, StoreError> {
        self.failure.take().map_or(Ok(None), Err)
    }
}
