//! Takes without pause, and what became of each.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::redis::IntoRedisAddress;
use tidegate::store::StoreErrorKind;
use tidegate::{Key, RedisStore, Store, Take};
use tokio::task::JoinHandle;

/// What a store may take for an answer, where servers are hurt.
pub const TIMEOUT: Duration = Duration::from_millis(200);
/// How much later an answer may come on a machine that is busy with other things.
pub const HICCUP: Duration = Duration::from_secs(2);

struct Answer {
    at: Instant,
    took: Duration,
    /// Whether it was allowed.
    what: Result<bool, StoreErrorKind>,
}

/// Tasks that ask one behind the other.
pub struct Load {
    answers: Arc<Mutex<Vec<Answer>>>,
    is_over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Of calls that are given up soon.
    pub fn hasty(store: &RedisStore, take: &Take, tasks: usize) -> Self {
        Self::start(store.clone().timeout(TIMEOUT), take, tasks)
    }

    /// Of calls that are not to fail.
    pub fn patient(store: &RedisStore, take: &Take, tasks: usize) -> Self {
        Self::start(store.clone().timeout(crate::PATIENT), take, tasks)
    }

    pub fn start(store: RedisStore, take: &Take, tasks: usize) -> Self {
        let answers = Arc::new(Mutex::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let ask = || {
            let (answers, is_over) = (Arc::clone(&answers), Arc::clone(&is_over));
            tokio::spawn(ask(store.clone(), take.clone(), answers, is_over))
        };
        let tasks = (0..tasks).map(|_| ask()).collect();
        Self {
            answers,
            is_over,
            tasks,
        }
    }

    /// Waits until one more take was decided, from now on.
    pub async fn decided(&self) {
        let now = Instant::now();
        self.comes(|answer| answer.what.is_ok() && answer.at - answer.took > now)
            .await;
    }

    /// Waits until one more take has failed, from now on.
    pub async fn failed(&self) {
        let now = Instant::now();
        self.comes(|answer| answer.what.is_err() && answer.at > now)
            .await;
    }

    /// Waits until a take was denied: a busy machine has not asked for all that there is yet.
    pub async fn denied(&self) {
        self.comes(|answer| answer.what == Ok(false)).await;
    }

    async fn comes(&self, is_it: impl Fn(&Answer) -> bool) {
        let came = || {
            let answers = self.answers.lock().expect("no panic");
            answers.iter().rev().any(&is_it)
        };
        until("such an answer", came).await;
    }

    /// How many takes were decided so far.
    pub fn decisions(&self) -> usize {
        let answers = self.answers.lock().expect("no panic");
        answers.iter().filter(|answer| answer.what.is_ok()).count()
    }

    /// Stops, prints the row of the table of faults, and says that nobody waited for longer than the
    /// time-out and what a busy machine adds.
    pub async fn end(self, fault: &str, counted: &str, since: Instant) -> Report {
        let report = self.stop().await;
        report.row(fault, counted, since);
        report.assert_in_time();
        report
    }

    pub async fn stop(self) -> Report {
        self.is_over.store(true, Ordering::Relaxed);
        crate::done(self.tasks).await;
        let mut answers = std::mem::take(&mut *self.answers.lock().expect("no panic"));
        answers.sort_by_key(|answer| answer.at);
        Report { answers }
    }
}

async fn ask(
    store: RedisStore,
    take: Take,
    answers: Arc<Mutex<Vec<Answer>>>,
    is_over: Arc<AtomicBool>,
) {
    let store: &dyn Store = &store;
    while !is_over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let what = store.take(&take).await;
        let answer = Answer {
            at: Instant::now(),
            took: asked.elapsed(),
            what: what
                .map(|decision| decision.is_allowed())
                .map_err(|error| error.kind()),
        };
        answers.lock().expect("no panic").push(answer);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A take of 1 by nobody in particular, of so many an hour.
pub fn take(path: &str, max: u64) -> Take {
    Take::new(crate::rule(path, max, crate::HOUR), Key::default())
}

/// A store with a time-out that only a hanging server exceeds.
pub async fn store(address: impl IntoRedisAddress) -> RedisStore {
    let store = RedisStore::connect(address).await.expect("a running Redis");
    store.timeout(crate::PATIENT)
}

/// The same, connected to all nodes: on a busy machine the first take of one may be told that there is
/// no connection yet.
pub async fn reached(address: impl IntoRedisAddress) -> RedisStore {
    let store = store(address).await;
    store.ready(crate::PATIENT).await.expect("all nodes decide");
    store
}

/// How many of so many takes are allowed, asked one after the other.
pub async fn allowed(store: &RedisStore, take: &Take, times: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..times {
        let decision = store.take(take).await.expect("a decision");
        allowed += usize::from(decision.is_allowed());
    }
    allowed
}

/// Waits until something holds, while other tasks go on. It is long because a sentinel on a busy
/// machine may do nothing for half a minute, since it mistrusts its clock then.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(150), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What became of all.
pub struct Report {
    answers: Vec<Answer>,
}

impl Report {
    pub fn allowed(&self) -> u64 {
        let allowed = self.answers.iter().filter(|answer| answer.what == Ok(true));
        allowed.count() as u64
    }

    /// Nobody waited for longer than the time-out and what a busy machine adds.
    pub fn assert_in_time(&self) {
        let slowest = self.slowest();
        assert!(slowest < TIMEOUT + HICCUP, "{slowest:?}");
    }

    /// Not one has failed.
    pub fn assert_no_failure(&self) {
        let failures = self.failures();
        assert!(failures.is_empty(), "{failures:?}");
    }

    pub fn failures(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for answer in &self.answers {
            if let Err(kind) = answer.what {
                *kinds.entry(format!("{kind:?}")).or_default() += 1;
            }
        }
        kinds
    }

    pub fn slowest(&self) -> Duration {
        let took = self.answers.iter().map(|answer| answer.took);
        took.max().unwrap_or_default()
    }

    /// From then to the first decision behind the last failure.
    pub fn back_after(&self, fault: Instant) -> Duration {
        let last = self.answers.iter().rposition(|answer| answer.what.is_err());
        let back = last.and_then(|last| self.answers.get(last + 1));
        back.map_or(Duration::ZERO, |back| {
            back.at.saturating_duration_since(fault)
        })
    }

    /// Prints the row of the table of faults.
    pub fn row(&self, fault: &str, counted: &str, since: Instant) {
        let failures = self.failures();
        let failures: Vec<_> = failures
            .iter()
            .map(|(kind, times)| format!("{kind} {times}x"))
            .collect();
        let gets = match failures.is_empty() {
            true => "decisions".to_owned(),
            false => failures.join(", "),
        };
        let slowest = self.slowest().as_millis();
        let back = self.back_after(since).as_millis();
        println!("| {fault} | {gets} | {slowest} ms | {counted} | {back} ms |");
    }
}
