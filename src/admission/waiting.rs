//! Requests that ask again later instead of being denied.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Asked;
use crate::decision::Decision;
use crate::jitter;
use crate::store::{KeyName, Take};

/// Keeps a request from asking without a pause where a store gives no useful retry-after.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// How long requests may wait, and how many. Clones share the count.
///
/// No queue stands in front of a first question: only a request that was denied waits.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) up_to: Duration,
    pub(crate) max: usize,
    waiters: Arc<Mutex<Waiters>>,
}

#[derive(Debug, Default)]
struct Waiters {
    number: usize,
    by_key: HashMap<Box<str>, usize>,
}

/// A request that waits, for as long as this is not dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// `None` for a request that waits as long as it takes.
    deadline: Option<Instant>,
    /// Whether the error callback has heard why a fallback decided.
    pub(crate) is_failure_reported: bool,
    waiters: Arc<Mutex<Waiters>>,
    key: Box<str>,
}

impl Waiting {
    const DEFAULT_MAX: usize = 1_024;

    /// The instant at which a question is asked. `None` where no request may wait: reading the
    /// clock costs time.
    pub(crate) fn now(&self) -> Option<Instant> {
        (!self.up_to.is_zero()).then(Instant::now)
    }

    /// When to ask again for a request that was denied, as a waiter from now on. `None` if it is
    /// denied for good: it may not wait, its deadline comes before its retry-after, or too many
    /// requests wait.
    pub(crate) fn wake(&self, asked: &mut Asked, decision: &Decision) -> Option<Instant> {
        let at = asked.at?;
        let retry_after = decision.retry_after()?.max(MIN_SLEEP);
        let deadline = match &asked.waiter {
            Some(waiter) => waiter.deadline,
            None => at.checked_add(self.up_to),
        };
        let retry_at = at.checked_add(retry_after);
        if deadline.is_some_and(|deadline| retry_at.is_none_or(|retry_at| retry_at > deadline)) {
            return None;
        }
        if asked.waiter.is_none() {
            asked.waiter = Some(self.new_waiter(&asked.take, deadline)?);
        }
        let wake = at + jitter::pause_before_repeat(retry_after, MIN_SLEEP);
        Some(deadline.map_or(wake, |deadline| wake.min(deadline)))
    }

    fn new_waiter(&self, take: &Take, deadline: Option<Instant>) -> Option<Waiter> {
        let key = KeyName::of(take, "").to_box();
        let mut waiters = lock(&self.waiters);
        let of_key = waiters.by_key.get(&key).copied().unwrap_or(0);
        if waiters.number >= self.max || of_key >= (self.max / 4).max(1) {
            return None;
        }
        waiters.number += 1;
        waiters.by_key.insert(key.clone(), of_key + 1);
        Some(Waiter {
            deadline,
            is_failure_reported: false,
            waiters: Arc::clone(&self.waiters),
            key,
        })
    }
}

impl Waiter {
    /// The error callback has heard of this decision's failure, if it has one.
    pub(crate) fn reported(mut self, decision: &Decision) -> Self {
        self.is_failure_reported |= decision.failure().is_some();
        self
    }
}

impl Default for Waiting {
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

/// Nothing panics while the counts are locked.
fn lock(waiters: &Mutex<Waiters>) -> MutexGuard<'_, Waiters> {
    waiters.lock().unwrap_or_else(PoisonError::into_inner)
}
