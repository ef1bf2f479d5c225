use super::latency::BOUNDS;
use crate::error::StoreErrorKind;

/// What the layers of a path have counted so far, as far as rates are made of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) shadow: u64,
    pub(crate) errors: u64,
    pub(crate) near: u64,
    pub(crate) let_through: u64,
    /// Decisions of a fallback.
    pub(crate) by_fallback: u64,
    pub(crate) store_errors: [u64; StoreErrorKind::ALL.len()],
    /// The answers of the store by the buckets of their times, and these times in microseconds.
    pub(crate) latency: ([u64; BOUNDS.len() + 1], u64),
}

/// What a path counted in a second or a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) allowed: u32,
    pub(crate) denied: u32,
    pub(crate) shadow: u32,
    pub(crate) errors: u32,
    pub(crate) near: u32,
    pub(crate) let_through: u32,
    /// The mean time of the store's answers; 0 without any.
    pub(crate) mean_micros: u32,
    /// The bound of the bucket with the slowest answer of a hundred, or the last bucket's bound.
    pub(crate) p99_micros: u32,
}

impl Totals {
    /// How many requests that is.
    pub(crate) fn requests(&self) -> u64 {
        let counts = [self.allowed, self.denied, self.errors, self.let_through];
        counts.into_iter().fold(0, u64::wrapping_add)
    }

    /// What was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Rates {
        let (counts, micros) = &self.latency;
        let (counts_before, micros_before) = &before.latency;
        let counts = std::array::from_fn::<_, { BOUNDS.len() + 1 }, _>(|at| {
            counts[at].saturating_sub(counts_before[at])
        });
        let answers: u64 = counts.iter().sum();
        let mean = micros.wrapping_sub(*micros_before).checked_div(answers);
        let rank = answers - answers / 100;
        let mut so_far = 0;
        let slowest = counts.iter().position(|count| {
            so_far += count;
            answers > 0 && so_far >= rank
        });
        let p99 = slowest.map_or(0, |at| BOUNDS[at.min(BOUNDS.len() - 1)]);
        Rates {
            allowed: grown(self.allowed, before.allowed),
            denied: grown(self.denied, before.denied),
            shadow: grown(self.shadow, before.shadow),
            errors: grown(self.errors, before.errors),
            near: grown(self.near, before.near),
            let_through: grown(self.let_through, before.let_through),
            mean_micros: small(mean.unwrap_or(0)),
            p99_micros: small(p99),
        }
    }
}

fn grown(now: u64, before: u64) -> u32 {
    small(now.saturating_sub(before))
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
