//! Histories of requests whose handlers overlap, fail, succeed and are dropped, on a clock of the
//! test, through the layer: laws 1, 8, 14 and 15 by an oracle that only adds up.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use kit::random::Random;
use tidegate::{Algorithm, Header, Limits, Quota, Rule};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt, service_fn};

use super::{ALGORITHMS, Wrapped, around, counted, flushed, key, limits, text};
use kit::clocked::{Clocked, Stores};
use kit::millis;

type Held = Arc<Mutex<HashMap<String, oneshot::Receiver<u16>>>>;

/// A layer whose handlers wait until the test tells them their status.
pub(super) struct Holding {
    service: Wrapped,
    held: Held,
    entered: mpsc::UnboundedReceiver<()>,
    serial: u64,
}

/// A request whose handler waits.
pub(super) struct Open {
    task: JoinHandle<u16>,
    status: oneshot::Sender<u16>,
}

impl Holding {
    pub(super) fn new(limits: &Limits, path: &str) -> Self {
        let held = Held::default();
        let (enter, entered) = mpsc::unbounded_channel();
        let receivers = Arc::clone(&held);
        let handler = service_fn(move |request: Request<Body>| {
            let id = text(request.headers(), "x-id").expect("an id").to_owned();
            let receiver = receivers.lock().expect("no panic").remove(&id);
            enter.send(()).ok();
            async move {
                let status = receiver.expect("it is called once").await;
                let status = status.expect("the test says it");
                let response = Response::builder().status(status).body(Body::empty());
                Ok::<_, io::Error>(response.expect("valid"))
            }
        });
        let layer = limits.layer(path).cost(|head| {
            let cost = text(&head.headers, "x-cost").expect("a cost");
            cost.parse().expect("a number")
        });
        let service = around(&layer, BoxCloneSyncService::new(handler));
        Self {
            service,
            held,
            entered,
            serial: 0,
        }
    }

    /// `None` if it was denied.
    pub(super) async fn begin(&mut self, name: &str, cost: u64) -> Option<Open> {
        self.serial += 1;
        let (status, receiver) = oneshot::channel();
        let id = self.serial.to_string();
        self.held
            .lock()
            .expect("no panic")
            .insert(id.clone(), receiver);
        let request = Request::get("/")
            .header("x-key", name)
            .header("x-id", id)
            .header("x-cost", cost.to_string());
        let request = request.body(Body::empty()).expect("valid");
        let asked = self.service.clone().oneshot(request);
        let mut task =
            tokio::spawn(async move { asked.await.expect("no error").status().as_u16() });
        tokio::select! {
            biased;
            Some(()) = self.entered.recv() => Some(Open { task, status }),
            answer = &mut task => {
                assert_eq!(answer.expect("no panic"), 429);
                None
            }
        }
    }
}

impl Open {
    pub(super) async fn end(self, status: u16) {
        self.status.send(status).expect("it waits");
        assert_eq!(self.task.await.expect("no panic"), status);
    }

    pub(super) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.is_err());
    }
}

#[derive(Debug, Clone)]
struct Charged {
    at: u64,
    /// What was not given back of it.
    units: u64,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a short time")
}

fn of_pairs(path: &str, pairs: &[(u64, Duration)], algorithm: Algorithm) -> Rule {
    let quotas = pairs
        .iter()
        .map(|(max, window)| Quota::new(*window, *max).expect("valid"));
    let rule = Rule::new(path, quotas).expect("valid");
    let rule = rule
        .with_key(Header::new("x-key"))
        .with_algorithm(algorithm);
    rule.with_refund_on(["2xx"]).expect("valid")
}

/// What counts of a quota by what was not given back.
fn sum(charged: &[Charged], after: i128, until: u64) -> u64 {
    let counts = |one: &&Charged| i128::from(one.at) > after && one.at <= until;
    charged.iter().filter(counts).map(|one| one.units).sum()
}

/// Law 1 for all that ever happened.
fn check_law_1(algorithm: Algorithm, pairs: &[(u64, Duration)], charged: &[Charged], case: &str) {
    for (max, window) in pairs {
        let length = i128::from(micros(*window));
        for last in charged.iter().filter(|it| it.units > 0) {
            match algorithm {
                Algorithm::SlidingLog | Algorithm::SlidingWindow => {
                    let used = sum(charged, i128::from(last.at) - length, last.at);
                    assert!(used <= *max, "{case}: {used} of {max} in {window:?}");
                }
                Algorithm::Gcra => {
                    for first in charged.iter().filter(|it| it.at <= last.at) {
                        let used = sum(charged, i128::from(first.at) - 1, last.at);
                        let span = u128::from(last.at - first.at) * u128::from(*max);
                        let most = u128::from(*max) + span / u128::from(micros(*window));
                        assert!(u128::from(used) <= most, "{case}: {used} of {most}");
                    }
                }
                _ => {}
            }
        }
    }
}

/// What is left must be what the oracle says, to a stated bound.
async fn check_left(
    limits: &Limits,
    (rule, now): (&Rule, u64),
    charged: &[Charged],
    is_exact: bool,
    case: &str,
) {
    let state = limits.peek("h", key("x")).await.expect("an answer");
    let state = state.expect("a rule");
    for (quota, state) in rule.quotas().iter().zip(state.quotas()) {
        let (max, window) = (quota.max(), micros(quota.window()));
        let begin = i128::from(now) - i128::from(window);
        let left = state.remaining();
        let at_most = |after| max.saturating_sub(sum(charged, after, now));
        let case = format!("{case}: {left} of {quota:?} left at {now}, {charged:?}");
        match rule.algorithm().algorithm() {
            Algorithm::SlidingLog if is_exact => assert_eq!(left, at_most(begin), "{case}"),
            Algorithm::SlidingLog => assert!(left <= at_most(begin), "{case}"),
            Algorithm::SlidingWindow => {
                assert!(left <= at_most(begin), "{case}");
                let longer = i128::from(window / 64 + 2_000);
                assert!(left >= at_most(begin - longer), "{case}");
            }
            Algorithm::FixedWindow if state.reset_after() > Duration::ZERO => {
                let begin = i128::from(now + micros(state.reset_after())) - i128::from(window);
                assert_eq!(left, at_most(begin - 1), "{case}");
            }
            _ => {}
        }
    }
}

struct Shape {
    pairs: Vec<(u64, Duration)>,
    steps: u64,
    /// Handlers that run at a time, at most.
    open: usize,
    is_exact: bool,
}

async fn history(clocked: &Clocked, algorithm: Algorithm, seed: u64, shape: &Shape) -> (u64, u64) {
    let case = format!("{} {algorithm:?} {seed}", clocked.name);
    let mut random = Random::new(seed);
    let rule = of_pairs("h", &shape.pairs, algorithm);
    let limits = limits(rule.clone(), Arc::clone(&clocked.store));
    let mut layer = Holding::new(&limits, "h");
    let mut charged: Vec<Charged> = Vec::new();
    let mut open: Vec<(usize, u64, Open)> = Vec::new();
    let longest = shape
        .pairs
        .iter()
        .map(|it| micros(it.1))
        .max()
        .expect("some");
    let (mut allowed, mut back) = (0, 0);
    for _ in 0..shape.steps {
        // No two charges in a millisecond, mostly short steps, and sometimes a whole window.
        let by = match random.below(20) {
            0 => longest / 2 + random.below(longest),
            _ => 1_001 + random.below(longest / 12),
        };
        clocked.advance(Duration::from_micros(by));
        let now = clocked.clock.now();
        if open.len() < shape.open && random.is(60) {
            let cost = [1, 1, 1, 2, 3][random.below(5) as usize];
            let begun = layer.begin("x", cost).await;
            if let Some(one) = begun {
                allowed += 1;
                charged.push(Charged {
                    at: now,
                    units: cost,
                });
                open.push((charged.len() - 1, cost, one));
            }
        } else if !open.is_empty() {
            let (at, cost, one) = open.swap_remove(random.below(open.len() as u64) as usize);
            let before = counted(&limits, "h").1;
            let is_good = match random.below(10) {
                0 => {
                    one.abort().await;
                    false
                }
                1 | 2 => {
                    one.end(500).await;
                    false
                }
                _ => {
                    one.end(200).await;
                    true
                }
            };
            flushed(&limits).await;
            let units = counted(&limits, "h").1 - before;
            assert!(
                units <= if is_good { cost } else { 0 },
                "{case}: {units} given back"
            );
            charged[at].units -= units;
            back += u64::from(units > 0);
            let longest = shape
                .pairs
                .iter()
                .map(|it| micros(it.1))
                .max()
                .expect("some");
            let counts = now - charged[at].at < longest;
            if is_good
                && counts
                && algorithm != Algorithm::Gcra
                && algorithm != Algorithm::FixedWindow
            {
                assert_eq!(units, cost, "{case}: law 15 the other way round");
            }
        }
        check_left(&limits, (&rule, now), &charged, shape.is_exact, &case).await;
    }
    assert_eq!(counted(&limits, "h").2, 0, "{case}");
    check_law_1(algorithm, &shape.pairs, &charged, &case);
    for (_, _, one) in open {
        one.abort().await;
    }
    limits.reset("h", key("x")).await.expect("an answer");
    clocked.advance(Duration::from_secs(100_000));
    (allowed, back)
}

async fn histories(algorithm: Algorithm) {
    let stores = Stores::start().await;
    let (mut allowed, mut back) = (0, 0);
    for clocked in &stores.all {
        let is_memory = clocked.name.contains("memory");
        for seed in 0..if is_memory { 30 } else { 8 } {
            let mut random = Random::new(0x0c_0de + seed);
            let pairs = [(4, 1_000), (7, 300), (12, 5_000)];
            let one = pairs[random.below(3) as usize];
            let mut all = vec![(one.0, millis(one.1))];
            if random.is(40) {
                all = vec![(5, millis(400)), (11, millis(3_000))];
            }
            let shape = Shape {
                pairs: all,
                steps: 150,
                open: 1 + random.below(6) as usize,
                is_exact: true,
            };
            let done = history(clocked, algorithm, seed, &shape).await;
            allowed += done.0;
            back += done.1;
        }
    }
    println!("{algorithm:?}: {allowed} allowed, {back} given back");
    assert!(back > 500, "{algorithm:?}: {allowed} {back}");
}

#[tokio::test]
async fn histories_of_logs() {
    histories(Algorithm::SlidingLog).await;
}

#[tokio::test]
async fn histories_of_windows() {
    histories(Algorithm::SlidingWindow).await;
}

#[tokio::test]
async fn histories_of_buckets() {
    histories(Algorithm::Gcra).await;
}

#[tokio::test]
async fn histories_of_fixed_windows() {
    histories(Algorithm::FixedWindow).await;
}

/// More places at which units were given back than a log tells apart: never laxer.
#[tokio::test]
async fn many_open_handlers() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let shape = Shape {
                pairs: vec![(150, millis(60_000))],
                steps: 260,
                open: 120,
                is_exact: false,
            };
            history(clocked, algorithm, 77, &shape).await;
        }
    }
}

/// All stores say the same about one history of overlapping handlers: law 8.
#[tokio::test]
async fn stores_agree() {
    let stores = Stores::start().await;
    for algorithm in ALGORITHMS {
        let mut answers: Vec<(&str, Vec<String>)> = Vec::new();
        for clocked in &stores.all {
            let start = 1_900_000_000_000_333 + 1_000_000_000_000 * algorithm as u64;
            clocked.clock.set(start);
            let mut random = Random::new(0xa9ee);
            let rule = of_pairs("agree", &[(6, millis(700)), (15, millis(2_900))], algorithm);
            let limits = limits(rule, Arc::clone(&clocked.store));
            let mut layer = Holding::new(&limits, "agree");
            let (mut open, mut told) = (Vec::new(), Vec::new());
            for _ in 0..250 {
                // Also several in one microsecond.
                clocked.advance(Duration::from_micros(
                    random.below(3) * random.below(120_000),
                ));
                if random.is(60) {
                    let begun = layer.begin("x", 1 + random.below(3)).await;
                    told.push(begun.is_some().to_string());
                    open.extend(begun);
                } else if !open.is_empty() {
                    let one = open.swap_remove(random.below(open.len() as u64) as usize);
                    one.end([200, 500][usize::from(random.is(30))]).await;
                    flushed(&limits).await;
                }
                let left = limits.peek("agree", key("x")).await.expect("an answer");
                let left = left.expect("a rule");
                let left: Vec<_> = left.quotas().iter().map(|it| it.remaining()).collect();
                told.push(format!("{left:?} {:?}", counted(&limits, "agree").1));
            }
            for one in open {
                one.abort().await;
            }
            answers.push((clocked.name, told));
        }
        let (name, first) = &answers[0];
        for (other, told) in &answers[1..] {
            for (at, (one, two)) in first.iter().zip(told).enumerate() {
                assert_eq!(one, two, "{algorithm:?}, {name} and {other}, step {at}");
            }
        }
    }
}

/// The key of a client that only succeeds leaves nothing behind, and denies nobody: law 4.
#[tokio::test]
async fn good_requests_for_ever() {
    let stores = Stores::start().await;
    for clocked in &stores.all {
        for algorithm in ALGORITHMS {
            let rule = of_pairs("h", &[(3, millis(1_000))], algorithm);
            let limits = limits(rule, Arc::clone(&clocked.store));
            let mut layer = Holding::new(&limits, "h");
            for _ in 0..100 {
                let one = layer.begin("x", 3).await;
                let case = format!("{} {algorithm:?}", clocked.name);
                one.unwrap_or_else(|| panic!("{case}: denied"))
                    .end(200)
                    .await;
                flushed(&limits).await;
            }
            clocked.advance(Duration::from_secs(60));
        }
    }
}
