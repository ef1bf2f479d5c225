//! What a thousand requests cost that wait for one permit, and whose turn it is.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use kit::Redis;
use kit::workers::{instructions, worker_command};
use redis::{Connection, InfoDict, cmd};
use tidegate::{Key, Limits};
use tokio::time::sleep;
use tower::ServiceExt;

use super::{PATH, rule};
use crate::{MACHINE, store};

/// Of all processes.
const WAITERS: usize = 1_000;
const LEASE: Duration = Duration::from_secs(15);
/// While no permit is free.
const CALLS_A_SECOND: f64 = 5.0;
const CALLS_A_GRANT: f64 = 2.5;
const WORKER: &str = "permits::waiters::worker_has_waiters";

/// Script calls since this was asked last.
fn calls(connection: &mut Connection) -> f64 {
    let info = cmd("INFO").arg("commandstats").query(connection);
    let info: InfoDict = info.expect("informs");
    let of = |name| -> f64 {
        let stats: String = info.get(name).unwrap_or_default();
        let calls = stats
            .split(',')
            .find_map(|pair| pair.strip_prefix("calls="));
        calls.map_or(0.0, |text| text.parse().expect("a number"))
    };
    let calls = of("cmdstat_evalsha") + of("cmdstat_eval");
    let reset = cmd("CONFIG").arg("RESETSTAT").exec(connection);
    reset.expect("resets");
    calls
}

fn since_1970() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(elapsed.expect("after 1970").as_micros()).expect("in range")
}

/// Requests of one process that wait for a permit of the same key.
struct Process {
    limits: Limits,
    app: Router,
    /// The number of each request in the order in which they were served, and when.
    served: Arc<Mutex<Vec<(usize, u64)>>>,
}

impl Process {
    async fn start(url: &str, max: u64) -> Self {
        let limits = Limits::new([rule(max, LEASE)]).store(store(url).await);
        let layer = limits
            .layer(PATH)
            .wait(Duration::MAX)
            .max_waiting(4 * WAITERS);
        let served = Arc::<Mutex<Vec<_>>>::default();
        let all = Arc::clone(&served);
        let handler = move |Path(number): Path<usize>| async move {
            all.lock().expect("no panic").push((number, since_1970()));
            sleep(Duration::from_millis(1)).await;
        };
        let app = Router::new().route("/{number}", get(handler).layer(layer));
        Self {
            limits,
            app,
            served,
        }
    }

    /// So many requests arrive, and wait until all are served.
    async fn wait(&self, waiters: usize) {
        let asked = (0..waiters).map(|number| {
            let request = Request::get(format!("/{number}")).body(Body::empty());
            tokio::spawn(self.app.clone().oneshot(request.expect("valid")))
        });
        for response in join_all(asked.collect::<Vec<_>>()).await {
            let response = response.expect("no panic").expect("axum does not fail");
            assert_eq!(response.status(), StatusCode::OK);
        }
    }

    async fn all_wait(&self, waiters: usize) {
        while self.limits.snapshot().rules[0].waiting < waiters as u64 {
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn served(&self) -> Vec<(usize, u64)> {
        self.served.lock().expect("no panic").clone()
    }
}

/// As many as all permits, until this is dropped.
async fn holders(process: &Process, max: u64) -> Vec<impl Sized> {
    let asked = (0..max).map(|_| process.limits.check(PATH, Key::default()).into_future());
    let held = join_all(asked).await;
    held.into_iter().map(|it| it.expect("a permit")).collect()
}

async fn one_process(max: u64) {
    let _machine = MACHINE.lock().await;
    let redis = Redis::start();
    let mut connection = redis.connection();
    let process = Process::start(&redis.url, max).await;
    let held = holders(&process, max).await;
    let look = async {
        process.all_wait(WAITERS).await;
        // Messages of denials on their way.
        sleep(Duration::from_millis(100)).await;
        calls(&mut connection);
        let began = tokio::time::Instant::now();
        sleep(Duration::from_secs(4)).await;
        let rate = calls(&mut connection) / began.elapsed().as_secs_f64();
        drop(held);
        rate
    };
    let (rate, ()) = tokio::join!(look, process.wait(WAITERS));
    let each = calls(&mut connection) / WAITERS as f64;
    println!("max {max}: {rate:.1} calls a second, {each:.2} for each grant");
    assert!(rate <= CALLS_A_SECOND, "{rate}");
    assert!(each <= CALLS_A_GRANT, "{each}");
    let order = process.served();
    // Those that are granted at the same time begin in any order.
    let is_near = |at: usize, number: usize| at.abs_diff(number) < 2 * max as usize;
    let order = order.into_iter().map(|(number, _)| number).enumerate();
    let others: Vec<_> = order
        .filter(|(at, number)| !is_near(*at, *number))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[tokio::test]
async fn a_thousand_wait_for_one_permit() {
    one_process(1).await;
}

#[tokio::test]
async fn a_thousand_wait_for_four_permits() {
    one_process(4).await;
}

/// Plays another process, of which half of them are.
#[tokio::test]
#[ignore = "is started by another test"]
async fn worker_has_waiters() {
    let Some(words) = instructions() else { return };
    let process = Process::start(&words[0], 1).await;
    let told = async {
        process.all_wait(WAITERS / 2).await;
        println!("\nall wait");
    };
    tokio::join!(told, process.wait(WAITERS / 2));
    for (number, at) in process.served() {
        println!("served {number} {at}");
    }
}

#[tokio::test]
async fn waiters_of_two_processes_make_progress() {
    let _machine = MACHINE.lock().await;
    let redis = Redis::start();
    let mut connection = redis.connection();
    let process = Process::start(&redis.url, 1).await;
    let held = holders(&process, 1).await;
    let mut command = worker_command(WORKER, &redis.url);
    let mut worker = command
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test starts");
    let output = BufReader::new(worker.stdout.take().expect("is piped"));
    let mut lines = output.lines().map(|line| line.expect("text"));
    let look = async {
        let waits = tokio::task::spawn_blocking(move || {
            assert!(lines.any(|line| line == "all wait"));
            lines
        });
        let lines = waits.await.expect("no panic");
        process.all_wait(WAITERS / 2).await;
        calls(&mut connection);
        let began = tokio::time::Instant::now();
        sleep(Duration::from_secs(4)).await;
        let rate = calls(&mut connection) / began.elapsed().as_secs_f64();
        drop(held);
        (lines, rate)
    };
    let ((lines, rate), ()) = tokio::join!(look, process.wait(WAITERS / 2));
    let theirs = tokio::task::spawn_blocking(move || {
        let served = lines.filter_map(|line| {
            let line = line.strip_prefix("served ")?;
            let (number, at) = line.split_once(' ')?;
            Some((
                number.parse().expect("a number"),
                at.parse().expect("a time"),
            ))
        });
        served.collect::<Vec<(usize, u64)>>()
    });
    let theirs = theirs.await.expect("no panic");
    assert!(worker.wait().expect("our child").success());
    let ours = process.served();
    let each = calls(&mut connection) / WAITERS as f64;
    let last = |served: &[(usize, u64)]| served.last().expect("all").1;
    let first_over = last(&ours).min(last(&theirs));
    let until = |served: &[(usize, u64)]| served.iter().filter(|(_, at)| *at <= first_over).count();
    println!(
        "two processes: {rate:.1} calls a second, {each:.2} for each grant, {} and {} when the \
         first one was over",
        until(&ours),
        until(&theirs)
    );
    for served in [&ours, &theirs] {
        assert_eq!(served.len(), WAITERS / 2);
        let numbers = served.iter().map(|(number, _)| *number).enumerate();
        let farthest = numbers.map(|(at, number)| at.abs_diff(number)).max();
        println!("farthest from its turn: {farthest:?}");
        assert!(farthest < Some(10), "{served:?}");
        assert!(
            until(served) >= WAITERS / 50,
            "one process is served before the other"
        );
    }
    assert!(rate <= 2.0 * CALLS_A_SECOND, "{rate}");
}
