use std::fmt;

/// The name or IP address and the port by which the cluster knows a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct NodeAddress {
    pub(super) host: Box<str>,
    pub(super) port: u16,
}

impl NodeAddress {
    /// The node that a refusal of the node `refusing` names: `host:port`, or `:port` on the same
    /// host.
    pub(super) fn named_by(refusing: &Self, named: &str) -> Option<Self> {
        let (host, port) = named.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = match host {
            "" => &refusing.host,
            host => host,
        };
        Some(Self {
            host: host.into(),
            port: port.parse().ok()?,
        })
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_name_nodes() {
        let refusing = NodeAddress {
            host: "a".into(),
            port: 1,
        };
        let named =
            |named| NodeAddress::named_by(&refusing, named).map(|address| address.to_string());
        assert_eq!(named("10.0.0.1:7000").as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(named(":7000").as_deref(), Some("a:7000"));
        assert_eq!(named("::1:7000").as_deref(), Some("::1:7000"));
        assert_eq!(named("nonsense"), None);
    }
}
