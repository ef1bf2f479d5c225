//! Settlements beyond a reservation, attacked through layers and checks: meters, bodies, and requests
//! that wait. Rules that change are in `tests/vectors/subjects.txt`.

mod bodies;
mod meters;

use axum::body::Bytes;
use http_body_util::Full;
use tidegate::store::Meter;

use crate::*;

const MANY: u64 = 100_000_000;

async fn charge(limits: &Limits, path: &str, key: &str, cost: u64) -> Charge {
    let admitted = limits.check(path, key).cost(cost).await;
    admitted.expect("there is room").charge.expect("charged")
}

/// A meter of such a charge, to which so many units were added.
async fn meter(limits: &Limits, path: &str, key: &str, cost: u64, units: u64) -> Meter {
    let meter = charge(limits, path, key, cost).await.meter();
    meter.add(units);
    meter
}

/// Units that came back, were charged beyond, and were forgiven.
async fn settle(charge: &Charge, used: u64) -> (u64, u64, u64) {
    parts(charge.settle(used).await.expect("an answer"))
}

fn parts(settled: Settled) -> (u64, u64, u64) {
    (settled.given_back, settled.charged, settled.forgiven)
}

/// All units that count, also those above max: what a rule with more room finds.
async fn used(store: &dyn Store, rule: &Rule, key: &str) -> u64 {
    let roomy = kit::owned_rule(rule.path(), MANY, rule.quotas()[0].window());
    let roomy = Arc::new(roomy.with_algorithm(rule.algorithm()));
    MANY - kit::clocked::remaining(store, &kit::take(&roomy, key)).await
}

async fn flushed(limits: &Limits) {
    assert!(limits.flush(PATIENT).await, "settlements are not answered");
}

/// Units that were charged beyond, units that were forgiven, and settlements that were lost.
fn counted(limits: &Limits, path: &str) -> (u64, u64, u64) {
    let rule = counters(limits, path);
    (rule.owed_units, rule.forgiven_units, rule.refunds_lost)
}

/// Limits of the rule `p` in a memory store that counts how often it is asked to charge beyond, and
/// to give back.
struct Scene {
    limits: Limits,
    rule: Rule,
    asked: Arc<[AtomicUsize; 2]>,
}

impl Scene {
    fn new(rule: Rule) -> Self {
        let asked = Arc::<[AtomicUsize; 2]>::default();
        let [owes, refunds] = [0, 1].map(|at| {
            let asked = Arc::clone(&asked);
            move || asked[at].fetch_add(1, Ordering::Relaxed)
        });
        let store = Stub::in_memory()
            .capabilities_fn(|memory| memory.capabilities())
            .owe_fn(move |memory, take, receipt| {
                owes();
                memory.owe(take, receipt)
            })
            .refund_fn(move |memory, take, receipt| {
                refunds();
                memory.refund(take, receipt)
            });
        let limits = limits([rule.clone()], store);
        Self {
            limits,
            rule,
            asked,
        }
    }

    async fn charge(&self, key: &str) -> Charge {
        charge(&self.limits, "p", key, 10).await
    }

    async fn used(&self, key: &str) -> u64 {
        flushed(&self.limits).await;
        used(&**self.limits.shared_store(), &self.rule, key).await
    }

    /// Charges beyond, and refunds.
    fn asked(&self) -> (usize, usize) {
        let [owes, refunds] = &*self.asked;
        (
            owes.load(Ordering::Relaxed),
            refunds.load(Ordering::Relaxed),
        )
    }
}

#[test]
fn waiting() {
    kit::timeline::play("tests/hostile/layer/owed/waiting.txt");
}
