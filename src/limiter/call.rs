use std::sync::Arc;
use std::time::Duration;

use super::Generation;
use super::backend::{Grant, Id};
use super::batcher::Batcher;
use super::pending::{Answer, Questions};
use super::permit::Claim;

/// A call in progress.
pub(super) struct Call(pub(super) Arc<Batcher>);

impl Call {
    pub(super) async fn run(self, batch: Questions, changes: u64) {
        let batcher = &self.0;
        let ids = batch.iter().map(|(_, question)| question.id).collect();
        let reply = match batcher.backend.ask(batcher.what.clone(), ids).await {
            Ok(reply) => reply,
            Err(error) => {
                // The others hear of it at once: thousands would find out 64 at a time, each with a
                // time-out of its own.
                let others = batcher.pending().take_all();
                for (_, question) in batch.into_iter().chain(others) {
                    question.answer(Err(error.clone()));
                }
                return;
            }
        };
        let mut denied = Vec::new();
        for (place, (arrival, question)) in batch.into_iter().enumerate() {
            match reply.granted.contains(&place) {
                true => {
                    let claim = self.claim(question.id, reply.stamp);
                    question.answer(Ok(Answer::Granted(claim)));
                }
                false => denied.push((arrival, question)),
            }
        }
        if !denied.is_empty() {
            self.denied(denied, reply.wait, changes);
        }
    }

    /// A claim that is given back when it is dropped.
    fn claim(&self, id: Id, stamp: u64) -> Claim {
        let what = &self.0.what;
        let grant = Grant {
            id,
            stamp,
            permits: what.permits,
        };
        let mut claim = Claim::new(&self.0, grant);
        claim.is_open = what.generation == Generation::Third;
        claim
    }

    fn denied(&self, batch: Questions, wait: Duration, changes: u64) {
        let is_fair = self.0.what.is_fair;
        let have_left = self.0.pending().denied(batch, wait, changes, is_fair);
        // A caller that left during the call may have given up its place before the call made it.
        if is_fair {
            have_left.into_iter().for_each(|id| drop(self.claim(id, 0)));
        }
        self.0.retime();
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.pending().call_ended();
    }
}
