//! What the tests share: servers that they start themselves, a proxy that breaks connections, worker
//! processes and logs that tests can read; rules, apps, and stores that answer as a test wants.

pub mod call_steps;
mod calls;
pub mod certificates;
pub mod clocked;
pub mod cluster;
pub mod distant;
pub mod fake_clock;
pub mod faults;
pub mod full_log;
pub mod http;
pub mod limiter_oracle;
pub mod load;
pub mod lock_oracle;
pub mod log;
mod looks;
pub mod map;
mod near;
pub mod nginx;
pub mod oracle;
pub mod page;
pub mod page_steps;
pub mod prelude;
pub mod process;
pub mod proxy;
pub mod random;
pub mod redisson;
mod scripts;
pub mod sentinels;
mod server;
pub mod stalls;
pub mod steps;
mod strict;
pub mod stub;
mod tasks;
pub mod timeline;
pub mod windows;
pub mod workers;
mod world;

pub use calls::{
    LimiterCalls, LockCalls, frees, kind, lock_error, overall, per_client, replace_rate,
};
pub use looks::*;
pub use near::*;
pub use scripts::{script, script_of_limiter};
pub use server::{Redis, Stopwatch, async_connection, busy_here};
pub use strict::Strict;
pub use tasks::*;
pub use world::*;

/// The folder of the crate, with `src`, `lua` and `docs` in it.
pub fn root() -> &'static std::path::Path {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("tests/kit is two folders deep")
}
