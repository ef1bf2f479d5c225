//! Requests that ask again later instead of being denied.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::decision::Decision;
use crate::jitter;
use crate::metrics::RuleCounters;
use crate::store::Take;
use crate::sync::lock;

/// The shortest pause before a request asks again, for stores whose retry-after is too short.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// How long requests may wait, and how many. Clones share the count.
///
/// Every request asks when it arrives: only a request that was denied waits.
#[derive(Debug, Clone)]
pub(crate) struct WaitLimits {
    pub(crate) up_to: Duration,
    pub(crate) max: usize,
    waiters: Arc<Mutex<WaiterCounts>>,
}

#[derive(Debug, Default)]
struct WaiterCounts {
    number: usize,
    /// By the hashes of their names.
    by_key: HashMap<u64, usize>,
}

/// A request that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// `None` for a request that waits without a limit.
    deadline: Option<Instant>,
    waiters: Arc<Mutex<WaiterCounts>>,
    counters: Arc<RuleCounters>,
    key: u64,
}

impl WaitLimits {
    const DEFAULT_MAX: usize = 1_024;

    /// The instant at which a question is asked. `None` where no request may wait: reading the
    /// clock costs time.
    pub(crate) fn now(&self) -> Option<Instant> {
        (!self.up_to.is_zero()).then(Instant::now)
    }

    /// When to ask again for a denied request, which is a waiter from now on. `None` if it stays
    /// denied: it may not wait, its deadline comes before its retry-after, or too many requests
    /// wait.
    pub(crate) fn wake_at(
        &self,
        at: Option<Instant>,
        take: &Take,
        waiter: &mut Option<Waiter>,
        decision: &Decision,
        counters: &Arc<RuleCounters>,
    ) -> Option<Instant> {
        let at = at?;
        let retry_after = decision.retry_after()?.max(MIN_SLEEP);
        let deadline = match &waiter {
            Some(waiter) => waiter.deadline,
            None => at.checked_add(self.up_to),
        };
        let retry_at = at.checked_add(retry_after);
        if deadline.is_some_and(|deadline| retry_at.is_none_or(|retry_at| retry_at > deadline)) {
            return None;
        }
        if waiter.is_none() {
            *waiter = Some(self.new_waiter(take, deadline, counters)?);
        }
        let wake = at + jitter::pause_before_repeat(retry_after, MIN_SLEEP);
        Some(deadline.map_or(wake, |deadline| wake.min(deadline)))
    }

    fn new_waiter(
        &self,
        take: &Take,
        deadline: Option<Instant>,
        counters: &Arc<RuleCounters>,
    ) -> Option<Waiter> {
        let key = take.count_name().hash();
        let mut waiters = lock(&self.waiters);
        let of_key = waiters.by_key.get(&key).copied().unwrap_or(0);
        if waiters.number >= self.max || of_key >= (self.max / 4).max(1) {
            return None;
        }
        waiters.number += 1;
        waiters.by_key.insert(key, of_key + 1);
        counters.begins_to_wait();
        Some(Waiter {
            deadline,
            waiters: Arc::clone(&self.waiters),
            counters: Arc::clone(counters),
            key,
        })
    }
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self {
            up_to: Duration::ZERO,
            max: Self::DEFAULT_MAX,
            waiters: Arc::default(),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.counters.ends_waiting();
        let mut waiters = lock(&self.waiters);
        waiters.number -= 1;
        if let Some(of_key) = waiters.by_key.get_mut(&self.key) {
            *of_key -= 1;
            if *of_key == 0 {
                waiters.by_key.remove(&self.key);
            }
        }
    }
}
