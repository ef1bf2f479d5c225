//! Attacks on connections: nodes that hang, replies that are lost, certificates that make no sense.
//! [`acl`] and `secrets` test what `docs/security.md` promises.

mod acl;
mod certificates;
mod channels;
mod cluster_faults;
mod connecting;
mod credentials;
mod lost_flights;
mod prelude;
mod rotations;
mod secrets;
mod sentinel_faults;
