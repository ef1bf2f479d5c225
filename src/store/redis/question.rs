use std::io::Write;
use std::sync::Arc;

use redis::{RedisWrite, ToRedisArgs};
use smallvec::SmallVec;

use crate::algorithm::spec::Spec;
use crate::connection::{CallQuestion, Question};
use crate::decision::{Decision, Receipt};
use crate::question::{Ask, Name, beside, has_tag};

/// A question about counts: a take of several is decided over all of them together.
pub(super) struct CountQuestion {
    /// There is at least one; but for takes, one.
    pub(super) counts: SmallVec<[CountKey; 1]>,
    /// A test's clock, in microseconds, in place of the server's.
    ///
    /// Questions with different clocks are never in one call, since a call has one clock.
    pub(super) now: Option<u64>,
    pub(super) what: CountOperation,
}

/// What is asked of a count.
pub(super) enum CountOperation {
    /// May each count be charged its cost? The reply is a [`Decision`](crate::decision::Decision).
    Take {
        /// What makes one decision of those about each count; `None` where there is one.
        whole: Option<Arc<Ask>>,
        /// What the take holds permits by, if some of its counts are of permits.
        holder: Option<Receipt>,
    },
    /// Charges up to the cost, also above max. The reply is the number of units. In a period of the
    /// calendar they were reserved in that which ends at the receipt's stamp.
    Owe { stamp: u64 },
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
    pub(super) fn in_question(question: &Question) -> Option<&Self> {
        question.content()
    }

    /// Whether a question is a take of one count of windows, whose key nothing holds.
    pub(super) fn is_lone(question: &Question) -> bool {
        Self::in_question(question).is_some_and(|asked| {
            matches!(
                asked.what,
                CountOperation::Take {
                    whole: None,
                    holder: None
                }
            ) && asked.first().spec.windows().is_some()
                && !(asked.first().spec.may_be_held() || question.options.is_asking)
        })
    }

    /// What is asked of a count.
    pub(super) fn in_call(question: &Question) -> &Self {
        Self::in_question(question).expect("a shared call holds no other question")
    }

    /// The count that it is about, or the first one.
    pub(super) fn first(&self) -> &CountKey {
        &self.counts[0]
    }

    /// Whether it charges units owed.
    pub(super) const fn owes(&self) -> bool {
        matches!(self.what, CountOperation::Owe { .. })
    }

    /// The decision about the take, of those about each count.
    pub(super) fn decision(&self, mut decisions: SmallVec<[Decision; 1]>) -> Decision {
        match &self.what {
            CountOperation::Take {
                whole: Some(ask), ..
            } => ask.decision_of(decisions.into_vec()),
            _ => decisions.pop().expect("one about the count"),
        }
    }

    /// Whether it is a take over several counts, or over one that is not of windows.
    pub(super) fn needs_core(&self) -> bool {
        let is_other = self.first().spec.windows().is_none();
        self.counts.len() > 1 || self.holder().is_some() || is_other && !self.owes()
    }

    /// What the take holds permits by.
    pub(super) const fn holder(&self) -> Option<&Receipt> {
        match &self.what {
            CountOperation::Take { holder, .. } => holder.as_ref(),
            _ => None,
        }
    }

    /// The receipt of a refund, and the most that it gives back; or the holder of a permit.
    pub(super) fn refund(&self) -> (&Receipt, u64) {
        match &self.what {
            CountOperation::Refund { receipt, max } => (receipt, *max),
            CountOperation::Renew { holder, .. } => (holder, 1),
            _ => unreachable!("a call of refunds holds no other question"),
        }
    }
}

/// The key of a count, and the units that are asked for. Its name is joined where it is sent.
#[derive(Clone)]
pub(super) struct CountKey {
    pub(super) name: Name,
    pub(super) spec: Arc<Spec>,
    pub(super) cost: u64,
    pub(super) prefix: Arc<KeyPrefix>,
}

/// What the names of a store's keys begin with.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::store) struct KeyPrefix {
    /// The service's own, in front of every name; may be empty.
    pub(in crate::store) service: Box<str>,
    /// Stands behind it for rules without a prefix of their own.
    pub(in crate::store) default: Box<str>,
}

impl CountKey {
    /// Whether both are the same key.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name && self.prefix == other.prefix
    }

    /// Whether both ask the same of counts that count alike.
    pub(super) fn asks_like(&self, other: &Self) -> bool {
        self.cost == other.cost && Arc::ptr_eq(&self.spec, &other.spec)
    }

    /// The name of the key in Redis.
    pub(super) fn text(&self) -> String {
        self.name.text(&self.prefix.service, &self.prefix.default)
    }
}

/// The name of the key, as [`text`](CountKey::text), without a text of its own.
impl ToRedisArgs for CountKey {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let (KeyPrefix { service, default }, mut name) = (&*self.prefix, out.writer_for_next_arg());
        let write = |piece: &[u8]| name.write_all(piece).expect("memory takes all");
        self.name.write(service, default, write);
    }
}

/// The name of the key with what was given back of the count `name`, where that stands apart. It
/// differs from the names of all counts: paths and keys are encoded without braces.
pub(super) fn refund_key(name: &str) -> String {
    match has_tag(name) {
        true => format!("{name}{{back}}"),
        false => format!("{{{name}}}:back"),
    }
}

/// The name of the key that says until when the count `name` is held. In the names of counts `~`
/// stands alone, as a whole part of a key.
pub(super) fn hold_key(name: &str) -> String {
    beside(name, "~until")
}

/// The name of a key that the processes of a service share, in one slot with the others. No path
/// and no key of a count makes it: they are encoded without `~` at their beginning.
pub(super) fn fleet_key(prefix: &str, what: &str) -> String {
    match has_tag(prefix) {
        true => format!("{prefix}~fleet:{what}"),
        false => format!("{{{prefix}~fleet}}:{what}"),
    }
}
