//! The public suite, on every store and every algorithm.

use kit::clocked::Clocked;
use tidegate::store::Capabilities;
use tidegate::test_util::conformance;

use crate::prelude::*;

/// A store whose time the test moves, and what has to live as long as the store.
struct Context {
    clocked: Clocked,
    _server: Option<Redis>,
}

impl Context {
    fn new(make: impl FnOnce(ManualClock) -> Arc<dyn Store>) -> Self {
        let (clocked, _server) = (Clocked::new("", make), None);
        Self { clocked, _server }
    }

    /// This around the same store.
    fn around(self, wrap: impl FnOnce(Arc<dyn Store>, ManualClock) -> Arc<dyn Store>) -> Self {
        let Self { clocked, _server } = self;
        let store = wrap(clocked.store, clocked.clock.clone());
        let clocked = Clocked { store, ..clocked };
        Self { clocked, _server }
    }

    async fn memory() -> Self {
        Self::new(|clock| Arc::new(MemoryStore::new().clock(clock)))
    }

    async fn redis() -> Self {
        let (server, store) = started().await;
        let of_redis = Self::new(|clock| Arc::new(store.clock(clock)));
        Self {
            _server: Some(server),
            ..of_redis
        }
    }

    /// Memory that does not answer at once, with all stores around it that there are.
    async fn wrapped() -> Self {
        Self::memory().await.around(|store, clock| {
            let wrapped = Resilient::new(later(store))
                .timeout(60 * SECOND)
                .clock(clock);
            wrapped.fallback(Share::of_processes(2)).build()
        })
    }

    /// The same store behind a cache whose denials never grow too old.
    fn cached(self) -> Self {
        self.around(|store, clock| {
            let cache = Resilient::bare(store).denial_cache(Duration::MAX);
            Arc::new(cache.clock(clock))
        })
    }

    async fn cached_memory() -> Self {
        Self::memory().await.cached()
    }

    async fn cached_redis() -> Self {
        Self::redis().await.cached()
    }

    /// The whole share of a store that never answers.
    async fn fallback() -> Self {
        let fallback = Resilient::bare(Stub::down()).fallback(Share::of_processes(1));
        let of_memory = |clock| fallback.fallback_store(MemoryStore::new().clock(clock));
        Self::new(|clock| Arc::new(of_memory(clock)))
    }
}

impl conformance::Context for Context {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.clocked.store)
    }

    fn advance(&self, by: Duration) {
        self.clocked.advance(by);
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
        .capabilities_fn(|_| {
            let mut can = Capabilities::default();
            (can.calendar, can.joint) = (true, true);
            can
        })
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
