use super::algorithm::Algorithm;
use super::any_state::AnyState;
use super::byte_reader::ByteReader;
use super::byte_writer::ByteWriter;
use super::count_error::CountError;
use super::counting::Counting;
use super::lease_mark::{LeaseMark, lengthened, longer_by};
use super::refunds::Refunds;
use crate::decision::{Decision, Receipt};
use crate::quota::Quota;

/// What counts under one key: the state of the algorithm that charged it last, and what was given
/// back.
///
/// A count belongs to one algorithm. A take by another algorithm starts afresh: if it is charged,
/// what was counted before is gone, and nothing of it can be given back. (Stores keep a count for
/// each algorithm.)
///
/// A store needs only keys and a clock besides: a take is a pure function of a count, an instant,
/// the quotas and a cost. Instants are microseconds since any epoch. The promises of this crate
/// hold for instants below 2^53, which is 285 years.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Algorithm, Quota};
/// use tidegate::algorithm::Count;
///
/// let quotas = [Quota::new(2, Duration::from_secs(10))?];
/// let mut count = Count::default();
/// let receipt = count.take(Algorithm::Gcra, 0, &quotas, 2).receipt().expect("it was charged");
/// let denied = count.take(Algorithm::Gcra, 1_000_000, &quotas, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(4)));
/// assert_eq!(count.refund(1_000_000, &receipt, 2), 1, "a part of one unit has drained");
/// assert_eq!(count.refund(1_000_000, &receipt, 2), 0, "that was given back already");
///
/// // Another algorithm begins with nothing.
/// assert_eq!(count.take(Algorithm::SlidingLog, 1_000_000, &quotas, 1).remaining(), 1);
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Count {
    state: AnyState,
    refunds: Refunds,
    /// Only for keys that rules with leases charge.
    lease: Option<Box<LeaseMark>>,
}

/// The version of the format of counts in bytes.
const VERSION: u8 = 1;
/// The version of the format with a lease mark behind the refunds.
const VERSION_WITH_LEASE: u8 = 2;

impl Count {
    fn new(algorithm: Algorithm) -> Self {
        Self {
            state: AnyState::new(algorithm),
            ..Self::default()
        }
    }

    /// What a take makes of the default count where the cost fits.
    pub(crate) fn charged_once(counting: Counting, now: u64, quota: &Quota, cost: u64) -> Self {
        let mut count = Self::new(counting.algorithm());
        count.take(counting, now, std::slice::from_ref(quota), cost);
        count
    }

    /// Asks at the instant `now` whether `cost` units fit into all `quotas`, and charges them to
    /// all if so. A cost of 0 only looks, and is always allowed.
    ///
    /// At most 16 quotas are looked at, the most that a rule may have; with none all is allowed.
    pub fn take(
        &mut self,
        counting: impl Into<Counting>,
        now: u64,
        quotas: &[Quota],
        cost: u64,
    ) -> Decision {
        let counting = counting.into();
        if self.state.algorithm() != counting.algorithm() {
            return self.take_afresh(counting, now, quotas, cost);
        }
        if counting.lease_micros() > 0 || self.lease.is_some() {
            return self.take_with_lease(counting, now, quotas, cost);
        }
        let sub_windows = counting.number_of_sub_windows();
        self.state.take(now, quotas, sub_windows, cost)
    }

    /// By a rule with a lease, or beside one.
    fn take_with_lease(
        &mut self,
        counting: Counting,
        now: u64,
        quotas: &[Quota],
        cost: u64,
    ) -> Decision {
        let (mark, lease) = (self.lease.as_deref().copied(), counting.lease_micros());
        let longer = lengthened(quotas, longer_by(mark, now, lease));
        let sub_windows = counting.number_of_sub_windows();
        let decision = self.state.take(now, &longer, sub_windows, cost);
        if decision.receipt().is_some() {
            match (
                LeaseMark::after_charge(mark, now, quotas, lease),
                &mut self.lease,
            ) {
                (Some(mark), Some(kept)) => **kept = mark,
                (mark, _) => self.lease = mark.map(Box::new),
            }
        }
        decision
    }

    /// By another algorithm than before: nothing that the other one counted counts. A take that is
    /// not charged changes nothing.
    #[cold]
    fn take_afresh(
        &mut self,
        counting: Counting,
        now: u64,
        quotas: &[Quota],
        cost: u64,
    ) -> Decision {
        let mut count = Self::new(counting.algorithm());
        let decision = count.take(counting, now, quotas, cost);
        if decision.receipt().is_some() {
            *self = count;
        }
        decision
    }

    /// Gives back up to `units` of an earlier take, and returns how many. It gives back no more
    /// than the take was charged, nothing that has ceased to count, and nothing of a take that was
    /// given back before. A count remembers at most 65,536 refunds. Of more, it forgets the oldest,
    /// and gives back no take that is as old as those.
    pub fn refund(&mut self, now: u64, receipt: &Receipt, units: u64) -> u64 {
        if self.refunds.may_contain(receipt) {
            return 0;
        }
        let units = units.min(receipt.units());
        let refunded = self
            .state
            .state_mut()
            .refund(now, receipt, units, &self.refunds);
        if refunded > 0 {
            let remembered = self.state.state().longest_life().saturating_mul(2);
            self.refunds
                .add(*receipt, refunded, now.saturating_sub(remembered));
        }
        refunded
    }

    /// Forgets what was charged until `now`, and what was given back of it: the next take finds
    /// nothing charged. Of takes that were charged at `now` or before, nothing is given back any
    /// more; so nothing either of takes that are charged in this very microsecond after it.
    ///
    /// A store keeps the count until it is [forgotten](Self::forgotten_at), a millisecond later at
    /// most: a new one does not know which receipts are from before. A store that drops it earlier
    /// gives back with them what is charged in the same millisecond.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Algorithm, Quota};
    /// use tidegate::algorithm::Count;
    ///
    /// let quotas = [Quota::new(2, Duration::from_secs(10))?];
    /// let mut count = Count::default();
    /// let before = count.take(Algorithm::SlidingLog, 7, &quotas, 2).receipt().expect("charged");
    /// count.reset(8);
    /// let after = count.take(Algorithm::SlidingLog, 9, &quotas, 2).receipt().expect("charged");
    /// assert_eq!(count.refund(9, &before, 2), 0, "they are somebody else's now");
    /// assert_eq!(count.refund(9, &after, 2), 2);
    /// # Ok::<(), tidegate::rule::QuotaError>(())
    /// ```
    ///
    /// The stamp of a receipt says whether it is from before. If the clock goes back, an earlier
    /// receipt that is stamped after the instant of the reset is taken for a later one, and takes
    /// that are charged until the clock has passed that instant again are not given back.
    pub fn reset(&mut self, now: u64) {
        self.state.state_mut().reset(now);
        (self.refunds, self.lease) = Default::default();
    }

    /// This count in bytes, for stores that keep bytes: what was charged, and what was given back.
    ///
    /// The first byte is the version of the format and the second one the number of the algorithm.
    /// The version is 2 where a rule with a [lease](crate::Rule::with_lease) has charged the key,
    /// and otherwise 1. A later version of this crate reads what an earlier one has written. An
    /// earlier one answers bytes of a later format with [`CountError::UnknownVersion`], or
    /// [`CountError::UnknownAlgorithm`]. Quotas change a count as they do in memory: bytes that
    /// were written under one rule's quotas may be read under another's.
    ///
    /// A fixed window, a bucket or a log of one entry takes about 30 bytes; each further entry, as
    /// each refund that is remembered, about 5 to 10.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Algorithm, Quota};
    /// use tidegate::algorithm::{Count, CountError};
    ///
    /// let quotas = [Quota::new(2, Duration::from_secs(10))?];
    /// let mut count = Count::default();
    /// count.take(Algorithm::Gcra, 1_000_000, &quotas, 2);
    ///
    /// // Another process goes on with it.
    /// let bytes = count.to_bytes();
    /// let mut read = Count::from_bytes(&bytes)?;
    /// assert!(!read.take(Algorithm::Gcra, 1_000_000, &quotas, 1).is_allowed());
    /// assert!(read.take(Algorithm::Gcra, 6_000_000, &quotas, 1).is_allowed());
    ///
    /// // The format of version 1 stays as it is.
    /// assert_eq!(bytes, [1, 3, 2, 192, 132, 61, 1, 2, 144, 78, 2, 0, 2, 128, 218, 196, 9, 0, 0]);
    /// assert_eq!(Count::from_bytes(&bytes[1..]).err(), Some(CountError::UnknownVersion(3)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = ByteWriter::default();
        writer.byte(match self.lease {
            None => VERSION,
            Some(_) => VERSION_WITH_LEASE,
        });
        writer.byte(self.state.algorithm().number());
        self.state.state().write(&mut writer);
        self.refunds.write(&mut writer);
        if let Some(mark) = &self.lease {
            mark.write(&mut writer);
        }
        writer.into_bytes()
    }

    /// The count that [`to_bytes`](Self::to_bytes) has written.
    ///
    /// Other bytes are an error, or make a count that may answer anything, but never panics. It
    /// takes no more memory than a small multiple of the bytes. The bytes do not say which rule and
    /// key they belong to.
    ///
    /// # Errors
    ///
    /// [`CountError`] if these are not the bytes of a count. A store should go on with
    /// [`Count::default`] then, as if the key were new.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CountError> {
        let mut reader = ByteReader::new(bytes);
        let version = reader.byte()?;
        if ![VERSION, VERSION_WITH_LEASE].contains(&version) {
            return Err(CountError::UnknownVersion(version));
        }
        let number = reader.byte()?;
        let state = AnyState::read(number, &mut reader)?;
        let refunds = Refunds::read(&mut reader)?;
        let lease = match version {
            VERSION_WITH_LEASE => Some(Box::new(LeaseMark::read(&mut reader)?)),
            _ => None,
        };
        reader.end()?;
        Ok(Self {
            state,
            refunds,
            lease,
        })
    }

    /// The instant from which on nothing counts any more, and nothing could be given back twice, or
    /// with a receipt from before a [reset](Self::reset): a store may drop the count then.
    #[must_use]
    pub fn forgotten_at(&self) -> u64 {
        let forgotten_at = self.state.state().forgotten_at();
        let given_back = self.refunds.newest().map_or(0, |newest| {
            newest.saturating_add(self.state.state().longest_life())
        });
        let longer_until = self.lease.as_ref().map_or(0, |mark| mark.ends_at());
        forgotten_at.max(given_back).max(longer_until)
    }
}
