//! Random histories of takes, played alike by everything that counts: the pure functions, the
//! memory store, the scripts, wrappers, checks and layers. The pure functions are checked against an
//! oracle that only adds up, and all others are compared with them.
//!
//! A history that fails is shrunk to a few steps and told as a story. `TIDEGATE_HISTORIES` says how
//! many are played in place of 800; `TIDEGATE_SEED` draws others, or the same again.

mod bytes;
mod counted;
mod directed;
mod fields;
mod joint;
mod reference;
mod targets;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use kit::steps::{
    self, BEGINNING, Broken, Seen, Setup, Theme, any_of, check, check_each, number_of_histories,
};
use kit::{PATIENT, Redis, store_on};
use proptest::prelude::*;
use reference::{Outcome, Played, play, story};
use targets::{Checks, Http, KEPT, StoreTarget, Target, compare};
use tidegate::rule::Share;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, MemoryStore, RedisStore, Resilient, Store};
use tokio::runtime::Runtime;

/// So many histories run at once, so that their calls share round trips.
const AT_ONCE: u64 = 64;

/// Without a server: also at the beginning of time, and far from it.
fn pure(algorithm: Algorithm, theme: Theme) -> Seen {
    let histories = steps::history(algorithm, theme, steps::any_start());
    let number = number_of_histories(800);
    check_each(number, &histories, |history, seen| {
        play(history, seen).result
    })
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

    /// A history that is played as often as it was too slow to fail: Redis forgets keys by the real
    /// time, whatever the history's clock shows.
    async fn play_in_time(&self, setup: &Setup, play: impl Fn() -> Outcome) -> Outcome {
        loop {
            let (began, mut outcome) = (Instant::now(), play());
            if outcome.result.is_ok() {
                outcome.result = self.compare(setup, &outcome.played).await;
            }
            if outcome.result.is_ok() || began.elapsed() < KEPT {
                return outcome;
            }
        }
    }

    /// Of thousands of steps, with the stores alone.
    async fn compare(&self, setup: &Setup, played: &[Played]) -> Result<(), Broken> {
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
        let is_long = played.len() > 1_000;
        let number = if is_long { 2 } else { targets.len() };
        for target in targets.into_iter().take(number) {
            with(target, &self.steps, setup, played).await?;
        }
        if is_long {
            return Ok(());
        }
        let targets = [
            Checks::new("checks in memory", memory),
            Checks::new("checks in redis", redis(2)),
        ];
        for target in targets {
            with(target, &self.steps, setup, played).await?;
        }
        Ok(())
    }
}

/// Compares, and counts the steps that were played, and those that were left out.
async fn with(
    mut target: impl Target,
    steps: &Cell<(u64, u64)>,
    setup: &Setup,
    played: &[Played],
) -> Result<(), Broken> {
    match compare(&mut target, played).await {
        Ok((number, left_out)) => {
            let (all, out) = steps.get();
            steps.set((all + number, out + left_out));
            Ok(())
        }
        Err((at, broken)) => Err(format!("{broken}{}", story(setup, &played[..=at]))),
    }
}

kit::for_each_algorithm!(
    plain, long, owed, reloads, plans, given, clock, longer, mixed, holds, alike, over_http,
);

fn plain(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Plain);
    seen.expect(1_700, "admitted");
    seen.expect(1_400, "denied");
    seen.expect(300, "denied more than one unit");
    seen.expect(500, "looks");
    seen.expect(230, "refunds");
    seen.expect(20, "refunds of a part");
    seen.expect(330, "refunds of what has ceased to count");
    seen.expect(4_400, "not whole");
    seen.expect(1_300, "left alone");
    seen.expect(70, "undone");
}

/// A few, but long enough to outlive many windows.
fn long(algorithm: Algorithm) {
    let histories = steps::history_of(300, algorithm, Theme::Plain, steps::any_start());
    let number = number_of_histories(8);
    let seen = check_each(number, &histories, |history, seen| {
        play(history, seen).result
    });
    seen.expect(300, "admitted");
}

/// What was used beyond a reservation is charged above the limit, as far as may be owed, and denies
/// takes until it has left.
fn owed(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Owed);
    seen.expect(800, "charged as owed");
    seen.expect(1_100, "above a limit");
    seen.expect(400, "forgiven");
    seen.expect(3_000, "denied");
}

/// The quotas change while something counts: nothing is refilled, nothing is held for longer than a
/// window, and what is given back is free again.
fn reloads(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Reloads);
    seen.expect(850, "reloads");
    seen.expect(550, "counted after a change");
    seen.expect(350, "denied after a change");
    seen.expect(140, "refunds");
    match algorithm {
        Algorithm::Gcra => seen.expect(900, "not whole, had nobody asked"),
        _ => seen.expect(40, "counted at a switch"),
    }
}

/// A charge counts in every window of every quota of the rule's plans, so that no plan admits more
/// than its own quotas say, and an upgrade keeps what was used. Also while the rule loses plans and
/// has them again.
fn plans(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Plans);
    seen.expect(1_500, "changes of the plan");
    seen.expect(1_800, "admitted");
    seen.expect(1_800, "denied");
    seen.expect(180, "reloads");
    seen.expect(230, "refunds");
}

/// Of quotas that were in use when something was charged, none admits more than its max. (A fixed
/// window may, where its own window is new and the longest one has just begun anew.)
fn given(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Given);
    seen.expect(3_000, "changes of the plan");
    seen.expect(3_000, "admitted");
    seen.expect(4_000, "denied");
}

/// A clock that goes back or ahead: admissions resume within a window, and no more than one extra
/// quota is admitted for each step ahead; none where it only goes back.
fn clock(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Clock);
    seen.expect(280, "clocks ahead");
    seen.expect(280, "clocks that went back");
    seen.expect(900, "asked after a step");
    seen.expect(2, "above a quota after a step ahead");
    seen.expect(150, "refunds");
    seen.expect(280, "looks");
    if algorithm != Algorithm::FixedWindow {
        seen.expect(100, "above a quota by the stamps");
    }
}

fn longer(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Longer);
    seen.expect(1_200, "reloads");
    seen.expect(2_500, "counted after a change");
    seen.expect(150, "refunds");
}

fn mixed(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Mixed);
    seen.expect(500, "reloads");
    seen.expect(500, "batches");
    seen.expect(250, "resets");
    seen.expect(130, "clocks that went back");
    seen.expect(290, "changes of the plan");
    seen.expect(170, "refunds");
    seen.expect(290, "charged as owed");
}

fn holds(algorithm: Algorithm) {
    let seen = pure(algorithm, Theme::Holds);
    seen.expect(2_300, "held");
    seen.expect(1_300, "admitted");
    seen.expect(320, "resets");
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
        let all = histories.iter().map(async |history| {
            let play = || play(history, &seen);
            targets.play_in_time(&history.setup, play).await.result
        });
        targets.runtime.block_on(join_all(all))
    });
    let (number, left_out) = targets.steps.get();
    println!("{number} steps, and {left_out} that a target lacks: {seen:?}");
    assert!(number > 3 * left_out, "{number} of {left_out}");
    seen.expect(370, "joint takes");
    seen.expect(140, "busy");
    seen.expect(20, "permits that ended");
    seen.expect(230, "held");
    seen.expect(400, "reloads");
    seen.expect(350, "batches");
    seen.expect(120, "resets");
    seen.expect(200, "refunds");
    seen.expect(300, "charged as owed");
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
            let Outcome { played, result, .. } = play(history, &seen);
            result?;
            with(Http::new(), &steps, &history.setup, &played).await
        });
        runtime.block_on(join_all(all))
    });
    let (number, left_out) = steps.get();
    println!("{number} steps, and {left_out} that it lacks: {seen:?}");
    assert!(number > 3 * left_out, "{number} of {left_out}");
    seen.expect(160, "changes of the plan");
    seen.expect(45, "refunds");
    seen.expect(60, "reloads");
}
