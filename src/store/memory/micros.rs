/// An instant in halves, so that what holds one need not be as wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Micros {
    high: u32,
    low: u32,
}

impl From<u64> for Micros {
    fn from(micros: u64) -> Self {
        Self {
            high: (micros >> 32) as u32,
            low: micros as u32,
        }
    }
}

impl From<Micros> for u64 {
    fn from(micros: Micros) -> Self {
        Self::from(micros.high) << 32 | Self::from(micros.low)
    }
}
