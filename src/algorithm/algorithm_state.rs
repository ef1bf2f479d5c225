use std::fmt;

use super::byte_reader::ByteReader;
use super::byte_writer::ByteWriter;
use super::count_error::CountError;
use super::refunds::Refunds;
use crate::decision::{Decision, Receipt};
use crate::quota::Quota;

/// What an algorithm keeps for one key. Instants are microseconds.
pub(super) trait AlgorithmState: fmt::Debug + Clone + Default {
    /// What a take makes of the default state where the cost fits.
    fn charged_once(now: u64, quota: &Quota, sub_windows: u16, cost: u64) -> Self;

    /// The state after a reset: nothing is charged, and nothing is given back of takes that were
    /// charged at `now` or before.
    fn reset_at(now: u64) -> Self;

    /// Decides whether `cost` units fit into all `quotas`, and charges them to all if so. A take
    /// that is not charged changes nothing.
    fn take(&mut self, now: u64, quotas: &[Quota], sub_windows: u16, cost: u64) -> Decision;

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

    /// Reads what [`write`](Self::write) has written. Other bytes are an error, or a state that
    /// answers without a panic.
    fn read(reader: &mut ByteReader<'_>) -> Result<Self, CountError>;
}
