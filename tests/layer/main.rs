//! The middleware as an application sees it: what it answers, whom it counts, how it is configured.

mod allocations;
mod calls;
mod charges;
mod client_ip;
mod closures;
mod config;
mod config_permits;
mod config_subjects;
mod contract;
mod counters;
mod errors;
mod events;
mod examples;
mod exempt;
mod failures;
mod fields;
mod grpc;
mod joint;
mod joint_requests;
mod joint_waiting;
mod keys;
mod llm_gateway;
mod many_plans;
mod open_charges;
mod outcomes;
mod outgoing;
mod owed;
mod page;
mod permits;
mod plans;
mod published;
mod refused;
mod reload;
mod semantics;
mod several;
mod shadow;
mod tasks;
mod usage;
mod waiting;
mod warnings;
mod web_app;

use std::sync::Arc;
use std::time::Duration;

use kit::http::{get, send, status, text};
use kit::{Redis, store_on};
use tidegate::{MemoryStore, Store};

const WINDOW: Duration = Duration::from_secs(60);

/// Held by a test that installs limits for the process.
static INSTALLED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A store that answers at once, and one that has to be waited for: both ways through the layer.
struct Stores {
    all: [Arc<dyn Store>; 2],
    server: Redis,
}

impl Stores {
    async fn start() -> Self {
        let server = Redis::start();
        let redis = store_on(&server).await;
        Self {
            all: [Arc::new(MemoryStore::new()), Arc::new(redis)],
            server,
        }
    }

    /// The server loses its data.
    fn flush(&self) {
        let flushed: redis::RedisResult<()> =
            redis::cmd("FLUSHALL").query(&mut self.server.connection());
        flushed.expect("an answer");
    }
}

/// A store that never decides a take that costs something: it has no room for any key.
fn no_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_max_keys(0))
}
