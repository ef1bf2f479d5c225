//! A store over the embedded database [redb](https://docs.rs/redb): counts that survive a restart.
//!
//! It decides by [`Count`], the algorithms without a store, and keeps the bytes of each count under
//! its [name](CountAsk::name). A write transaction has the database for itself, so takes are atomic,
//! also those of several counts.
//!
//! A [`Count`] counts in windows alone. Rules with periods of the calendar, `max-concurrent`, holds
//! or lock-outs get an error, since [`Capabilities`] does not name what they need.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use redb::{
    Database, Durability, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
    WriteTransaction,
};
use tidegate::algorithm::{AlgorithmConfig, Count};
use tidegate::decision::{Receipt, Source};
use tidegate::store::{Ask, Capabilities, Change, CountAsk, StoreErrorKind, StoreFuture};
use tidegate::{Decision, Store, StoreError};

/// The counts by name.
const COUNTS: TableDefinition<&str, &[u8]> = TableDefinition::new("counts");
/// When to look whether a count is forgotten, in microseconds since 1970, and its name.
const EXPIRIES: TableDefinition<(u64, &str), ()> = TableDefinition::new("expiries");

/// A clock in microseconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Keeps the counts in a file, for one process.
#[derive(Clone)]
pub(crate) struct RedbStore {
    database: Arc<Database>,
    name: Arc<str>,
    clock: Clock,
}

impl RedbStore {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let database = Database::create(path).map_err(failed)?;
        Ok(Self::over(database, &format!("redb at {}", path.display())))
    }

    /// Keeps the counts in this database.
    pub(crate) fn over(database: Database, name: &str) -> Self {
        Self {
            database: Arc::new(database),
            name: name.into(),
            clock: Arc::new(|| {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
            }),
        }
    }

    /// Reads the time from another clock. Default: the system's.
    #[allow(dead_code, reason = "for tests")]
    #[must_use]
    pub(crate) fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The number of counts in the file.
    #[allow(dead_code, reason = "for tests")]
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        let read = self.database.begin_read().map_err(failed);
        let counts = read.and_then(|read| read.open_table(COUNTS).map_err(failed));
        counts
            .and_then(|counts| counts.len().map_err(failed))
            .unwrap_or(0)
    }

    /// Runs `work` in a transaction, on a thread that may block. The transaction is committed
    /// without waiting for the disk: after a crash the last moments may be missing, but the file is
    /// whole.
    fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Counts<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<T> {
        let store = self.clone();
        let task = move || {
            let mut transaction = store.database.begin_write().map_err(failed)?;
            transaction.set_durability(Durability::None);
            // Inside of the transaction: what waited for it must not come with an old instant.
            let now = (store.clock)();
            let done = work(&mut Counts::open(&transaction, now)?)?;
            transaction.commit().map_err(failed)?;
            Ok(done)
        };
        StoreFuture::boxed(async move {
            let done = tokio::task::spawn_blocking(task).await;
            done.unwrap_or_else(|error| Err(failed(error)))
        })
    }
}

/// The tables in a transaction.
struct Counts<'a> {
    counts: Table<'a, &'static str, &'static [u8]>,
    expiries: Table<'a, (u64, &'static str), ()>,
    now: u64,
}

impl<'a> Counts<'a> {
    fn open(transaction: &'a WriteTransaction, now: u64) -> Result<Self, StoreError> {
        Ok(Self {
            counts: transaction.open_table(COUNTS).map_err(failed)?,
            expiries: transaction.open_table(EXPIRIES).map_err(failed)?,
            now,
        })
    }

    /// The count of this name, and the instant at which it is forgotten. What is no count, such as
    /// the bytes of a later version, is as a new key.
    fn get(&self, name: &str) -> Result<Option<Count>, StoreError> {
        let bytes = self.counts.get(name).map_err(failed)?;
        Ok(bytes.and_then(|bytes| Count::from_bytes(bytes.value()).ok()))
    }

    fn put(&mut self, name: &str, count: &Count) -> Result<(), StoreError> {
        let bytes = count.to_bytes();
        let is_new = self.counts.insert(name, &*bytes).map_err(failed)?.is_none();
        if is_new {
            let due = (count.forgotten_at(), name);
            self.expiries.insert(due, ()).map_err(failed)?;
        }
        self.drop_forgotten()
    }

    /// Charges all counts, or none: each is charged in a copy, which is kept if all are allowed.
    fn take(&mut self, ask: &Ask) -> Result<Decision, StoreError> {
        let (mut counts, mut decisions) = (Vec::new(), Vec::new());
        for of in ask.counts() {
            let mut count = self.get(&of.name(""))?.unwrap_or_default();
            decisions.push(count.take(config(of)?, self.now, of.quotas(), of.cost()));
            counts.push(count);
        }
        let is_charged = decisions.iter().all(Decision::is_allowed);
        for ((of, count), decision) in ask.counts().iter().zip(&counts).zip(&mut decisions) {
            let name = of.name("");
            if is_charged && of.cost() > 0 {
                self.put(&name, count)?;
            } else if !is_charged && decision.is_allowed() {
                // Another count denies the take: what had room tells what is left of it.
                let mut untouched = self.get(&name)?.unwrap_or_default();
                *decision = untouched.take(config(of)?, self.now, of.quotas(), 0);
            }
        }
        let decisions = decisions.into_iter();
        let decisions = decisions.map(|decision| decision.with_source(Source::Other));
        Ok(ask.decision_of(decisions.collect()))
    }

    /// Gives back in each count what its part of the receipt says, and returns the most.
    fn refund(&mut self, ask: &Ask, receipt: &Receipt) -> Result<u64, StoreError> {
        let mut most = 0;
        for (of, receipt) in ask.counts().iter().zip(receipt.counts()) {
            let name = of.name("");
            let Some(mut count) = self.get(&name)? else {
                continue;
            };
            let refunded = count.refund(self.now, of.quotas(), receipt, of.cost());
            if refunded > 0 {
                self.put(&name, &count)?;
            }
            most = most.max(refunded);
        }
        Ok(most)
    }

    /// Charges in each count that has a cost, also above max, and returns the fewest.
    fn owe(&mut self, ask: &Ask) -> Result<u64, StoreError> {
        let mut fewest = None;
        for of in ask.counts().iter().filter(|of| of.cost() > 0) {
            let name = of.name("");
            let mut count = self.get(&name)?.unwrap_or_default();
            let at_most = of.owe_at_most();
            let charged = count.owe(config(of)?, self.now, of.quotas(), of.cost(), at_most);
            self.put(&name, &count)?;
            fewest = Some(fewest.map_or(charged, |fewest: u64| fewest.min(charged)));
        }
        Ok(fewest.unwrap_or(0))
    }

    /// The counts stay until they are forgotten: they know which receipts are from before.
    fn reset(&mut self, ask: &Ask) -> Result<u64, StoreError> {
        let mut has_counted = false;
        for of in ask.counts() {
            let name = of.name("");
            if let Some(mut count) = self.get(&name)? {
                has_counted |= count.reset(self.now);
                self.put(&name, &count)?;
            }
        }
        Ok(u64::from(has_counted))
    }

    /// Looks at the two counts that are due first: keys are dropped as fast as they come.
    fn drop_forgotten(&mut self) -> Result<(), StoreError> {
        for _ in 0..2 {
            let first = self.expiries.first().map_err(failed)?;
            let Some((due, name)) = first.map(|(entry, _)| {
                let (due, name) = entry.value();
                (due, name.to_owned())
            }) else {
                break;
            };
            if due > self.now {
                break;
            }
            self.expiries.remove((due, &*name)).map_err(failed)?;
            let forgotten_at = self.get(&name)?.map_or(0, |count| count.forgotten_at());
            if forgotten_at > self.now {
                let later = (forgotten_at, &*name);
                self.expiries.insert(later, ()).map_err(failed)?;
            } else {
                self.counts.remove(&*name).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// How a count of units in windows counts. There is none for a period of the calendar, and none for
/// permits: layers do not ask about them where [`Capabilities`] does not name them.
fn config(of: &CountAsk) -> Result<AlgorithmConfig, StoreError> {
    let message = "the database counts in windows alone";
    let error = || StoreError::new(StoreErrorKind::Configuration, message);
    of.algorithm().ok_or_else(error)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    let message = format!("the database failed: {error}");
    StoreError::new(StoreErrorKind::Unavailable, message).with_source(error)
}

impl Store for RedbStore {
    fn take(&self, ask: &Ask) -> StoreFuture<Decision> {
        let ask = ask.clone();
        self.transact(move |counts| counts.take(&ask))
    }

    fn change(&self, ask: &Ask, change: &Change) -> StoreFuture<u64> {
        let (ask, change) = (ask.clone(), change.clone());
        self.transact(move |counts| match change {
            Change::Refund(receipt) => counts.refund(&ask, &receipt),
            Change::Owe(_) => counts.owe(&ask),
            Change::Forget => counts.reset(&ask),
            _ => {
                let message = format!("a database has no {change:?}");
                Err(StoreError::new(StoreErrorKind::Configuration, message))
            }
        })
    }

    fn name(&self) -> String {
        self.name.to_string()
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::default();
        (can.joint, can.owes) = (true, true);
        can
    }
}

impl std::fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbStore")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
