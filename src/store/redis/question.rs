use std::sync::Arc;

use smallvec::SmallVec;

use crate::connection::{CallQuestion, Question};
use crate::decision::Receipt;
use crate::rule::{CountName, has_tag};
use crate::store::Take;

/// A question about one count.
pub(super) struct CountQuestion {
    pub(super) count: CountKey,
    /// A test's clock, in microseconds, in place of the server's.
    ///
    /// Questions with different clocks are never in one call, since a call has one clock.
    pub(super) now: Option<u64>,
    pub(super) what: Change,
}

/// What is asked of a count.
pub(super) enum Change {
    /// May its key spend this cost? The reply is a [`Decision`](crate::decision::Decision).
    Take { cost: u64, counts: Counts },
    /// Charges up to so many units, also above max. The reply is their number.
    Owe { units: u64 },
    /// Gives back up to `max` units of what was charged with this receipt. The reply is their
    /// number.
    Refund { receipt: Receipt, max: u64 },
    /// Keeps the permit of this holder for another lease, of so many milliseconds. The reply is 1,
    /// or 0 if it came too late.
    Renew { holder: Receipt, lease: u64 },
    /// Forgets it, or holds it, by a call of its own. The reply is the script's.
    Own(CallQuestion),
}

impl CountQuestion {
    /// What a question asks of a count. `None` if it is about none.
    pub(super) fn of(question: &Question) -> Option<&Self> {
        question.content()
    }

    /// What is asked of a count.
    pub(super) fn in_call(question: &Question) -> &Self {
        Self::of(question).expect("a shared call holds no other question")
    }

    /// The cost of a take, and its counts.
    pub(super) fn take(&self) -> (u64, &Counts) {
        match &self.what {
            Change::Take { cost, counts } => (*cost, counts),
            Change::Owe { units } => (*units, &None),
            _ => unreachable!("a call of takes holds no other question"),
        }
    }

    /// Whether it charges units owed.
    pub(super) const fn owes(&self) -> bool {
        matches!(self.what, Change::Owe { .. })
    }

    /// Whether it is a take under a rule of several subjects.
    pub(super) const fn is_joint(&self) -> bool {
        matches!(
            self.what,
            Change::Take {
                counts: Some(_),
                ..
            }
        )
    }

    /// The counts that it is about.
    pub(super) fn counts(&self) -> &[CountKey] {
        match &self.what {
            Change::Take {
                counts: Some(counts),
                ..
            } => &counts.keys,
            _ => std::slice::from_ref(&self.count),
        }
    }

    /// The receipt of a refund, and the most that it gives back; or the holder of a permit.
    pub(super) fn refund(&self) -> (&Receipt, u64) {
        match &self.what {
            Change::Refund { receipt, max } => (receipt, *max),
            Change::Renew { holder, .. } => (holder, 1),
            _ => unreachable!("a call of refunds holds no other question"),
        }
    }
}

/// The counts of a take under a rule of several subjects.
pub(super) type Counts = Option<Arc<SeveralCounts>>;

/// Counts that a take is decided over together. There is at least one.
pub(super) struct SeveralCounts {
    pub(super) keys: Box<[CountKey]>,
    pub(super) take: Take,
    /// What the take holds permits by, if some of its counts are of permits.
    pub(super) holder: Option<Receipt>,
}

/// The key of a count. Its name is joined where it is sent.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct CountKey {
    pub(super) name: CountName,
    pub(super) prefix: Arc<KeyPrefix>,
}

/// What the names of a store's keys begin with.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::store) struct KeyPrefix {
    /// The service's own, in front of every name; may be empty.
    pub(in crate::store) service: Box<str>,
    /// Stands behind it for rules without a prefix of their own.
    pub(in crate::store) default: Box<str>,
}

impl CountKey {
    /// The name of the key in Redis.
    pub(super) fn text(&self) -> String {
        self.name.text(&self.prefix.service, &self.prefix.default)
    }

    /// The name as bytes. Most names need no allocation.
    pub(super) fn joined(&self) -> SmallVec<[u8; 128]> {
        let mut joined = SmallVec::new();
        if self.name.rule.is_permits() {
            joined.extend_from_slice(self.text().as_bytes());
            return joined;
        }
        joined.extend_from_slice(self.prefix.service.as_bytes());
        for piece in self.name.pieces(&self.prefix.default) {
            joined.extend_from_slice(piece.as_bytes());
        }
        joined
    }
}

/// The name of the key with what was given back of the count `name`, where that stands apart. It
/// differs from the names of all counts: paths and keys are encoded without braces.
pub(super) fn of_given_back(name: &str) -> String {
    match has_tag(name) {
        true => format!("{name}{{back}}"),
        false => format!("{{{name}}}:back"),
    }
}

/// The name of the key that says until when the count `name` is held. In the names of counts `~`
/// stands alone, as a whole part of a key.
pub(super) fn of_hold(name: &str) -> String {
    match has_tag(name) {
        true => format!("{name}~until"),
        false => format!("{{{name}}}~until"),
    }
}

/// The name of a key that the processes of a service share, in one slot with the others. No path
/// and no key of a count makes it: they are encoded without `~` at their beginning.
pub(in crate::store) fn of_fleet(prefix: &str, what: &str) -> String {
    match has_tag(prefix) {
        true => format!("{prefix}~fleet:{what}"),
        false => format!("{{{prefix}~fleet}}:{what}"),
    }
}
