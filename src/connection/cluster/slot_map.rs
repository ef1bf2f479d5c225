use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{Layout, NodeAddress};
use crate::connection::node::Node;

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
