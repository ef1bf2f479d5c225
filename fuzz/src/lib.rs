//! What is fuzzed: one file for each target, and in it `run`, which takes any bytes and panics
//! where a promise is broken. `input` turns bytes into choices, and `server` is the targets' Redis.

pub mod client_ip;
pub mod config;
pub mod count;
pub mod fields;
pub mod input;
pub mod key_names;
pub mod partner;
pub mod primitives;
pub mod replies;
pub mod server;
