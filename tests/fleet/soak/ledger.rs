//! What every request was answered, and whether any window was ever above its quota.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use kit::windows::{Spent, too_fast, too_full};

/// What a client got.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Allowed(Charge),
    Denied,
    /// There was no decision, and the client was told so.
    Failed,
}

/// What a request was charged, and to whom.
#[derive(Debug, Clone)]
pub(crate) struct Charge {
    /// Whose count: the rule, the user, and for those of a fallback the process.
    pub(crate) count: String,
    /// By the clock of whoever decided, in microseconds.
    pub(crate) stamp: u64,
    pub(crate) is_fallback: bool,
}

/// What a count may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Law {
    /// In every window; of a bucket, in every span beside what drains in it.
    pub(crate) bound: u64,
    /// How much of a bucket drains in a window.
    pub(crate) drains: Option<u64>,
    /// In microseconds.
    pub(crate) window: u64,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Sums {
    pub(crate) sent: u64,
    pub(crate) allowed: u64,
    pub(crate) by_fallback: u64,
    pub(crate) denied: u64,
    pub(crate) failed: u64,
}

impl Sums {
    pub(crate) fn answered(&self) -> u64 {
        self.allowed + self.denied + self.failed
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, denied, .. } = self;
        let [allowed, by_fallback, failed] = [self.allowed, self.by_fallback, self.failed];
        write!(
            f,
            "{sent} | {allowed} | {by_fallback} | {denied} | {failed}"
        )
    }
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) sums: Sums,
    pub(crate) violations: Vec<String>,
    pub(crate) windows_checked: u64,
    /// How long an answer took at most since the last fault.
    pub(crate) slowest: Duration,
    pub(crate) last_from_redis: Option<Instant>,
    counts: HashMap<String, (Law, Vec<u64>)>,
    /// When data was lost, by the system's clock, which is the server's, too.
    pub(crate) losses: Vec<u64>,
}

impl Ledger {
    /// Of one client or many.
    pub(crate) fn enter(&mut self, answer: Answer, law: Law) {
        match answer {
            Answer::Denied => self.sums.denied += 1,
            Answer::Failed => self.sums.failed += 1,
            Answer::Allowed(charge) => {
                self.sums.allowed += 1;
                if !charge.is_fallback {
                    self.last_from_redis = Some(Instant::now());
                }
                self.sums.by_fallback += u64::from(charge.is_fallback);
                let count = self.counts.entry(charge.count);
                count.or_insert((law, Vec::new())).1.push(charge.stamp);
            }
        }
    }

    /// Checks all that was charged, and forgets what no later window can hold.
    pub(crate) fn check(&mut self) {
        for (name, (law, stamps)) in &mut self.counts {
            stamps.sort_unstable();
            // A window that begins before a loss and ends behind it may hold what fits into two.
            let is_lost = |a: &u64, b: &u64| self.losses.iter().any(|loss| a < loss && loss <= b);
            let epochs = stamps.chunk_by(|a, b| !is_lost(a, b));
            for epoch in epochs {
                self.windows_checked += epoch.len() as u64;
                if let Some(excess) = law.broken_by(epoch) {
                    self.violations.push(format!("{name}: {excess}"));
                }
            }
            let newest = stamps.last().copied().unwrap_or_default();
            let keep = law.memory() + 2_000_000;
            stamps.retain(|stamp| stamp + keep > newest);
        }
        self.counts.retain(|_, (_, stamps)| !stamps.is_empty());
    }
}

impl Law {
    /// When a full bucket has drained.
    fn memory(self) -> u64 {
        self.window * self.drains.map_or(1, |max| self.bound.div_ceil(max) + 1)
    }

    fn broken_by(self, stamps: &[u64]) -> Option<String> {
        let spent = stamps.iter().map(|stamp| Spent {
            units: 1,
            from: *stamp,
            until: *stamp,
            bound: self.bound,
        });
        let spent: Vec<_> = spent.collect();
        match self.drains {
            None => too_full(&spent, self.window),
            Some(max) => too_fast(&spent, max, self.window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_sees_one_too_many() {
        let (log, bucket) = ((2, None), (2, Some(10)));
        for ((bound, drains), stamps, losses, violations) in [
            (log, &[0, 500_000, 1_000_000][..], &[][..], 0),
            (log, &[0, 999_999, 500_000], &[], 1),
            (bucket, &[0, 0, 100_000, 200_000], &[], 0),
            (bucket, &[0, 0, 99_999], &[], 1),
            // A loss begins anew.
            (log, &[0, 10, 20, 30], &[15, 40], 0),
            (log, &[0, 10, 20, 30, 40], &[15, 50], 1),
        ] {
            let mut ledger = Ledger {
                losses: losses.to_vec(),
                ..Ledger::default()
            };
            let law = Law {
                bound,
                drains,
                window: 1_000_000,
            };
            for stamp in stamps {
                let charge = Charge {
                    count: "c".to_owned(),
                    stamp: *stamp,
                    is_fallback: false,
                };
                ledger.enter(Answer::Allowed(charge), law);
            }
            ledger.check();
            assert_eq!(ledger.violations.len(), violations, "{stamps:?}");
        }
    }
}
