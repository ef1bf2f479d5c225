use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::key::Key;
use crate::quota::Quota;
use crate::rule::Rule;
use crate::store::{Store, Take};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MICROSECOND: Duration = Duration::from_micros(1);

/// An empty store, asked by one algorithm.
pub(super) struct Subject<'a> {
    pub(super) store: Arc<dyn Store>,
    context: &'a dyn Context,
    algorithm: Algorithm,
    /// Since the beginning, in microseconds.
    elapsed: AtomicU64,
}

impl<'a> Subject<'a> {
    pub(super) fn new(context: &'a dyn Context, algorithm: Algorithm) -> Self {
        Self {
            store: context.store(),
            context,
            algorithm,
            elapsed: AtomicU64::new(0),
        }
    }

    pub(super) fn rule(&self, path: &str, quotas: &[Quota]) -> Arc<Rule> {
        let rule = Rule::new(path, quotas.iter().copied()).expect("a valid rule");
        Arc::new(rule.with_algorithm(self.algorithm))
    }

    /// A take of 1 without a key.
    pub(super) fn take(&self, path: &str, quotas: &[Quota]) -> Take {
        Take::new(self.rule(path, quotas), Key::default())
    }

    pub(super) fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a short time");
        self.elapsed.fetch_add(micros, Ordering::Relaxed);
        self.context.advance(by);
    }

    pub(super) fn elapsed(&self) -> u64 {
        self.elapsed.load(Ordering::Relaxed)
    }

    pub(super) async fn ask(&self, take: &Take) -> Decision {
        self.store.take(take).await.expect("a decision")
    }

    /// How many of these takes are allowed, asked one after the other.
    pub(super) async fn allowed(&self, take: &Take, times: usize) -> usize {
        allowed(&*self.store, take, times).await
    }

    pub(super) async fn peek(&self, take: &Take) -> Decision {
        self.store.peek(take).await.expect("a decision")
    }
}

pub(super) async fn allowed(store: &dyn Store, take: &Take, times: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..times {
        let decision = store.take(take).await.expect("a decision");
        allowed += usize::from(decision.is_allowed());
    }
    allowed
}

pub(super) fn quota(max: u64, window: Duration) -> Quota {
    Quota::new(max, window).expect("a valid quota")
}

/// A store under test and its clock.
pub trait Context: Send + Sync {
    /// The store. It is empty when the context is new, and the same in every call.
    fn store(&self) -> Arc<dyn Store>;

    /// Moves the store's clock forward. Nothing else moves it, and all decisions read it.
    ///
    /// The suite moves it by some days altogether. It needs a resolution of one microsecond.
    fn advance(&self, by: Duration);
}
