/// An instant in microseconds, in two halves, so that structs with one need an alignment of 4 bytes
/// only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SplitMicros {
    high: u32,
    low: u32,
}

impl From<u64> for SplitMicros {
    fn from(micros: u64) -> Self {
        Self {
            high: (micros >> 32) as u32,
            low: micros as u32,
        }
    }
}

impl From<SplitMicros> for u64 {
    fn from(micros: SplitMicros) -> Self {
        Self::from(micros.high) << 32 | Self::from(micros.low)
    }
}
