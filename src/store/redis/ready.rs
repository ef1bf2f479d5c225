//! Whether the servers decide, which is asked before the first request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use redis::{Value, cmd};
use smallvec::smallvec;
use tokio::time::{Instant, sleep_until};

use super::RedisStore;
use super::calls::flight;
use super::question::{CountKey, CountOperation, CountQuestion};
use crate::algorithm::Algorithm;
use crate::algorithm::spec::{Kind, Spec, Windows};
use crate::connection::{Driver, ReplyFuture, Wanted};
use crate::deadline::Deadline;
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::question::{Name, has_tag};
use crate::quota::Quota;

/// Behind the prefix: no path makes it.
const NAME: &str = "~ready";
/// How often servers are asked that fail or answer too late, at least.
const MIN_ROUNDS: u32 = 3;
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(100);
/// A question has the store's time-out also at the end of the bound, but no more than this.
const MAX_BEYOND: Duration = Duration::from_secs(1);
/// The commands of counts, which change none. An error names the one that the user may not use;
/// before Redis 7.2, that of a script does not. That a log is no string does not matter.
const COMMANDS: &str = "ZADD XX 0 0,ZCARD,ZCOUNT 1 0,ZRANGE 0 0,ZRANGEBYSCORE 1 0,ZREM 0,\
    ZREMRANGEBYRANK 1 0,ZREMRANGEBYSCORE 1 0,PEXPIRE 2000,GET,MGET,SET 0 XX PX 2000";

impl RedisStore {
    /// Waits until all servers decide within `timeout`, for at most `bound`.
    pub(super) async fn until_it_decides(
        self,
        bound: Duration,
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let until = Deadline::after(bound).at;
        let connected = self.connection.connected(Wanted::All, bound).await;
        connected.map_err(|error| self.with_acl_line(error))?;
        let (mut rounds, mut shortest, mut failure) = (0, Duration::MAX, None);
        loop {
            let (began, mut next) = (Instant::now(), until);
            let left = until.saturating_duration_since(began);
            let patience = left.max(timeout.min(MAX_BEYOND));
            match self.decide_everywhere(patience).await {
                Ok(()) if began.elapsed() <= timeout => return Ok(()),
                Ok(()) => {
                    (shortest, next) = (shortest.min(began.elapsed()), began);
                    failure = Some(self.too_late(shortest, timeout));
                }
                Err(error) if is_mistake(&error) => return Err(self.with_acl_line(error)),
                // What was said before tells more.
                Err(error) if failure.is_some() && error.kind() == StoreErrorKind::Timeout => {}
                Err(error) => failure = Some(error),
            }
            rounds += 1;
            let is_over = rounds >= MIN_ROUNDS && Instant::now() >= until;
            if let Some(error) = failure.take_if(|_| is_over) {
                return Err(error);
            }
            sleep_until(next.min(Instant::now() + PAUSE)).await;
        }
    }

    /// Has each server decide about a name of its own, in one round trip.
    async fn decide_everywhere(&self, patience: Duration) -> Result<(), StoreError> {
        let (prefix, connection) = (self.ready_prefix(), &self.connection);
        let name = |tag| format!("{prefix}{NAME}{{{tag}}}");
        let names = match has_tag(prefix) {
            true => vec![name(0)],
            false => connection.names_everywhere(name),
        };
        let quotas = Box::new([Quota::from_micros(1_000, 1_000)]);
        let windows = Windows::new(Algorithm::SlidingLog.into(), quotas, None);
        let spec = Spec::plain(Kind::Windows(windows));
        let decided = names.iter().map(|name| self.decide(name, &spec, patience));
        let decided: Vec<_> = decided.collect();
        let patient = connection.clone().with_timeout(patience);
        let commands = names.iter().flat_map(|name| {
            let words = COMMANDS.split(',').map(|it| it.split(' '));
            words.map(move |mut words| (words.next().unwrap_or_default(), name, words))
        });
        let allowed = commands.map(async |(word, name, words)| {
            // It would take the place of the log.
            let suffix = if word == "SET" { "s" } else { "" };
            let own = format!("{name}{suffix}");
            let command = cmd(word).arg(own).arg(words.collect::<Vec<_>>()).clone();
            patient.query::<Value>(command, name).await
        });
        let (allowed, decided) = join(join_all(allowed), join_all(decided)).await;
        let failed = allowed.into_iter().filter_map(Result::err);
        let failed = failed.filter(is_mistake);
        let failed = failed.chain(decided.into_iter().filter_map(Result::err));
        let first = failed.min_by_key(|error| !is_mistake(error));
        first.map_or(Ok(()), Err)
    }

    fn decide(&self, name: &str, spec: &Arc<Spec>, patience: Duration) -> ReplyFuture<Decision> {
        let count = CountKey {
            name: Name::whole(name),
            spec: Arc::clone(spec),
            cost: 1,
            prefix: Arc::default(),
        };
        let (whole, holder) = (None, None);
        let question = CountQuestion {
            counts: smallvec![count],
            now: self.now(),
            what: CountOperation::Take { whole, holder },
        };
        let (deadline, driver) = (Deadline::after(patience), Driver::Dispatcher);
        let connection = &self.connection;
        connection.ask(flight, question, |_| name, deadline, driver)
    }

    /// What the names begin with: the service's own, if it has one.
    fn ready_prefix(&self) -> &str {
        let prefixes = [&*self.prefix.service, &*self.prefix.default];
        prefixes[usize::from(prefixes[0].is_empty())]
    }

    /// If it is the error of a user who may not do all that is needed, it says what does.
    fn with_acl_line(&self, error: StoreError) -> StoreError {
        let said = error.to_string();
        if !said.contains("o permissions") || said.contains("access database") {
            return error;
        }
        let prefix = self.ready_prefix();
        let message = format!(
            "{said}: docs/security.md has the line of an ACL that suffices, whose keys contain \
             ~{prefix}{NAME}*"
        );
        StoreError::new(error.kind(), message).with_source(error)
    }

    /// The error of a server whose answers would all be late.
    fn too_late(&self, took: Duration, timeout: Duration) -> StoreError {
        let [took, timeout] = [took, timeout].map(|it| it.as_micros().div_ceil(1_000));
        let message = format!(
            "{} is too far away: an answer took {took} ms, the time-out is {timeout} ms: \
             `.timeout(..)` makes it longer",
            self.connection.label()
        );
        StoreError::new(StoreErrorKind::Timeout, message)
    }
}

/// Whether somebody has to mend the set-up.
fn is_mistake(error: &StoreError) -> bool {
    use StoreErrorKind::{Configuration, Refused};
    matches!(error.kind(), Configuration | Refused)
}
