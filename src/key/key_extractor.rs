use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;

use super::alternatives::Alternatives;
use super::key::{Key, escaped};
use crate::error::{KeyError, KeyErrorKind};
use crate::warning::Warning;

/// Makes the key of a request from its head.
///
/// Closures are extractors, too; [`key_by`](crate::RateLimitLayer::key_by) infers the types of one.
/// A panic inside an extractor is answered with a 500 and affects no
/// other request.
///
/// ```
/// use std::time::Duration;
/// use tidegate::key::KeyError;
/// use tidegate::{Key, RateLimitLayer};
///
/// let layer = RateLimitLayer::new("search", Duration::from_secs(1), 10).key_by(|head| {
///     let user = head.headers.get("x-user");
///     let user = user.ok_or_else(|| KeyError::absent("the request has no x-user field"))?;
///     Ok(Key::default().with(user))
/// });
/// # let _ = layer;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` makes no key of a request",
    note = "closures go to `key_by(|head| ..)`, a tuple joins two to four, `key::Joined` more"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of the request with this head.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the head lacks what the key is made of. Its [kind](KeyError::kind) says
    /// whether that is the client's mistake or the server's. The error goes to the error callbacks;
    /// the request is neither charged nor denied.
    fn extract(&self, head: &Parts) -> Result<Key, KeyError>;

    /// The key of the request with this head, or `None` if what it is made of is absent, so that
    /// the next [alternative](Self::or) is tried. Default: the key that [`extract`](Self::extract)
    /// makes, and `None` for an error of the kind [`Absent`](KeyErrorKind::Absent).
    ///
    /// # Errors
    ///
    /// [`KeyError`] if it is there and malformed, or by a mistake of the server.
    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        match self.extract(head) {
            Ok(key) => Ok(Some(key)),
            Err(error) if error.kind() == KeyErrorKind::Absent => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What this extractor's keys begin with within [alternatives](Self::or), so that they are
    /// different from those of the others: what it reads, and the name of the field if it reads
    /// one, such as `header.x-user`. An extractor around another one passes the question on.
    /// Default: `custom`.
    fn mark(&self) -> Cow<'static, str> {
        "custom".into()
    }

    /// The extractors that this one tries one after the other; none if it is a single one. An
    /// extractor around another one passes the question on.
    fn alternatives(&self) -> Vec<Arc<dyn KeyExtractor>> {
        Vec::new()
    }

    /// The key of a value as a person writes it, such as an address or a token, or of the text of
    /// that key; `None` if it makes no key of such a text. An extractor around another one passes
    /// the question on. Default: `None`, and an operator's text counts as that of a key.
    fn key_of_text(&self, _text: &str) -> Option<Key> {
        None
    }

    /// A mistake in the set-up that a request with these fields shows; without fields, one that
    /// needs no request, such as a credential under a [lock-out](crate::rule::Lockout). See
    /// [`Warning`]. An extractor around another one passes the question on. Default: `None`, unless
    /// the [mark](Self::mark) is that of a token, a cookie, a host or a method: clients make them
    /// up.
    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        let mark = self.mark();
        let is_own = mark.starts_with("cookie.") || ["bearer", "host", "method"].contains(&&*mark);
        (is_own && fields.is_empty()).then(|| Warning::of_guesses(&mark))
    }

    /// This extractor's key, or that of `other` where what this one reads is absent from the
    /// request. What is there and malformed is an error, and so is a mistake of the server: then
    /// `other` is not tried.
    ///
    /// ```
    /// use http::Request;
    /// use tidegate::key::{Bearer, PeerAddr};
    /// use tidegate::{Header, KeyExtractor, PeerIp};
    ///
    /// let caller = Bearer.or(Header::new("x-api-key")).or(PeerIp);
    ///
    /// let request = Request::builder().extension(PeerAddr("203.0.113.9:4711".parse()?));
    /// let (head, ()) = request.body(())?.into_parts();
    /// assert_eq!(caller.extract(&head)?.as_str(), "203.0.113.9");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A key other than that of an address begins with the [mark](Self::mark) of the extractor that
    /// made it, so a client who sends `x-user: 203.0.113.9` is not counted with the client of that
    /// address, nor a secret as a bearer token with the same secret in `x-api-key`.
    /// [`marked`](Self::marked) makes the same key of a known value. Alternatives behind an
    /// extractor that always has a key, such as [`PeerIp`](crate::PeerIp), are never tried.
    fn or(self, other: impl KeyExtractor) -> Alternatives
    where
        Self: Sized,
    {
        Alternatives::new(self).or(other)
    }

    /// The key that this extractor's `key` is within [alternatives](Self::or), whatever the others
    /// are: to look at or to reset the count of somebody who is known.
    ///
    /// ```
    /// use tidegate::{ClientIp, Header, KeyExtractor};
    ///
    /// let user = Header::new("x-user");
    /// assert_eq!(user.key("alice").as_str(), "alice");
    /// // Of a rule with the key `user.or(client)`; in a file, "header:x-user | client-ip".
    /// assert_eq!(user.marked(user.key("alice")).as_str(), "header.x-user|alice");
    ///
    /// // An address is the same alone and as an alternative.
    /// let client = ClientIp::behind_hops(1);
    /// let known = client.key("203.0.113.9".parse()?);
    /// assert_eq!(client.marked(known.clone()), known);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    ///
    /// Two alternatives may have the same mark, as two closures do. Then the keys of the second one
    /// begin with the mark and `#2`, which this method does not know: make the extractor a type
    /// with a mark of its own.
    fn marked(&self, key: Key) -> Key {
        key.behind(&escaped_mark(self))
    }
}

/// The mark of an extractor, as keys contain it.
pub(super) fn escaped_mark(extractor: &(impl KeyExtractor + ?Sized)) -> String {
    escaped(&extractor.mark())
}

#[diagnostic::do_not_recommend]
impl<F> KeyExtractor for F
where
    F: Fn(&Parts) -> Result<Key, KeyError> + Send + Sync + 'static,
{
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self(head)
    }
}

impl<T: KeyExtractor + ?Sized> KeyExtractor for Arc<T> {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        T::extract(self, head)
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        T::find(self, head)
    }

    fn mark(&self) -> Cow<'static, str> {
        T::mark(self)
    }

    fn alternatives(&self) -> Vec<Arc<dyn KeyExtractor>> {
        T::alternatives(self)
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        T::key_of_text(self, text)
    }

    fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        T::warning(self, fields)
    }
}

/// One key for all requests of a path. The default of every rule, and the last
/// [alternative](KeyExtractor::or) where requests without a key of their own share one.
///
/// ```
/// use std::time::Duration;
/// use tidegate::key::Everyone;
/// use tidegate::{Header, KeyExtractor, RateLimitLayer};
///
/// // Each tenant has 100 requests a second, and all requests without a tenant have as many.
/// let layer = RateLimitLayer::new("api", Duration::from_secs(1), 100)
///     .key(Header::new("x-tenant").or(Everyone));
/// # let _ = layer;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Everyone;

impl KeyExtractor for Everyone {
    fn extract(&self, _: &Parts) -> Result<Key, KeyError> {
        Ok(Key::default())
    }

    fn mark(&self) -> Cow<'static, str> {
        "everyone".into()
    }
}
