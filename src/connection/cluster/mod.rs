//! A cluster: one node for each master, and the way of a question to the master of its slot.
//!
//! A question is sent again only to a node that another node names in a refusal (`MOVED`, `ASK`),
//! or when the server says that it has not executed it (`TRYAGAIN`). A question that may have been
//! executed is never sent again. `docs/dependencies.md` tells why the cluster client of the `redis`
//! crate is not used.

mod cluster;
mod layout;
mod node_address;
mod redirect;
mod router;
mod slot_map;
mod slots;
mod watcher;

pub(super) use cluster::Cluster;
pub(super) use redirect::Redirects;
pub(super) use slots::slot;
