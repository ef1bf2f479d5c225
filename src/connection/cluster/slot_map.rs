use std::collections::HashMap;
use std::sync::Arc;

use super::layout::Layout;
use super::node_address::NodeAddress;
use super::slots::SLOTS;
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
