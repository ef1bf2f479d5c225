use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use crate::decision::Source;
use crate::warning::Warning;

/// The time-out of a `RedisStore` whose time-out was not set. Layers take it for that of any store
/// that does not say.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

/// What a store can do. It never changes. The default is a store that can nothing but count.
///
/// ```
/// use std::time::Duration;
/// use tidegate::store::Capabilities;
/// use tidegate::{MemoryStore, Resilient, Store};
///
/// assert!(!Capabilities::default().joint && MemoryStore::new().capabilities().joint);
/// let store = Resilient::new(MemoryStore::new()).processes(4);
/// assert!(store.capabilities().has_fallback);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The time-out of the store's answers, if one was set. After a time-out, later layers of the
    /// same request leave the store alone for this long. Default: `None`, not known.
    pub timeout: Option<Duration>,
    /// The pause before a store that fails is asked [again](crate::Resilient::probe_every): the
    /// `Retry-After` of a layer's 503, which is at least 1 s. Default: `None`, not known.
    pub probe_every: Option<Duration>,
    /// Whether a [fallback](crate::Resilient::fallback) decides while the store fails.
    pub has_fallback: bool,
    /// How many processes the fallback's share is said [to be for](crate::Resilient::processes).
    /// Default: `None`, nobody said it.
    pub processes: Option<u32>,
    /// Whether the store decides [several counts](crate::store::Ask::counts) together, for
    /// [joint](crate::Rule::joint) rules.
    pub joint: bool,
    /// Whether the store keeps [permits](crate::Rule::with_max_concurrent): among a take's counts
    /// are such of permits.
    pub permits: bool,
    /// Whether the store counts units in periods of the
    /// [calendar](crate::rule::Policy::calendar).
    pub calendar: bool,
    /// Whether the store charges [units owed](crate::Store::owe), beyond a reservation.
    pub owes: bool,
    /// Whether the store [holds](crate::Store::hold) keys.
    pub holds: bool,
    /// The server that keeps the counts. Default: `None`, no other store has the same counts.
    pub server: Option<ServerId>,
    /// The source of its own decisions, if that is known.
    pub(crate) source: Option<Source>,
    /// Whether it remembers [denials](crate::Resilient::denial_cache).
    pub(crate) has_denial_cache: bool,
}

/// Says which stores are handles to one server: after a time-out, later layers of the same request
/// leave all of them alone.
///
/// ```
/// use tidegate::store::ServerId;
///
/// assert_eq!(ServerId::of("database eu"), ServerId::of("database eu"));
/// assert_ne!(ServerId::of("database eu"), ServerId::of("database us"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerId(u64);

impl ServerId {
    /// The server at this address, which names the kind of the server, too.
    #[must_use]
    pub fn of(address: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        address.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// What changes about a store. The default is a store in good health.
///
/// ```
/// use tidegate::{MemoryStore, Resilient, Store};
///
/// let condition = Resilient::new(MemoryStore::new()).condition();
/// assert_eq!((condition.warnings.len(), condition.is_breaker_open), (0, Some(false)));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Condition {
    /// Mistakes in the set-up that show now; see [`Warning`].
    pub warnings: Vec<Warning>,
    /// Whether a [circuit breaker](crate::Resilient::failures) keeps questions from the store now.
    /// `None`: there is none.
    pub is_breaker_open: Option<bool>,
}
