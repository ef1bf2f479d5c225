//! The calls, each with what it needs, made ready while the server is well.

pub(crate) mod limiter;
pub(crate) mod lock;
pub(crate) mod store;

use tidegate::Redis;
use tidegate::lock::LockError;

use crate::*;

/// Users of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) redis: Redis,
    pub(crate) store: RedisStore,
}

impl Client {
    pub(crate) async fn connect(url: &str, timeout: Duration) -> Self {
        let redis = Redis::connect(url).await.expect("a running server");
        let store = RedisStore::of(&redis);
        let client = Self { store, redis }.within(timeout);
        // Also with all nodes of a cluster, which a busy machine may take its time to connect.
        for number in 0..8 {
            let limiter = RateLimiter::new(&client.redis, number.to_string());
            eventually("a connection", async || limiter.exists().await.is_ok()).await;
        }
        client
    }

    /// The same with another time-out.
    pub(crate) fn within(&self, timeout: Duration) -> Self {
        Self {
            redis: self.redis.clone().timeout(timeout),
            store: self.store.clone().timeout(timeout),
        }
    }
}

/// What a caller is told who does not get what it asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    Store(StoreErrorKind),
    /// Another error, or an answer that is wrong on a server that is well.
    Other(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error.kind())
    }
}

impl From<LimiterError> for Failure {
    fn from(error: LimiterError) -> Self {
        match error.kind() {
            LimiterErrorKind::Store(kind) => Self::Store(kind),
            kind => Self::Other(format!("{kind:?}")),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        match error.kind() {
            LockErrorKind::Store(kind) => Self::Store(kind),
            kind => Self::Other(format!("{kind:?}")),
        }
    }
}

pub(crate) type Told = Result<(), Failure>;
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a caller expects on a server that is well.
fn is(what: &str, is_so: bool) -> Told {
    match is_so {
        true => Ok(()),
        false => Err(Failure::Other(format!("not {what}"))),
    }
}

/// One way to make a call, which can be made [`SPARE`] times.
pub(crate) struct Case {
    pub(crate) name: String,
    /// Each of what it counts changes by so much by one call.
    pub(crate) adds: Vec<i64>,
    /// Which of them goes back by itself where the caller was not told.
    pub(crate) gives_back: Vec<bool>,
    /// It takes seconds, and is made once before and once after the end of a fault.
    pub(crate) is_slow: bool,
    next: AtomicUsize,
    /// The keys of the call with this number.
    keys: Box<dyn Fn(usize) -> Vec<String> + Send + Sync>,
    ask: Box<dyn Fn(Client, usize) -> Answer<Told> + Send + Sync>,
    count: Box<dyn Fn() -> Answer<Vec<i64>> + Send + Sync>,
}

/// How often each call can be made.
pub(crate) const SPARE: usize = 40;

impl Case {
    pub(crate) fn new<A, C>(
        name: impl Into<String>,
        adds: impl Into<Vec<i64>>,
        keys: impl Fn(usize) -> Vec<String> + Send + Sync + 'static,
        ask: impl Fn(Client, usize) -> A + Send + Sync + 'static,
        count: impl Fn() -> C + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Told> + Send + 'static,
        C: Future<Output = Vec<i64>> + Send + 'static,
    {
        Self {
            name: name.into(),
            adds: adds.into(),
            gives_back: Vec::new(),
            is_slow: false,
            next: AtomicUsize::new(0),
            keys: Box::new(keys),
            ask: Box::new(move |client, number| Box::pin(ask(client, number))),
            count: Box::new(move || Box::pin(count())),
        }
    }

    pub(crate) fn that_gives_back(self, gives_back: impl Into<Vec<bool>>) -> Self {
        let gives_back = gives_back.into();
        Self { gives_back, ..self }
    }

    pub(crate) fn slow(self) -> Self {
        let is_slow = true;
        Self { is_slow, ..self }
    }

    /// Makes the next call.
    pub(crate) fn ask(&self, client: &Client) -> Answer<Told> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(number < SPARE, "{}: no more calls", self.name);
        (self.ask)(client.clone(), number)
    }

    /// The keys of the next call.
    pub(crate) fn keys(&self) -> Vec<String> {
        (self.keys)(self.next.load(Ordering::Relaxed))
    }

    /// How it counts on from here, after so many calls that were answered and so many others that
    /// may have been done.
    pub(crate) fn can_become(&self, before: &[i64], done: i64, unknown: i64, now: &[i64]) -> bool {
        let times = |at: usize, in_all| match self.gives_back.get(at) {
            Some(true) => done,
            _ => in_all,
        };
        let mut possible = done..=done + unknown;
        possible.any(|in_all| {
            let adds = self.adds.iter().enumerate();
            let added = adds.map(|(at, adds)| before[at] + adds * times(at, in_all));
            added.eq(now.iter().copied())
        })
    }

    /// What it counts.
    pub(crate) async fn count(&self) -> Vec<i64> {
        (self.count)().await
    }
}
