use std::collections::VecDeque;

use super::algorithm::MODULUS_MASK;
use super::byte_reader::{ByteReader, ByteWriter, check};
use super::count::CountError;
use crate::decision::Receipt;

/// Takes that were given back, the oldest first: remembered for as long as a caller could give them
/// back again.
#[expect(
    clippy::box_collection,
    reason = "few keys ever see one, and each key has room for this"
)]
#[derive(Debug, Clone, Default)]
pub(super) struct Refunds(Option<Box<VecDeque<Refund>>>);

/// The most refunds that are remembered. Beyond that the oldest are forgotten, and no take as old
/// as those is given back any more.
const MAX_REFUNDS: usize = 65_536;

/// The most refunds that are looked through for the units that they gave back, from the oldest on.
/// The units of the others count as not given back.
const MAX_LOOKED_AT: usize = 4_096;

#[derive(Debug, Clone)]
struct Refund {
    receipt: Receipt,
    units: u64,
}

impl Refund {
    fn order(&self) -> (u64, u64, u64) {
        order(&self.receipt)
    }
}

fn order(receipt: &Receipt) -> (u64, u64, u64) {
    (receipt.stamp(), receipt.serial(), receipt.units())
}

impl Refunds {
    /// When the latest of these takes was charged.
    pub(super) fn newest(&self) -> Option<u64> {
        let newest = self.0.as_ref()?.back()?;
        Some(newest.receipt.stamp())
    }

    /// Whether this take may have been given back already.
    pub(super) fn may_contain(&self, receipt: &Receipt) -> bool {
        let Some(refunds) = &self.0 else {
            return false;
        };
        let forgotten =
            refunds.len() >= MAX_REFUNDS && receipt.stamp() <= refunds[0].receipt.stamp();
        let found = refunds.binary_search_by_key(&order(receipt), Refund::order);
        forgotten || found.is_ok()
    }

    /// Units given back of takes that are not stamped before `since`, and whose serial number
    /// fulfils the condition.
    pub(super) fn units(&self, since: u64, is_of: impl Fn(u64) -> bool) -> u64 {
        let Some(refunds) = &self.0 else {
            return 0;
        };
        let from = refunds.partition_point(|refund| refund.receipt.stamp() < since);
        let refunds = refunds.range(from..).take(MAX_LOOKED_AT);
        let refunds = refunds.filter(|refund| is_of(refund.receipt.serial()));
        refunds.map(|refund| refund.units).sum()
    }

    pub(super) fn write(&self, writer: &mut ByteWriter) {
        let refunds = self.0.iter().flat_map(|refunds| refunds.iter());
        writer.number(refunds.clone().count() as u64);
        let mut stamp = 0;
        for Refund { receipt, units } in refunds {
            writer.number(receipt.stamp() - stamp);
            writer.number(receipt.serial());
            writer.number(receipt.units());
            writer.number(*units);
            stamp = receipt.stamp();
        }
    }

    /// Reads what [`write`](Self::write) has written.
    pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<Self, CountError> {
        let length = reader.length(MAX_REFUNDS, "the number of refunds")?;
        if length == 0 {
            return Ok(Self::default());
        }
        let mut refunds = VecDeque::<Refund>::new();
        let mut stamp = 0_u64;
        for _ in 0..length {
            let sum = stamp.checked_add(reader.number()?);
            stamp = sum.ok_or(CountError::Impossible("a refund's stamp"))?;
            let receipt = Receipt::new(stamp, reader.number()?, reader.number()?);
            let units = reader.number_up_to(MODULUS_MASK, "a refund's units")?;
            check(units <= receipt.units(), "a refund's units")?;
            let refund = Refund { receipt, units };
            let is_next = |before: &Refund| before.order() < refund.order();
            check(refunds.back().is_none_or(is_next), "the order of refunds")?;
            refunds.push_back(refund);
        }
        Ok(Self(Some(Box::new(refunds))))
    }

    /// Adds one, and forgets those of takes before `since`.
    pub(super) fn add(&mut self, receipt: Receipt, units: u64, since: u64) {
        let refunds = self.0.get_or_insert_default();
        let refund = Refund { receipt, units };
        let at = refunds.partition_point(|other| other.order() < refund.order());
        refunds.insert(at, refund);
        let old = refunds.partition_point(|refund| refund.receipt.stamp() < since);
        refunds.drain(..old.max(refunds.len().saturating_sub(MAX_REFUNDS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_given_back_no_more() {
        let mut refunds = Refunds::default();
        let receipt = |at: usize| Receipt::new(at as u64, 7, 1);
        for at in (0..MAX_REFUNDS).rev() {
            assert!(!refunds.may_contain(&receipt(at)));
            refunds.add(receipt(at), 1, 0);
        }
        assert!(!refunds.may_contain(&receipt(MAX_REFUNDS)));
        refunds.add(receipt(MAX_REFUNDS), 1, 0);
        assert!(
            refunds.may_contain(&receipt(0)),
            "forgotten, but still refused"
        );
        assert!((1..=MAX_REFUNDS).all(|at| refunds.may_contain(&receipt(at))));
        assert_eq!(refunds.units(0, |_| true), MAX_LOOKED_AT as u64);

        refunds.add(receipt(MAX_REFUNDS + 2), 1, MAX_REFUNDS as u64);
        assert!(!refunds.may_contain(&receipt(MAX_REFUNDS + 1)));
        assert_eq!(refunds.units(0, |_| true), 2);
    }
}
