//! Everything that counts, on the same histories as the pure functions.

use std::cell::Cell;

use kit::steps::{
    BEGINNING, Broken, History, Seen, Setup, Theme, any_of, check, number_of_histories,
};
use proptest::prelude::*;

use crate::reference::{Outcome, Played, play, story};
use crate::targets::{Checks, Http, KEPT, StoreTarget, compare};
use crate::*;

kit::for_each_algorithm!(one_subject, several_subjects, held_keys, over_http);

/// So many histories run at once, so that their calls share round trips.
const AT_ONCE: u64 = 64;

/// What a target keeps its counts in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Base {
    Memory,
    Redis,
    WrappedMemory,
    WrappedRedis,
}

/// A target.
#[derive(Debug, Clone, Copy)]
pub(crate) enum On {
    Store(Base),
    Checks(Base),
    Layer(Base),
}

impl On {
    const fn is_local(self) -> bool {
        let (Self::Store(base) | Self::Checks(base) | Self::Layer(base)) = self;
        matches!(base, Base::Memory | Base::WrappedMemory)
    }

    /// Which of the servers it has: one of its own on each path.
    const fn server(self) -> usize {
        match self {
            Self::Store(Base::Redis) => 1,
            Self::Store(_) => 0,
            Self::Checks(_) | Self::Layer(_) => 2,
        }
    }
}

/// No two of them have the same server.
pub(crate) const ALL: [On; 6] = [
    On::Store(Base::Memory),
    On::Store(Base::Redis),
    On::Store(Base::WrappedMemory),
    On::Store(Base::WrappedRedis),
    On::Checks(Base::Memory),
    On::Checks(Base::Redis),
];

/// What plays with the pure functions, on servers of its own.
pub(crate) struct Targets {
    pub(crate) runtime: Runtime,
    redis: [RedisStore; 3],
    servers: [Redis; 3],
    /// Of another process.
    other: RedisStore,
    /// Steps that were played, and those that were left out.
    steps: Cell<(u64, u64)>,
}

fn wrapped(inner: Arc<dyn Store>, clock: ManualClock) -> Arc<dyn Store> {
    let share = Share::of_processes(1);
    let wrapped = Resilient::new(inner).fallback(share).clock(clock);
    wrapped.timeout(PATIENT).in_flight(100_000).build()
}

impl Targets {
    pub(crate) fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let servers = [Redis::start(), Redis::start(), Redis::start()];
        let redis = servers.each_ref().map(|it| runtime.block_on(store_on(it)));
        let other = runtime.block_on(store_on(&servers[1]));
        Self {
            runtime,
            redis,
            other,
            servers,
            steps: Cell::default(),
        }
    }

    /// What a target has below it: memory or one of the servers, perhaps in wrappers.
    fn store(&self, base: Base, server: usize) -> impl FnOnce(ManualClock) -> Arc<dyn Store> {
        let redis = self.redis[server].clone();
        move |clock| {
            let store: Arc<dyn Store> = match base {
                Base::Memory | Base::WrappedMemory => {
                    Arc::new(MemoryStore::new().clock(clock.clone()))
                }
                Base::Redis | Base::WrappedRedis => Arc::new(redis.clock(clock.clone())),
            };
            match base {
                Base::Memory | Base::Redis => store,
                Base::WrappedMemory | Base::WrappedRedis => wrapped(store, clock),
            }
        }
    }

    /// A history that is played as often as it was too slow to fail: Redis forgets keys by the real
    /// time, whatever the history's clock shows. It has been played once, outside of the runtime,
    /// whose connections need its thread.
    pub(crate) async fn play_in_time(
        &self,
        setup: &Setup,
        on: &[On],
        mut outcome: Outcome,
        play: impl Fn() -> Outcome,
    ) -> Outcome {
        loop {
            let began = Instant::now();
            if outcome.result.is_ok() {
                outcome.result = self.compare(setup, on, &outcome.played).await;
            }
            if outcome.result.is_ok() || began.elapsed() < KEPT {
                return outcome;
            }
            outcome = play();
        }
    }

    /// So many histories at once. What answers at once comes first: nothing that takes long may run
    /// while a server is asked.
    fn play(
        &self,
        histories: &[History],
        on: impl Fn(usize) -> Vec<On>,
        seen: &Seen,
    ) -> Vec<Result<(), Broken>> {
        let mut outcomes: Vec<_> = histories.iter().map(|it| play(it, seen)).collect();
        for is_local in [true, false] {
            let all = outcomes.into_iter().zip(histories).enumerate();
            let all = all.map(async |(at, (outcome, history))| {
                let (setup, again) = (&history.setup, || play(history, seen));
                let mut on = on(at);
                on.retain(|it| it.is_local() == is_local);
                self.play_in_time(setup, &on, outcome, again).await
            });
            outcomes = self.runtime.block_on(join_all(all));
        }
        outcomes.into_iter().map(|outcome| outcome.result).collect()
    }

    async fn compare(&self, setup: &Setup, on: &[On], played: &[Played]) -> Result<(), Broken> {
        for on in on {
            let (On::Store(base) | On::Checks(base) | On::Layer(base)) = *on;
            let (name, store) = (format!("{on:?}"), self.store(base, on.server()));
            let compared = match on {
                On::Store(Base::Redis) => {
                    let (server, other) = (&self.servers[on.server()], self.other.clone());
                    let server = redis::Client::open(&*server.url).expect("an address");
                    let other = |clock| -> Arc<dyn Store> { Arc::new(other.clock(clock)) };
                    let target = StoreTarget::new(name, store);
                    compare(&mut target.beside(server, other), played).await
                }
                On::Store(_) => compare(&mut StoreTarget::new(name, store), played).await,
                On::Checks(_) => compare(&mut Checks::new(name, store), played).await,
                On::Layer(_) => compare(&mut Http::new(name, store), played).await,
            };
            match compared {
                Ok((number, left_out)) => {
                    let (all, out) = self.steps.get();
                    self.steps.set((all + number, out + left_out));
                }
                Err((at, broken)) => {
                    return Err(format!("{broken}{}", story(setup, &played[..=at])));
                }
            }
        }
        Ok(())
    }
}

/// The memory store, Redis, wrappers and checks decide as the pure functions do.
fn all_alike(algorithm: Algorithm, own: u64, themes: &[(u32, Theme)]) -> Seen {
    let (seen, targets) = (Seen::default(), Targets::start());
    let histories = any_of(algorithm, themes, Just(BEGINNING));
    check(number_of_histories(own), AT_ONCE, &histories, |histories| {
        targets.play(histories, |_| ALL.to_vec(), &seen)
    });
    for server in &targets.servers {
        check_expiries(server, &[]);
    }
    let (number, left_out) = targets.steps.get();
    println!("{number} steps, and {left_out} that a target lacks: {seen:?}");
    assert!(number > 2 * left_out, "{number} of {left_out}");
    seen
}

fn one_subject(algorithm: Algorithm) {
    let themes = [
        (2, Theme::Plain),
        (2, Theme::Owed),
        (3, Theme::Reloads),
        (2, Theme::Plans),
        (1, Theme::Given),
        (2, Theme::Raised),
        (1, Theme::Clock),
        (3, Theme::Longer),
        (6, Theme::Mixed),
    ];
    let seen = all_alike(algorithm, 800, &themes);
    seen.expect(500, "reloads");
    seen.expect(160, "batches");
    seen.expect(55, "resets");
    seen.expect(150, "refunds");
    seen.expect(230, "charged as owed");
    seen.expect(30, "evictions");
    seen.expect(200, "raised");
}

/// Takes over several counts, with and without permits.
fn several_subjects(algorithm: Algorithm) {
    let seen = all_alike(algorithm, 200, &[(1, Theme::Joint)]);
    seen.expect(600, "joint takes");
    seen.expect(200, "busy");
    seen.expect(200, "raised");
    seen.expect(30, "permits that ended");
}

/// Keys that a partner's answer holds.
fn held_keys(algorithm: Algorithm) {
    let seen = all_alike(algorithm, 200, &[(1, Theme::Holds)]);
    seen.expect(300, "held");
    seen.expect(200, "admitted");
    seen.expect(100, "held beside others");
}

/// So does a layer, whose handlers overlap, fail, and use more or less than they reserved.
fn over_http(algorithm: Algorithm) {
    let (seen, targets) = (Seen::default(), Targets::start());
    let themes = [
        (4, Theme::Plain),
        (1, Theme::Owed),
        (2, Theme::Reloads),
        (3, Theme::Plans),
        (1, Theme::Given),
        (1, Theme::Raised),
        (2, Theme::Mixed),
    ];
    let histories = any_of(algorithm, &themes, Just(BEGINNING));
    let bases = [
        Base::Memory,
        Base::Redis,
        Base::WrappedMemory,
        Base::WrappedRedis,
    ];
    check(number_of_histories(200), 8, &histories, |histories| {
        targets.play(histories, |at| vec![On::Layer(bases[at % 4])], &seen)
    });
    let (number, left_out) = targets.steps.get();
    println!("{number} steps, and {left_out} that it lacks: {seen:?}");
    assert!(number > 3 * left_out, "{number} of {left_out}");
    seen.expect(160, "changes of the plan");
    seen.expect(45, "refunds");
    seen.expect(60, "reloads");
    seen.expect(40, "raised");
}
