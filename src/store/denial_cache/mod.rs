//! A store that answers a denied key by itself until the denial is over.

mod denial_set;
mod denials;

use std::sync::Arc;
use std::time::Duration;

pub(super) use self::denials::Denials;
use super::Store;
use super::wrapper::{Wrapped, Wrapper};
use crate::clock::Clock;

/// Remembers denials: while a denial lasts, it answers the same take in the memory of this process,
/// so that a flood of denied requests costs the store inside nearly nothing.
///
/// A denial answers takes of the same rule, the same `Arc`, of the same key and of the same cost.
/// The answer is there immediately, without an allocation, and its source is
/// [`Cache`](crate::decision::Source::Cache): the verdict is that of the store inside, whose
/// [name](Store::name) the cache has, and never that of a fallback.
///
/// # What it answers
///
/// - **The remaining units** are those of the denial.
/// - **The retry-after** is what is left of it, and ends when that of the first caller does: it is
///   counted from the instant at which the store's answer came. The store allows the take at that
///   instant, and at most one round trip earlier. The reset-after is what is left, too; a rule of
///   several quotas tells that of the denial.
/// - **The denial ends** its retry-after from the instant at which its question was sent, less a
///   thousandth for clocks whose paces differ. The server's time cannot be over before. From then
///   on the store answers. So the cache denies nobody for whom time has made room in the store.
/// - **A take that can [never](crate::decision::Verdict::Never) be allowed** has no such end.
///
/// A denial is void at once after a [refund](Store::refund) or a [reset](Store::reset) through this
/// cache, and when the rule is replaced by another one. A question from before is then not
/// remembered, either.
///
/// # What may free units without its knowledge
///
/// *What is free is granted* has this one exception: units that another process, or another store
/// of this process, frees by a refund, a reset or a larger quota may be denied here for at most the
/// [max age](Self::max_age). The same holds when the server loses its data or its clock is set
/// forward, after a refund or a reset that got no answer, and after a rule was replaced by one
/// under which charges count for a longer time: what was charged before is then free earlier than
/// the store said.
///
/// Once a denial has three quarters of the max age, the next take asks the store, and only that
/// one; until its answer comes, the others are answered by the denial, and do not wait. If that
/// take fails or its future is dropped, the denial is void. So it is at the max age: then every
/// take asks until there is a new denial.
///
/// # What it does not answer
///
/// Looks, at a cost of 0, and [repeats](crate::Take::repeat) of callers that wait always ask the
/// store.
///
/// The memory is bounded: it remembers [at most 10,000](Self::max_keys) denials, each a rule, a key
/// and a cost. Where there is no room, a new denial takes the place of one of the eight others that
/// its key shares a place with: of the one that was not told for the longest time. So a flood of
/// keys costs no caller more time, and a key that is asked for often stays. Time is tokio's, so that
/// `tokio::time::pause` works on it. Clones share the denials.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::decision::Source;
/// use tidegate::store::DenialCache;
/// use tidegate::{Key, MemoryStore, Quota, Rule, Store, Take};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In place of a RedisStore.
/// let store = DenialCache::new(MemoryStore::new());
/// let rule = Arc::new(Rule::new("export", [Quota::per_hour(1)])?);
/// let take = Take::new(rule, Key::from("alice"));
/// assert!(store.take(&take).await?.is_allowed());
///
/// let denied = store.take(&take).await?;
/// assert_eq!(denied.source(), Source::Local);
/// let again = store.take(&take).await?;
/// assert_eq!(again.source(), Source::Cache);
/// assert!(again.retry_after() <= denied.retry_after());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DenialCache<S> {
    wrapped: Wrapped<S>,
    max_keys: usize,
    max_age: Duration,
    clock: Clock,
}

impl<S: Store> DenialCache<S> {
    /// The default of [`DenialCache::max_age`].
    pub const DEFAULT_MAX_AGE: Duration = Duration::from_millis(100);

    /// The default of [`DenialCache::max_keys`].
    pub const DEFAULT_MAX_KEYS: usize = 10_000;

    /// The largest [`DenialCache::max_keys`]: room for so many takes 200 MB.
    pub const MAX_KEYS: usize = 1_000_000;

    /// Remembers the denials of `inner`.
    #[must_use]
    pub fn new(inner: S) -> Self {
        let cache = Self {
            wrapped: Wrapped::bare(inner),
            max_keys: Self::DEFAULT_MAX_KEYS,
            max_age: Self::DEFAULT_MAX_AGE,
            clock: Clock::tokio(),
        };
        cache.empty()
    }

    /// How old a denial may become. One take asks the store again at three quarters of this. The
    /// cache is off with [`Duration::ZERO`]; with [`Duration::MAX`] a denial lasts as long as its
    /// retry-after. Those that it remembers are
    /// forgotten. Default: 100 ms.
    ///
    /// A store whose answers take longer than a quarter of this time is asked more often, and by
    /// every take if they take longer than all of it.
    #[must_use]
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = max_age;
        self.empty()
    }

    /// How many denials it remembers at most; with 0 the cache is off. Those that it remembers are
    /// forgotten. Default: 10,000, which take about 2 MB where the keys are addresses. More than
    /// [`MAX_KEYS`](Self::MAX_KEYS) become that number.
    #[must_use]
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys.min(Self::MAX_KEYS);
        self.empty()
    }

    /// Reads the time from a clock that a test moves by hand. The denials are forgotten.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn clock(mut self, clock: crate::test_util::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self.empty()
    }

    fn empty(mut self) -> Self {
        let denials = Denials::new(self.max_keys, self.max_age, self.clock.clone());
        self.wrapped.denials = Some(Arc::new(denials));
        self
    }
}

impl<S: Store> Wrapper for DenialCache<S> {
    type Inner = S;

    fn wrapped(&self) -> &Wrapped<S> {
        &self.wrapped
    }
}
