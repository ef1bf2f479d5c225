use std::time::Duration;

use crate::algorithm::lockout::Reported;
use crate::decision::Receipt;

/// What becomes of counts beside takes: see [`Store::change`](crate::Store::change).
///
/// ```
/// use std::sync::Arc;
/// use tidegate::store::Change;
/// use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let take = Take::new(Rule::new("export", [Quota::per_hour(10)])?.into(), Key::from("alice"));
/// let receipt = store.take(&take).await?.receipt().expect("it was allowed");
/// assert_eq!(store.change(&take, &Change::Refund(receipt)).await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Gives back what the take with this receipt was charged, in each count at most its cost. The
    /// number is that of the units; of several counts, the most. Asked about the
    /// [only](crate::store::Ask::only) count of permits, it releases the permit of this holder.
    ///
    /// The caller asks once for each receipt, also after an error: the store does not know which
    /// receipts were given back, and a second time it may give back units of others. A
    /// [`Charge`](crate::store::Charge) keeps to that.
    ///
    /// Units that no longer count are not given back, so no window ever holds more than its max of
    /// units that were not given back. The number is 0, too, where the store does not know any
    /// more: after its data was lost, and while its clock is behind the last charge.
    ///
    /// A fixed window and a sliding window give back exactly. A sliding log does so at up to 32
    /// places between charges that still count; beyond that it takes some of these charges for
    /// later ones, so that they count longer, never shorter. GCRA gives back what has not begun to
    /// drain; of refunds in another order than that of the takes it may give back less, from the
    /// fifth place on.
    Refund(Receipt),
    /// Charges up to the cost of each count whose cost is not 0, also above max, but no more than it
    /// [may owe](crate::store::CountAsk::owe_at_most). The number is that of the units; of several
    /// counts, the fewest. It is never denied, and does not depend on what has become of
    /// the receipt, which says only which store gave it: a fallback, or the store inside. Later
    /// takes are denied until what is above max has ceased to count. A store that can says
    /// [`Capabilities::owes`](crate::store::Capabilities::owes).
    Owe(Receipt),
    /// Keeps the permit of this holder, a part of a receipt, for another
    /// [lease](crate::Rule::with_permit_lease). A permit that the store has lost is there again,
    /// also above max: the request of its holder runs. The number says nothing.
    Renew(Receipt),
    /// Holds the key, of an [outgoing](crate::Rule::with_outgoing) rule, for so long from now on,
    /// by the store's clock: until then its takes are denied as
    /// [`OnHold`](crate::decision::Verdict::OnHold), whatever it has left. A hold is never
    /// shortened; [`Forget`](Self::Forget) ends it. The number is that of the microseconds for
    /// which the key is held: no time only asks that. A store that can says
    /// [`Capabilities::holds`](crate::store::Capabilities::holds).
    Hold(Duration),
    /// Counts the failure of the take with this receipt, under a rule with a
    /// [lock-out](crate::rule::Lockout): after so many, its key is held. The number is 0, or if
    /// this failure has begun a hold, how many times in a row the key was held. A failure counts
    /// once, by its id from 1 to 2^52, from when it is reported, and only if its take was admitted after
    /// the last hold and the last success, or more than 10 s before the failure was told first.
    /// It may be reported again, but not later than [`within`](crate::rule::Lockout::within) behind
    /// the first time: it is forgotten then. So is the oldest slow one where more than the failures
    /// of a hold and 32 are known. A store that does not know it answers takes as if nothing had
    /// failed.
    Failed {
        /// Which take has failed.
        receipt: Receipt,
        /// No other failure of the key has it.
        id: u64,
        /// For how long the caller has known of the failure: more than nothing if it is reported
        /// again.
        late: Duration,
    },
    /// Notes that the take with this receipt has succeeded: failures that were reported before it was
    /// admitted count no more, and the next hold is a first one. A hold stays. The number is 0.
    Succeeded(Receipt),
    /// Says how many times in a row the key was held, if it is held after failures; or 0. It
    /// changes nothing.
    AskLockout,
    /// Says after how many more failures the key of the take with this receipt is held, 1 or more; or
    /// 0 if it is held. It changes nothing.
    AskAttempts(Receipt),
    /// Forgets what counts: the next take finds nothing charged. The number is 0 if there was no
    /// count; one that has ceased to count, and was not dropped yet, may be found. For operators
    /// and tests; [`peek`](crate::Store::peek) shows what there is. Other rules of the same path
    /// and algorithm, whose counts these are as well, begin anew, too; counts of other algorithms
    /// stay.
    ///
    /// [Permits](crate::Rule::with_max_concurrent) stay: their requests run.
    ///
    /// Receipts of earlier takes give nothing back afterwards. Nor does the receipt of a take that
    /// is charged right after it, in the same microsecond: a receipt from before could equal it.
    /// Without it, when a store loses its data, an earlier receipt may give back what is charged
    /// after the loss in the same millisecond. Stores over [`Count`](crate::algorithm::Count) call
    /// its [`reset`](crate::algorithm::Count::reset).
    Forget,
}

impl Change {
    /// What it says of a take under a lock-out, and when that was admitted.
    pub(crate) fn reported(&self) -> Option<(u64, Reported)> {
        match self {
            Self::Failed { receipt, id, late } => {
                let (id, late) = (*id, u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
                Some((receipt.stamp(), Reported::Failed { id, late }))
            }
            Self::Succeeded(receipt) => Some((receipt.stamp(), Reported::Succeeded)),
            Self::AskLockout => Some((0, Reported::Nothing)),
            Self::AskAttempts(_) => Some((0, Reported::AskAttempts)),
            _ => None,
        }
    }

    /// What a store cannot, for its error.
    pub(crate) const fn verb(&self) -> &'static str {
        match self {
            Self::Refund(_) => "give back",
            Self::Owe(_) => "charge units beyond a reservation: see Capabilities::owes",
            Self::Renew(_) => "keep permits: see Capabilities::permits",
            Self::Hold(_) => "hold keys: see Capabilities::holds",
            Self::Failed { .. } | Self::Succeeded(_) => "count failures",
            Self::AskLockout | Self::AskAttempts(_) => "count failures",
            Self::Forget => "forget",
        }
    }
}
