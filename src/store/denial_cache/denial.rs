use std::sync::{Arc, Weak};

use crate::clock::nanos;
use crate::decision::{Decision, Verdict};
use crate::key::Key;
use crate::rule::Rule;
use crate::store::Take;

/// A store's denial, and the question that it answered. Instants are nanoseconds of this process's
/// clock.
#[derive(Debug)]
pub(super) struct Denial {
    /// The hash of the rule's id and the key.
    pub(super) hash: u64,
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
    pub(super) last_use: u64,
    /// The number of the question that asks the store again.
    pub(super) renewal: Option<u64>,
}

/// Says who answers a question about a key whose denial is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// The denial.
    Fresh,
    /// The store answers one question, and the denial the others.
    Due,
    /// The store.
    Over,
}

impl Denial {
    /// `None` if the decision is no denial, or that of a fallback.
    pub(super) fn of(
        take: &Take,
        hash: u64,
        decision: &Decision,
        asked_at: u64,
        heard_at: u64,
    ) -> Option<Self> {
        let lasts = match decision.verdict() {
            Verdict::Allowed => return None,
            Verdict::Denied { retry_after } => nanos(retry_after),
            Verdict::Never => u64::MAX,
        };
        decision.failure().is_none().then(|| Self {
            hash,
            rule: Arc::downgrade(take.rule()),
            key: take.key().clone(),
            cost: take.cost(),
            decision: decision.clone(),
            asked_at,
            heard_at,
            lasts,
            last_use: 0,
            renewal: None,
        })
    }

    pub(super) fn answers(&self, hash: u64, take: &Take) -> bool {
        self.hash == hash
            && self.cost == take.cost()
            && self.rule.as_ptr() == Arc::as_ptr(take.rule())
            && self.key == *take.key()
    }

    /// Whether both answer the same question.
    pub(super) fn is_of_same_question(&self, other: &Self) -> bool {
        self.hash == other.hash
            && self.cost == other.cost
            && self.rule.ptr_eq(&other.rule)
            && self.key == other.key
    }

    /// Whether this was asked before the other.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.asked_at < other.asked_at
    }

    /// The denial is over before the store's: its time begins before the store decided, and a
    /// thousandth is left for a server whose clock runs faster.
    pub(super) fn age(&self, now: u64, max_age: u64) -> Age {
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
    pub(super) fn told(&self, now: u64) -> Decision {
        let micros = now.saturating_sub(self.heard_at) / 1_000;
        self.decision.told_later(micros)
    }
}
