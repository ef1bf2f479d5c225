use std::sync::Arc;

use super::denial::Denial;
use super::denial_set::Question;
use super::denials::Denials;
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::Take;

/// A take that the store has to answer. If it is dropped without an answer, the denial that it was
/// to renew is void.
#[derive(Debug)]
pub(in crate::store) struct PendingTake {
    denials: Arc<Denials>,
    hash: u64,
    question: Question,
}

impl PendingTake {
    pub(super) fn new(denials: Arc<Denials>, hash: u64, question: Question) -> Self {
        Self {
            denials,
            hash,
            question,
        }
    }

    /// Keeps the store's answer if it is a denial.
    pub(in crate::store) fn answered(mut self, take: &Take, answer: &Result<Decision, StoreError>) {
        let denial = match answer {
            Ok(decision) if !decision.is_allowed() => {
                let heard_at = self.denials.clock.nanos();
                Denial::of(take, self.hash, decision, self.question.asked_at, heard_at)
            }
            _ => None,
        };
        self.end(denial);
    }

    fn end(&mut self, denial: Option<Denial>) {
        if denial.is_none() && self.question.renewal.is_none() {
            return;
        }
        if let Some(mut set) = self.denials.set(self.hash) {
            set.answered(&self.question, denial, self.denials.max_per_set());
        }
        self.question.renewal = None;
    }
}

impl Drop for PendingTake {
    fn drop(&mut self) {
        self.end(None);
    }
}
