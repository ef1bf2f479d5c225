//! What the processes of a service tell each other through a store.

use std::sync::Arc;
use std::time::Duration;

/// What a process says of itself, once a second: see [`Store::report`](crate::Store::report).
///
/// ```
/// use tidegate::store::Report;
/// use tidegate::{MemoryStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate::StoreError> {
/// let report = Report {
///     process: "a3f19c0012ab34cd".into(),
///     text: "{}".into(),
///     known_version: 0,
///     random: [7; 16],
/// };
/// // The memory of a process has no fleet.
/// assert!(MemoryStore::new().report(&report).await?.is_none());
/// # Ok(())
/// # }
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

/// What a process said last.
///
/// ```
/// use tidegate::{MemoryStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate::StoreError> {
/// for process in MemoryStore::new().reports().await? {
///     println!("{}, {:?} ago: {}", process.process, process.ago, process.text);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Reported {
    /// The process.
    pub process: Arc<str>,
    /// What it [said](Report::text).
    pub text: Arc<str>,
    /// How long before the last report of any process.
    pub ago: Duration,
}

impl Reported {
    /// The most processes of a service that are shown.
    pub const MAX: usize = 200;
}

/// What all processes of a service share.
///
/// ```
/// use tidegate::store::News;
///
/// /// How many keys are let through, if that has changed.
/// fn changed(news: &News) -> Option<usize> {
///     news.let_through.as_ref().map(Vec::len)
/// }
/// let news = News { secret: [7; 16], version: 3, let_through: None };
/// assert_eq!(changed(&news), None);
/// ```
#[derive(Debug, Clone)]
pub struct News {
    /// The secret by which pages hash keys.
    pub secret: [u8; 16],
    /// The version of the list of keys; 0 without a list.
    pub version: u64,
    /// The keys that are let through. `None` if the list is the one that is known.
    pub let_through: Option<Vec<LetThrough>>,
}

/// A key of a rule that is not limited for a while.
///
/// ```
/// use std::time::Duration;
/// use tidegate::store::LetThrough;
/// use tidegate::{MemoryStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tidegate::StoreError> {
/// let alice = LetThrough {
///     path: "login".into(),
///     key: "alice".into(),
///     by: None,
///     time: Duration::from_secs(3_600),
/// };
/// // A store on Redis answers `Some(true)`: all processes of the service obey.
/// assert_eq!(MemoryStore::new().let_through(&alice).await?, None);
/// # Ok(())
/// # }
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
    /// The most keys of a service that are let through at a time.
    pub const MAX: usize = 1_000;

    /// The longest time: a day.
    pub const LONGEST: Duration = Duration::from_secs(86_400);

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
