//! Keys: which requests of a rule are counted together.
//!
//! A [`KeyExtractor`] makes a [`Key`] from a request's head. Requests with equal keys share the
//! quotas of their rule; a rule without an extractor counts all its requests together.
//!
//! ```
//! use http::Request;
//! use tidegate::key::PeerAddr;
//! use tidegate::{Header, KeyExtractor, PeerIp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Counted together: requests of one tenant from one address.
//! let extractor = (PeerIp, Header::new("x-tenant"));
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
//! | nothing: all requests of the path together | [`Everyone`], the default |
//! | the address of the socket's peer | [`PeerIp`] |
//! | the client's address behind proxies | [`ClientIp`], with its [`Forwarding`] field |
//! | the value of a header field | [`Header`] |
//! | a bearer token, the user name of HTTP Basic, a cookie | [`Bearer`], [`BasicUser`], [`Cookie`] |
//! | the host that it is for, such as a tenant's | [`Host`] |
//! | the user, or what else a layer outside has put into the extensions | [`Extension`] |
//! | the method | [`Method`] |
//! | the route that axum matched | `MatchedPath` (feature `axum`) |
//! | several of these together | tuples, or [`Joined`] for a list |
//! | one of these, or else another one | [`KeyExtractor::or`] |
//! | anything else | a closure from the request's head to `Result<Key, KeyError>` |
//!
//! A request for which an extractor fails with a [`KeyError`] is neither charged nor denied. It
//! goes to the error callbacks, and without one it is answered with a 400 or a 500, depending on
//! the [`KeyErrorKind`].
//!
//! # The key of somebody who is known
//!
//! Each extractor makes the key of a value that code knows: `Header::new("x-user").key("alice")`,
//! `Bearer.key(token)`, `client_ip.key(address)`. [`Key::from`](crate::Key) does so for addresses,
//! numbers and texts, and [`Key::join`](crate::Key::join) puts the parts of a tuple together. As
//! one of several alternatives the key has a mark in front, which
//! [`marked`](crate::KeyExtractor::marked) adds. With such a key
//! [`Store::peek`](crate::Store::peek) and [`Store::reset`](crate::Store::reset) find the count.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate::{Header, KeyExtractor, PeerIp, Quota, RateLimitLayer, Rule, Store, Take};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = Arc::new(tidegate::MemoryStore::new());
//! let user = Header::new("x-user");
//! let rule = Rule::new("login", [Quota::per_minute(5)])?.with_key(user.clone().or(PeerIp));
//! let layer = RateLimitLayer::from_rule(rule.clone()).store(Arc::clone(&store));
//!
//! // Alice called: she may try again.
//! let alice = Take::new(Arc::new(rule), user.marked(user.key("alice")));
//! let had_a_count = store.reset(&alice).await?;
//! # let _ = (layer, had_a_count);
//! # Ok(())
//! # }
//! ```

// Here stands what makes a key from the head of a request. Its text in names is in `src/question/`,
// the keys of a joint rule's subjects are in `src/layer/`, and those that operators block or let
// through in `src/fleet/`.

mod alternatives;
mod basic_user;
mod bearer;
mod cookie;
mod extension;
mod forwarding;
pub(crate) mod header;
mod host;
pub(crate) mod ip;
mod joined;
pub(crate) mod key;
pub(crate) mod key_extractor;
#[cfg(feature = "axum")]
pub(crate) mod matched_path;
mod method;
pub(crate) mod readable_token;
pub(crate) mod silent_peers;

pub use alternatives::Alternatives;
pub use basic_user::BasicUser;
pub use bearer::Bearer;
pub use cookie::Cookie;
pub use extension::Extension;
pub use forwarding::Forwarding;
pub use header::Header;
pub use host::Host;
pub use ip::{ClientIp, PeerAddr, PeerIp};
pub use joined::Joined;
pub use key::Key;
pub(crate) use key::{escaped, percent_decoded};
pub use key_extractor::{Everyone, KeyExtractor};
#[cfg(feature = "axum")]
pub use matched_path::MatchedPath;
pub use method::Method;
pub(crate) use readable_token::has_token;

pub use crate::error::{KeyError, KeyErrorKind};
