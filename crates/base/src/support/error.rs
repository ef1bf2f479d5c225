use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::unseen::blanked;
use crate::named::named;

/// An error of this crate: its kind, for code to branch on, a message, and what caused it.
///
/// It is cheap to clone: one failure of a store is the answer to many questions.
#[derive(Clone)]
pub struct KindError<K> {
    kind: K,
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl<K> KindError<K> {
    /// An error of any kind.
    #[doc(hidden)]
    pub fn of(kind: K, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// This error with its cause, by which an `ErrorCallbackChain` can choose a callback.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }
}

/// A kind that some errors of a store become.
#[doc(hidden)]
pub trait OfStore {
    /// The kind of an error whose cause is a store's.
    fn of_store(kind: StoreErrorKind) -> Self;
}

impl<K: OfStore> From<StoreError> for KindError<K> {
    fn from(error: StoreError) -> Self {
        Self {
            kind: K::of_store(error.kind),
            message: error.message,
            source: error.source,
        }
    }
}

impl<K: Copy> KindError<K> {
    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> K {
        self.kind
    }
}

impl<K> fmt::Display for KindError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The message, the kind, and the causes that the message does not name.
impl<K: fmt::Debug> fmt::Debug for KindError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.kind)?;
        match &self.source {
            Some(source)
                if !self
                    .message
                    .contains(blanked(&source.to_string()).trim_end()) =>
            {
                f.write_str(": ")?;
                f.write_str(&blanked(&format!("{source:?}")))
            }
            _ => Ok(()),
        }
    }
}

impl<K: fmt::Debug> Error for KindError<K> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Why a store could not decide. A denial is not one of these: it is a `Decision`.
///
/// ```
/// use tidegate::StoreError;
/// use tidegate::store::StoreErrorKind;
///
/// let error = StoreError::new(StoreErrorKind::Timeout, "no answer within 50 ms");
/// assert_eq!(error.kind().name(), "timeout");
/// assert_eq!(error.to_string(), "no answer within 50 ms");
/// ```
pub type StoreError = KindError<StoreErrorKind>;

named! {
    /// The kinds of [`StoreError`].
    ///
    /// ```
    /// use tidegate::StoreError;
    /// use tidegate::store::StoreErrorKind;
    ///
    /// /// Whether asking again may help.
    /// fn is_temporary(error: &StoreError) -> bool {
    ///     use StoreErrorKind::{Overloaded, Timeout, Unavailable};
    ///     matches!(error.kind(), Timeout | Unavailable | Overloaded)
    /// }
    /// assert!(!is_temporary(&StoreError::new(StoreErrorKind::Refused, "a wrong password")));
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum StoreErrorKind: "The kind in metrics" {
        /// No answer within the configured time. The take may still have been charged.
        Timeout = "timeout",
        /// The store cannot be reached, or its circuit breaker (`Resilient::failures`) is
        /// open.
        Unavailable = "unavailable",
        /// As many questions wait for answers as may (`Resilient::in_flight`): this one was not
        /// asked.
        Overloaded = "overloaded",
        /// The store refused: a wrong password, or a missing permission.
        Refused = "refused",
        /// The store takes no writes: a replica, or a master that lost its replicas.
        ReadOnly = "read_only",
        /// The key holds a value of another type.
        WrongType = "wrong_type",
        /// The store's memory is used up.
        OutOfMemory = "out_of_memory",
        /// The in-memory store holds as many keys as it may, and all of them still count.
        Full = "full",
        /// An answer that makes no sense.
        Protocol = "protocol",
        /// The store's settings cannot work: for example, an invalid address.
        Configuration = "configuration",
    }
}

impl StoreError {
    /// An error of a custom store.
    pub fn new(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self::of(kind, message)
    }
}

/// Why a `KeyExtractor` found no key in a request.
///
/// ```
/// use tidegate::Key;
/// use tidegate::key::{KeyError, KeyErrorKind};
///
/// fn tenant(head: &http::request::Parts) -> Result<Key, KeyError> {
///     let tenant = head.headers.get("x-tenant");
///     let tenant = tenant.ok_or_else(|| KeyError::absent("the request has no tenant"))?;
///     match tenant.to_str() {
///         Ok(tenant) => Ok(Key::from(tenant)),
///         Err(_) => Err(KeyError::malformed("the tenant is no text")),
///     }
/// }
///
/// let (head, ()) = http::Request::get("/").header("x-tenant", "\u{e9}").body(())?.into_parts();
/// assert_eq!(tenant(&head).unwrap_err().kind(), KeyErrorKind::Malformed);
/// # Ok::<(), http::Error>(())
/// ```
pub type KeyError = KindError<KeyErrorKind>;

named! {
    /// The kinds of [`KeyError`], which say whose mistake it is: [`Absent`](Self::Absent) and
    /// [`Malformed`](Self::Malformed) are the client's, and are answered with a 400.
    ///
    /// ```
    /// use tidegate::key::{KeyError, KeyErrorKind};
    ///
    /// let error = KeyError::server("the layer of authentication is missing");
    /// assert_eq!(error.kind(), KeyErrorKind::Server);
    /// assert_eq!(KeyErrorKind::ALL.len(), 3);
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum KeyErrorKind: "The kind in metrics" {
        /// The client left out what the key is made of, such as a header field, or sent nothing in
        /// it. Another request of the same client may succeed. Alternatives (`KeyExtractor::or`)
        /// try the next one.
        Absent = "key_absent",
        /// The client sent what the key is made of in a form that says nothing, such as a token
        /// with blanks, or sent two that differ. Another request of the same client may succeed.
        Malformed = "key_malformed",
        /// The server was set up without what the key is made of, such as the peer's address. No
        /// request can succeed until the setup is changed.
        Server = "key_server",
    }
}

impl KeyError {
    /// The client did not send what the key is made of. The message is for callbacks and their log:
    /// what is missing, and where it was expected.
    pub fn absent(message: impl Into<Arc<str>>) -> Self {
        Self::of(KeyErrorKind::Absent, message)
    }

    /// The client sent what the key is made of in a form that says nothing, or sent two. The message
    /// is for callbacks and their log: what is wrong with it. It should not repeat what the client
    /// sent.
    pub fn malformed(message: impl Into<Arc<str>>) -> Self {
        Self::of(KeyErrorKind::Malformed, message)
    }

    /// The server was set up without what the key is made of. The message is for the log: what is
    /// missing, and how to provide it.
    pub fn server(message: impl Into<Arc<str>>) -> Self {
        Self::of(KeyErrorKind::Server, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server or a callback says turns no line of a terminal.
    #[test]
    fn debug_shows_nothing_unseen() {
        let source = std::io::Error::other("evil\u{202e}\u{1b}[31m\u{2028}");
        let error = StoreError::new(StoreErrorKind::Refused, "refused").with_source(source);
        let shown = format!("{error:?}");
        assert!(shown.contains("evil"), "{shown}");
        let hidden = ['\u{202e}', '\u{1b}', '\u{2028}'];
        assert!(!shown.contains(hidden), "{shown:?}");
    }

    /// Counters of errors are in arrays that are indexed by the kind.
    #[test]
    fn all_kinds_stand_in_their_order() {
        let store = StoreErrorKind::ALL.map(|kind| kind as usize);
        assert!(store.into_iter().eq(0..StoreErrorKind::ALL.len()));
        let key = KeyErrorKind::ALL.map(|kind| kind as usize);
        assert!(key.into_iter().eq(0..KeyErrorKind::ALL.len()));
    }
}
