//! Keys: which requests of a rule are counted together.
//!
//! A [`KeyExtractor`] makes a [`Key`] from a request's head. Requests with equal keys share the
//! quotas of their rule; a rule without an extractor counts all its requests together.
//!
//! ```
//! use http::{HeaderName, Request};
//! use tidegate::key::PeerAddr;
//! use tidegate::{Header, KeyExtractor, PeerIp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Counted together: requests of one tenant from one address.
//! let extractor = (PeerIp, Header::new(HeaderName::from_static("x-tenant")));
//!
//! let request = Request::builder()
//!     .header("x-tenant", "acme")
//!     .extension(PeerAddr("203.0.113.9:4711".parse()?))
//!     .body(())?;
//! let (head, ()) = request.into_parts();
//! assert_eq!(extractor.extract(&head)?.as_str(), "203.0.113.9:acme");
//! # Ok(())
//! # }
//! ```
//!
//! | requests are counted by | extractor |
//! |---|---|
//! | the path alone | [`PathOnly`], the default |
//! | the address of the socket's peer | [`PeerIp`](crate::PeerIp) |
//! | the client's address behind proxies | [`ClientIp`](crate::ClientIp), with its [`Forwarding`] field |
//! | the value of a header field | [`Header`](crate::Header) |
//! | the route that axum matched | `MatchedPath` (feature `axum`) |
//! | several of these together | tuples, or [`Joined`] for a list |
//! | anything else | a closure from the request's head to `Result<Key, KeyError>` |
//!
//! A request for which an extractor fails with a [`KeyError`] is neither charged nor denied. It
//! goes to the error callbacks, and without one it is answered with a 400 or a 500, depending on
//! the [`KeyErrorKind`].

mod forwarding;
pub(crate) mod header;
pub(crate) mod ip;
pub(crate) mod key;
pub(crate) mod key_extractor;
#[cfg(feature = "axum")]
pub(crate) mod matched_path;

pub use forwarding::Forwarding;
pub use ip::PeerAddr;
pub(crate) use key::{Key, escape, hash};
pub(crate) use key_extractor::KeyExtractor;
pub use key_extractor::{Joined, PathOnly};

pub use crate::error::{KeyError, KeyErrorKind};
