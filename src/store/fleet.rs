//! What the processes of a service share through a store.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::StoreFuture;
use crate::factor::Factor;

/// What the processes of a service share through a [`Store`](crate::Store), which gives it by
/// [`Store::fleet`](crate::Store::fleet). `Limits` that joined it ask it once a second; no request
/// waits for it. This crate implements it, and a store around another one passes it on: it may gain
/// methods in any version.
///
/// ```
/// use tidegate::{MemoryStore, Store};
///
/// // The memory of a process has no fleet.
/// assert!(MemoryStore::new().fleet().is_none());
/// ```
pub trait Fleet: Debug + Send + Sync + 'static {
    /// Keeps what a process says of itself for a few seconds, and returns what all processes of its
    /// service share.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn report(&self, report: &ProcessReport) -> StoreFuture<FleetState>;

    /// What the processes of the service said last. Of more than [`PeerReport::MAX`] one more is
    /// returned, and not the rest.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn reports(&self) -> StoreFuture<Vec<PeerReport>>;

    /// Lets a key through, blocks it or raises it, for all processes of the service: they learn of
    /// it by their next [report](Self::report). A raise before ends by another one, and that it was
    /// let through or blocked by either of these. Returns what stands then: this one, or a raise that
    /// is larger, or as large and longer, unless this one [replaces](OperatorKey::replaces) it.
    /// `None`: there are [as many](OperatorKey::MAX) keys of this kind as may be.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn set_key(&self, key: &OperatorKey) -> StoreFuture<Option<OperatorKey>>;

    /// Whether the process `by` is the first of its service that claims this name, which is then
    /// its own for so long; it gets the same answer if it asks again. Default: each is the first.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn claim(&self, name: &str, by: &str, time: Duration) -> StoreFuture<bool> {
        let _ = (name, by, time);
        StoreFuture::ready(Ok(true))
    }
}

/// What a process says of itself, once a second: see [`Fleet::report`].
///
/// ```
/// use tidegate::store::ProcessReport;
///
/// let first = ProcessReport {
///     process: "00c0ffee00c0ffee".into(),
///     text: "{}".into(),
///     known_version: 0,
///     random: [7; 16],
///     decides: true,
/// };
/// assert_eq!(first.process.len(), 16);
/// ```
#[derive(Debug, Clone)]
pub struct ProcessReport {
    /// The process: 16 hexadecimal digits.
    pub process: Arc<str>,
    /// What it says: a text of this crate, of at most 32 KiB; empty without the feature `page`.
    pub text: Arc<str>,
    /// The version of the operators' keys that it knows: 0 for none, `u64::MAX` for keys that no
    /// version tells.
    pub known_version: u64,
    /// 16 random bytes, which become the secret of the service if it has none.
    pub random: [u8; 16],
    /// Whether it has decided about requests.
    pub decides: bool,
}

/// What a process said last: see [`Fleet::reports`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::store::PeerReport;
///
/// let peer = PeerReport {
///     process: "00c0ffee00c0ffee".into(),
///     text: "{}".into(),
///     ago: Duration::from_millis(400),
/// };
/// assert!(peer.ago < Duration::from_secs(1));
/// ```
#[derive(Debug, Clone)]
pub struct PeerReport {
    /// The process.
    pub process: Arc<str>,
    /// What it [said](ProcessReport::text).
    pub text: Arc<str>,
    /// How long before the last report of any process.
    pub ago: Duration,
}

impl PeerReport {
    /// The maximum number of processes that are shown.
    pub const MAX: usize = 200;
}

/// What all processes of a service share: see [`Fleet::report`].
///
/// ```
/// use tidegate::store::FleetState;
///
/// let unchanged = FleetState {
///     secret: [7; 16],
///     version: 3,
///     deciding: 2,
///     keys: None,
/// };
/// assert!(unchanged.keys.is_none());
/// ```
#[derive(Debug, Clone)]
pub struct FleetState {
    /// The secret by which pages hash keys.
    pub secret: [u8; 16],
    /// The version of the operators' keys; 0 without any.
    pub version: u64,
    /// How many processes [have decided](ProcessReport::decides).
    pub deciding: u64,
    /// The keys that operators let through, block or raise. `None` if they are those that are
    /// known.
    pub keys: Option<Vec<OperatorKey>>,
}

/// What an operator does with a key. Of what is said of one key the greatest holds: a block, or
/// else that it is let through, or else the highest raise.
///
/// ```
/// use tidegate::rule::Factor;
/// use tidegate::store::OperatorKind;
///
/// let twice = OperatorKind::Raised(Factor::new(2.0).expect("in range"));
/// assert!(twice < OperatorKind::LetThrough && OperatorKind::LetThrough < OperatorKind::Blocked);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperatorKind {
    /// The quotas that its requests have are multiplied by this.
    Raised(Factor),
    /// Its requests are admitted without a question to the store.
    LetThrough,
    /// Its requests are denied without a question to the store.
    Blocked,
}

impl OperatorKind {
    /// Whether it is a raise, which says nothing of the other kinds.
    #[must_use]
    pub const fn is_raise(self) -> bool {
        matches!(self, Self::Raised(_))
    }

    /// The longest time for which an operator does it: a day, and for a raise 90 days.
    #[must_use]
    pub const fn max_time(self) -> Duration {
        match self {
            Self::Raised(_) => OperatorKey::MAX_RAISE_TIME,
            Self::LetThrough | Self::Blocked => OperatorKey::MAX_TIME,
        }
    }
}

/// A key of a rule that an operator lets through, blocks or raises for a while: see
/// [`Fleet::set_key`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::store::{OperatorKey, OperatorKind};
///
/// let alice = OperatorKey {
///     kind: OperatorKind::Blocked,
///     path: "login".into(),
///     key: "alice".into(),
///     by: None,
///     note: None,
///     only: [].into(),
///     replaces: false,
///     time: Duration::from_secs(3_600),
/// };
/// assert!(alice.time <= OperatorKey::MAX_TIME);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorKey {
    /// What is done with it.
    pub kind: OperatorKind,
    /// The path of the rule.
    pub path: Arc<str>,
    /// The key, as [`Key::as_str`](crate::Key::as_str) shows it.
    pub key: Arc<str>,
    /// Who does it, if that is known.
    pub by: Option<Arc<str>>,
    /// Why, in a line.
    pub note: Option<Arc<str>>,
    /// The names of the quotas that are raised; all, if there are none.
    pub only: Arc<[Box<str>]>,
    /// Whether it may end a raise that is larger, longer, or of other quotas.
    pub replaces: bool,
    /// For how long from now on. Zero ends it.
    pub time: Duration,
}

impl OperatorKey {
    /// The maximum number of keys of a service that are let through at a time, of those that are
    /// blocked, and of those that are raised.
    pub const MAX: usize = 1_000;

    /// How long a key is let through or blocked at most: a day. The scripts of `lua/fleet/` get it
    /// from here; what the page offers, up to it, is in its `assets/`: `index.html` and
    /// `confirm.js`.
    pub const MAX_TIME: Duration = Duration::from_secs(86_400);

    /// How long a key is raised at most: 90 days.
    pub const MAX_RAISE_TIME: Duration = Duration::from_secs(90 * 86_400);

    /// Whether this raise would end the other one of its key, which gives more: a larger factor, for
    /// longer, or to quotas that it leaves alone.
    pub(crate) fn takes_from(&self, other: &Self) -> bool {
        let is_raised = |name| self.only.is_empty() || self.only.contains(name);
        let is_all = self.only.is_empty() || !other.only.is_empty();
        let is_covered = is_all && other.only.iter().all(is_raised);
        let is_less = self.kind < other.kind || self.time < other.time || !is_covered;
        let are_raises = self.kind.is_raise() && other.kind.is_raise();
        are_raises && is_less && !self.replaces && !self.time.is_zero()
    }
}
