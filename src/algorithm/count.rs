use super::algorithm::{Algorithm, AnyState};
use super::byte_reader::{ByteReader, ByteWriter};
use super::core::{Asked, CountState, Now};
use super::quota_use::QuotaUse;
use super::sliding_window::SlidingWindow;
use super::spec::Windows;
use crate::decision::{Decision, Receipt};
use crate::quota::{MAX_QUOTAS, Quota};

/// The count under one key: the state of the algorithm that charged it last.
///
/// A count belongs to one algorithm. A take by another algorithm starts afresh: if it is charged,
/// what was counted before is gone, and nothing of it can be given back. (Stores keep a count for
/// each algorithm.)
///
/// A store needs only keys and a clock besides: a take is a pure function of a count, an instant,
/// the quotas and a cost. It counts in windows alone. What is asked about a period of the calendar
/// or about permits has no [algorithm](crate::store::CountAsk::algorithm): a store without other
/// counts answers with an error of the kind
/// [`Configuration`](crate::store::StoreErrorKind::Configuration), or is not asked at all, since
/// its [`Capabilities`](crate::store::Capabilities) do not say that it can. Instants are microseconds since any epoch. The promises of this crate
/// hold for instants below 2^53, which is 285 years.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Algorithm, Quota};
/// use tidegate::algorithm::Count;
///
/// let quotas = [Quota::new(Duration::from_secs(10), 2)?];
/// let mut count = Count::default();
/// let receipt = count.take(Algorithm::Gcra, 0, &quotas, 2).receipt().expect("it was charged");
/// let denied = count.take(Algorithm::Gcra, 1_000_000, &quotas, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(4)));
/// assert_eq!(count.refund(1_000_000, &quotas, &receipt, 2), 1, "a part of one unit has drained");
///
/// // Another algorithm begins with nothing.
/// assert_eq!(count.take(Algorithm::SlidingLog, 1_000_000, &quotas, 1).remaining(), 1);
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Count {
    state: AnyState,
}

/// The version of the format of counts in bytes.
const VERSION: u8 = 1;

impl Count {
    /// Nothing is charged.
    pub(crate) fn new(algorithm: Algorithm) -> Self {
        Self {
            state: AnyState::new(algorithm),
        }
    }

    /// The default count after a take whose cost fits.
    pub(crate) fn charged_once(
        config: AlgorithmConfig,
        now: u64,
        quota: &Quota,
        cost: u64,
    ) -> Self {
        let mut count = Self::new(config.algorithm());
        count.take(config, now, std::slice::from_ref(quota), cost);
        count
    }

    /// Asks at the instant `now` whether `cost` units fit into all `quotas`, and charges them to
    /// all if so. A cost of 0 changes nothing, and fits unless more than a quota's max is used or
    /// that max is 0.
    ///
    /// At most 16 quotas are looked at, the most that a rule may have; with none all is allowed.
    pub fn take(
        &mut self,
        config: impl Into<AlgorithmConfig>,
        now: u64,
        quotas: &[Quota],
        cost: u64,
    ) -> Decision {
        let config = config.into();
        if self.state.algorithm() != config.algorithm() {
            return self.take_afresh(config, now, quotas, cost);
        }
        let sub_windows = config.number_of_sub_windows();
        self.state.take(now, quotas, sub_windows, cost)
    }

    /// By another algorithm than before: nothing that the other one counted counts. A take that is
    /// not charged changes nothing.
    #[cold]
    fn take_afresh(
        &mut self,
        config: AlgorithmConfig,
        now: u64,
        quotas: &[Quota],
        cost: u64,
    ) -> Decision {
        let mut count = Self::new(config.algorithm());
        let decision = count.take(config, now, quotas, cost);
        if decision.units() > 0 {
            *self = count;
        }
        decision
    }

    /// Charges up to `units` that were used beyond what was taken, also above the limits of
    /// `quotas`: no quota owes more than `at_most` units, or its max if that is `None`. Returns how
    /// many were charged. Takes are denied until what is above a limit has ceased to count.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Algorithm, Quota};
    /// use tidegate::algorithm::Count;
    ///
    /// let quotas = [Quota::new(Duration::from_secs(10), 10)?];
    /// let mut count = Count::default();
    /// count.take(Algorithm::Gcra, 0, &quotas, 4);
    /// // It used 15 units, and then 20 more.
    /// assert_eq!(count.owe(Algorithm::Gcra, 0, &quotas, 11, None), 11);
    /// assert_eq!(count.owe(Algorithm::Gcra, 0, &quotas, 20, None), 5);
    /// let denied = count.take(Algorithm::Gcra, 0, &quotas, 1);
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(11)));
    /// # Ok::<(), tidegate::rule::QuotaError>(())
    /// ```
    pub fn owe(
        &mut self,
        config: impl Into<AlgorithmConfig>,
        now: u64,
        quotas: &[Quota],
        units: u64,
        at_most: Option<u64>,
    ) -> u64 {
        let config = config.into();
        let algorithm = config.algorithm();
        if self.state.algorithm() != algorithm {
            let mut count = Self::new(algorithm);
            let charged = count.owe(config, now, quotas, units, at_most);
            if charged > 0 {
                *self = count;
            }
            return charged;
        }
        let limit_of = |quota: &Quota| algorithm.limit_with_debt(quota, at_most);
        let sub_windows = config.number_of_sub_windows();
        self.state.owe(now, quotas, sub_windows, units, &limit_of)
    }

    /// Gives back up to `units` of an earlier take, which was charged under these quotas, and
    /// returns how many. It gives back no more than the take was charged, and nothing that has
    /// ceased to count. A counter that is newer than the take gives nothing back.
    ///
    /// A count does not know which takes were given back: the caller has to ask once for each take.
    /// A second time, units of other takes would be given back.
    pub fn refund(&mut self, now: u64, quotas: &[Quota], receipt: &Receipt, units: u64) -> u64 {
        let units = units.min(receipt.units());
        self.state.state_mut().refund(now, quotas, receipt, units)
    }

    /// Forgets what was charged until `now`: the next take finds nothing charged. Of takes that
    /// were charged at `now` or before, nothing is given back any more; so nothing either of takes
    /// that are charged in this very microsecond after it. Returns whether anything of what was
    /// charged still counted.
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
    /// let quotas = [Quota::new(Duration::from_secs(10), 2)?];
    /// let mut count = Count::default();
    /// let before = count.take(Algorithm::SlidingLog, 7, &quotas, 2).receipt().expect("charged");
    /// assert!(count.reset(8));
    /// let after = count.take(Algorithm::SlidingLog, 9, &quotas, 2).receipt().expect("charged");
    /// assert_eq!(count.refund(9, &quotas, &before, 2), 0, "they are somebody else's now");
    /// assert_eq!(count.refund(9, &quotas, &after, 2), 2);
    /// # Ok::<(), tidegate::rule::QuotaError>(())
    /// ```
    ///
    /// The stamp of a receipt says whether it is from before. If the clock goes back, an earlier
    /// receipt that is stamped after the instant of the reset is taken for a later one, and takes
    /// that are charged until the clock has passed that instant again are not given back.
    pub fn reset(&mut self, now: u64) -> bool {
        self.state.state_mut().reset(now)
    }

    /// This count in bytes, for stores that keep bytes: what was charged, and what was given back.
    ///
    /// The first byte is the version of the format, 1, and the second one the number of the
    /// algorithm. A later version of this crate reads what an earlier one has written. An earlier
    /// one answers bytes of a later format with [`CountError::UnknownVersion`], or
    /// [`CountError::UnknownAlgorithm`]. Quotas change a count as they do in memory: bytes that
    /// were written under one rule's quotas may be read under another's.
    ///
    /// A fixed window, a bucket or a log of one entry takes about 30 bytes; each further entry
    /// about 5 to 10. What was given back of a log takes up to about 500 more, of a bucket 30.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Algorithm, Quota};
    /// use tidegate::algorithm::{Count, CountError};
    ///
    /// let quotas = [Quota::new(Duration::from_secs(10), 2)?];
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
    /// assert_eq!(bytes, [1, 3, 2, 192, 132, 61, 1, 2, 144, 78, 2, 0, 2, 0, 0, 0]);
    /// assert_eq!(Count::from_bytes(&[9, 3]).err(), Some(CountError::UnknownVersion(9)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = ByteWriter::default();
        let state = self.state.state();
        writer.byte(VERSION);
        writer.byte(self.state.algorithm().number());
        state.write(&mut writer);
        match state.refunded() {
            Some((ranges, first)) => ranges.write(&mut writer, first),
            None => writer.number(0),
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
        if version != VERSION {
            return Err(CountError::UnknownVersion(version));
        }
        let number = reader.byte()?;
        let mut state = AnyState::read(number, &mut reader)?;
        state.state_mut().read_refunded(&mut reader)?;
        reader.end()?;
        Ok(Self { state })
    }

    /// The instant from which on nothing counts any more, and nothing could be given back with a
    /// receipt from before a [reset](Self::reset): a store may drop the count then.
    #[must_use]
    pub fn forgotten_at(&self) -> u64 {
        self.state.state().forgotten_at()
    }
}

impl CountState for Count {
    type Spec = Windows;

    fn fits(&mut self, of: &Windows, now: Now, cost: u64) -> bool {
        if self.state.algorithm() != of.algorithm() {
            return Self::new(of.algorithm()).fits(of, now, cost);
        }
        let mut uses = [QuotaUse::default(); MAX_QUOTAS];
        let uses = &mut uses[..of.quotas.len().min(MAX_QUOTAS)];
        self.state.state().load(now.micros, &of.quotas, uses);
        uses.iter().all(|quota| quota.fits(cost))
    }

    fn answer(&mut self, of: &Windows, now: Now, cost: u64, _: &Asked<'_>) -> Decision {
        self.take(of.config, now.micros, &of.quotas, cost)
    }

    fn owe(&mut self, of: &Windows, now: Now, _: &Receipt, units: u64) -> u64 {
        self.owe(of.config, now.micros, &of.quotas, units, of.owe_at_most)
    }

    fn refund(&mut self, of: &Windows, now: Now, receipt: &Receipt, units: u64) -> u64 {
        self.refund(now.micros, &of.quotas, receipt, units)
    }

    fn reset(&mut self, now: Now) -> bool {
        self.reset(now.micros)
    }

    fn needed_for(&self, now: Now) -> u64 {
        self.forgotten_at().saturating_sub(now.micros)
    }
}

/// Why bytes are no [`Count`](super::Count).
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// A later version of this crate wrote them, or they were never written by this crate.
    #[error("version {0} of the format of counts, expected {VERSION}")]
    UnknownVersion(u8),
    /// They are the count of an algorithm that this version does not have.
    #[error("an unknown algorithm, number {0}")]
    UnknownAlgorithm(u8),
    /// They end too early.
    #[error("the count is cut off")]
    CutOff,
    /// They do not end where the count does.
    #[error("{0} bytes behind the count")]
    TooLong(usize),
    /// A number in them cannot be.
    #[error("{0} cannot be as the count says")]
    Impossible(&'static str),
}

crate::error::debug_as_message!(CountError);

/// An algorithm with its setting.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Algorithm, Quota};
/// use tidegate::algorithm::{Count, AlgorithmConfig};
///
/// let quotas = [Quota::new(Duration::from_secs(10), 2)?];
/// // Sub-windows of 5 s each, instead of a 64th of the window.
/// let coarse = AlgorithmConfig::from(Algorithm::SlidingWindow).sub_windows(2);
/// let mut count = Count::default();
/// count.take(coarse, 0, &quotas, 1);
/// count.take(coarse, 4_000_000, &quotas, 1);
/// let denied = count.take(coarse, 4_000_000, &quotas, 1);
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(10)), "both leave together");
/// # Ok::<(), tidegate::rule::QuotaError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AlgorithmConfig {
    algorithm: Algorithm,
    sub_windows: u16,
}

impl AlgorithmConfig {
    /// For [`Algorithm::SlidingWindow`]: how many sub-windows a window has, from 1 to
    /// [`MAX_SUB_WINDOWS`](SlidingWindow::MAX_SUB_WINDOWS); other numbers become the nearest of
    /// these. Default: 64.
    #[must_use]
    pub fn sub_windows(mut self, sub_windows: u16) -> Self {
        self.sub_windows = sub_windows.clamp(1, SlidingWindow::MAX_SUB_WINDOWS);
        self
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How many sub-windows a window has, at least 1.
    pub(crate) const fn number_of_sub_windows(&self) -> u16 {
        self.sub_windows
    }
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        Algorithm::default().into()
    }
}

impl From<Algorithm> for AlgorithmConfig {
    fn from(algorithm: Algorithm) -> Self {
        let sub_windows = SlidingWindow::DEFAULT_SUB_WINDOWS;
        Self {
            algorithm,
            sub_windows,
        }
    }
}
