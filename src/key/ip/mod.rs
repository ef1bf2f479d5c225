//! Addresses as keys: the socket's peer, and the client behind trusted proxies.

pub(crate) mod client_ip;
mod forwarding;
mod ip_key;
mod peer_addr;
pub(crate) mod peer_ip;

pub use forwarding::Forwarding;
pub use peer_addr::PeerAddr;
