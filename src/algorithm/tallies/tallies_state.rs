use smallvec::SmallVec;

use super::kept_tally::KeptTally;
use super::tallies::{MAX_EARLIER, Tallies};
use super::tally::{Tally, TallyRefund};
use crate::algorithm::algorithm::AlgorithmState;
use crate::algorithm::byte_reader::{ByteReader, ByteWriter};
use crate::algorithm::count::CountError;
use crate::algorithm::modulus::MODULUS_MASK;
use crate::algorithm::refunds::Refunds;
use crate::decision::Receipt;
use crate::quota::{MAX_QUOTAS, Quota};

/// The shortest window, in microseconds.
const MIN_WINDOW: u64 = 1_000;

impl<T: Tally> AlgorithmState for Tallies<T> {
    fn reset(&mut self, now: u64) {
        let quota = Quota::of_micros(0, MIN_WINDOW);
        *self = Self {
            kept: SmallVec::from_buf([KeptTally {
                tally: T::new(&quota, 1),
                needed_until: now,
                refundable_since: now.saturating_add(1),
            }]),
            serial: 0,
            last_charge: now,
        };
    }

    fn refund(&mut self, now: u64, receipt: &Receipt, units: u64, earlier: &Refunds) -> u64 {
        if self.last_charge > now || self.is_forgotten(now) {
            return 0;
        }
        let charged_since = |serial: u64| self.serial.wrapping_sub(serial) & MODULUS_MASK;
        let later = charged_since(receipt.serial());
        let is_later = |serial| charged_since(serial) < later;
        let refund = TallyRefund {
            stamp: receipt.stamp(),
            units,
            later: later.saturating_sub(earlier.units(receipt.stamp(), is_later)),
        };
        let tallies = self.kept.iter_mut();
        let tallies = tallies.filter(|kept| kept.refundable_since <= receipt.stamp());
        let refunded = tallies.map(|kept| kept.tally.refund(now, &refund));
        refunded.max().unwrap_or(0)
    }

    fn forgotten_at(&self) -> u64 {
        let ends = self.kept.iter().map(KeptTally::ends_at);
        match ends.max() {
            // Nothing is held: after a reset, or all was given back.
            None | Some(0) => self.refundable_since(),
            Some(ends_at) => ends_at,
        }
    }

    fn longest_life(&self) -> u64 {
        let lives = self.kept.iter().map(|kept| kept.tally.life());
        lives.max().unwrap_or(0)
    }

    fn write(&self, writer: &mut ByteWriter) {
        writer.number(self.serial);
        writer.number(self.last_charge);
        writer.number(self.kept.len() as u64);
        for kept in &self.kept {
            kept.write(writer, self.last_charge);
        }
    }

    fn read(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CountError> {
        let serial = reader.number_up_to(MODULUS_MASK, "the serial number")?;
        let last_charge = reader.number()?;
        let length = reader.length(MAX_QUOTAS + MAX_EARLIER, "the number of tallies")?;
        let kept = (0..length).map(|_| KeptTally::read(reader, last_charge));
        *self = Self {
            kept: kept.collect::<Result<_, _>>()?,
            serial,
            last_charge,
        };
        Ok(())
    }
}
