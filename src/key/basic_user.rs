use std::borrow::Cow;

use http::request::Parts;

use super::header::credentials;
use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::base64::decoded;
use crate::error::KeyError;

/// The user name of HTTP Basic as the key: whose password is guessed, whatever the guess. For a
/// [lock-out](crate::rule::Lockout), under which the field itself would be another key with each
/// guess.
///
/// Whoever knows a name can use up its limit and lock it out, so [join](crate::key) it with an
/// address where names are known.
///
/// One key is one name, byte by byte; where what verifies passwords takes `Ada` for `ada`, count by
/// what it found, with a closure or an [`Extension`](super::Extension). Another scheme, or no such
/// field, is an [absent](super::KeyErrorKind::Absent) key: browsers, git and `curl --anyauth` begin
/// without the field, and wait for a 401. Exempt such requests, and answer them with a 401 in the
/// handler. What cannot be read, and a second field that differs, is
/// [malformed](super::KeyErrorKind::Malformed).
///
/// ```
/// use http::Request;
/// use http::header::AUTHORIZATION;
/// use tidegate::key::BasicUser;
/// use tidegate::{KeyExtractor, Limits, PeerIp, Quota, Rule};
///
/// let git = Rule::new("git", [Quota::per_minute(50)])?.with_key((BasicUser, PeerIp));
/// // On the layer: `Limits::exempt` would free the other rules, too.
/// let layer = Limits::new([git]).layer("git");
/// let layer = layer.exempt(|head| !head.headers.contains_key(AUTHORIZATION));
///
/// let request = Request::builder().header(AUTHORIZATION, "Basic YWRhOmd1ZXNz").body(())?;
/// let (head, ()) = request.into_parts();
/// assert_eq!(BasicUser.extract(&head)?.as_str(), "ada");
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct BasicUser;

impl BasicUser {
    /// The key of this name.
    #[must_use]
    pub fn key(&self, name: impl AsRef<[u8]>) -> Key {
        Key::default().with(name)
    }
}

impl KeyExtractor for BasicUser {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.find(head)?
            .ok_or_else(|| KeyError::absent("the request has no user of HTTP Basic"))
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        let Some(credentials) = credentials(head, b"basic")? else {
            return Ok(None);
        };
        // The name is at the beginning, and clients choose how much follows.
        let begin = credentials.get(..2_048).unwrap_or(credentials);
        let decoded = decoded(begin).unwrap_or_default();
        let end = decoded.iter().position(|byte| *byte == b':');
        let end =
            end.ok_or_else(|| KeyError::malformed("the user of HTTP Basic cannot be read"))?;
        // As an empty token, an empty name is nobody's.
        let name = Some(&decoded[..end]).filter(|it| !it.is_empty());
        Ok(name.map(|it| self.key(it)))
    }

    fn mark(&self) -> Cow<'static, str> {
        "basic-user".into()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        let known = Key::from_text(text).filter(|_| text.contains('%'));
        known.or_else(|| Some(self.key(text)))
    }
}
