//! The public suite, on every store and every algorithm.

use tidegate::test_util::conformance;

use crate::prelude::*;

/// A store whose time the test moves, and what has to live as long as the store.
struct Context {
    store: Arc<dyn Store>,
    clock: ManualClock,
    _server: Option<Redis>,
}

impl Context {
    /// Some day in 2027, and not at the beginning of a millisecond.
    const START: u64 = 1_800_000_000_000_777;

    async fn memory() -> Self {
        let clock = clock_at(Self::START);
        Self {
            store: Arc::new(MemoryStore::new().clock(clock.clone())),
            clock,
            _server: None,
        }
    }

    async fn redis() -> Self {
        let clock = clock_at(Self::START);
        let server = Redis::start();
        Self {
            store: Arc::new(store_on(&server).await.clock(clock.clone())),
            clock,
            _server: Some(server),
        }
    }

    /// Memory that does not answer at once, with all stores around it that there are.
    async fn wrapped() -> Self {
        let memory = Self::memory().await;
        let wrapped = Resilient::new(later(memory.store)).timeout(60 * SECOND);
        let wrapped = wrapped.clock(memory.clock.clone());
        let wrapped = wrapped.fallback(Share::of_processes(2));
        Self {
            store: wrapped.build(),
            ..memory
        }
    }

    /// The same store behind a cache whose denials never grow too old.
    fn cached(self) -> Self {
        let cache = Resilient::bare(self.store).denial_cache(Duration::MAX);
        Self {
            store: Arc::new(cache.clock(self.clock.clone())),
            ..self
        }
    }

    async fn cached_memory() -> Self {
        Self::memory().await.cached()
    }

    async fn cached_redis() -> Self {
        Self::redis().await.cached()
    }

    /// The whole share of a store that never answers.
    async fn fallback() -> Self {
        let clock = clock_at(Self::START);
        let fallback = Resilient::bare(Stub::down()).fallback(Share::of_processes(1));
        Self {
            store: Arc::new(fallback.fallback_store(MemoryStore::new().clock(clock.clone()))),
            clock,
            _server: None,
        }
    }
}

impl conformance::Context for Context {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).expect("a short time");
        self.clock.set(self.clock.now() + micros);
    }
}

/// Asks when it has waited for its turn.
fn next<T: Send + 'static>(
    ask: impl FnOnce() -> StoreFuture<T> + Send + 'static,
) -> StoreFuture<T> {
    StoreFuture::boxed(async {
        tokio::task::yield_now().await;
        ask().await
    })
}

/// Has to be waited for.
fn later(store: Arc<dyn Store>) -> Stub {
    let [takes, refunds, resets] = [0; 3].map(|_| Arc::clone(&store));
    Stub::around(store)
        .take_fn(move |_, take| {
            let (store, take) = (Arc::clone(&takes), take.clone());
            next(move || store.take(&take))
        })
        .refund_fn(move |_, take, receipt| {
            let (store, take, receipt) = (Arc::clone(&refunds), take.clone(), receipt.clone());
            next(move || store.refund(&take, &receipt))
        })
        .reset_fn(move |_, take| {
            let (store, take) = (Arc::clone(&resets), take.clone());
            next(move || store.reset(&take))
        })
}

macro_rules! stamp {
    ($($algorithm:ident, $name:ident;)+) => {
        $(mod $name {
            use tidegate::Algorithm;
            use tidegate::test_util::conformance::check;

            use super::Context;

            stamp_store!(
                $algorithm: memory, redis, cached_memory, cached_redis, wrapped, fallback
            );
        })+
    };
}

/// One store, made by the context's function of this name.
macro_rules! stamp_store {
    ($algorithm:ident: $($store:ident),+) => {
        $(#[tokio::test(flavor = "multi_thread")]
        async fn $store() {
            check(Algorithm::$algorithm, async || Context::$store().await).await;
        })+
    };
}

stamp!(
    SlidingLog, sliding_log;
    SlidingWindow, sliding_window;
    Gcra, gcra;
    FixedWindow, fixed_window;
);
