//! Random histories of takes, played alike by everything that counts: the pure functions, the
//! memory store, the scripts, wrappers, checks and layers. The pure functions are checked against an
//! oracle that only adds up, and all others are compared with them.
//!
//! A history that fails is shrunk to a few steps and told as a story. `TIDEGATE_HISTORIES` says how
//! many are played in place of 800; `TIDEGATE_SEED` draws others, or the same again.

mod counted;
mod joint;
mod reference;
mod targets;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use kit::steps::{self, BEGINNING, Broken, History, Theme, any_of, check, number_of_histories};
use kit::{PATIENT, Redis, store_on};
use proptest::prelude::*;
use reference::{Outcome, Played, Seen, play, story};
use targets::{Checks, Http, KEPT, StoreTarget, Target, compare};
use tidegate::rule::Share;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, MemoryStore, RedisStore, Resilient, Store};
use tokio::runtime::Runtime;

/// So many histories run at once, so that their calls share round trips.
const AT_ONCE: u64 = 64;

/// Without a server: also at the beginning of time, and far from it.
fn pure(algorithm: Algorithm, theme: Theme) -> Seen {
    let seen = Seen::default();
    let histories = steps::history(algorithm, theme, steps::any_start());
    check(number_of_histories(800), 1, &histories, |histories| {
        histories.iter().map(|it| play(it, &seen).result).collect()
    });
    seen
}

/// What plays with the pure functions, on servers of its own.
struct Targets {
    runtime: Runtime,
    redis: [RedisStore; 3],
    _servers: [Redis; 3],
    /// Steps that were played, and those that were left out.
    steps: Cell<(u64, u64)>,
}

fn wrapped(inner: Arc<dyn Store>, clock: ManualClock) -> Arc<dyn Store> {
    let share = Share::of_processes(1);
    let wrapped = Resilient::new(inner).fallback(share).clock(clock);
    wrapped.timeout(PATIENT).in_flight(100_000).build()
}

impl Targets {
    fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let servers = [Redis::start(), Redis::start(), Redis::start()];
        let redis = servers.each_ref().map(|it| runtime.block_on(store_on(it)));
        Self {
            runtime,
            redis,
            _servers: servers,
            steps: Cell::default(),
        }
    }

    /// Once more, if it was too slow to fail.
    async fn play(&self, history: &History, seen: &Seen) -> Result<(), Broken> {
        loop {
            let began = Instant::now();
            let outcome = self.play_once(history, seen).await;
            if outcome.is_ok() || began.elapsed() < KEPT {
                return outcome;
            }
        }
    }

    async fn play_once(&self, history: &History, seen: &Seen) -> Result<(), Broken> {
        let Outcome { played, result } = play(history, seen);
        result?;
        let memory = |clock| -> Arc<dyn Store> { Arc::new(MemoryStore::new().clock(clock)) };
        let redis = |at: usize| {
            let store = self.redis[at].clone();
            move |clock| -> Arc<dyn Store> { Arc::new(store.clone().clock(clock)) }
        };
        let around = |clock: ManualClock, make: &dyn Fn(ManualClock) -> Arc<dyn Store>| {
            wrapped(make(clock.clone()), clock)
        };
        let targets = [
            StoreTarget::new("memory", memory),
            StoreTarget::new("redis", redis(0)),
            StoreTarget::new("wrapped memory", |clock| around(clock, &memory)),
            StoreTarget::new("wrapped redis", |clock| around(clock, &redis(1))),
        ];
        for target in targets {
            with(target, &self.steps, history, &played).await?;
        }
        let targets = [
            Checks::new("checks in memory", memory),
            Checks::new("checks in redis", redis(2)),
        ];
        for target in targets {
            with(target, &self.steps, history, &played).await?;
        }
        Ok(())
    }
}

/// Compares, and counts the steps that were played, and those that were left out.
async fn with(
    mut target: impl Target,
    steps: &Cell<(u64, u64)>,
    history: &History,
    played: &[Played],
) -> Result<(), Broken> {
    match compare(&mut target, played).await {
        Ok((number, left_out)) => {
            let (all, out) = steps.get();
            steps.set((all + number, out + left_out));
            Ok(())
        }
        Err((at, broken)) => Err(format!("{broken}{}", story(&history.setup, &played[..=at]))),
    }
}

kit::for_each_algorithm!(
    plain, owed, reloads, plans, given, clock, longer, mixed, holds, alike, over_http,
);

fn plain(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Plain);
    println!("{seen:?}");
}

fn owed(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Owed);
    println!("{seen:?}");
}

/// The quotas change while something counts: nothing is refilled, nothing is held for longer than a
/// window, and what is given back is free again.
fn reloads(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Reloads);
    println!("{seen:?}");
}

fn plans(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Plans);
    println!("{seen:?}");
}

fn given(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Given);
    println!("{seen:?}");
}

fn clock(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Clock);
    println!("{seen:?}");
}

fn longer(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Longer);
    println!("{seen:?}");
}

fn mixed(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Mixed);
    println!("{seen:?}");
}

fn holds(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Holds);
    println!("{seen:?}");
}

/// The memory store, Redis, wrappers and checks decide as the pure functions do.
fn alike(algorithm: Algorithm) {
    let (seen, targets) = (Seen::default(), Targets::start());
    let themes = [
        (2, Theme::Plain),
        (2, Theme::Owed),
        (3, Theme::Reloads),
        (2, Theme::Plans),
        (1, Theme::Given),
        (1, Theme::Clock),
        (3, Theme::Longer),
        (6, Theme::Mixed),
        (2, Theme::Holds),
        (4, Theme::Joint),
    ];
    let histories = any_of(algorithm, &themes, Just(BEGINNING));
    check(number_of_histories(800), AT_ONCE, &histories, |histories| {
        let all = histories.iter().map(|it| targets.play(it, &seen));
        targets.runtime.block_on(join_all(all))
    });
    println!("{:?} {seen:?}", targets.steps.get());
}

/// So does a layer, whose handlers overlap, fail, and use more or less than they reserved.
fn over_http(algorithm: Algorithm) {
    let (seen, steps) = (Seen::default(), Cell::new((0, 0)));
    let themes = [
        (4, Theme::Plain),
        (1, Theme::Owed),
        (2, Theme::Reloads),
        (3, Theme::Plans),
        (1, Theme::Given),
        (2, Theme::Mixed),
    ];
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    let histories = any_of(algorithm, &themes, Just(BEGINNING));
    check(number_of_histories(200), 8, &histories, |histories| {
        let all = histories.iter().map(async |history| {
            let Outcome { played, result } = play(history, &seen);
            result?;
            with(Http::new(), &steps, history, &played).await
        });
        runtime.block_on(join_all(all))
    });
    println!("{:?} {seen:?}", steps.get());
}
