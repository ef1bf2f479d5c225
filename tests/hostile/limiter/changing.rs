//! Four processes that ask in every way while rates are set, updated, deleted and forgotten, and
//! while the clocks of two of them step: no interval between two such changes ever holds more than
//! the rate.
//!
//! `TIDEGATE_FLEET_SECONDS` makes it so much longer. The clocks step where libfaketime is
//! installed.

use kit::limiter_oracle::Checked;
use kit::workers::worker_command;
use tokio::time::Instant;

use crate::*;

const PROCESSES: u64 = 4;
const TASKS: u64 = 15;
/// A name for each, in milliseconds.
const INTERVALS: [u64; 3] = [40, 150, 600];
const RATES: [u64; 4] = [1, 3, 10, 40];
/// How the clocks of processes are off, one time after the other, in seconds.
const STEPS: [f64; 5] = [60.0 * 86_400.0, -60.0 * 86_400.0, 1.0, -1.0, 0.0];

pub(crate) fn lasts() -> Duration {
    let more = std::env::var("TIDEGATE_FLEET_SECONDS").map(|text| text.parse::<u64>());
    Duration::from_secs(4 + more.map_or(0, |number| number.expect("a number")))
}

fn limiter(redis: &Redis, number: u64) -> (RateLimiter, Duration) {
    let interval = INTERVALS[number as usize % INTERVALS.len()];
    let limiter = RateLimiter::new(redis, format!("every {interval}"));
    (limiter, millis(interval))
}

async fn ask(
    limiter: &RateLimiter,
    interval: Duration,
    random: &mut Random,
) -> Result<(), LimiterError> {
    let permits = 1 + random.below(4);
    let short = interval.mul_f64(random.below(20) as f64 / 10.0);
    let fair = limiter.clone().fair();
    match random.below(8) {
        0 => drop(limiter.try_acquire(permits).await?),
        1 => drop(limiter.try_acquire_for(permits, short).await?),
        2 => drop(fair.try_acquire_for(permits, short).await?),
        3 => drop(timeout(short, limiter.acquire(permits)).await),
        4 => drop(timeout(short, fair.acquire(permits)).await),
        5 => drop(timeout(10 * interval, fair.acquire(1)).await),
        6 => {
            if let Ok(permit) = timeout(short, limiter.acquire_permit(permits)).await {
                let permit = permit?;
                sleep(millis(random.below(60))).await;
                permit.release().await?;
            }
        }
        _ => {
            if limiter.try_acquire(permits).await? {
                limiter.release(permits).await?;
            }
        }
    }
    Ok(())
}

/// One change; some forget what was granted.
async fn change(
    limiter: &RateLimiter,
    interval: Duration,
    random: &mut Random,
) -> Result<(), LimiterError> {
    let permits = RATES[random.below(4) as usize];
    let rate = Rate::overall(permits, interval)?;
    match random.below(6) {
        0 | 1 => limiter.set_rate(rate).await?,
        2 | 3 => drop(replace_rate(limiter, rate).await?),
        4 => drop(limiter.delete().await?),
        _ => drop(limiter.expire(interval / 4).await?),
    }
    sleep(interval.mul_f64(random.below(10) as f64 / 10.0)).await;
    limiter.try_set_rate(rate).await?;
    Ok(())
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_asks_and_changes() {
    let Some(words) = instructions() else { return };
    let redis = handle(&words[0]).await;
    let process: u64 = words[1].parse().expect("a number");
    let until = Instant::now() + lasts();
    let tasks: Vec<_> = (0..=TASKS)
        .map(|task| {
            let redis = redis.clone();
            tokio::spawn(async move {
                let mut random = Random::new(process * 100 + task);
                while Instant::now() < until {
                    let is_changer = task == TASKS;
                    let number = if is_changer { random.below(3) } else { task };
                    let (limiter, interval) = limiter(&redis, number);
                    let done = match is_changer {
                        true => {
                            sleep(millis(random.below(2_000))).await;
                            change(&limiter, interval, &mut random).await
                        }
                        false => ask(&limiter, interval, &mut random).await,
                    };
                    use LimiterErrorKind::{AboveRate, Store, UnknownLimiter};
                    use tidegate::store::StoreErrorKind::Timeout;
                    match done.map_err(|error| error.kind()) {
                        Ok(()) => tokio::task::yield_now().await,
                        // A busy machine may be long silent.
                        Err(UnknownLimiter | AboveRate | Store(Timeout)) => {
                            sleep(millis(2)).await;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_above_the_rate_between_changes() {
    let server = kit::Redis::start();
    let redis = handle(&server.url).await;
    for number in 0..3 {
        let (limiter, interval) = limiter(&redis, number);
        assert!(limiter.sets_first(overall(10, interval)).await);
    }
    let clock = FakeClock::find().map(Arc::new);
    let monitor = Monitor::start(&server.url);
    let worker = "changing::worker_asks_and_changes";
    let start = |at: u64| -> Child {
        let stepping = clock.as_ref().filter(|_| at % 2 == 1);
        let environment = stepping.map_or_else(Vec::new, |clock| clock.environment());
        let mut command = worker_command(worker, &format!("{} {at}", server.url));
        let command = command.envs(environment).stdout(Stdio::piped());
        command.spawn().expect("this test starts")
    };
    let workers: Vec<_> = (0..PROCESSES).map(start).collect();
    let steps = clock.as_ref().map(|clock| {
        let clock = Arc::clone(clock);
        tokio::spawn(async move {
            for ahead in STEPS.into_iter().cycle() {
                clock.set(ahead);
                sleep(millis(170)).await;
            }
        })
    });
    let done = tokio::task::spawn_blocking(|| outputs(workers)).await;
    done.expect("no panic");
    if let Some(steps) = steps {
        steps.abort();
    }
    let clocks = clock.map_or("did not step", |_| "stepped");
    for (name, grants) in monitor.grants(&server.url) {
        let Checked {
            windows,
            with_a_change,
        } = grants.check_by_rates();
        println!(
            "{name}: {windows} windows, none above the rate but {with_a_change} with a change \
             inside that forgets what was granted; clocks of applications {clocks}"
        );
        assert!(windows > 20, "{name}: {windows}");
    }
}
