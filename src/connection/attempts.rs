use std::time::Duration;

use futures_util::future::{BoxFuture, select_all};
use redis::RedisResult;
use tokio::time::{Instant, sleep_until};

use super::link::Link;
use super::scripts::Preload;
use super::target::Target;
use super::time_limit::{no_connection_within, within};
use crate::jitter;

/// The time from the beginning of one attempt to connect to the beginning of the next. Up to half
/// of it is added at random, so that processes do not connect at the same time.
pub(super) const ATTEMPT_INTERVAL: Duration = Duration::from_millis(120);
/// How long one attempt may take.
const MAX_ATTEMPT: Duration = Duration::from_secs(2);
/// How long an attempt runs alone before the next one begins beside it.
const MIN_ALONE: Duration = Duration::from_millis(300);

/// What a new connection has to prove before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// That it can be opened.
    Opened,
    /// That the server executes scripts over it. Without that it is no better than the silent
    /// connection that it is to replace.
    ScriptCall,
}

/// The attempts to connect to one server: at most two are in progress.
///
/// The first one goes on until its time is over, since the server may have become slow. The second
/// one is given up for each later one, which is answered at once when the server is back.
///
/// ```text
/// time      0                    300 ms    600 ms             2 s
/// first     |--- hangs -------------------------------------->| given up
/// second                         |------->| given up for a third, and so on
/// ```
///
/// If the first one fails instead of hanging, the next begins 120 to 180 ms after it began. With
/// one attempt, a handshake that hangs would delay the return to a server that is back by up to two
/// seconds. More than two would be a storm of connections, of a whole fleet, to a server that is
/// just slow.
#[derive(Default)]
pub(super) struct Attempts {
    in_progress: Vec<BoxFuture<'static, (Instant, RedisResult<Link>)>>,
    next_at: Option<Instant>,
    /// How long an attempt runs alone, from what the last successful one took.
    alone: Option<Duration>,
}

impl Attempts {
    /// The outcome of the next attempt that ends. Begins attempts when it is time to.
    ///
    /// Dropping the future ends nothing: the attempts stay in `self`, and go on when it is called
    /// again. When an attempt has to begin beside another one, this returns an error, so that
    /// questions hear that the server cannot be reached.
    pub(super) async fn next(
        &mut self,
        target: &Target,
        preload: Preload,
        proof: Proof,
    ) -> RedisResult<Link> {
        loop {
            let alone = self.alone.unwrap_or(MIN_ALONE);
            let next_at = self.next_at.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                (at, (begun, outcome)) = first_of(&mut self.in_progress) => {
                    drop(self.in_progress.remove(at));
                    if outcome.is_ok() {
                        self.in_progress.clear();
                        self.alone = Some(alone_after(begun.elapsed()));
                    }
                    let jitter = jitter::up_to(ATTEMPT_INTERVAL / 2);
                    self.next_at = Some(begun + ATTEMPT_INTERVAL + jitter);
                    return outcome;
                }
                () = sleep_until(next_at) => {
                    let is_beside = !self.in_progress.is_empty();
                    self.in_progress.truncate(1);
                    self.begin(target.clone(), preload, proof);
                    self.next_at = Some(Instant::now() + alone);
                    if is_beside {
                        return Err(no_connection_within(alone));
                    }
                }
            }
        }
    }

    /// Gives up all attempts in progress.
    pub(super) fn clear(&mut self) {
        self.in_progress.clear();
    }

    /// Starts one attempt. Its outcome comes with the instant at which it began.
    fn begin(&mut self, target: Target, preload: Preload, proof: Proof) {
        let begun = Instant::now();
        let attempt = within(MAX_ATTEMPT, async move {
            let link = target.connect(preload).await?;
            if proof == Proof::ScriptCall {
                link.check().await?;
            }
            Ok(link)
        });
        self.in_progress
            .push(Box::pin(async move { (begun, attempt.await) }));
    }
}

/// The outcome of the first of these that ends, and its index. Pends forever if there are none.
async fn first_of<T>(in_progress: &mut [BoxFuture<'static, T>]) -> (usize, T) {
    if in_progress.is_empty() {
        return std::future::pending().await;
    }
    let (outcome, at, _) = select_all(in_progress).await;
    (at, outcome)
}

/// How long an attempt runs alone after the last successful one took `success`: eight times as
/// long, within bounds. A server that answers quickly is not waited for long.
fn alone_after(success: Duration) -> Duration {
    (8 * success).clamp(MIN_ALONE, MAX_ATTEMPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_runs_alone_for_eight_times_the_last_success_within_bounds() {
        let millis = Duration::from_millis;
        assert_eq!(alone_after(millis(1)), millis(300));
        assert_eq!(alone_after(millis(100)), millis(800));
        assert_eq!(alone_after(millis(900)), millis(2_000));
    }
}
