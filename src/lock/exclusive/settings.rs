use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use axum_core::response::Response;
use http::HeaderValue;
use http::header::RETRY_AFTER;
use http::request::Parts;

use crate::admission::{Options, Outcome};
use crate::callback::Cause;
use crate::connection::Redis;
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::error::StoreError;
use crate::key::Key;
use crate::lock::slots::{Permit, Slots};
use crate::quota::Quota;
use crate::rule::Rule;
use crate::store::Take;

/// The settings of a layer, shared by all services that it made.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) redis: Redis,
    /// For callbacks and problem documents: a quota of the permits.
    pub(super) rule: Arc<Rule>,
    pub(super) prefix: Arc<str>,
    pub(super) permits: u32,
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) options: Options,
}

impl Settings {
    /// Asks for a permit for the request with this head.
    pub(super) fn ask_about(self: &Arc<Self>, head: &Parts) -> Outcome {
        let key = match self.options.extract(&self.rule, head) {
            Ok(key) => key,
            Err(outcome) => return *outcome,
        };
        let settings = Arc::clone(self);
        Outcome::Wait(Box::pin(async move {
            let answer = settings.slots(&key).take(settings.wait).await;
            settings.outcome(key, answer)
        }))
    }

    /// Named as a rate limit is: the prefix, the path, and the parts of the key.
    fn slots(&self, key: &Key) -> Slots {
        let (prefix, id) = (&self.prefix, self.rule.id());
        let name = match key.is_empty() {
            true => format!("{prefix}{id}"),
            false => format!("{prefix}{id}:{key}"),
        };
        Slots::new(&self.redis, &name, self.permits, self.lease)
    }

    fn outcome(&self, key: Key, answer: Result<Option<Permit>, StoreError>) -> Outcome {
        let rule = Arc::clone(&self.rule);
        match answer {
            Ok(Some(permit)) => {
                let mut admitted = self.options.admit(rule);
                admitted.permit = Some(Box::new(permit));
                Outcome::Admit(admitted)
            }
            Ok(None) => self.options.deny(Take::new(rule, key), self.denial()),
            Err(error) => {
                let cause = Cause::Store(error, None);
                self.options.fail(rule, cause, Outcome::unavailable())
            }
        }
    }

    /// A permit is free after the lease even if the process that holds it has just died.
    fn denial(&self) -> Decision {
        let retry_after = self.lease;
        let verdict = match self.permits {
            0 => Verdict::Never,
            _ => Verdict::Denied { retry_after },
        };
        let state = QuotaState::new(0, retry_after);
        Decision::new(verdict, Source::Redis, once(state))
    }
}

/// One second is an estimate: how long the requests in flight will take is not known.
pub(super) fn write_retry_after(_: &Arc<Rule>, decision: Decision, response: &mut Response) {
    if decision.retry_after().is_some() {
        let second = HeaderValue::from_static("1");
        response.headers_mut().entry(RETRY_AFTER).or_insert(second);
    }
}

/// The rule that callbacks see: a permit comes back after a lease at the latest.
///
/// # Panics
///
/// If the path is empty.
pub(super) fn rule(path: &str, permits: u32, lease: Duration) -> Arc<Rule> {
    let quota = Quota::new(permits.into(), lease.min(Quota::MAX_WINDOW));
    let quota =
        quota.expect("the lease is checked, and there are fewer permits than quotas may have");
    let rule = Rule::new(path, [quota]).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(rule)
}
