use super::tally::Tally;
use crate::algorithm::byte_reader::{ByteReader, ByteWriter, check};
use crate::algorithm::count::CountError;
use crate::quota::Quota;

/// One of the tallies that are kept for a key.
#[derive(Debug, Clone)]
pub(super) struct KeptTally<T> {
    pub(super) tally: T,
    /// Until when it is needed for what was charged while its quota was the rule's.
    pub(super) needed_until: u64,
    /// Takes that were charged before this instant are not told apart in it, or before a reset, and
    /// so not given back.
    pub(super) refundable_since: u64,
}

impl<T: Tally> KeptTally<T> {
    /// The instant from which on it is of no use.
    pub(super) fn ends_at(&self) -> u64 {
        self.tally.ends_at().min(self.needed_until)
    }

    pub(super) fn write(&self, writer: &mut ByteWriter, last_charge: u64) {
        self.tally.write(writer, last_charge);
        writer.number_near(self.needed_until, last_charge);
        writer.number_near(self.refundable_since, last_charge);
    }

    pub(super) fn read(reader: &mut ByteReader<'_>, last_charge: u64) -> Result<Self, CountError> {
        let tally = T::read(reader, last_charge)?;
        let needed_until = reader.number_near(last_charge)?;
        let refundable_since = reader.number_near(last_charge)?;
        // As the scripts do: no charge counts for longer than two of the longest windows.
        let max_window = Quota::MAX_WINDOW.as_micros() as u64;
        let latest = last_charge.saturating_add(2 * max_window);
        check(needed_until <= latest, "the end of a tally")?;
        Ok(Self {
            tally,
            needed_until,
            refundable_since,
        })
    }
}
