//! Who serves which slots, as a node tells it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult, Value};

use super::slots::SLOTS;
use crate::connection::node::Node;

/// A node by the name and port that its cluster knows it by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::connection) struct NodeAddress {
    pub(super) host: Box<str>,
    pub(super) port: u16,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl NodeAddress {
    /// Of a redirection by the node `by`: `host:port`, or `:port` for the same host.
    pub(super) fn redirected(by: &Self, to: &str) -> Option<Self> {
        let (host, port) = to.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if host.is_empty() { &by.host } else { host };
        Some(Self {
            host: host.into(),
            port: port.parse().ok()?,
        })
    }
}

/// What a node says of the cluster.
#[derive(Debug)]
pub(super) struct Layout {
    /// First slot, last slot, and their master.
    pub(super) ranges: Vec<(u16, u16, NodeAddress)>,
    /// Masters and replicas.
    pub(super) nodes: Vec<NodeAddress>,
}

impl Layout {
    /// Reads what the node at `asked` answers to `CLUSTER SLOTS`.
    pub(super) fn read(answer: &Value, asked: &str) -> RedisResult<Self> {
        let Value::Array(rows) = answer else {
            return Err(nonsense());
        };
        let (mut ranges, mut nodes) = (Vec::new(), Vec::new());
        for row in rows {
            let Value::Array(row) = row else {
                return Err(nonsense());
            };
            let [Value::Int(first), Value::Int(last), servers @ ..] = &row[..] else {
                return Err(nonsense());
            };
            let slot = |slot: i64| {
                u16::try_from(slot)
                    .ok()
                    .filter(|slot| usize::from(*slot) < SLOTS)
            };
            let (Some(first), Some(last)) = (slot(*first), slot(*last)) else {
                return Err(nonsense());
            };
            let mut servers = servers.iter().map(|server| read_node(server, asked));
            if let Some(Some(master)) = servers.next() {
                ranges.push((first, last, master.clone()));
                nodes.push(master);
            }
            nodes.extend(servers.flatten());
        }
        if ranges.is_empty() {
            return Err(RedisError::from((
                ErrorKind::Io,
                "the node knows of nobody who serves a slot",
            )));
        }
        Ok(Self { ranges, nodes })
    }
}

/// `None` if its cluster does not know where it is either.
fn read_node(server: &Value, asked: &str) -> Option<NodeAddress> {
    let Value::Array(server) = server else {
        return None;
    };
    let [host, Value::Int(port), ..] = &server[..] else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
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

fn nonsense() -> RedisError {
    RedisError::from((ErrorKind::Parse, "no answer to CLUSTER SLOTS"))
}

/// A layout, and the nodes of its masters.
pub(super) struct SlotMap {
    pub(super) masters: Vec<(NodeAddress, Arc<Node>)>,
    /// By slot: the index of its master, or [`NOBODY`].
    owners: Box<[u16]>,
    /// Masters and replicas.
    pub(super) nodes: Vec<NodeAddress>,
}

const NOBODY: u16 = u16::MAX;

impl SlotMap {
    pub(super) fn new(layout: Layout, mut node: impl FnMut(&NodeAddress) -> Arc<Node>) -> Self {
        let mut owners = vec![NOBODY; SLOTS].into_boxed_slice();
        let (mut masters, mut known) = (Vec::new(), HashMap::new());
        for (first, last, master) in layout.ranges {
            let owner = *known.entry(master.clone()).or_insert_with(|| {
                let node = node(&master);
                masters.push((master, node));
                u16::try_from(masters.len() - 1).expect("there are fewer masters than slots")
            });
            owners[usize::from(first)..=usize::from(last).max(usize::from(first))].fill(owner);
        }
        Self {
            masters,
            owners,
            nodes: layout.nodes,
        }
    }

    /// The master of a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let owner = self.owners[usize::from(slot)];
        self.masters.get(usize::from(owner)).map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port)])
    }

    #[test]
    fn the_answer_is_read_with_all_its_holes() {
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
        let nodes: Vec<_> = layout.nodes.iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["10.0.0.1:7000", "10.0.0.2:7001"]);
        assert_eq!(
            layout.ranges.len(),
            1,
            "nobody knows where the other master is"
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
        let by = NodeAddress {
            host: "a".into(),
            port: 1,
        };
        let to = |to| NodeAddress::redirected(&by, to).map(|node| node.to_string());
        assert_eq!(to("10.0.0.1:7000").as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(to(":7000").as_deref(), Some("a:7000"));
        assert_eq!(to("::1:7000").as_deref(), Some("::1:7000"));
        assert_eq!(to("nonsense"), None);
    }
}
