use std::sync::Arc;

/// What a take was charged: the receipt for a [refund](crate::Store::refund).
///
/// It belongs to the rule and key of its take, and to the store that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub(super) stamp: u64,
    pub(super) serial: u64,
    pub(super) units: u64,
    /// Under a rule of several subjects: that of each count.
    pub(super) of_counts: Option<Arc<[Receipt]>>,
}

/// What a receipt says, without those of several counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Charged {
    pub(super) stamp: u64,
    pub(super) serial: u64,
    pub(super) units: u64,
}

impl Charged {
    pub(super) const NOTHING: Self = Self {
        stamp: 0,
        serial: 0,
        units: 0,
    };

    pub(super) const fn by(receipt: Option<&Receipt>) -> Self {
        match receipt {
            None => Self::NOTHING,
            Some(receipt) => Self {
                stamp: receipt.stamp,
                serial: receipt.serial,
                units: receipt.units,
            },
        }
    }
}

impl Receipt {
    /// For stores: the receipt of a take that was charged `units` at the instant `stamp`, in
    /// microseconds of the store's clock. `serial` is below 2^52, and no other take of that instant
    /// has it.
    #[must_use]
    pub const fn new(stamp: u64, serial: u64, units: u64) -> Self {
        Self {
            stamp,
            serial,
            units,
            of_counts: None,
        }
    }

    /// This receipt with one for each of several counts.
    pub(crate) fn with_counts(mut self, receipts: Vec<Self>) -> Self {
        self.of_counts = Some(receipts.into());
        self
    }

    /// The receipt of each of a take's [counts](crate::store::Ask::counts).
    #[must_use]
    pub fn counts(&self) -> &[Self] {
        match &self.of_counts {
            Some(receipts) => receipts,
            None => std::slice::from_ref(self),
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
    pub(crate) const fn marked_as_fallback(mut self) -> Self {
        self.serial |= Self::FALLBACK;
        self
    }

    /// The receipt of a fallback's own store, without the mark; `None` if it has none.
    pub(crate) fn as_fallback(&self) -> Option<Self> {
        let mut own = self.clone();
        own.serial &= !Self::FALLBACK;
        (own.serial != self.serial).then_some(own)
    }
}
