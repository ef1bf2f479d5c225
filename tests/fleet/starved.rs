//! Two processes beside busy loops: a process that reads its replies late is not a Redis that
//! answers late, and the limit is one.
//!
//! `TIDEGATE_STARVED` says how many bursts there are: the twenty of `tests/nightly.sh`.

use crate::*;

const FLEET: usize = 2;
const MAX: u64 = 60;
/// Of all processes, at once.
const REQUESTS: usize = 500;
/// Busy loops for each core.
const LOOPS: usize = 3;

/// Keeps all cores busy until it is dropped. Each loop has a session of its own where there is a
/// `setsid`: Linux may share the processor between sessions first, and all workers are of one.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |_| {
            // A loop that is left over ends by itself.
            let words = ["sh", "-c", "ulimit -t 120; while :; do :; done"];
            let started = Command::new("setsid").args(words).spawn();
            let started = started.or_else(|_| Command::new("sh").args(&words[1..]).spawn());
            started.expect("a shell")
        };
        Self((0..LOOPS * cores).map(start).collect())
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for busy in &mut self.0 {
            let _ = busy.kill();
            let _ = busy.wait();
        }
    }
}

/// Plays one process: a burst, as soon as the other one is ready.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_gets_a_burst() {
    let Some(words) = instructions() else { return };
    tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(std::io::stdout)
        .init();
    let store = Resilient::redis(&*words[0], "starved").expect("an address");
    let store = store.processes(FLEET as u32).connect().await;
    let limits = Limits::new([kit::per_hour("burst", MAX)]).store(store.expect("a running server"));
    let app = kit::app(limits.layer("burst"));
    let [begin] = numbers(&words);
    tokio::time::sleep(kit::millis(begin.saturating_sub(unix_micros() / 1_000))).await;
    let tasks = (0..REQUESTS / FLEET).map(|_| {
        let app = app.clone();
        async move { kit::http::status(&app, "/").await }
    });
    let statuses = in_tasks(tasks).await;
    let allowed = statuses.iter().filter(|status| **status == 200).count();
    let denied = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(allowed + denied, statuses.len(), "{statuses:?}");
    let snapshot = limits.snapshot();
    let rule = snapshot.rule("burst").expect("a layer uses it");
    let by_fallback = rule.decisions_by(DecisionOutcome::Allowed, Source::Fallback);
    let timeouts = rule.store_errors(StoreErrorKind::Timeout);
    let lagged = rule.lagged;
    println!(
        "\nallowed {allowed}\nby fallback {by_fallback}\ntimeouts {timeouts}\nlagged {lagged}"
    );
}

/// Customers of each process, who ask in turn, two hundred times a second.
const CUSTOMERS: usize = 20;
const RULES: &str = r#"
    [rules.day]
    max-count = 5
    window = "1d"
    key = "header:x-user"

    [rules.month]
    max-count = 5000
    per = "month"
    key = "header:x-user"
    cost = 2000
"#;

/// Plays one process: what a fallback answers.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_has_customers() {
    let Some(words) = instructions() else { return };
    let store = Resilient::redis(&*words[0], "shop").expect("an address");
    let store = store.processes(8).connect().await;
    let limits = Limits::from_toml(RULES).expect("valid");
    let limits = limits.store(store.expect("a running server"));
    let paths = ["day", "month"];
    let world = World::with_layers(limits, &paths, |layer| layer);
    let [process, seconds] = numbers(&words);
    let asked = (0..200 * seconds as usize).map(async |at| {
        sleep(kit::millis(5 * at as u64)).await;
        let fields = format!("x-user: {process}-{}", at % CUSTOMERS);
        world.ask(paths[at / CUSTOMERS % 2], &fields).await
    });
    let answers = join_all(asked).await;
    let (mut by_fallback, mut denied, mut longest) = (0, 0, 0);
    for answer in &answers {
        assert!([200, 429].contains(&answer.status), "{answer:?}");
        if answer.decision().source() != Source::Fallback {
            continue;
        }
        by_fallback += 1;
        assert_eq!(answer.field("ratelimit"), None, "{answer:?}");
        assert!(!answer.body.contains("never"), "{answer:?}");
        if answer.status == 429 {
            let told = answer.field("retry-after").expect("a time");
            denied += 1;
            longest = longest.max(told.parse::<u64>().expect("a number"));
        }
    }
    let number = answers.len();
    println!("\nasked {number}\nby fallback {by_fallback}\ndenied {denied}\nlongest {longest}");
}

/// A fallback that answers because the host is busy, while Redis is well, sends nobody away for
/// longer than that is worth.
#[test]
fn a_busy_host_sends_nobody_away() {
    let _machine = MACHINE.blocking_lock();
    let seconds = 2 * from_env::<u64>("TIDEGATE_STARVED", 4);
    let server = Redis::start();
    let busy = BusyLoops::start();
    let workers = start_workers("starved::worker_has_customers", FLEET, |at| {
        format!("{} {at} {seconds}", server.url)
    });
    let outputs = outputs(workers);
    drop(busy);
    let sum = |what| sum(&outputs, what);
    let (asked, by_fallback, denied) = (sum("asked "), sum("by fallback "), sum("denied "));
    let longest = outputs.iter().map(|it| number(it, "longest "));
    let longest = longest.max().expect("two processes");
    println!("{by_fallback} of {asked} by fallbacks, {denied} denied for at most {longest} s");
    assert!(longest <= 6, "{longest}");
}

#[test]
fn bursts_beside_busy_loops_stay_within_the_limit() {
    let _machine = MACHINE.blocking_lock();
    let rounds: u64 = from_env("TIDEGATE_STARVED", 4);
    let server = Redis::start();
    let busy = BusyLoops::start();
    let mut above = 0;
    for round in 0..rounds {
        kit::run(&server, "FLUSHALL");
        let begin = unix_micros() / 1_000 + 2_000;
        let workers = start_workers("starved::worker_gets_a_burst", FLEET, |_| {
            format!("{} {begin}", server.url)
        });
        let outputs = outputs(workers);
        let sum = |what| sum(&outputs, what);
        let (allowed, by_fallback) = (sum("allowed "), sum("by fallback "));
        let (timeouts, lagged) = (sum("timeouts "), sum("lagged "));
        println!("burst {round}: {allowed} of {MAX}, {by_fallback} by fallbacks");
        println!("  {timeouts} time-outs, {lagged} late");
        for output in outputs.iter().filter(|it| number(it, "by fallback ") > 0) {
            let is_told = |line: &str| line.contains("WARN") && line.contains("\"timeout\"");
            assert!(output.lines().any(is_told), "{output}");
        }
        above += u64::from(allowed > MAX + MAX / 50);
    }
    drop(busy);
    println!("{above} of {rounds} bursts were above the limit");
    // One in twenty; a few bursts say little about so rare a thing.
    let tolerated = if rounds < 20 { 2 } else { rounds / 20 };
    assert!(above <= tolerated, "{above} of {rounds}");
}
