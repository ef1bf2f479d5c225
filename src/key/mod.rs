//! Who is being limited inside a rule.
//!
//! A [`KeyExtractor`] makes a [`Key`] from a request's head. Without one a rule counts everybody
//! together.

mod hash;
pub(crate) mod header;
pub(crate) mod ip;
mod joined;
pub(crate) mod key;
pub(crate) mod key_extractor;
#[cfg(feature = "axum")]
pub(crate) mod matched_path;

pub(crate) use hash::hash;
pub(crate) use header::Header;
pub(crate) use ip::{ClientIp, PeerIp};
pub use ip::{Forwarding, PeerAddr};
pub use joined::Joined;
pub(crate) use key::Key;
pub(crate) use key::escape;
pub(crate) use key_extractor::KeyExtractor;
pub use key_extractor::PathOnly;
#[cfg(feature = "axum")]
pub(crate) use matched_path::MatchedPath;

pub use crate::error::{KeyError, KeyErrorKind};
