//! What each tenant bought, from a table of a database that others change, too. A request waits for
//! the database if nothing is known of its tenant, or what is known is too old.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redb::{Database, TableDefinition};
use tidegate::Quota;
use tidegate::rule::Plan;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

/// How many requests a tenant has in a minute, by its name.
const TENANTS: TableDefinition<&str, u32> = TableDefinition::new("tenants");

/// How long requests wait for the database at most.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) type AnyError = Box<dyn Error + Send + Sync>;

/// The tenants and their quotas.
pub(crate) struct Tenants {
    database: Arc<Database>,
    time_to_live: Duration,
    /// An entry for each tenant that has come. Authentication has verified their names: else
    /// anybody could fill the memory.
    known: Mutex<HashMap<String, Arc<AsyncMutex<Known>>>>,
    reads: AtomicU64,
}

#[derive(Default)]
struct Known {
    plan: Option<Plan>,
    read_at: Option<Instant>,
}

impl Tenants {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path, time_to_live: Duration) -> Result<Self, AnyError> {
        Ok(Self {
            database: Arc::new(Database::create(path)?),
            time_to_live,
            known: Mutex::default(),
            reads: AtomicU64::default(),
        })
    }

    /// What a tenant bought; `None` if it is not in the table, or nothing is known of it.
    pub(crate) async fn plan(&self, tenant: &str) -> Option<Plan> {
        let known = {
            let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(tenant.to_owned()).or_default())
        };
        // One request reads, and others of this tenant wait for what it finds.
        let mut known = known.lock().await;
        if known
            .read_at
            .is_none_or(|at| at.elapsed() >= self.time_to_live)
        {
            match timeout(PATIENCE, self.read(tenant)).await {
                Ok(Ok(plan)) => known.plan = plan,
                Ok(Err(error)) => println!("(what is known of {tenant} stays: {error})"),
                Err(late) => println!("(what is known of {tenant} stays: {late})"),
            }
            // Also after an error: a database that fails is not asked by each request.
            known.read_at = Some(Instant::now());
        }
        known.plan.clone()
    }

    async fn read(&self, tenant: &str) -> Result<Option<Plan>, AnyError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (database, tenant) = (Arc::clone(&self.database), tenant.to_owned());
        let read = move || {
            let table = database.begin_read()?.open_table(TENANTS)?;
            let max = table.get(&*tenant)?.map(|max| max.value());
            Ok(max
                .map(|max| Plan::of([Quota::per_minute(max)]))
                .transpose()?)
        };
        tokio::task::spawn_blocking(read).await?
    }

    /// How often the database was read.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Changes the table, as another process could.
    pub(crate) fn set_max(&self, tenant: &str, max: u32) -> Result<(), AnyError> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(TENANTS)?.insert(tenant, max)?;
        Ok(transaction.commit()?)
    }

    /// Loses the table, so that each read fails.
    pub(crate) fn lose_all(&self) -> Result<(), AnyError> {
        let transaction = self.database.begin_write()?;
        transaction.delete_table(TENANTS)?;
        Ok(transaction.commit()?)
    }
}
