use super::denial::{Age, Denial};
use crate::decision::Decision;
use crate::store::Take;

/// The most denials of one set.
pub(super) const MAX_DENIALS: usize = 8;

/// Denials of rules and keys whose hashes lead to the same place, under one lock.
#[derive(Debug, Default)]
pub(super) struct DenialSet {
    denials: Vec<Denial>,
    /// How often denials were voided: an answer to a question from before is not kept.
    voids: u64,
    /// How many refunds and resets wait for their answer: until then, no denial is kept.
    changes: usize,
    /// How many questions were asked to renew a denial.
    renewals: u64,
    /// How often a denial was kept or told.
    uses: u64,
}

/// Describes a question that goes to the store, until its answer comes.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) asked_at: u64,
    voids: u64,
    /// The number of the question, if it is to renew a denial.
    pub(super) renewal: Option<u64>,
}

impl DenialSet {
    /// The question to the store, if the store has to answer.
    ///
    /// # Errors
    ///
    /// The denial that answers this take.
    pub(super) fn look(
        &mut self,
        hash: u64,
        take: &Take,
        now: u64,
        max_age: u64,
    ) -> Result<Question, Decision> {
        let mut denials = self.denials.iter_mut();
        let Some(at) = denials.position(|denial| denial.answers(hash, take)) else {
            return Ok(self.question(now));
        };
        let denial = &mut self.denials[at];
        match denial.age(now, max_age) {
            Age::Due if denial.renewal.is_none() => {
                self.renewals += 1;
                denial.renewal = Some(self.renewals);
                let renewal = denial.renewal;
                Ok(Question {
                    renewal,
                    ..self.question(now)
                })
            }
            Age::Fresh | Age::Due => {
                self.uses += 1;
                denial.last_use = self.uses;
                Err(denial.told(now))
            }
            Age::Over => {
                self.denials.swap_remove(at);
                Ok(self.question(now))
            }
        }
    }

    fn question(&self, now: u64) -> Question {
        Question {
            asked_at: now,
            voids: self.voids,
            renewal: None,
        }
    }

    /// The store answered the question, by this denial or otherwise; or nobody hears the answer.
    pub(super) fn answered(&mut self, question: &Question, denial: Option<Denial>, max: usize) {
        if question.renewal.is_some() {
            self.denials
                .retain(|denial| denial.renewal != question.renewal);
        }
        let may_keep = self.changes == 0 && question.voids == self.voids;
        if let Some(denial) = denial.filter(|_| may_keep) {
            self.keep(denial, max);
        }
    }

    /// Keeps the later one of two denials of the same question. In a set that is full, the denial
    /// goes that was not used for the longest time.
    fn keep(&mut self, mut denial: Denial, max: usize) {
        self.uses += 1;
        denial.last_use = self.uses;
        let same = |kept: &&mut Denial| kept.is_of_same_question(&denial);
        if let Some(kept) = self.denials.iter_mut().find(same) {
            if kept.is_older_than(&denial) {
                *kept = denial;
            }
            return;
        }
        if self.denials.len() < max {
            self.denials.push(denial);
        } else if let Some(kept) = self.denials.iter_mut().min_by_key(|kept| kept.last_use) {
            *kept = denial;
        }
    }

    /// A refund or a reset of this hash begins: its denials are void.
    pub(super) fn begin_change(&mut self, hash: u64) {
        self.changes += 1;
        self.denials.retain(|denial| denial.hash != hash);
    }

    /// It has ended. What was asked before may have been decided before.
    pub(super) fn end_change(&mut self) {
        self.changes -= 1;
        self.voids += 1;
    }
}
