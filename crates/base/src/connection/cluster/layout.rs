use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult, Value};

use crate::connection::link::text;
use crate::connection::node::Node;

/// Which master serves which slots, as one node reports it.
///
/// Slots are left out whose master has a host that the cluster itself does not know (`?`); they are
/// unserved until a later layout names it. A node that does not know its own host leaves it empty,
/// and means the host at which it was asked. Replicas are asked for the layout when no master
/// answers, and never get a question.
#[derive(Debug)]
pub(super) struct Layout {
    /// The first slot, the last slot, and their master.
    ranges: Vec<(u16, u16, NodeAddress)>,
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

/// The node of each slot's master.
///
/// All 16,384 slots are in one array of indices, 32 KiB, so that finding the node of a question is
/// one access. A map never changes: a new layout makes a new map, which replaces the old one at
/// once.
pub(super) struct SlotMap {
    pub(super) masters: Vec<(NodeAddress, Arc<Node>)>,
    /// For each slot the index of its master, or [`UNSERVED`].
    owners: Box<[u16]>,
    /// Masters and replicas.
    pub(super) servers: Vec<NodeAddress>,
}

/// No master serves the slot.
const UNSERVED: u16 = u16::MAX;

impl SlotMap {
    /// The map of a layout. `node` makes or finds the node of a master.
    pub(super) fn new(layout: Layout, mut node: impl FnMut(&NodeAddress) -> Arc<Node>) -> Self {
        let mut owners = vec![UNSERVED; SLOTS].into_boxed_slice();
        let (mut masters, mut indices) = (Vec::new(), HashMap::new());
        for (first, last, master) in layout.ranges {
            let owner = *indices.entry(master.clone()).or_insert_with(|| {
                let node = node(&master);
                masters.push((master, node));
                u16::try_from(masters.len() - 1).expect("there are fewer masters than slots")
            });
            owners[usize::from(first)..=usize::from(last.max(first))].fill(owner);
        }
        Self {
            masters,
            owners,
            servers: layout.servers,
        }
    }

    /// Whether some slots have no master.
    pub(super) fn has_unserved(&self) -> bool {
        self.owners.contains(&UNSERVED)
    }

    /// The node of the slot's master.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let owner = self.owners[usize::from(slot)];
        self.masters.get(usize::from(owner)).map(|(_, node)| node)
    }
}

/// The number of slots of every cluster.
pub(super) const SLOTS: usize = 16_384;

/// The slot of a key. If there is a text between the key's first `{` and the next `}`, only that
/// text counts.
pub(in crate::connection) fn slot(key: &[u8]) -> u16 {
    let find = |byte, bytes: &[u8]| bytes.iter().position(|other| *other == byte);
    let tag = find(b'{', key).and_then(|open| {
        let rest = &key[open + 1..];
        find(b'}', rest).map(|length| &rest[..length])
    });
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed) % SLOTS as u16
}

/// CRC16 of the variant XMODEM, which the cluster specification names.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let at = (crc >> 8) ^ u16::from(*byte);
        (crc << 8) ^ TABLE[usize::from(at)]
    })
}

/// The checksum of each byte.
static TABLE: [u16; 256] = table();

/// Computes the table when the crate is compiled.
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = match crc & 0x8000 {
                0 => crc << 1,
                _ => (crc << 1) ^ 0x1021,
            };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
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

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_eq!(slot(b"foo{bar"), crc16(b"foo{bar") % 16_384);
    }
}
