//! Who is being limited inside a rule.
//!
//! A [`KeyExtractor`] makes a [`Key`] from a request's head. Without one a rule counts everybody
//! together.

mod extract;
mod hash;
mod header;
mod ip;
mod joined;
#[cfg(feature = "axum")]
mod matched_path;
mod value;

pub use extract::{KeyExtractor, PathOnly};
pub(crate) use hash::hash;
pub use header::Header;
pub use ip::{ClientIp, Forwarding, PeerAddr, PeerIp};
pub use joined::Joined;
#[cfg(feature = "axum")]
pub use matched_path::MatchedPath;
pub use value::Key;
pub(crate) use value::escape;
