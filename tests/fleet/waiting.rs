//! Two processes whose requests wait for units that others give back.
//!
//! The quotas are of ten hours, so units come back by refunds and settlements alone. Each burst is
//! as large as what a queue would serve within the patience. `TIDEGATE_WAITING=10000` makes it so
//! many requests.

use axum::extract::Request;
use tokio::time::{Instant, sleep_until};

use crate::*;

/// A queue would need 1.5 s, and what another process gives back is found within a second.
const PATIENCE: Duration = Duration::from_secs(4);
const HOLD: Duration = Duration::from_millis(300);
const MAX: u64 = 10;
/// Of one key: they are served after 0, 300, .. 1,500 ms.
const BURST: u64 = 6 * MAX;
/// Until the next burst.
const ROUND: Duration = Duration::from_millis(5_500);
/// Questions in a second for a key that waits, beside first ones and grants: ten.
const RATE: f64 = 12.0;
/// The same where another process may take the units that woke a request. On a busy machine they
/// come back one after the other, up to 33 in a second.
const RATE_OF_TWO: f64 = 33.0;

/// Counts the repeated questions that were denied.
fn counting(store: Arc<dyn Store>, denied: Arc<AtomicU64>) -> Stub {
    Stub::around(store).take_fn(move |store, take| {
        let answer = store.take(take);
        if !take.is_repeat() {
            return answer;
        }
        let denied = Arc::clone(&denied);
        StoreFuture::boxed(async move {
            let decision = answer.await?;
            let is_denied = !decision.is_allowed();
            denied.fetch_add(u64::from(is_denied), Ordering::Relaxed);
            Ok(decision)
        })
    })
}

fn requests() -> u64 {
    from_env("TIDEGATE_WAITING", 1_200)
}

/// What is printed of a process, each with its number. Times are in milliseconds.
const WORDS: [&str; 6] = [
    "served ", "denied ", "slowest ", // Repeated questions that were denied.
    "vain ",    // For how long a key waited, of all keys and rounds.
    "waited ",  // The longest time for which the machine stood still.
    "stalled ",
];

type Seen = [u64; WORDS.len()];

fn limits(how: &str, store: impl Store) -> Limits {
    let rule = owned_rule("p", MAX, 10 * HOUR);
    let rule = match how {
        "settles" => rule.with_settling(true),
        _ => rule.with_refund_on(["2xx"]).expect("valid"),
    };
    Limits::new([rule]).store(store).key(Header::new("x-key"))
}

fn waiting_app(limits: &Limits, how: &str) -> Router {
    let settles = how == "settles";
    let handler = move |request: Request| async move {
        let charges = settles.then(|| Charges::from_extensions(request.extensions()));
        sleep(HOLD).await;
        if let Some(charges) = charges {
            charges.settle(0).await.expect("an answer");
        }
    };
    let layer = limits.layer("p").wait(PATIENCE).max_waiting(10_000);
    Router::new().route("/", get(handler).layer(layer))
}

/// So many requests: in each round a burst of each of four keys.
async fn run(how: &str, store: Arc<dyn Store>, requests: u64, processes: u64) -> Seen {
    const KEYS: u64 = 4;
    let vain = Arc::new(AtomicU64::new(0));
    let limits = limits(how, counting(store, Arc::clone(&vain)));
    let app = waiting_app(&limits, how);
    let of_key = BURST / processes;
    let rounds = requests.div_ceil(KEYS * of_key);
    let began = Instant::now();
    let [mut served, mut denied, mut slowest, mut waited] = [0; 4];
    for round in 0..rounds {
        sleep_until(began + ROUND * u32::try_from(round).expect("few")).await;
        let keys = (0..KEYS).map(|key| {
            let field = format!("x-key: {key}");
            let asked = (0..of_key).map(|_| kit::http::start(&app, 0, "/", &field));
            kit::done(asked.collect::<Vec<_>>())
        });
        for answers in join_all(keys).await {
            let of_each = answers.iter().map(|answer| match answer.status {
                200 => answer.after.saturating_sub(HOLD),
                429 => answer.after,
                other => panic!("{other}"),
            });
            let of_key = of_each.max().expect("somebody asked").as_millis() as u64;
            let of_200 = answers.iter().filter(|answer| answer.status == 200).count();
            served += of_200 as u64;
            denied += (answers.len() - of_200) as u64;
            slowest = slowest.max(of_key);
            waited += of_key;
        }
    }
    assert!(limits.flush(PATIENCE).await);
    let rule = &limits.snapshot().rules[0];
    assert_eq!((rule.waiting, rule.refunds_lost), (0, 0));
    let vain = vain.load(Ordering::Relaxed);
    [served, denied, slowest, vain, waited, 0]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_waits() {
    let Some(words) = instructions() else { return };
    let [requests] = numbers(&words);
    let stalls = Stalls::watch(&[&words[0]], millis(100)).await;
    let mut seen = run(&words[1], store(&words[0]).await, requests, 2).await;
    seen[5] = stalls.longest().unwrap_or_default().as_millis() as u64;
    println!();
    for (word, number) in WORDS.iter().zip(seen) {
        println!("{word}{number}");
    }
}

fn check(what: &str, seen: Seen, most: f64) {
    let [_, denied, _, vain, waited, stalled] = seen;
    let rate = vain as f64 * 1_000.0 / waited.max(1) as f64;
    println!("{what}: {WORDS:?} {seen:?}, {rate:.1} questions a second for a key that waits");
    // A stall eats into what the patience has to spare.
    assert!(denied == 0 || stalled >= 1_500, "{what}");
    assert!(rate <= most, "{what}: {rate}");
}

#[test]
fn two_processes_deny_nobody_whom_units_reach() {
    let _machine = MACHINE.blocking_lock();
    for how in ["settles", "refunds"] {
        let server = Redis::start();
        let workers = start_workers("waiting::worker_waits", 2, |_| {
            format!("{} {how} {}", server.url, requests() / 2)
        });
        for output in outputs(workers) {
            check(how, WORDS.map(|word| number(&output, word)), RATE_OF_TWO);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_process_denies_nobody_whom_units_reach() {
    for how in ["settles", "refunds"] {
        let store = Arc::new(MemoryStore::new().tokio_clock());
        let seen = run(how, store, requests(), 1).await;
        check(how, seen, RATE);
        // By a queue it is 1.5 s.
        assert!(seen[2] < 1_600, "{seen:?}");
    }
}
