//! One release of the real Redisson beside the generation that counts as it does, and refused by the
//! others. `bash tests/interop.sh --releases` runs this for one release of each kind, and prints a
//! table.

use std::fmt::Write as _;
use std::time::Instant;

use kit::faults::contents as dump;
use kit::limiter_oracle::Monitor;
use kit::prelude::*;
use kit::windows::{Grant, fullest_window};
use kit::workers::number;
use kit::{Redis, handle, in_tasks, millis, overall};
use redis::Commands;

use super::fleet::Language::Java;
use super::fleet::{Process, built};
use super::is_long;

const GENERATIONS: [Generation; 3] = [Generation::First, Generation::Second, Generation::Third];
/// Of a limiter that both languages use up.
const RATE: (u64, u64) = (10, 500);
const CALLERS: usize = 4;
/// By how much a busy machine or a tick of Redisson's timer may be late. A caller that was ruined
/// never comes back.
const LATE: Duration = Duration::from_secs(10);

struct Release {
    name: String,
    generation: Option<Generation>,
    /// The size of a grant, and how it begins.
    grant: Option<(usize, &'static [u8])>,
}

/// The release that was built, and how it counts.
fn release() -> Release {
    let jars = built().join("lib").read_dir().expect("it was built");
    let mut names = jars.map(|jar| jar.expect("a jar").file_name().into_string().expect("text"));
    let name = names.find_map(|name| {
        let name = name.strip_prefix("redisson-")?.strip_suffix(".jar")?;
        name.starts_with(|first: char| first.is_ascii_digit())
            .then(|| name.to_owned())
    });
    let name = name.expect("the jar of Redisson");
    let numbers = name
        .split('.')
        .map(|number| number.parse().expect("a number"));
    let (generation, grant): (_, Option<(usize, &[u8])>) = match &numbers.collect::<Vec<u32>>()[..]
    {
        it if it < &[3, 13, 3][..] => (Some(Generation::First), None),
        it if it < &[3, 16, 4][..] => (Some(Generation::Second), Some((8, &[]))),
        it if it < &[3, 17, 0][..] => (None, Some((20, &[8, 0, 0, 0, 0, 0, 0, 0]))),
        it if it < &[3, 21, 1][..] => (Some(Generation::Third), Some((13, &[8]))),
        _ => (Some(Generation::Third), Some((21, &[16]))),
    };
    Release {
        name,
        generation,
        grant,
    }
}

/// What a call in Java answers, and for how many milliseconds it lasted.
fn java(process: &mut Process, call: &str, [first, second]: [u64; 2]) -> (String, Duration) {
    process.tell(&format!("{call} partner {first} {second}"));
    let line = process.line(|line| line.starts_with("answer "));
    let mut words = line.splitn(3, ' ').skip(1);
    let lasted = words.next().expect("milliseconds").parse();
    let answer = words.next().expect("an answer").to_owned();
    (answer, millis(lasted.expect("a number")))
}

fn assert_java(process: &mut Process, call: &str, numbers: [u64; 2], expected: &str) {
    let (answer, _) = java(process, call, numbers);
    assert_eq!(answer, expected, "{call} {numbers:?}");
}

/// A limiter of this crate, in a process of its own as far as Redis knows.
async fn ours(server: &Redis, generation: Generation) -> RateLimiter {
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner");
    limiter.shared_with_redisson().generation(generation)
}

/// What stands under each key; of a grant its size and permits, of what expires that it does.
fn contents(server: &Redis) -> Vec<String> {
    let mut connection = server.connection();
    let mut contents = Vec::new();
    for name in server.names() {
        let mut text = name.clone();
        let kind: String = redis::cmd("TYPE")
            .arg(&name)
            .query(&mut connection)
            .expect("a type");
        match &*kind {
            "string" => text += &connection.get::<_, String>(&name).expect("a string"),
            "hash" => {
                let fields: BTreeMap<String, String> = connection.hgetall(&name).expect("a hash");
                let listed = |(field, value): &(&String, &String)| {
                    *field != "chosenAt" && (&***field, &***value) != ("keepAliveTime", "0")
                };
                write!(
                    text,
                    " {:?}",
                    fields.iter().filter(listed).collect::<Vec<_>>()
                )
                .expect("a string");
            }
            _ => {
                let members: Vec<Vec<u8>> = connection.zrange(&name, 0, -1).expect("a set");
                for member in members {
                    let permits = u32::from_le_bytes(*member.last_chunk().expect("four bytes"));
                    write!(text, " {} bytes, {permits} permits", member.len()).expect("a string");
                }
            }
        }
        text += if server.life(&name) < 0 {
            ""
        } else {
            ", expires"
        };
        contents.push(text);
    }
    contents
}

/// The same calls on two servers leave the same; the grant is the one of the table.
async fn bytes(release: &Release) -> String {
    let [theirs, server] = [Redis::start(), Redis::start()];
    let mut process = Process::start(Java, "serve", &theirs.url, "");
    run(&theirs, "FLUSHALL");
    assert_java(&mut process, "trySetRate", [5, 60_000], "true");
    assert_java(&mut process, "tryAcquire", [3, 0], "true");
    let grants: Vec<Vec<u8>> = theirs.run("ZRANGE {partner}:permits 0 -1");
    let grant = grants.first().map(|grant| {
        let (size, begins) = release.grant.expect("it has a set");
        assert_eq!((grants.len(), grant.len()), (1, size));
        assert!(
            grant.starts_with(begins) && grant.ends_with(&[3, 0, 0, 0]),
            "{grant:?}"
        );
        grant
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    });
    assert_eq!(grant.is_some(), release.grant.is_some());
    let theirs = contents(&theirs);
    if let Some(generation) = release.generation {
        let limiter = ours(&server, generation).await;
        assert!(limiter.sets_first(overall(5, MINUTE)).await);
        assert!(limiter.takes(3).await);
        // Ids of ours have 16 bytes in each release of the third generation.
        let ours = contents(&server).join("\n").replace("21 bytes", "a grant");
        let theirs = theirs
            .join("\n")
            .replace("13 bytes", "a grant")
            .replace("21 bytes", "a grant");
        assert_eq!(ours, theirs);
    }
    println!("{}: {theirs:#?}", release.name);
    grant.unwrap_or_else(|| "a value that expires".to_owned())
}

/// Whoever sets the rate first, both count together; a denied caller of each side comes back when
/// the other one's permits do, also if that has ended.
async fn together(generation: Generation) {
    let rate = overall(5, millis(2_000));
    for java_is_first in [true, false] {
        let server = Redis::start();
        let mut process = Process::start(Java, "serve", &server.url, "");
        run(&server, "FLUSHALL");
        let limiter = ours(&server, generation).await;
        if java_is_first {
            assert_java(&mut process, "trySetRate", [5, 2_000], "true");
            assert!(!limiter.sets_first(overall(7, MINUTE)).await);
        } else {
            assert!(limiter.sets_first(rate).await);
            assert_java(&mut process, "trySetRate", [7, 60_000], "false");
        }
        assert_eq!(limiter.stored_rate().await.expect("an answer"), Some(rate));

        assert!(limiter.takes(3).await);
        let began = Instant::now();
        assert_java(&mut process, "tryAcquire", [2, 0], "true");
        let is_denied = [
            !limiter.takes(1).await,
            java(&mut process, "tryAcquire", [1, 0]).0 == "false",
        ];
        assert!(
            is_denied == [true; 2] || began.elapsed() > millis(1_800),
            "{is_denied:?}"
        );
        // Java goes on although nobody of this crate is there any more.
        sleep(millis(4_100)).await;
        let began = Instant::now();
        assert!(limiter.takes(5).await);
        drop(limiter);
        let calls = server.script_calls();
        assert_java(&mut process, "tryAcquireFor", [3, 15_000], "true");
        let waited = began.elapsed();
        println!("{generation:?}: Rust has ended, Java goes on after {waited:.2?} of 2 s");
        assert!(
            (millis(1_990)..millis(2_000) + LATE).contains(&waited),
            "{waited:?}"
        );
        let calls = server.script_calls() - calls;
        assert!(calls < 20, "{calls} calls");
        // And the other way round.
        sleep(millis(4_100)).await;
        let began = Instant::now();
        assert_java(&mut process, "tryAcquire", [5, 0], "true");
        drop(process);
        let limiter = ours(&server, generation).await;
        assert!(limiter.takes_within(3, PATIENT).await);
        let waited = began.elapsed();
        assert!(
            (millis(1_990)..millis(2_000) + LATE).contains(&waited),
            "{waited:?}"
        );
    }
}

/// When permits were granted, and how many. In the first generation by the value.
fn granted(monitor: Monitor, url: &str) -> Vec<Grant> {
    let (mut granted, mut called, mut left) = (Vec::new(), 0, 0);
    monitor.replay(url, |at, in_script, words| {
        if !in_script {
            called = at;
            return;
        }
        let number = |at: usize| -> u64 {
            let text = String::from_utf8_lossy(&words[at]);
            text.parse::<f64>().expect("a number") as u64
        };
        match (&words[0].to_ascii_uppercase()[..], words.len()) {
            (b"ZADD", _) => {
                for (_, member) in kit::limiter_oracle::pairs(&words) {
                    let permits = u32::from_le_bytes(*member.last_chunk().expect("four bytes"));
                    granted.push((called, permits.into()));
                }
            }
            // A window begins, or goes on.
            (b"SET", 5) => {
                granted.push((called, RATE.0 - number(2)));
                left = number(2);
            }
            (b"SET", 4) => {
                granted.push((called, left - number(2)));
                left = number(2);
            }
            (b"DECRBY", 3) if left > 0 => {
                granted.push((called, number(2)));
                left -= number(2);
            }
            _ => {}
        }
    });
    let granted = granted.into_iter();
    granted.map(|(stamp, cost)| Grant { stamp, cost }).collect()
}

/// What a run granted: the fullest window, what Java was granted in percent, and its errors.
#[derive(Debug, Clone)]
struct Run {
    fullest: u64,
    share: u64,
    errors: u64,
    first_error: String,
    calls_per_second: u64,
}

/// Both languages, or Java alone, ask for more than there is.
async fn saturate(server: &Redis, beside: Option<Generation>) -> Run {
    run(server, "FLUSHALL");
    let lasts = millis(if is_long() { 20_000 } else { 5_000 });
    let words = format!("partner {CALLERS} {}", lasts.as_millis());
    let mut process = Process::start(Java, "saturate", &server.url, &words);
    run(server, "FLUSHALL");
    let (rate, interval) = RATE;
    run(
        server,
        &format!("HSET partner rate {rate} interval {interval} type 0"),
    );
    let limiter = match beside {
        Some(generation) => Some(ours(server, generation).await),
        None => None,
    };
    let (monitor, calls) = (Monitor::start(&server.url), server.script_calls());
    process.tell("go");
    let end = Instant::now() + lasts;
    let callers = limiter
        .iter()
        .flat_map(|limiter| vec![limiter.clone(); CALLERS]);
    let callers = callers.map(|limiter| async move {
        // Java comes first.
        sleep(millis(200)).await;
        let mut granted = 0;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            granted += u64::from(limiter.takes_within(1, left).await);
        }
        granted
    });
    let rust: u64 = in_tasks(callers).await.iter().sum();
    let output = tokio::task::spawn_blocking(move || process.rest().join("\n"));
    let output = output.await.expect("no panic");
    let calls = server.script_calls() - calls;
    let java = number(&output, "granted ");
    let first_error = output.lines().find_map(|line| line.strip_prefix("first "));
    Run {
        // Calls are told to a tenth of a millisecond.
        fullest: fullest_window(&granted(monitor, &server.url), interval * 1_000 - 100),
        share: 100 * java / (java + rust).max(1),
        errors: number(&output, "errors "),
        first_error: first_error.expect("a line").to_owned(),
        calls_per_second: calls / lasts.as_secs(),
    }
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Three runs of Java alone, and then three of both.
async fn saturated(release: &Release, generation: Generation) -> String {
    let server = Redis::start();
    let (mut alone, mut mixed) = (Vec::new(), Vec::new());
    for beside in [None, Some(generation)] {
        for _ in 0..3 {
            let run = saturate(&server, beside).await;
            println!("{} {beside:?}: {run:?}", release.name);
            let runs = if beside.is_none() {
                &mut alone
            } else {
                &mut mixed
            };
            runs.push(run);
        }
    }
    let of = |runs: &[Run], field: fn(&Run) -> u64| runs.iter().map(field).collect::<Vec<_>>();
    let [full_alone, full_mixed] = [&alone, &mixed].map(|runs| of(runs, |run| run.fullest));
    let shares = of(&mixed, |run| run.share);
    let errors = [&alone, &mixed].map(|runs| of(runs, |run| run.errors).iter().sum::<u64>());
    // A grant of Java has the time at which its client asked. What is in flight then expires that
    // much too early, and a caller of this crate is there at that moment, while one of Java comes
    // at a tick of its timer: at most one grant more for each caller of Java.
    let most = match generation {
        Generation::First => 2 * RATE.0,
        _ => RATE.0 + CALLERS as u64,
    };
    let most = most.max(*full_alone.iter().max().expect("three"));
    assert!(
        median(full_mixed.clone()) <= most,
        "{full_mixed:?}, alone {full_alone:?}"
    );
    let first_error = mixed
        .iter()
        .find(|run| run.errors > 0)
        .map_or("", |run| &*run.first_error);
    // To 3.15.2 it throws this alone, too, but not in each run.
    let is_known = generation == Generation::Second && first_error.contains("to 'unpack'");
    assert!(
        errors[1] == 0 || errors[0] > 0 || is_known,
        "only beside us: {first_error:?}"
    );
    let busiest = of(&mixed, |run| run.calls_per_second);
    assert!(
        busiest.iter().all(|calls| *calls < 1_000),
        "{busiest:?} calls a second"
    );
    if generation == Generation::Third {
        let least = if is_long() { 27 } else { 10 };
        assert!(median(shares.clone()) >= least, "{shares:?}");
    }
    format!("{full_alone:?} | {full_mixed:?} | {shares:?} | {errors:?} | {busiest:?}")
}

/// A caller of another generation is refused before anything is written, and Java goes on.
async fn refused(release: &Release, generation: Generation) -> &'static str {
    let server = Redis::start();
    let mut process = Process::start(Java, "serve", &server.url, "");
    run(&server, "FLUSHALL");
    assert_java(&mut process, "trySetRate", [5, 3_000], "true");
    assert_java(&mut process, "tryAcquire", [3, 0], "true");
    let before = dump(server.connection());
    let limiter = ours(&server, generation).await;
    let with_rate = limiter.clone().rate(overall(7, MINUTE));
    let began = Instant::now();
    for limiter in [limiter, with_rate] {
        let called = [
            limiter.available_permits().await.map(|_| ()),
            limiter.try_acquire(1).await.map(|_| ()),
            limiter.try_acquire_for(1, MINUTE).await.map(|_| ()),
            limiter.acquire(5).await,
        ];
        for called in called {
            let error = called.expect_err("refused");
            assert_eq!(error.kind(), LimiterErrorKind::Unsupported, "{error}");
            let remedy = match release.generation {
                Some(generation) => format!("{generation:?}"),
                None => "upgrade".to_owned(),
            };
            assert!(error.to_string().contains(&remedy), "{error}");
        }
    }
    assert_eq!(dump(server.connection()), before);
    assert!(
        began.elapsed() < millis(2_500),
        "too slow a machine to tell"
    );
    // As if nobody had asked.
    assert_java(&mut process, "tryAcquire", [2, 0], "true");
    let (answer, waited) = java(&mut process, "tryAcquireFor", [1, 15_000]);
    assert_eq!(answer, "true");
    assert!(waited < millis(3_000) + LATE, "{waited:?}");
    "refused"
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "tests/interop.sh builds the Java half"]
async fn a_release_counts_as_its_generation_does() {
    println!();
    let release = release();
    let bytes = bytes(&release).await;
    let mut cells = Vec::new();
    for generation in GENERATIONS {
        cells.push(if release.generation == Some(generation) {
            together(generation).await;
            "right"
        } else {
            refused(&release, generation).await
        });
    }
    let windows = match release.generation {
        Some(generation) => saturated(&release, generation).await,
        None => "| | | |".to_owned(),
    };
    println!(
        "row | {} | {bytes} | {} | {windows} |",
        release.name,
        cells.join(" | ")
    );
}
