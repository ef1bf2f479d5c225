//! The table, and what it says in memory: the limit asks for each request, and never waits for the
//! database.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use redb::{Database, ReadableTable, TableDefinition};
use tidegate::Quota;
use tidegate::rule::Plan;

/// How many requests a tenant has in a minute, by its name.
const TENANTS: TableDefinition<&str, u32> = TableDefinition::new("tenants");

pub(crate) type AnyError = Box<dyn Error + Send + Sync>;

/// The tenants and their quotas. This process is the only one that changes the table. Others would
/// have to be listened to, or the table read again every few seconds.
pub(crate) struct Tenants {
    database: Database,
    plans: RwLock<HashMap<String, Plan>>,
}

impl Tenants {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Self, AnyError> {
        let database = Database::create(path)?;
        let transaction = database.begin_write()?;
        transaction.open_table(TENANTS)?;
        transaction.commit()?;
        let plans = RwLock::new(read(&database)?);
        Ok(Self { database, plans })
    }

    /// What a tenant bought; `None` if it is not in the table.
    pub(crate) fn plan(&self, tenant: &str) -> Option<Plan> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.get(tenant).cloned()
    }

    /// Changes the table, and then what is in memory: it holds from the next request on.
    pub(crate) async fn set_max(self: &Arc<Self>, tenant: &str, max: u32) -> Result<(), AnyError> {
        let (tenants, tenant) = (Arc::clone(self), tenant.to_owned());
        let change = move || {
            let transaction = tenants.database.begin_write()?;
            transaction.open_table(TENANTS)?.insert(&*tenant, max)?;
            transaction.commit()?;
            let plans = read(&tenants.database)?;
            *tenants
                .plans
                .write()
                .unwrap_or_else(PoisonError::into_inner) = plans;
            Ok(())
        };
        tokio::task::spawn_blocking(change).await?
    }
}

/// The whole table.
fn read(database: &Database) -> Result<HashMap<String, Plan>, AnyError> {
    let table = database.begin_read()?.open_table(TENANTS)?;
    let rows = table.iter()?.map(|row| {
        let (tenant, max) = row?;
        let plan = Plan::of([Quota::per_minute(max.value())])?;
        Ok((tenant.value().to_owned(), plan))
    });
    rows.collect()
}
