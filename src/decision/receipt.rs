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

    /// For stores: the receipt of a take that was charged `units` at the instant `stamp`, in
    /// microseconds of the store's clock. `serial` is below 2^52, and no other take of that instant
    /// has it.
    #[must_use]
    pub const fn new(stamp: u64, serial: u64, units: u64) -> Self {
        Self {
            stamp,
            serial,
            units,
        }
    }

    /// The instant of the charge, in microseconds of the store's clock: since 1970 for Redis, since
    /// an epoch of its own for the memory store.
    #[must_use]
    pub const fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The number that distinguishes takes of the same instant.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// The units that were charged.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// A bit above all serial numbers: it marks receipts of a fallback's own store.
    const FALLBACK: u64 = 1 << 63;

    /// The receipt of a fallback's own store, with the mark.
    pub(crate) const fn of_fallback(self) -> Self {
        Self::new(self.stamp, self.serial | Self::FALLBACK, self.units)
    }

    /// The receipt of a fallback's own store, without the mark; `None` if it has none.
    pub(crate) const fn as_fallback(&self) -> Option<Self> {
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
