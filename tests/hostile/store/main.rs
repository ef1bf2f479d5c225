//! Attacks on the stores' laws, only through the public API, on real servers and behind a proxy that
//! adds latency or breaks connections. Each test names the law or the promise it attacks.

mod charges;
mod denial_cache;
mod door;
mod extremes;
mod flood;
mod joint;
mod lag;
mod latency;
mod lone;
mod names;
mod order;
mod owed;
mod periods;
mod prelude;
mod refusals;
mod resets;
mod runtimes;
mod suite;
mod usual_and_general;
mod wrapped;
