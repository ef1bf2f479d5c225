use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;

use super::key::Key;
use super::key_extractor::KeyExtractor;
use crate::error::KeyError;

/// The host that the request is for as the key: one limit for each tenant that has a name of its
/// own. A host that nobody has checked is a way around the limit: with a fresh one in each request,
/// a client has a fresh limit each time. So refuse unknown hosts first, or limit the address, too
/// ([`Rule::joint`](crate::Rule::joint)).
///
/// HTTP/2 has the host as the authority of the URI, HTTP/1.1 in the field `Host`: the authority
/// counts, else the field. `X-Forwarded-Host`, which a client may send itself, is never read: let
/// the proxy pass `Host` on. One key is one host, in lower case, without a port and without a dot
/// at its end; an IPv6 address is written in one way, without brackets.
///
/// A request that names no host has an [absent](super::KeyErrorKind::Absent) key. Two fields
/// `Host`, one that differs from the authority, and what is no host, are
/// [malformed](super::KeyErrorKind::Malformed): a handler may read either.
///
/// ```
/// use http::Request;
/// use tidegate::KeyExtractor;
/// use tidegate::key::Host;
///
/// let (http_1, ()) = Request::get("/").header("host", "Acme.example:8080").body(())?.into_parts();
/// let (http_2, ()) = Request::get("https://acme.example/").body(())?.into_parts();
/// assert_eq!(Host.extract(&http_1)?.as_str(), "acme.example");
/// assert_eq!(Host.extract(&http_2)?, Host.key("acme.example"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Host {
    /// The key of this host, in upper or lower case, with or without a port.
    #[must_use]
    pub fn key(&self, host: &str) -> Key {
        let name = name(host.as_bytes());
        name.unwrap_or_else(|| host.to_ascii_lowercase()).into()
    }
}

impl KeyExtractor for Host {
    fn extract(&self, head: &Parts) -> Result<Key, KeyError> {
        self.find(head)?
            .ok_or_else(|| KeyError::absent("the request names no host"))
    }

    fn find(&self, head: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(host(head)?.map(Key::from))
    }

    fn mark(&self) -> Cow<'static, str> {
        "host".into()
    }

    fn key_of_text(&self, text: &str) -> Option<Key> {
        Key::from_hash(text).or_else(|| Some(self.key(&text.replace("%3A", ":"))))
    }
}

/// The host that the request is for.
pub(super) fn host(head: &Parts) -> Result<Option<String>, KeyError> {
    let mut fields = head.headers.get_all(HOST).iter();
    let field = fields.next().map(|field| field.as_bytes().trim_ascii());
    let authority = head.uri.authority().map(|it| it.as_str().as_bytes());
    let texts = [authority, field].into_iter().flatten();
    let mut hosts = texts.filter(|it| !it.is_empty()).map(name);
    match (hosts.next(), fields.next()) {
        (None, None) => Ok(None),
        (Some(Some(host)), None) if hosts.all(|it| it.as_ref() == Some(&host)) => Ok(Some(host)),
        _ => Err(KeyError::malformed("the host is malformed, or two")),
    }
}

/// The host of an authority, in the one way in which keys have it.
fn name(authority: &[u8]) -> Option<String> {
    let authority = Authority::try_from(authority).ok()?;
    let host = authority.host();
    let name = match host.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
        Ok(ip) => ip.to_string(),
        Err(_) => host.trim_end_matches('.').to_ascii_lowercase(),
    };
    (!name.is_empty() && !authority.as_str().contains('@')).then_some(name)
}
