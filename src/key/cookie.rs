use std::borrow::Cow;

use http::header::COOKIE;
use http::request::Parts;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The value of a cookie as the key. A value that nobody has verified is a way around the limit:
/// with a fresh value in each request, a client has a fresh limit each time.
///
/// So put the layer behind what verifies sessions, or [join](crate::key) the cookie with an
/// address.
///
/// The value is stored as a hash. A request without the cookie has an
/// [absent](super::KeyErrorKind::Absent) key; a cookie that is empty, or that is named twice, is
/// [malformed](super::KeyErrorKind::Malformed). Its name counts in upper and lower case.
///
/// ```
/// use http::Request;
/// use tidegate::key::Cookie;
/// use tidegate::{KeyExtractor, PeerIp};
///
/// let session = Cookie::new("sid");
/// let request = Request::builder().header("cookie", "theme=dark; sid=5e55i0n").body(())?;
/// let (head, ()) = request.into_parts();
/// assert_eq!(session.extract(&head)?, session.key("5e55i0n"));
///
/// // Each session, and each address without one.
/// let visitor = session.or(PeerIp);
/// # let _ = visitor;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cookie {
    name: Box<str>,
}

impl Cookie {
    /// The cookie of this name.
    ///
    /// # Panics
    ///
    /// If that is no name of a cookie: it is empty, or has other characters than letters, digits
    /// and some punctuation. Use `Cookie::try_from(name)?` for a name that is not a constant.
    #[must_use]
    #[track_caller]
    pub fn new(name: &str) -> Self {
        name.try_into().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The key of this value.
    #[must_use]
    pub fn key(&self, value: impl AsRef<[u8]>) -> Key {
        Key::default().with_secret(value)
    }

    fn malformed(&self, what: &str) -> KeyError {
        KeyError::malformed(format!("the cookie {} {what}", self.name))
    }
}

impl TryFrom<&str> for Cookie {
    type Error = KeyError;

    fn try_from(name: &str) -> Result<Self, KeyError> {
        match !name.is_empty() && name.bytes().all(is_token) {
            true => Ok(Self { name: name.into() }),
            false => Err(KeyError::server(format!("{name:?} is no name of a cookie"))),
        }
    }
}

/// Whether a token of HTTP may have this character, as the names of cookies and fields are.
const fn is_token(byte: u8) -> bool {
    matches!(
        byte,
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*'
            | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
    )
}

impl KeyExtractor for Cookie {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.find(head)?.ok_or_else(|| {
            let message = format!("the request has no cookie {}", self.name);
            KeyError::absent(message)
        })
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        // HTTP/2 may send each cookie in a field of its own.
        let fields = head.headers.get_all(COOKIE).iter();
        let pairs = fields.flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&pair[..at], &pair[at + 1..]);
            (name.trim_ascii() == self.name.as_bytes()).then_some(value.trim_ascii())
        });
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some([]), None) => Err(self.malformed("is empty")),
            (Some(value), None) => Ok(Some(self.key(value))),
            (Some(_), Some(_)) => Err(self.malformed("is named twice")),
        }
    }

    fn mark(&self) -> Cow<'static, str> {
        format!("cookie.{}", self.name).into()
    }

    fn is_secret(&self) -> bool {
        true
    }
}
