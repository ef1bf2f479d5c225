//! Histories of takes and refunds on `Count`, the pure function under every store: any quotas and costs, rules and an
//! algorithm that change, a clock that jumps ahead and back. Whatever happens, an answer is possible; and where nothing but the clock
//! changes, and that goes ahead, no window holds more than it may.

use std::time::Duration;

use tidegate::algorithm::{AlgorithmConfig, Count};
use tidegate::decision::Receipt;
use tidegate::decision::Verdict;
use tidegate::{Algorithm, Decision, Quota};

use super::input::{Input, tell};

const MOST_EVENTS: usize = 32;
/// The last instant of which something is promised.
const LATEST: u64 = 1 << 53;

pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_steady = input.byte() < 128;
    let rules: Vec<(AlgorithmConfig, Vec<Quota>)> = match is_steady {
        true => vec![(input.counting(), input.quotas(3))],
        false => (0..3)
            .map(|_| (input.counting(), input.quotas(3)))
            .collect(),
    };
    let mut history = History {
        now: input.likely().min(LATEST),
        count: Count::default(),
        algorithm: None,
        charged: Vec::new(),
        is_steady,
    };
    tell(|| {
        format!(
            "{} {rules:?}",
            if is_steady { "steady" } else { "changing" }
        )
    });
    let mut events = 0;
    while !input.is_empty() && events < MOST_EVENTS {
        events += 1;
        match input.byte() {
            kind @ 0..=127 => {
                let (counting, quotas) = &rules[usize::from(kind) % rules.len()];
                let cost = match kind {
                    0..=95 => u64::from(kind % 8),
                    _ => input.likely(),
                };
                history.take(*counting, quotas, cost);
                if is_steady {
                    history.is_within(counting.algorithm(), quotas);
                }
            }
            128..=175 => {
                history.now = history.now.saturating_add(input.likely());
                if is_steady {
                    history.now = history.now.min(LATEST);
                }
            }
            176..=191 => {
                let back = input.likely();
                if !is_steady {
                    history.now = history.now.saturating_sub(back);
                }
            }
            192..=247 => {
                let (at, units) = (input.byte(), input.likely());
                history.refund(usize::from(at), units);
            }
            // Nobody else makes receipts, but a store may be handed one of another time.
            _ => {
                let receipt = Receipt::new(input.likely(), input.likely(), input.likely());
                let units = input.likely();
                let back = history
                    .count
                    .clone()
                    .refund(history.now, &rules[0].1, &receipt, units);
                assert!(back <= units.min(receipt.units()));
            }
        }
    }
    let _ = history.count.forgotten_at();
}

struct History {
    now: u64,
    count: Count,
    /// The one that charged last.
    algorithm: Option<Algorithm>,
    charged: Vec<Charged>,
    is_steady: bool,
}

struct Charged {
    receipt: Receipt,
    quotas: Vec<Quota>,
    back: u64,
    is_refunded: bool,
}

/// What remains of each quota, and when it is replenished.
fn standing(decision: &Decision) -> Vec<(u64, Duration)> {
    let quotas = decision.quotas().iter();
    quotas
        .map(|quota| (quota.remaining(), quota.reset_after()))
        .collect()
}

impl History {
    fn peek(&self, counting: AlgorithmConfig, quotas: &[Quota]) -> Decision {
        self.count.clone().take(counting, self.now, quotas, 0)
    }

    fn take(&mut self, counting: AlgorithmConfig, quotas: &[Quota], cost: u64) {
        let before = self.peek(counting, quotas);
        let decision = self.count.take(counting, self.now, quotas, cost);
        tell(|| {
            format!(
                "{}: take {cost} by {counting:?} {quotas:?}: {decision:?}",
                self.now
            )
        });
        let limits = || {
            quotas
                .iter()
                .map(|quota| limit(counting.algorithm(), quota))
        };
        assert_eq!(decision.quotas().len(), quotas.len());
        for (state, limit) in decision.quotas().iter().zip(limits()) {
            assert!(state.remaining() <= limit, "{decision:?} of {quotas:?}");
        }
        let fits = limits().all(|limit| cost.max(1) <= limit);
        match decision.verdict() {
            Verdict::Allowed => {
                for (state, before) in decision.quotas().iter().zip(before.quotas()) {
                    assert_eq!(
                        Some(state.remaining()),
                        before.remaining().checked_sub(cost)
                    );
                }
                let receipt = decision.receipt();
                assert_eq!(
                    receipt
                        .as_ref()
                        .map(|receipt| (receipt.stamp(), receipt.units())),
                    Some((self.now, cost))
                );
                if cost > 0 && self.algorithm != Some(counting.algorithm()) {
                    // Another algorithm starts afresh: older receipts are not its own.
                    self.algorithm = Some(counting.algorithm());
                    self.charged.clear();
                }
                let receipt = receipt.filter(|receipt| receipt.units() > 0);
                self.charged.extend(receipt.map(|receipt| Charged {
                    receipt,
                    quotas: quotas.to_vec(),
                    back: 0,
                    is_refunded: false,
                }));
            }
            Verdict::Denied { retry_after } => {
                let is_promised = self.now <= LATEST;
                assert!(
                    fits && !(is_promised && retry_after.is_zero()),
                    "{decision:?}"
                );
                assert_eq!(
                    standing(&decision),
                    standing(&before),
                    "a denial has changed something"
                );
                self.is_true(counting, quotas, cost, retry_after);
            }
            Verdict::Never => {
                assert!(!fits, "{decision:?}");
                assert_eq!(standing(&decision), standing(&before));
            }
            other => panic!("{other:?}"),
        }
    }

    /// Allowed then, and not a microsecond earlier; but after a change of quotas it may be earlier, for what was charged under
    /// those before is forgotten when they would have.
    fn is_true(
        &self,
        counting: AlgorithmConfig,
        quotas: &[Quota],
        cost: u64,
        retry_after: Duration,
    ) {
        let micros = u64::try_from(retry_after.as_micros()).expect("it was a number");
        let then = self.now.saturating_add(micros);
        if then > LATEST {
            return;
        }
        let asked = |at| self.count.clone().take(counting, at, quotas, cost);
        assert!(
            asked(then).is_allowed(),
            "denied after {retry_after:?}: {:?}",
            asked(then)
        );
        assert!(
            !self.is_steady || !asked(then - 1).is_allowed(),
            "allowed before {retry_after:?}"
        );
    }

    fn refund(&mut self, at: usize, units: u64) {
        let number = self.charged.len();
        let charged = self.charged.get_mut(at % number.max(1));
        let Some(charged) = charged.filter(|charged| !charged.is_refunded) else {
            return;
        };
        let back = self
            .count
            .refund(self.now, &charged.quotas, &charged.receipt, units);
        tell(|| {
            format!(
                "{}: refund {units} of {:?}: {back}",
                self.now, charged.receipt
            )
        });
        assert!(back <= units.min(charged.receipt.units()));
        charged.back = back;
        charged.is_refunded = true;
    }

    /// What was admitted and not given back, by brute force.
    fn is_within(&self, algorithm: Algorithm, quotas: &[Quota]) {
        for quota in quotas {
            let window = quota.window().as_micros();
            for (at, first) in self.charged.iter().enumerate() {
                let age = u128::from(self.now - first.receipt.stamp());
                let since: u128 = self.charged[at..]
                    .iter()
                    .map(|one| u128::from(one.receipt.units() - one.back))
                    .sum();
                let most = match algorithm {
                    Algorithm::Gcra => {
                        u128::from(quota.burst()) + age * u128::from(quota.max()) / window
                    }
                    _ if age >= window => continue,
                    Algorithm::FixedWindow => 2 * u128::from(quota.max()),
                    _ => u128::from(quota.max()),
                };
                assert!(
                    since <= most,
                    "{since} of {most} in {age} us under {quota:?}"
                );
            }
        }
    }
}

fn limit(algorithm: Algorithm, quota: &Quota) -> u64 {
    match algorithm {
        Algorithm::Gcra if quota.max() > 0 => quota.burst(),
        _ => quota.max(),
    }
}
