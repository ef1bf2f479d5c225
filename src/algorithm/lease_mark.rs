use smallvec::SmallVec;

use super::byte_reader::{ByteReader, check};
use super::byte_writer::ByteWriter;
use super::count_error::CountError;
use crate::quota::Quota;

/// Says that units of a key may be used later than they were charged, because a rule with a lease
/// charged them. Until the last of them has ceased to count, units count longer for every taker,
/// also for one whose rule has no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseMark {
    /// By how much units count longer than their windows. As all numbers here, in microseconds.
    lease: u64,
    /// When a rule with a lease charged something last.
    stamp: u64,
    /// How long that counts at most, with the lease.
    life: u64,
}

/// One quota, in most cases.
type Quotas = SmallVec<[Quota; 1]>;

impl LeaseMark {
    /// The mark after a charge at `now`, under these quotas with this lease, which may be 0.
    pub(super) fn after_charge(
        before: Option<Self>,
        now: u64,
        quotas: &[Quota],
        lease: u64,
    ) -> Option<Self> {
        let before = before.filter(|mark| mark.ends_at() > now);
        if lease == 0 {
            // Units that were charged in the future count as charged now.
            return before.map(|mark| Self {
                stamp: mark.stamp.min(now),
                ..mark
            });
        }
        let lease = longer_by(before, now, lease);
        let windows = lengthened(quotas, lease);
        let life = windows.iter().map(Quota::window_micros).max().unwrap_or(0);
        Some(Self {
            lease,
            stamp: now,
            life: before.map_or(life, |mark| mark.life.max(life)),
        })
    }

    /// The instant from which on nothing counts longer.
    pub(super) const fn ends_at(self) -> u64 {
        self.stamp.saturating_add(self.life)
    }

    pub(super) fn write(self, writer: &mut ByteWriter) {
        writer.window(self.lease);
        writer.number(self.stamp);
        writer.window(self.life);
    }

    pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<Self, CountError> {
        let mark = Self {
            lease: reader.window()?,
            stamp: reader.number()?,
            life: reader.window()?,
        };
        check(mark.lease <= mark.life, "a lease")?;
        Ok(mark)
    }
}

/// By how much units count longer than their windows for a taker with this lease, which may be 0.
pub(super) fn longer_by(mark: Option<LeaseMark>, now: u64, lease: u64) -> u64 {
    let mark = mark.filter(|mark| mark.ends_at() > now);
    mark.map_or(lease, |mark| mark.lease.max(lease))
}

/// The quotas with longer windows. No window gets longer than the longest that a quota may have.
pub(super) fn lengthened(quotas: &[Quota], by: u64) -> Quotas {
    quotas.iter().map(|quota| quota.lengthened(by)).collect()
}
