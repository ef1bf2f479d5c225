use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use axum_core::response::Response;
use http::HeaderValue;
use http::header::RETRY_AFTER;

use crate::callback::Cause;
use crate::connection::Redis;
use crate::decision::{self, Decision, QuotaState, Source};
use crate::error::StoreError;
use crate::key::Key;
use crate::layer::{Action, Responder, Verdict};
use crate::lock::LockGuard;
use crate::lock::acquire::acquire;
use crate::lock::lease_request::LeaseRequest;
use crate::lock::resource::{Resource, ResourceKind};
use crate::quota::Quota;
use crate::rule::Rule;
use crate::store::Take;

/// The settings of an [`ExclusiveLayer`](super::ExclusiveLayer), shared by all its services.
#[derive(Debug, Clone)]
pub(super) struct ExclusiveSettings {
    pub(super) redis: Redis,
    /// The rule that callbacks and problem documents see.
    pub(super) rule: Arc<Rule>,
    pub(super) prefix: Arc<str>,
    pub(super) permits: u32,
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) responder: Arc<Responder>,
}

impl ExclusiveSettings {
    /// # Panics
    ///
    /// If the path is empty.
    pub(super) fn new(redis: &Redis, path: &str, prefix: &str, lease: Duration) -> Self {
        let permits = 1;
        Self {
            redis: redis.clone(),
            rule: rule(path, permits, lease),
            prefix: prefix.into(),
            permits,
            lease,
            wait: Duration::ZERO,
            responder: Arc::new(Responder::new(Arc::new(write_retry_after))),
        }
    }

    /// Adapts the rule to the permits and the lease.
    pub(super) fn update_rule(&mut self) {
        self.rule = rule(self.rule.path(), self.permits, self.lease);
    }

    /// Acquires a permit for a request with this key, and says what becomes of the request.
    pub(super) async fn decide(self: Arc<Self>, key: Key) -> Action {
        let rule = Arc::clone(&self.rule);
        match self.acquire(&key).await {
            Ok(Some(permit)) => {
                let mut admitted = self.responder.admit(rule, None, None);
                admitted.permit = Some(Box::new(permit));
                Action::Admit(admitted)
            }
            Ok(None) => {
                let denied = Verdict::Denied(Take::new(rule, key), self.denial());
                self.responder.act(denied)
            }
            Err(error) => {
                let failed = Verdict::Failed(rule, Cause::Store(error, None));
                self.responder.act(failed)
            }
        }
    }

    async fn acquire(&self, key: &Key) -> Result<Option<LockGuard>, StoreError> {
        let (permits, prefix, id) = (self.permits, &self.prefix, self.rule.id());
        let name = match key.is_empty() {
            true => format!("{prefix}{id}"),
            false => format!("{prefix}{id}:{key}"),
        };
        let resource = Resource::new(&self.redis, ResourceKind::Semaphore { permits }, &name);
        let request = LeaseRequest::new(&resource, None, self.lease);
        let wait = match permits {
            // No permit is ever released, so waiting would be in vain.
            0 => Duration::ZERO,
            _ => self.wait,
        };
        let lease = acquire(&self.redis, request, Some(wait)).await?;
        Ok(lease.map(LockGuard::with_renewal))
    }

    /// A permit is free after one lease, even if the process that holds it has just died.
    fn denial(&self) -> Decision {
        let retry_after = self.lease;
        let verdict = match self.permits {
            0 => decision::Verdict::Never,
            _ => decision::Verdict::Denied { retry_after },
        };
        let state = QuotaState::new(0, retry_after);
        Decision::new(verdict, Source::Redis, 1, once(state))
    }
}

/// One second is an estimate, because nobody knows how long the requests in flight will take.
fn write_retry_after(_: &Arc<Rule>, decision: Decision, response: &mut Response) {
    if decision.retry_after().is_some() {
        let second = HeaderValue::from_static("1");
        response.headers_mut().entry(RETRY_AFTER).or_insert(second);
    }
}

/// A rule with one quota of the permits over one lease.
///
/// # Panics
///
/// If the path is empty.
fn rule(path: &str, permits: u32, lease: Duration) -> Arc<Rule> {
    let quota = Quota::new(permits.into(), lease.min(Quota::MAX_WINDOW));
    let quota = quota.expect("the lease is checked, and a quota may have more units than u32::MAX");
    let rule = Rule::new(path, [quota]).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(rule)
}
