//! What crowds that wait cost others: how long a bystander's checks take in the same process, beside
//! 10,000 calls with patience that come at once to one rule, and 1,000 that wait for turns of another;
//! and the processor's time for a turn: of a check beside nobody, of a rule with an even pace, where
//! each turn is a question of its own, and of one without, where a question serves many. Rounds of
//! all, one after the other, so that a noisy neighbour hits them alike: five, or as many as ROUNDS
//! says. The bench starts a server of its own.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use support::{Table, median};
use tidegate::{Limits, RedisStore, Resilient};
use tokio::time::{interval, sleep};

const RULES: &str = r#"
[rules.crowd]
outgoing = true
max-count = 100000
window = "1s"

[rules.paced]
outgoing = true
max-count = 200
window = "1s"
pace = "even"

[rules.unpaced]
outgoing = true
max-count = 200
window = "1s"

[rules.bystander]
max-count = 1000000000
window = "1s"
"#;

const LONG: Duration = Duration::from_secs(60);

async fn limits(server: &Redis) -> Limits {
    let store = RedisStore::connect(&server.url).await.expect("a server");
    // What a busy machine takes longer than 50 ms for would open the breaker.
    let store = store.timeout(Duration::from_secs(5));
    let limits = Limits::from_toml(RULES).expect("valid");
    limits.store(Resilient::new(store))
}

/// The processor's time of this process so far, in seconds.
fn processor() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().expect("fields");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("ticks");
    (ticks(11) + ticks(12)) / 100.0
}

/// All wait for turns of this rule until each has had one. Returns how many failed.
async fn wait(limits: &Limits, rule: &'static str, callers: usize) -> usize {
    let calls = (0..callers).map(|_| {
        let patient = limits.outgoing(rule).wait(LONG);
        tokio::spawn(async move { patient.ready("us").await.is_err() })
    });
    let failed = join_all(calls).await;
    failed
        .into_iter()
        .filter(|it| *it.as_ref().expect("no panic"))
        .count()
}

/// The 99th percentile of the bystander's checks in milliseconds, one every 2 ms for five seconds.
async fn bystander(limits: &Limits) -> f64 {
    let mut took = Vec::new();
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        let begun = Instant::now();
        limits.check("bystander", "x").await.expect("a decision");
        took.push(begun.elapsed().as_secs_f64() * 1_000.0);
        sleep(Duration::from_millis(2)).await;
    }
    took.sort_unstable_by(f64::total_cmp);
    took[took.len() * 99 / 100]
}

/// What 1,000 turns cost.
struct Turns {
    processor: f64,
    calls: f64,
    seconds: f64,
    failed: usize,
}

async fn turns(server: &Redis, limits: &Limits, rule: &'static str) -> Turns {
    let (calls, before, begun) = (server.script_calls(), processor(), Instant::now());
    let failed = wait(limits, rule, 1_000).await;
    Turns {
        processor: processor() - before,
        seconds: begun.elapsed().as_secs_f64(),
        calls: (server.script_calls() - calls) as f64,
        failed,
    }
}

/// What as many checks cost of a rule that nobody waits for, one at each turn.
async fn checks(limits: &Limits) -> f64 {
    let before = processor();
    let mut turns = interval(Duration::from_millis(5));
    for _ in 0..1_000 {
        turns.tick().await;
        limits.check("bystander", "x").await.expect("a decision");
    }
    processor() - before
}

struct Round {
    alone: f64,
    beside: f64,
    failed: usize,
    checks: f64,
    paced: Turns,
    unpaced: Turns,
}

async fn round(server: &Redis, limits: &Limits) -> Round {
    let alone = bystander(limits).await;
    let crowds = async {
        let (one, other) =
            tokio::join!(wait(limits, "crowd", 10_000), wait(limits, "paced", 1_000));
        one + other
    };
    let (beside, failed) = tokio::join!(bystander(limits), crowds);
    // What is left of the burst would be for nothing.
    sleep(Duration::from_secs(1)).await;
    let checks = checks(limits).await;
    let paced = turns(server, limits, "paced").await;
    sleep(Duration::from_secs(1)).await;
    let unpaced = turns(server, limits, "unpaced").await;
    Round {
        alone,
        beside,
        failed: failed + paced.failed + unpaced.failed,
        checks,
        paced,
        unpaced,
    }
}

#[tokio::main]
async fn main() {
    let server = Redis::start();
    let limits = limits(&server).await;
    let mut seen = Vec::new();
    for _ in 0..support::number_of_rounds(5) {
        seen.push(round(&server, &limits).await);
    }
    let ratio = |of: fn(&Round) -> f64| median(seen.iter().map(of));
    let mut table = Table::new(&["beside crowds that wait", "", "to the one before"]);
    let failed: usize = seen.iter().map(|one| one.failed).sum();
    let rows = [
        (
            "a bystander's checks alone, p99, ms",
            ratio(|it| it.alone),
            None,
        ),
        (
            "beside 10,000 that come at once, and 1,000 at an even pace",
            ratio(|it| it.beside),
            Some(ratio(|it| it.beside / it.alone)),
        ),
        (
            "1,000 checks, one every 5 ms, the processor's time, ms",
            ratio(|it| it.checks * 1_000.0),
            None,
        ),
        (
            "1,000 that wait for a turn every 5 ms, by an even pace",
            ratio(|it| it.paced.processor * 1_000.0),
            Some(ratio(|it| it.paced.processor / it.checks)),
        ),
        (
            "1,000 turns of 200 a second without a pace",
            ratio(|it| it.unpaced.processor * 1_000.0),
            Some(ratio(|it| it.unpaced.processor / it.paced.processor)),
        ),
        (
            "1,000 turns of 200 a second, scripts that Redis runs",
            ratio(|it| it.unpaced.calls),
            None,
        ),
        (
            "the same at an even pace",
            ratio(|it| it.paced.calls),
            Some(ratio(|it| it.paced.calls / it.unpaced.calls)),
        ),
        (
            "1,000 turns of 200 a second at an even pace, seconds",
            ratio(|it| it.paced.seconds),
            None,
        ),
    ];
    for (what, value, to) in rows {
        let to = to.map_or(String::new(), |to| format!("{to:.2}"));
        table.row(&[what.to_owned(), format!("{value:.2}"), to]);
    }
    table.print();
    println!("{failed} of {} failed", seen.len() * 13_000);
}
