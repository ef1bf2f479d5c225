use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use super::shorten;
use super::text::{FromText, Text, parse};
use crate::key::header::Header;
use crate::key::ip::client_ip::ClientIp;
use crate::key::ip::peer_ip::PeerIp;
use crate::key::{Joined, KeyExtractor, PathOnly};

/// The key "client-ip" has no default for the trusted proxies: behind a proxy, all clients would
/// silently share one limit.
const NO_CLIENT_IP: &str = "the key \"client-ip\" without a table [client-ip], expected one \
     that says which proxies are trusted: trusted = [\"10.0.0.0/8\"] or hops = 1; trusted = [] if \
     clients connect directly";

/// The value of `key`: one name of an extractor, or a list of names.
///
/// The names are `path`, `peer-ip`, `client-ip`, `matched-path` and `header:<name>`. The keys of a
/// list are joined in its order, as [`Joined`] joins them.
#[derive(Debug)]
pub(super) struct KeyNames(Vec<KeyName>);

/// The name of one extractor.
#[derive(Debug)]
enum KeyName {
    /// `path`
    Path,
    /// `peer-ip`
    PeerIp,
    /// `client-ip`, which needs the table `[client-ip]`
    ClientIp,
    /// `matched-path`
    #[cfg(feature = "axum")]
    MatchedPath,
    /// `header:<name>`
    Header(HeaderName),
}

impl KeyNames {
    /// The extractor of these names, or what is wrong with them.
    pub(super) fn extractor(
        &self,
        client_ip: Option<&ClientIp>,
    ) -> Result<Arc<dyn KeyExtractor>, &'static str> {
        let one = |name: &KeyName| name.extractor(client_ip);
        match &*self.0 {
            [only] => one(only),
            several => {
                let parts = several.iter().map(one).collect::<Result<Vec<_>, _>>()?;
                Ok(Arc::new(Joined::new(parts)))
            }
        }
    }
}

impl KeyName {
    fn extractor(
        &self,
        client_ip: Option<&ClientIp>,
    ) -> Result<Arc<dyn KeyExtractor>, &'static str> {
        Ok(match self {
            Self::Path => Arc::new(PathOnly),
            Self::PeerIp => Arc::new(PeerIp),
            Self::ClientIp => Arc::new(client_ip.ok_or(NO_CLIENT_IP)?.clone()),
            #[cfg(feature = "axum")]
            Self::MatchedPath => Arc::new(crate::key::matched_path::MatchedPath),
            Self::Header(name) => Arc::new(Header::new(name.clone())),
        })
    }
}

impl FromText for KeyName {
    fn expected() -> Cow<'static, str> {
        "\"path\", \"peer-ip\", \"client-ip\", \"matched-path\" or \"header:<name>\"".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "path" => Ok(Self::Path),
            "peer-ip" => Ok(Self::PeerIp),
            "client-ip" => Ok(Self::ClientIp),
            #[cfg(feature = "axum")]
            "matched-path" => Ok(Self::MatchedPath),
            #[cfg(not(feature = "axum"))]
            "matched-path" => Err("\"matched-path\" needs the feature \"axum\"".to_owned()),
            _ => match text.strip_prefix("header:") {
                Some(name) => {
                    let wrong =
                        |_| format!("\"{}\" is not a header field's name", shorten::value(name));
                    HeaderName::from_text(name).map(Self::Header).map_err(wrong)
                }
                None => Err(format!("unknown key \"{}\"", shorten::value(text))),
            },
        }
    }
}

impl<'de> Deserialize<'de> for KeyNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyNamesVisitor)
    }
}

/// Reads a string or a list of strings.
struct KeyNamesVisitor;

impl<'de> Visitor<'de> for KeyNamesVisitor {
    type Value = KeyNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or a list of these", KeyName::expected())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<KeyNames, E> {
        parse(text).map(|name| KeyNames(vec![name]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<KeyNames, A::Error> {
        let mut names = Vec::new();
        while let Some(Text(name)) = list.next_element()? {
            names.push(name);
        }
        if names.is_empty() {
            return Err(serde::de::Error::custom(format!(
                "an empty list, expected {}",
                KeyName::expected()
            )));
        }
        Ok(KeyNames(names))
    }
}
