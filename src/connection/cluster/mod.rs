//! A cluster: one node for each master, and the way of a question to the master of its slot.
//!
//! A question is sent again only to a node that another node names in a refusal (`MOVED`, `ASK`),
//! or when the server says that it has not executed it (`TRYAGAIN`). A question that may have been
//! executed is never sent again. `docs/dependencies.md` tells why the cluster client of the `redis`
//! crate is not used.
//!
//! ```text
//! question -> Router: slot -> SlotMap -> Node of the master -> flight
//!               ^                                                |
//!               |      MOVED, ASK to a node that was named       |  refused: nothing
//!               +------------------ Redirects <------------------+  was executed
//!               |      TRYAGAIN: after a pause, by the slot
//!               |
//!            Watcher: asks any node for CLUSTER SLOTS when a refusal, a lost
//!            link or a slot without a master says that the layout has changed
//! ```
//!
//! Each master is a [`Node`](super::node::Node) with a queue and a link of its own, so one that
//! hangs delays its own slots only. The router owns the nodes and the watcher refreshes the map.
//! Nodes have a way back into the router, which is a weak pointer: otherwise both would live
//! forever.

mod cluster;
mod layout;
mod redirect;
mod router;
mod slot_map;
mod watcher;

pub(super) use cluster::Cluster;
pub(super) use redirect::Redirects;
pub(super) use slot_map::slot;
