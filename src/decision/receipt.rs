/// What a take was charged: the receipt for a [refund](crate::Store::refund).
///
/// It belongs to the rule and key of its take, and to the store that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receipt {
    stamp: u64,
    serial: u64,
    units: u64,
}

impl Receipt {
    pub(super) const NONE: Self = Self::new(0, 0, 0);

    /// For stores: the take was charged so many units at `stamp`, microseconds of the store's clock, and no
    /// other take of that instant has this serial number, which is below 2^52.
    #[must_use]
    pub const fn new(stamp: u64, serial: u64, units: u64) -> Self {
        Self {
            stamp,
            serial,
            units,
        }
    }

    /// When it was charged, in microseconds of the store's clock: of Redis's since 1970, of the memory
    /// store's since some epoch of its own.
    #[must_use]
    pub const fn stamp(&self) -> u64 {
        self.stamp
    }

    /// What tells it from other takes of the same instant.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// What it was charged, in units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Above all serial numbers: says that a fallback's own store has given it.
    const FALLBACK: u64 = 1 << 63;

    /// A fallback's own store's, as it is shown to those who do not know of that store.
    pub(crate) const fn mark(self) -> Self {
        Self::new(self.stamp, self.serial | Self::FALLBACK, self.units)
    }

    /// What was marked, as the fallback's own store has given it.
    pub(crate) const fn marked(&self) -> Option<Self> {
        match self.serial & Self::FALLBACK {
            0 => None,
            _ => Some(Self::new(
                self.stamp,
                self.serial & !Self::FALLBACK,
                self.units,
            )),
        }
    }
}
