//! Tidegate and its peers behind one axum server, under the same load: see `benches/README.md`.

pub mod client;
pub mod contenders;
pub mod load;
pub mod open_loop;
pub mod others;
pub mod ours;
pub mod reference;
pub mod rounds;
pub mod same_script;
pub mod serve;
pub mod servers;
pub mod statistics;
pub mod table;

/// Errors only ever end the bench, with their text.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
