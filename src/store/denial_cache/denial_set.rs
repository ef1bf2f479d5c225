use std::sync::{Arc, Weak};

use crate::clock::nanos;
use crate::decision::{Decision, Verdict};
use crate::key::Key;
use crate::rule::Rule;
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
        take: &Take,
        now: u64,
        max_age: u64,
    ) -> Result<Question, Decision> {
        let mut question = Question {
            asked_at: now,
            voids: self.voids,
            renewal: None,
        };
        let mut denials = self.denials.iter_mut();
        let Some(at) = denials.position(|denial| denial.answers(take)) else {
            return Ok(question);
        };
        let denial = &mut self.denials[at];
        match denial.age(now, max_age) {
            Age::Due if denial.renewal.is_none() => {
                self.renewals += 1;
                denial.renewal = Some(self.renewals);
                question.renewal = denial.renewal;
            }
            Age::Fresh | Age::Due => {
                self.uses += 1;
                denial.last_use = self.uses;
                return Err(denial.told(now));
            }
            Age::Over => {
                self.denials.swap_remove(at);
            }
        }
        Ok(question)
    }

    /// The store answered the question, by this denial or otherwise; or nobody hears the answer.
    pub(super) fn answered(
        &mut self,
        question: &Question,
        denial: Option<(&Take, Denial)>,
        max: usize,
    ) {
        if question.renewal.is_some() {
            self.denials
                .retain(|denial| denial.renewal != question.renewal);
        }
        let may_keep = self.changes == 0 && question.voids == self.voids;
        if let Some((take, denial)) = denial.filter(|_| may_keep) {
            self.keep(take, denial, max);
        }
    }

    /// Keeps the later one of two denials of the same question. In a set that is full, the denial
    /// goes that was not used for the longest time.
    fn keep(&mut self, take: &Take, mut denial: Denial, max: usize) {
        self.uses += 1;
        denial.last_use = self.uses;
        let mut same = self.denials.iter_mut().filter(|kept| kept.answers(take));
        if let Some(kept) = same.next() {
            if kept.asked_at < denial.asked_at {
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

/// A store's denial, and the question that it answered. Instants are nanoseconds of this process's
/// clock.
#[derive(Debug)]
pub(super) struct Denial {
    /// The hash of the rule's id and the key.
    hash: u64,
    /// It does not keep a rule that was replaced, and no other rule gets its address.
    rule: Weak<Rule>,
    key: Key,
    cost: u64,
    decision: Decision,
    /// Before the question was sent: the store decided at this instant or later.
    asked_at: u64,
    /// After the answer was heard: the store decided at this instant or earlier.
    heard_at: u64,
    /// The retry-after; without an end for a take that can never be allowed.
    lasts: u64,
    /// The number of the set's use in which this was kept or told last.
    last_use: u64,
    /// The number of the question that asks the store again.
    renewal: Option<u64>,
}

/// Says who answers a question about a key whose denial is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// The denial.
    Fresh,
    /// The store answers one question, and the denial the others.
    Due,
    /// The store.
    Over,
}

impl Denial {
    /// `None` if the decision is no denial, or that of a fallback.
    pub(super) fn new(
        take: &Take,
        decision: &Decision,
        asked_at: u64,
        now: impl FnOnce() -> u64,
    ) -> Option<Self> {
        let lasts = match decision.verdict() {
            Verdict::Allowed => return None,
            Verdict::Denied { retry_after } => nanos(retry_after),
            Verdict::Never => u64::MAX,
        };
        decision.failure().is_none().then(|| Self {
            hash: take.count_name().hash(),
            rule: Arc::downgrade(take.rule()),
            key: take.key().clone(),
            cost: take.cost(),
            decision: decision.clone(),
            asked_at,
            heard_at: now(),
            lasts,
            last_use: 0,
            renewal: None,
        })
    }

    fn answers(&self, take: &Take) -> bool {
        self.hash == take.count_name().hash()
            && self.cost == take.cost()
            && self.rule.as_ptr() == Arc::as_ptr(take.rule())
            && self.key == *take.key()
    }

    /// The denial is over before the store's: its time begins before the store decided, and a
    /// thousandth is left for a server whose clock runs faster.
    fn age(&self, now: u64, max_age: u64) -> Age {
        let age = now.saturating_sub(self.asked_at);
        let at_servers_pace = age.saturating_add(age / 1_000);
        // Early enough that the answer is there at the max age.
        let due = max_age - max_age / 4;
        if at_servers_pace >= self.lasts || age >= max_age {
            Age::Over
        } else if age >= due {
            Age::Due
        } else {
            Age::Fresh
        }
    }

    /// The denial as it is told now. The retry-after ends when that of the first caller does, who
    /// heard of the denial when the store's answer came.
    fn told(&self, now: u64) -> Decision {
        let micros = now.saturating_sub(self.heard_at) / 1_000;
        self.decision.told_later(micros)
    }
}
