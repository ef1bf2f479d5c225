//! What the processes of a service share through a store.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::StoreFuture;

/// What the processes of a service share through a [`Store`](crate::Store), which gives it by
/// [`Store::fleet`](crate::Store::fleet). `Limits` with a page ask it once a second; no request
/// waits for it.
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
    fn report(&self, report: &Report) -> StoreFuture<FleetState>;

    /// What the processes of the service said last. Of more than [`PeerReport::MAX`] one more is
    /// returned, and not the rest.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn reports(&self) -> StoreFuture<Vec<PeerReport>>;

    /// Lets a key through, for all processes of the service: they learn of it by their next
    /// [report](Self::report). Returns false if [as many](LetThrough::MAX) keys as possible are let
    /// through already.
    ///
    /// # Errors
    ///
    /// [`StoreError`](crate::StoreError) if there is no answer.
    fn let_through(&self, key: &LetThrough) -> StoreFuture<bool>;
}

/// What a process says of itself, once a second: see [`Fleet::report`].
///
/// ```
/// use tidegate::store::Report;
///
/// let first = Report {
///     process: "00c0ffee00c0ffee".into(),
///     text: "{}".into(),
///     known_version: 0,
///     random: [7; 16],
/// };
/// assert_eq!(first.process.len(), 16);
/// ```
#[derive(Debug, Clone)]
pub struct Report {
    /// The process: 16 hexadecimal digits.
    pub process: Arc<str>,
    /// What it says: a text of this crate, of at most 32 KiB.
    pub text: Arc<str>,
    /// The version of the list of keys that it knows: 0 for none, `u64::MAX` for a list that no
    /// version tells.
    pub known_version: u64,
    /// 16 random bytes, which become the secret of the service if it has none.
    pub random: [u8; 16],
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
    /// What it [said](Report::text).
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
///     let_through: None,
/// };
/// assert!(unchanged.let_through.is_none());
/// ```
#[derive(Debug, Clone)]
pub struct FleetState {
    /// The secret by which pages hash keys.
    pub secret: [u8; 16],
    /// The version of the list of keys; 0 without a list.
    pub version: u64,
    /// The keys that are let through. `None` if the list is the one that is known.
    pub let_through: Option<Vec<LetThrough>>,
}

/// A key of a rule that is not limited for a while: see [`Fleet::let_through`].
///
/// ```
/// use std::time::Duration;
/// use tidegate::store::LetThrough;
///
/// let alice = LetThrough {
///     path: "login".into(),
///     key: "alice".into(),
///     by: None,
///     time: Duration::from_secs(3_600),
/// };
/// assert!(alice.time <= LetThrough::MAX_TIME);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetThrough {
    /// The path of the rule.
    pub path: Arc<str>,
    /// The key, as [`Key::as_str`](crate::Key::as_str) shows it.
    pub key: Arc<str>,
    /// Who lets it through, if that is known.
    pub by: Option<Arc<str>>,
    /// For how long from now on. Zero ends it.
    pub time: Duration,
}

impl LetThrough {
    /// The maximum number of keys of a service that are let through at a time.
    pub const MAX: usize = 1_000;

    /// How long a key is let through at most: a day. The scripts of `lua/fleet/` get it from here;
    /// what the page offers, up to it, is in its `assets/`: `index.html` and `confirm.js`.
    pub const MAX_TIME: Duration = Duration::from_secs(86_400);

    /// What its name in a store begins with: key and path. A key has no blanks.
    #[cfg(feature = "redis")]
    pub(super) fn named(&self) -> String {
        format!("{} {} {}", self.key, self.path.len(), self.path)
    }

    /// Reads a name, behind which stands who lets it through.
    #[cfg(feature = "redis")]
    pub(super) fn parse(name: &str, time: Duration) -> Option<Self> {
        let (key, rest) = name.split_once(' ')?;
        let (length, rest) = rest.split_once(' ')?;
        let (path, by) = rest.split_at_checked(length.parse().ok()?)?;
        Some(Self {
            path: path.into(),
            key: key.into(),
            by: (!by.is_empty()).then(|| by.into()),
            time,
        })
    }
}
