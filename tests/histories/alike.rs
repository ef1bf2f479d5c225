//! Everything that counts, on the same histories as the pure functions.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;
use kit::steps::{BEGINNING, Broken, Seen, Setup, Theme, any_of, check, number_of_histories};
use kit::{PATIENT, Redis, store_on};
use proptest::prelude::*;
use tidegate::rule::Share;
use tidegate::test_util::ManualClock;
use tidegate::{Algorithm, MemoryStore, RedisStore, Resilient, Store};
use tokio::runtime::Runtime;

use crate::reference::{Outcome, Played, play, story};
use crate::targets::{Checks, Http, KEPT, StoreTarget, Target, compare};

kit::for_each_algorithm!(one_subject, several_subjects, held_keys, over_http);

/// So many histories run at once, so that their calls share round trips.
const AT_ONCE: u64 = 64;

/// What plays with the pure functions, on servers of its own.
pub(crate) struct Targets {
    pub(crate) runtime: Runtime,
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
    pub(crate) fn start() -> Self {
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
    pub(crate) async fn play_in_time(&self, setup: &Setup, play: impl Fn() -> Outcome) -> Outcome {
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

/// The memory store, Redis, wrappers and checks decide as the pure functions do.
fn all_alike(algorithm: Algorithm, own: u64, themes: &[(u32, Theme)]) -> Seen {
    let (seen, targets) = (Seen::default(), Targets::start());
    let histories = any_of(algorithm, themes, Just(BEGINNING));
    check(number_of_histories(own), AT_ONCE, &histories, |histories| {
        let all = histories.iter().map(async |history| {
            let play = || play(history, &seen);
            targets.play_in_time(&history.setup, play).await.result
        });
        targets.runtime.block_on(join_all(all))
    });
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
        (1, Theme::Clock),
        (3, Theme::Longer),
        (6, Theme::Mixed),
    ];
    let seen = all_alike(algorithm, 800, &themes);
    seen.expect(500, "reloads");
    seen.expect(300, "batches");
    seen.expect(120, "resets");
    seen.expect(200, "refunds");
    seen.expect(250, "charged as owed");
}

/// Takes over several counts, with and without permits.
fn several_subjects(algorithm: Algorithm) {
    let seen = all_alike(algorithm, 400, &[(1, Theme::Joint)]);
    seen.expect(1_000, "joint takes");
    seen.expect(400, "busy");
    seen.expect(60, "permits that ended");
}

/// Keys that a partner's answer holds.
fn held_keys(algorithm: Algorithm) {
    let seen = all_alike(algorithm, 200, &[(1, Theme::Holds)]);
    seen.expect(500, "held");
    seen.expect(300, "admitted");
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
