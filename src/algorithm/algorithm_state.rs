use super::byte_reader::ByteReader;
use super::byte_writer::ByteWriter;
use super::count_error::CountError;
use super::refunds::Refunds;
use crate::decision::Receipt;

/// What an algorithm keeps for one key. Instants are microseconds.
pub(super) trait AlgorithmState {
    /// Forgets what was charged, and gives nothing back of takes that were charged at `now` or
    /// before.
    fn reset(&mut self, now: u64);

    /// Gives back up to `units` of the take with this receipt, as far as they still count, and
    /// returns how many. `earlier` are the refunds that were made before.
    fn refund(&mut self, now: u64, receipt: &Receipt, units: u64, earlier: &Refunds) -> u64;

    /// The instant from which on nothing counts. After a reset, a new state gives nothing back of
    /// earlier takes from then on.
    fn forgotten_at(&self) -> u64;

    /// How long a charge counts at most.
    fn longest_life(&self) -> u64;

    /// Writes all that later answers depend on.
    fn write(&self, writer: &mut ByteWriter);

    /// Becomes what [`write`](Self::write) has written. Other bytes are an error, or a state that
    /// answers without a panic.
    fn read(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CountError>;
}
