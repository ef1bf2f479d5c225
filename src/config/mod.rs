//! Configuration: the rules of a service from a TOML file.
//!
//! [`Limits::from_file`]: crate::Limits::from_file
//! [`Limits::watch`]: crate::Limits::watch
//! [`Limits::plan`]: crate::Limits::plan
//! [`Limits::peer`]: crate::Limits::peer
//! [`Rule::with_refund_on`]: crate::Rule::with_refund_on
//! [`Rule::with_plan`]: crate::Rule::with_plan
//! [`ConfigError`]: ConfigError
//! [`Headers`]: crate::Headers
//! [`OnError`]: crate::rule::OnError
//! [`Plan`]: crate::rule::Plan
//! [warning]: crate::warning
//! [cookbook.md]: crate::guide::cookbook
//! [grpc.md]: crate::guide::grpc
//! [guarantees.md]: crate::guide::guarantees
//! [metrics.md]: crate::metrics
//! [proxies.md]: crate::ClientIp
//! [reload.md]: crate::live
//! [topologies.md]: crate::guide::topologies
//! [upgrading.md]: crate::guide::upgrading
#![doc = include_str!("../../docs/config.md")]

// The docs above are for users. `load.rs` tells the steps from a text to rules. What a rule may be
// is checked in `src/rule/`, and a file that changes is watched in `src/live/`.

mod config_error;
mod key_names;
mod load;
mod rule_table;
mod subjects;
mod table;

pub use config_error::ConfigError;
