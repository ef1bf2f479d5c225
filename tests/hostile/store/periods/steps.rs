//! A server whose clock is set while it answers: over the end of a period, forth and back.

use super::*;

/// Where the clock is set, in seconds behind the end. Of a period that has not ended by the clock
/// before, 26 hours on is neither it nor the next one: the take is asked anew. A step by more than
/// two days is another matter: keys are kept for so long behind their end.
const PLACES: [f64; 8] = [
    -1.0,
    2.0,
    -2.0,
    2.0 * HOUR_SECONDS,
    -2.0 * HOUR_SECONDS,
    26.0 * HOUR_SECONDS,
    -0.3,
    20.0 * HOUR_SECONDS,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_steps_over_the_end() {
    let Some(clock) = FakeClock::find_for_redis() else {
        return;
    };
    let server = Redis::start_by(&clock, &[]);
    // Midnight, at the end of November 2026.
    let end = 1_796_083_200 * MILLION;
    let store = connect(&server.url, PATIENT).await;
    for round in 0..=more_seconds() / 5 {
        kit::run(&server, "FLUSHALL");
        history(&clock, &store, end, round).await;
    }
}

async fn history(clock: &FakeClock, store: &RedisStore, end: u64, round: u64) {
    let mut random = Random::new(round);
    let set = |place: f64| {
        let before = kit::unix_micros();
        let ahead = ahead_of(end) + place;
        clock.set(ahead);
        let mut set = Clock::new(ahead);
        set.from = before;
        set
    };
    let mut clocks = vec![set(PLACES[0])];
    let rule = budget(&Period::DAY);
    let until = Instant::now() + millis(4_500);
    let seeds = 100 * round..100 * round + 4;
    let callers = Caller::spawn_each((store, &rule), seeds, kit::unix_micros, until);
    for place in PLACES.into_iter().cycle().skip(1) {
        sleep(millis(100 + random.below(300))).await;
        if Instant::now() >= until {
            break;
        }
        let next = set(place);
        let last = clocks.last_mut().expect("one at least");
        last.until = kit::unix_micros();
        clocks.push(next);
    }
    let answers = kit::done(callers).await.concat();
    let history = History {
        period: Period::DAY,
        clocks,
        answers,
    };
    let case = format!("{} steps", history.clocks.len() - 1);
    history.check(store, &rule, &case).await;
}
