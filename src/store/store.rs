use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::{StoreFuture, Take};
use crate::decision::{Decisions, Receipt};
use crate::key::Key;
use crate::rule::Rule;

/// Keeps the counts and answers takes.
///
/// # Contract
///
/// - A take is atomic: it is charged to all quotas of its rule, or to none, whatever else is asked at
///   the same time by anybody who shares the counts.
/// - A denial is a [`Decision`](crate::Decision), not an error. A denied take charges nothing and extends no expiry.
/// - Counts belong to the rule's [id](crate::Rule::id) and the take's key. The quotas are those that
///   come with the take: when a rule changes, or two rules share a path, what was charged stays for as
///   long as the window that it was charged under.
/// - Every key expires once all its quotas are whole again.
/// - The answers come in the order of the takes; neighbours of the same key are decided in it.
pub trait Store: Debug + Send + Sync + 'static {
    /// Decides these takes: a slice of independent questions, which a store may ask together.
    ///
    /// It is called once for each question, and the future is ready or pending. A question whose
    /// future is dropped before it was sent is not charged; one that was sent may be.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no decision. Whether something was charged is then unknown.
    fn take(&self, takes: &[Take]) -> StoreFuture<Decisions>;

    /// Gives back what the take with this receipt was charged, at most as many units as `take` costs,
    /// and tells how many. `take` is of the same rule and key.
    ///
    /// A receipt gives back once; a second time it is 0. What of it has ceased to count is not given
    /// back, so no window ever holds more than its max of what was not given back. It is 0, too,
    /// where the store cannot tell any more: after its data was lost or taken over by another
    /// algorithm, as long as its clock is behind the last charge, and for takes older than the
    /// oldest of 65,536 refunds of one key.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
    /// use tidegate::store::StoreExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MemoryStore::new();
    /// let rule = Arc::new(Rule::new("export", [Quota::per_hour(10)])?);
    /// let take = Take::new(rule, Key::from("alice")).cost(4);
    /// // A handler behind the layer finds this in the extensions of its request.
    /// let decision = store.take_one(&take).await?;
    /// assert_eq!(decision.remaining(), 6);
    ///
    /// // The export failed, and alice is not to pay for it.
    /// let receipt = decision.receipt().expect("it was allowed, and cost something");
    /// assert_eq!(store.refund(&take, &receipt).await?, 4);
    /// assert_eq!(store.peek(&take).await?.remaining(), 10);
    ///
    /// assert_eq!(store.refund(&take, &receipt).await?, 0, "only once");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer. Whether something was given back is then unknown; it
    /// is safe to ask again.
    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64>;

    /// Forgets what counts for this key under this rule, and what was given back of it: the next take
    /// finds nothing charged. For operators and tests; [`peek`](crate::store::StoreExt::peek) shows
    /// what there is. Other rules of the same path and algorithm, whose counts these are as well,
    /// begin anew, too; counts of other algorithms stay.
    ///
    /// Receipts of earlier takes give nothing back afterwards.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer. Whether anything was forgotten is then
    /// unknown; it is safe to ask again.
    fn reset(&self, rule: &Arc<Rule>, key: &Key) -> StoreFuture<()>;

    /// What this store is, for people: `memory`, or an address without secrets.
    fn name(&self) -> String;

    /// Tells a store that nobody waits longer for its answers, so that it need not work on what
    /// nobody hears: never a longer time than it has now. A store around another one passes it on;
    /// an `Arc` does not, since what it holds is shared. Default: nothing changes.
    #[must_use]
    fn give_up_after(self, timeout: Duration) -> Self
    where
        Self: Sized,
    {
        let _ = timeout;
        self
    }

    /// Whether a [`Fallback`](crate::store::Fallback) is in here, which answers takes whose rule leaves it to it. A store
    /// around another one passes the question on. Default: no.
    fn has_fallback(&self) -> bool {
        false
    }
}
