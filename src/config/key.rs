use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use super::text::{FromText, Text, parse};
use crate::key::{ClientIp, Header, Joined, KeyExtractor, PathOnly, PeerIp};

/// Who is counted together: one name, or a list of them.
#[derive(Debug)]
pub(super) struct KeyNames(Vec<KeyName>);

#[derive(Debug)]
enum KeyName {
    Path,
    PeerIp,
    ClientIp,
    #[cfg(feature = "axum")]
    MatchedPath,
    Header(HeaderName),
}

impl KeyNames {
    pub(super) fn extractor(&self, client_ip: &ClientIp) -> Arc<dyn KeyExtractor> {
        let of = |name: &KeyName| name.extractor(client_ip);
        match &*self.0 {
            [only] => of(only),
            several => Arc::new(Joined::new(several.iter().map(of))),
        }
    }
}

impl KeyName {
    fn extractor(&self, client_ip: &ClientIp) -> Arc<dyn KeyExtractor> {
        match self {
            Self::Path => Arc::new(PathOnly),
            Self::PeerIp => Arc::new(PeerIp),
            Self::ClientIp => Arc::new(client_ip.clone()),
            #[cfg(feature = "axum")]
            Self::MatchedPath => Arc::new(crate::key::MatchedPath),
            Self::Header(name) => Arc::new(Header::new(name.clone())),
        }
    }
}

impl FromText for KeyName {
    const EXPECTED: &'static str =
        "\"path\", \"peer-ip\", \"client-ip\", \"matched-path\" or \"header:<name>\"";

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
                Some(name) => HeaderName::from_text(name).map(Self::Header),
                None => Err(format!("unknown key \"{text}\"")),
            },
        }
    }
}

impl<'de> Deserialize<'de> for KeyNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyNamesVisitor)
    }
}

struct KeyNamesVisitor;

impl<'de> Visitor<'de> for KeyNamesVisitor {
    type Value = KeyNames;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or a list of these", KeyName::EXPECTED)
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
                KeyName::EXPECTED
            )));
        }
        Ok(KeyNames(names))
    }
}
