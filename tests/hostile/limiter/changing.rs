//! Four processes that ask in every way while rates are set, updated, deleted and forgotten, and
//! while the clocks of two of them step: no interval between two such changes ever holds more than
//! the rate.
//!
//! `TIDEGATE_FLEET_SECONDS` makes it so much longer. The clocks step where libfaketime is
//! installed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::replace_rate;

use kit::limiter_monitor::{Monitor, pairs, split};
use kit::random::Random;
use kit::workers::{instructions, outputs, worker_command};
use tidegate::Redis;
use tidegate::limiter::{LimiterError, LimiterErrorKind, Rate, RateLimiter};
use tokio::time::{Instant, sleep, timeout};

use crate::fleet::lasts;

const PROCESSES: u64 = 4;
const TASKS: u64 = 15;
/// A name for each, in milliseconds.
const INTERVALS: [u64; 3] = [40, 150, 600];
const RATES: [u64; 4] = [1, 3, 10, 40];
const FAKETIME: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];

fn limiter(redis: &Redis, number: u64) -> (RateLimiter, Duration) {
    let interval = INTERVALS[number as usize % INTERVALS.len()];
    let limiter = RateLimiter::new(redis, format!("every {interval}"));
    (limiter, Duration::from_millis(interval))
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
                sleep(Duration::from_millis(random.below(60))).await;
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
    let redis = Redis::connect(&words[0]).await.expect("a running server");
    let redis = redis.timeout(Duration::from_secs(20));
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
                            sleep(Duration::from_millis(random.below(2_000))).await;
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
                            sleep(Duration::from_millis(2)).await;
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

/// What is known of one name.
#[derive(Debug, Default)]
struct Name {
    rate: u64,
    interval: u64,
    /// By identity: the millisecond from which a grant counts, and its permits.
    grants: HashMap<Vec<u8>, (u64, u64)>,
    /// Those that were forgotten by a change.
    forgotten: Vec<(u64, u64)>,
    checked: u64,
    with_a_change: u64,
}

impl Name {
    fn granted(&mut self, words: &[Vec<u8>]) {
        let mut newest = None;
        for (score, member) in pairs(words) {
            let Some((identity, permits)) = split(member) else {
                continue;
            };
            if self.grants.insert(identity, (score, permits)).is_none() {
                newest = newest.max(Some(score));
            }
        }
        let Some(newest) = newest else { return };
        let is_inside =
            |&(score, _): &(u64, u64)| score <= newest && score + self.interval > newest;
        let inside = self.grants.values().copied().filter(is_inside);
        let granted: u64 = inside.map(|(_, permits)| permits).sum();
        let inside = self.forgotten.iter().copied().filter(is_inside);
        let forgotten: u64 = inside.map(|(_, permits)| permits).sum();
        assert!(granted <= self.rate, "{granted}: {self:?}");
        self.checked += 1;
        self.with_a_change += u64::from(granted + forgotten > self.rate);
        // What no later window holds.
        let is_over = |score: u64| score + 2 * self.interval < newest;
        self.grants.retain(|_, (score, _)| !is_over(*score));
        self.forgotten.retain(|(score, _)| !is_over(*score));
    }
}

fn check(monitor: Monitor, url: &str) -> HashMap<String, Name> {
    let mut names: HashMap<String, Name> = HashMap::new();
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    monitor.replay(url, |_, in_script, words| {
        if !in_script {
            return;
        }
        let key = words.get(1).map(|key| text(key)).unwrap_or_default();
        let of_permits = |key: &str| {
            let name = key.strip_prefix('{')?.strip_suffix("}:permits")?;
            Some(name.to_owned())
        };
        match (&words[0][..], of_permits(&key)) {
            (b"HSET", _) if words[2] == b"rate" => {
                let number = |at: usize| text(&words[at]).parse().expect("a number");
                let name = names.entry(key).or_default();
                (name.rate, name.interval) = (number(3), number(5));
            }
            (b"ZADD", Some(name)) => names.entry(name).or_default().granted(&words),
            (b"ZREM", Some(name)) => {
                let (identity, _) = split(&words[2]).unwrap_or_default();
                let grants = &mut names.entry(name).or_default().grants;
                if grants.get(&identity).is_some_and(|(_, permits)| {
                    words[2].ends_with(&(*permits as u32).to_le_bytes())
                }) {
                    grants.remove(&identity);
                }
            }
            (b"DEL", _) => {
                for name in words[1..].iter().filter_map(|key| of_permits(&text(key))) {
                    let name = names.entry(name).or_default();
                    let grants = name.grants.drain().map(|(_, grant)| grant);
                    name.forgotten.extend(grants);
                }
            }
            _ => {}
        }
    });
    names
}

/// A clock of a process that steps by months, several times a second.
struct SteppingClock {
    library: &'static str,
    file: PathBuf,
}

impl SteppingClock {
    fn find(folder: &Path) -> Option<Self> {
        let library = FAKETIME.into_iter().find(|path| Path::new(path).exists())?;
        let file = folder.join("offset");
        std::fs::write(&file, "+0").expect("a file");
        Some(Self { library, file })
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", self.library.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // What steps is the time of day.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_above_the_rate_between_changes() {
    let server = kit::Redis::start();
    let redis = crate::connect(&server).await;
    for number in 0..3 {
        let (limiter, interval) = limiter(&redis, number);
        let set = limiter.try_set_rate(Rate::overall(10, interval).expect("valid"));
        assert!(set.await.expect("an answer"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let clock = SteppingClock::find(folder.path());
    let monitor = Monitor::start(&server.url);
    let worker = "changing::worker_asks_and_changes";
    let start = |at: u64| -> Child {
        let stepping = clock.as_ref().filter(|_| at % 2 == 1);
        let environment = stepping.map_or_else(Vec::new, SteppingClock::environment);
        let mut command = worker_command(worker, &format!("{} {at}", server.url));
        let command = command.envs(environment).stdout(Stdio::piped());
        command.spawn().expect("this test starts")
    };
    let workers: Vec<_> = (0..PROCESSES).map(start).collect();
    let steps = clock.as_ref().map(|clock| {
        let file = clock.file.clone();
        tokio::spawn(async move {
            for offset in ["+60d", "-60d", "+1", "-1", "+0"].into_iter().cycle() {
                std::fs::write(&file, offset).expect("a file");
                sleep(Duration::from_millis(170)).await;
            }
        })
    });
    let done = tokio::task::spawn_blocking(|| outputs(workers)).await;
    done.expect("no panic");
    if let Some(steps) = steps {
        steps.abort();
    }
    let clocks = if clock.is_some() {
        "stepped"
    } else {
        "did not step"
    };
    for (name, seen) in check(monitor, &server.url) {
        let Name {
            checked,
            with_a_change,
            ..
        } = seen;
        println!(
            "{name} ms: {checked} windows, none above the rate but {with_a_change} with a change \
             inside that forgets what was granted; clocks of applications {clocks}"
        );
        assert!(checked > 20, "{name}: {checked}");
    }
}
