use std::iter::once;
use std::sync::Arc;

use axum_core::response::Response;
use http::request::Parts;

use super::settings::Settings;
use crate::callback::{
    BoxFuture, Denied, Failed, Panicked, Recovery, caught, guarded, quota_exceeded, recover,
    reduced_capacity,
};
use crate::decision::{Decision, QuotaState, Source, Verdict};
use crate::key::Key;
use crate::lock::slots::Permit;
use crate::store::Take;

/// What becomes of a request.
pub(super) enum Outcome {
    /// On to the handler; without a permit if an error callback says so.
    Proceed(Box<Parts>, Option<Permit>),
    /// A callback answers, or nobody has to: the handler is out of the game.
    Answering(BoxFuture<'static, Response>),
}

impl Settings {
    /// Waits for a permit, as long as it may.
    pub(super) async fn decide(self: Arc<Self>, head: Parts) -> Outcome {
        let key = match self.key_of(&head) {
            Ok(Ok(key)) => key,
            Ok(Err(failed)) => return self.failed(failed, head).await,
            Err(panicked) => return answer(panicked.into()),
        };
        match self.slots(&key).take(self.wait).await {
            Ok(Some(permit)) => Outcome::Proceed(Box::new(head), Some(permit)),
            Ok(None) => self.denied(key, head),
            Err(error) => {
                let failed = Failed::store(Arc::clone(&self.rule), head.clone(), error);
                self.failed(failed, head).await
            }
        }
    }

    fn key_of(&self, head: &Parts) -> Result<Result<Key, Failed>, Panicked> {
        let Some(extractor) = &self.key else {
            return Ok(Ok(Key::default()));
        };
        let key = caught("key extractor", self.rule.path(), || {
            extractor.extract(head)
        })?;
        Ok(key.map_err(|error| Failed::key(Arc::clone(&self.rule), head.clone(), error)))
    }

    fn denied(&self, key: Key, head: Parts) -> Outcome {
        // When others end nobody knows; if they have died just now, it is then.
        let retry_after = self.lease;
        let state = QuotaState::new(0, retry_after);
        let verdict = match self.permits {
            0 => Verdict::Never,
            _ => Verdict::Denied { retry_after },
        };
        let decision = Decision::new(verdict, Source::Redis, once(state));
        let Some(callback) = self.degrade.clone() else {
            return answer(quota_exceeded(&self.rule, &decision, 1));
        };
        let rule = Arc::clone(&self.rule);
        Outcome::Answering(Box::pin(async move {
            let denied = Denied::new(Take::new(Arc::clone(&rule), key), decision, head);
            let response = guarded("degrade callback", rule.path(), || callback.degrade(denied));
            response.await.unwrap_or_else(Into::into)
        }))
    }

    async fn failed(&self, failed: Failed, head: Parts) -> Outcome {
        let Some(callback) = &self.on_error else {
            return answer(reduced_capacity());
        };
        match recover(&**callback, failed).await {
            Recovery::Proceed => Outcome::Proceed(Box::new(head), None),
            Recovery::Respond(response) => answer(response),
            Recovery::Propagate => answer(reduced_capacity()),
        }
    }
}

fn answer(response: Response) -> Outcome {
    Outcome::Answering(Box::pin(std::future::ready(response)))
}
