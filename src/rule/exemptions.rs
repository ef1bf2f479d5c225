use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderMap, Method};
use ipnet::IpNet;

use crate::key::ip::{ClientIp, PeerIp, proxy_field};
use crate::warning::{Warning, WarningKind};

/// The requests that a file exempts from a rule. Any one of the lists exempts a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Exemptions {
    /// Compared whole with the path that the client sent.
    pub(crate) paths: Vec<Box<str>>,
    pub(crate) methods: Vec<Method>,
    /// Compared with the client's address.
    pub(crate) networks: Vec<IpNet>,
    /// Finds the client's address. Without it the client is the socket's peer.
    pub(crate) client_ip: Option<ClientIp>,
}

impl Exemptions {
    /// The requests that one of both exempts. The address of the clients is found as by `self`, or
    /// else as by `other`.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.paths.extend_from_slice(&other.paths);
        self.methods.extend_from_slice(&other.methods);
        self.networks.extend_from_slice(&other.networks);
        self.client_ip = self.client_ip.or_else(|| other.client_ip.clone());
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.methods.is_empty() && self.networks.is_empty()
    }

    /// Whether a request's address has to be known.
    pub(crate) fn needs_address(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Whether the request with this head is exempt.
    pub(crate) fn contain(&self, head: &Parts) -> bool {
        let path = sent_path(head);
        self.paths.iter().any(|exempt| **exempt == *path)
            || self.methods.contains(&head.method)
            || self.contain_client(head)
    }

    /// Whether the client is in one of the networks. One whose address is not known is not.
    fn contain_client(&self, head: &Parts) -> bool {
        let contain = |ip: IpAddr| self.networks.iter().any(|network| network.contains(&ip));
        self.needs_address() && self.address(head).is_some_and(contain)
    }

    fn address(&self, head: &Parts) -> Option<IpAddr> {
        match &self.client_ip {
            Some(client_ip) => client_ip.address(head).ok(),
            // Behind a proxy the peer is always the proxy.
            None if proxy_field(&head.headers).is_some() => None,
            None => PeerIp.address(head).ok(),
        }
    }

    /// A request behind a proxy is not exempt by its peer.
    pub(crate) fn warning(&self, fields: &HeaderMap) -> Option<Warning> {
        if !self.needs_address() || self.client_ip.is_some() {
            return None;
        }
        let field = proxy_field(fields)?;
        Some(Warning::named(WarningKind::ExemptBehindProxy, field))
    }
}

/// The path that the client sent, also where a router has cut off its beginning.
fn sent_path(head: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(uri) = head.extensions.get::<axum::extract::OriginalUri>() {
        return uri.path();
    }
    head.uri.path()
}
