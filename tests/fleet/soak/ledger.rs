//! What every request was answered, and whether any window was ever above its quota.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use kit::unix_micros as now;
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
pub(crate) enum Law {
    /// In every window.
    Window { max: usize, window: Duration },
    /// In every span: the burst, and what drains in it.
    Bucket {
        burst: u64,
        max: u64,
        window: Duration,
    },
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
        let Self {
            sent,
            allowed,
            by_fallback,
            denied,
            failed,
        } = self;
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
    counts: HashMap<String, (Law, Vec<u64>)>,
    /// When data was lost, by the system's clock, which is the server's, too.
    losses: Vec<u64>,
}

impl Ledger {
    /// Of one client or many.
    pub(crate) fn enter(&mut self, answer: Answer, law: Law) {
        match answer {
            Answer::Denied => self.sums.denied += 1,
            Answer::Failed => self.sums.failed += 1,
            Answer::Allowed(charge) => {
                self.sums.allowed += 1;
                self.sums.by_fallback += u64::from(charge.is_fallback);
                let count = self.counts.entry(charge.count);
                count.or_insert((law, Vec::new())).1.push(charge.stamp);
            }
        }
    }

    pub(crate) fn data_is_lost(&mut self) {
        self.losses.push(now());
    }

    pub(crate) fn losses(&self) -> usize {
        self.losses.len()
    }

    /// Checks all that was charged, and forgets what no later window can hold.
    pub(crate) fn check(&mut self) {
        for (name, (law, stamps)) in &mut self.counts {
            stamps.sort_unstable();
            // A window that begins before a loss and ends behind it may hold what fits into two.
            let epochs =
                stamps.chunk_by(|a, b| !self.losses.iter().any(|loss| a < loss && loss <= b));
            for epoch in epochs {
                self.windows_checked += epoch.len() as u64;
                if let Some(excess) = law.broken_by(epoch) {
                    self.violations.push(format!("{name}: {excess}"));
                }
            }
            let newest = stamps.last().copied().unwrap_or_default();
            let keep = micros(law.memory()) + 2_000_000;
            stamps.retain(|stamp| stamp + keep > newest);
        }
        self.counts.retain(|_, (_, stamps)| !stamps.is_empty());
    }
}

impl Law {
    fn memory(self) -> Duration {
        match self {
            Self::Window { window, .. } => window,
            // When a full bucket has drained.
            Self::Bucket { burst, max, window } => {
                window * u32::try_from(burst.div_ceil(max) + 1).expect("small")
            }
        }
    }

    fn broken_by(self, stamps: &[u64]) -> Option<String> {
        let spent = |bound| -> Vec<Spent> {
            let spent = stamps.iter().map(|stamp| Spent {
                units: 1,
                from: *stamp,
                until: *stamp,
                bound,
            });
            spent.collect()
        };
        match self {
            Self::Window { max, window } => too_full(&spent(max as u64), micros(window)),
            Self::Bucket { burst, max, window } => too_fast(&spent(burst), max, micros(window)),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("short")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::SECOND;

    fn allowed(stamp: u64) -> Answer {
        Answer::Allowed(Charge {
            count: "c".to_owned(),
            stamp,
            is_fallback: false,
        })
    }

    fn check(law: Law, stamps: &[u64], violations: usize) {
        let mut ledger = Ledger::default();
        for stamp in stamps {
            ledger.enter(allowed(*stamp), law);
        }
        ledger.check();
        assert_eq!(ledger.violations.len(), violations, "{stamps:?}");
    }

    const fn window(max: usize) -> Law {
        Law::Window {
            max,
            window: SECOND,
        }
    }

    #[test]
    fn the_ledger_sees_one_too_many() {
        check(window(2), &[0, 500_000, 1_000_000], 0);
        check(window(2), &[0, 999_999, 500_000], 1);
        let law = Law::Bucket {
            burst: 2,
            max: 10,
            window: SECOND,
        };
        check(law, &[0, 0, 100_000, 200_000], 0);
        check(law, &[0, 0, 99_999], 1);
    }

    #[test]
    fn a_loss_begins_anew() {
        let now = now();
        let mut ledger = Ledger::default();
        for stamp in [now - 10, now + 10_000_000] {
            ledger.enter(allowed(stamp), window(1));
            ledger.data_is_lost();
        }
        ledger.check();
        assert_eq!(ledger.violations, Vec::<String>::new());
    }
}
