//! Settlements beyond a reservation, attacked through layers and checks: meters, bodies, rules that
//! change, and requests that wait.

mod bodies;
mod let_through;
mod meters;
mod rules;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::decision::Receipt;
use tidegate::store::{Capabilities, Charge, Settled, StoreFuture};
use tidegate::{Algorithm, Decision, Key, Limits, MemoryStore, Quota, Rule, Store, Take};

use kit::{HOUR, PATIENT};

const COUNTING: [Algorithm; 3] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
];

const MANY: u64 = 100_000_000;

/// At most so many an hour, and as many owed, of each key.
fn per_hour(path: &str, max: u64) -> Rule {
    let quota = Quota::new(HOUR, max).expect("a valid quota");
    let rule = Rule::new(path, [quota]).expect("a valid rule");
    rule.with_key(|_: &http::request::Parts| Ok(Key::from("x")))
}

/// The charge of a check.
async fn charge(limits: &Limits, path: &str, key: &str, cost: u64) -> Charge {
    let admitted = limits.check(path, key).cost(cost).await;
    admitted.expect("there is room").charge.expect("charged")
}

/// All units that count, also those above max: what a rule with more room finds.
async fn used(store: &dyn Store, rule: &Rule, key: &str) -> u64 {
    let roomy = Quota::new(rule.quotas()[0].window(), MANY).expect("a valid quota");
    let roomy = Rule::new(rule.path(), [roomy]).expect("a valid rule");
    let roomy = roomy.with_algorithm(rule.algorithm());
    let found = store
        .peek(&Take::new(Arc::new(roomy), Key::from(key)))
        .await;
    MANY - found.expect("an answer").remaining()
}

async fn flushed(limits: &Limits) {
    assert!(limits.flush(PATIENT).await, "settlements are not answered");
}

/// Units that were charged beyond, units that were forgiven, and settlements that were lost.
fn counted(limits: &Limits, path: &str) -> (u64, u64, u64) {
    let snapshot = limits.snapshot();
    let rule = snapshot.rule(path).expect("used");
    (rule.owed_units, rule.forgiven_units, rule.refunds_lost)
}

fn settled(given_back: u64, charged: u64, forgiven: u64) -> Settled {
    let mut settled = Settled::default();
    settled.given_back = given_back;
    settled.charged = charged;
    settled.forgiven = forgiven;
    settled
}

/// A memory store that counts how often it is asked to charge or give back.
#[derive(Debug, Default)]
struct Counted {
    inner: MemoryStore,
    owes: AtomicUsize,
    refunds: AtomicUsize,
}

impl Counted {
    /// Charges beyond, and refunds.
    fn asked(&self) -> (usize, usize) {
        let load = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        (load(&self.owes), load(&self.refunds))
    }
}

impl Store for Counted {
    fn take(&self, take: &Take) -> StoreFuture<Decision> {
        self.inner.take(take)
    }

    fn refund(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.refunds.fetch_add(1, Ordering::Relaxed);
        self.inner.refund(take, receipt)
    }

    fn owe(&self, take: &Take, receipt: &Receipt) -> StoreFuture<u64> {
        self.owes.fetch_add(1, Ordering::Relaxed);
        self.inner.owe(take, receipt)
    }

    fn reset(&self, take: &Take) -> StoreFuture<bool> {
        self.inner.reset(take)
    }

    fn name(&self) -> String {
        "counted".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
