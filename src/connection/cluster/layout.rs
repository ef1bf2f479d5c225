use std::fmt;

use redis::{ErrorKind, RedisError, RedisResult, Value};

use super::slot_map::SLOTS;
use crate::connection::link::text;

/// Which master serves which slots, as one node reports it.
///
/// Slots are left out whose master has a host that the cluster itself does not know (`?`); they are
/// unserved until a later layout names it. A node that does not know its own host leaves it empty,
/// and means the host at which it was asked. Replicas are asked for the layout when no master
/// answers, and never get a question.
#[derive(Debug)]
pub(super) struct Layout {
    /// The first slot, the last slot, and their master.
    pub(super) ranges: Vec<(u16, u16, NodeAddress)>,
    /// Masters and replicas.
    pub(super) servers: Vec<NodeAddress>,
}

impl Layout {
    /// Reads the reply of the node at the host `asked` to `CLUSTER SLOTS`.
    pub(super) fn read(reply: &Value, asked: &str) -> RedisResult<Self> {
        let Value::Array(rows) = reply else {
            return Err(unreadable());
        };
        let (mut ranges, mut all) = (Vec::new(), Vec::new());
        for row in rows {
            let Value::Array(row) = row else {
                return Err(unreadable());
            };
            let [Value::Int(first), Value::Int(last), servers @ ..] = &row[..] else {
                return Err(unreadable());
            };
            let slot = |slot: i64| {
                u16::try_from(slot)
                    .ok()
                    .filter(|slot| usize::from(*slot) < SLOTS)
            };
            let (Some(first), Some(last)) = (slot(*first), slot(*last)) else {
                return Err(unreadable());
            };
            let mut servers = servers.iter().map(|server| read_server(server, asked));
            if let Some(Some(master)) = servers.next() {
                ranges.push((first, last, master.clone()));
                all.push(master);
            }
            all.extend(servers.flatten());
        }
        if ranges.is_empty() {
            return Err(RedisError::from((
                ErrorKind::Io,
                "the node knows of no master that serves a slot",
            )));
        }
        Ok(Self {
            ranges,
            servers: all,
        })
    }
}

/// The address of a server in the reply. `None` if the cluster does not know its host.
fn read_server(server: &Value, asked: &str) -> Option<NodeAddress> {
    let Value::Array(server) = server else {
        return None;
    };
    let [host, Value::Int(port), ..] = &server[..] else {
        return None;
    };
    let host = match host {
        Value::Nil => "",
        host => text(host)?,
    };
    let host = match host {
        "" => asked,
        "?" => return None,
        host => host,
    };
    let port = u16::try_from(*port).ok()?;
    Some(NodeAddress {
        host: host.into(),
        port,
    })
}

/// The error for a reply of another form.
fn unreadable() -> RedisError {
    RedisError::from((ErrorKind::Parse, "no answer to CLUSTER SLOTS"))
}

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

    fn server(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port)])
    }

    #[test]
    fn a_reply_is_read_even_where_hosts_are_unknown() {
        let named = server(Value::BulkString(b"10.0.0.2".to_vec()), 7_001);
        let rows = vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(99),
                server(Value::Nil, 7_000),
                named,
            ]),
            Value::Array(vec![
                Value::Int(100),
                Value::Int(200),
                server(Value::BulkString(b"?".to_vec()), 7_002),
            ]),
        ];
        let layout = Layout::read(&Value::Array(rows), "10.0.0.1").expect("a layout");
        let nodes: Vec<_> = layout.servers.iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["10.0.0.1:7000", "10.0.0.2:7001"]);
        assert_eq!(
            layout.ranges.len(),
            1,
            "the host of the other master is unknown"
        );

        for nonsense in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
        ] {
            assert!(Layout::read(&nonsense, "10.0.0.1").is_err());
        }
        let beyond = Value::Array(vec![
            Value::Int(0),
            Value::Int(16_384),
            server(Value::Nil, 1),
        ]);
        assert!(Layout::read(&Value::Array(vec![beyond]), "a").is_err());
    }

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
