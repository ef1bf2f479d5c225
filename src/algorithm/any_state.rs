use super::algorithm::{Algorithm, AlgorithmState};
use super::byte_reader::ByteReader;
use super::count::CountError;
use super::fixed_window::WindowTally;
use super::gcra::Bucket;
use super::sliding_log::SlidingLog;
use super::sliding_window::SubWindows;
use super::tallies::Tallies;
use crate::decision::Decision;
use crate::quota::Quota;

/// The state of one of the algorithms.
#[derive(Debug, Clone)]
pub(super) enum AnyState {
    SlidingLog(SlidingLog),
    SlidingWindow(Tallies<SubWindows>),
    Gcra(Tallies<Bucket>),
    FixedWindow(Tallies<WindowTally>),
}

impl AnyState {
    /// With nothing charged.
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingLog => Self::SlidingLog(SlidingLog::default()),
            Algorithm::SlidingWindow => Self::SlidingWindow(Tallies::default()),
            Algorithm::Gcra => Self::Gcra(Tallies::default()),
            Algorithm::FixedWindow => Self::FixedWindow(Tallies::default()),
        }
    }

    /// The state of the algorithm with this number.
    pub(super) fn read(number: u8, reader: &mut ByteReader<'_>) -> Result<Self, CountError> {
        let mut algorithms = Algorithm::ALL.into_iter();
        let algorithm = algorithms.find(|algorithm| algorithm.number() == number);
        let mut any = Self::new(algorithm.ok_or(CountError::UnknownAlgorithm(number))?);
        any.state_mut().read(reader)?;
        Ok(any)
    }

    /// The algorithm whose state it is.
    pub(super) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::SlidingLog(_) => Algorithm::SlidingLog,
            Self::SlidingWindow(_) => Algorithm::SlidingWindow,
            Self::Gcra(_) => Algorithm::Gcra,
            Self::FixedWindow(_) => Algorithm::FixedWindow,
        }
    }

    /// By its own algorithm, and without a virtual call.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: u64,
        quotas: &[Quota],
        sub_windows: u16,
        cost: u64,
    ) -> Decision {
        match self {
            Self::SlidingLog(state) => state.take(now, quotas, cost),
            Self::SlidingWindow(state) => state.decide(now, quotas, sub_windows, cost),
            Self::Gcra(state) => state.decide(now, quotas, sub_windows, cost),
            Self::FixedWindow(state) => state.decide(now, quotas, sub_windows, cost),
        }
    }

    pub(super) fn state(&self) -> &dyn AlgorithmState {
        match self {
            Self::SlidingLog(state) => state,
            Self::SlidingWindow(state) => state,
            Self::Gcra(state) => state,
            Self::FixedWindow(state) => state,
        }
    }

    pub(super) fn state_mut(&mut self) -> &mut dyn AlgorithmState {
        match self {
            Self::SlidingLog(state) => state,
            Self::SlidingWindow(state) => state,
            Self::Gcra(state) => state,
            Self::FixedWindow(state) => state,
        }
    }
}

impl Default for AnyState {
    fn default() -> Self {
        Self::new(Algorithm::default())
    }
}
