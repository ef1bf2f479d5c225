//! Four processes call a partner that allows half as much as they believe. Each time it refuses a
//! call, all of them leave it alone until it wants calls again.

use std::sync::Mutex;

use kit::workers::outputs_of;

use crate::client::{Client, serve};
use crate::*;

/// What the partner allows in each second of its own clock.
const ALLOWED: u64 = 100;
/// What the processes believe.
const BELIEVED: u32 = 200;
/// How long they call it, in seconds.
const SECONDS: u64 = 8;
/// From an answer to the end of what other processes decided before: a decision, on a busy machine.
const LATENCY: Duration = Duration::from_millis(400);

/// Plays one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is started by other tests"]
async fn worker_calls_a_partner() {
    let Some(words) = instructions() else { return };
    let store = kit::load::store(&words[0]).await.timeout(5 * SECOND);
    let rule = Rule::new("partner", [Quota::per_second(BELIEVED)]).expect("valid");
    let rule = rule.with_outgoing().expect("one subject");
    let limits = Limits::new([rule]).store(Resilient::new(store).timeout(None));
    let partner = limits.outgoing("partner").wait(PATIENT);
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let tasks = (0..TASKS).map(|_| {
        let (partner, address) = (partner.clone(), words[1].clone());
        async move {
            let mut connection = Client::connect(&address).await;
            let mut answered = 0_u64;
            while Instant::now() < end {
                let turn = partner.ready("our-token").await.expect("a turn");
                let answer = connection.get("/", "host: partner").await;
                turn.heard(answer.status, &answer.fields);
                answered += 1;
            }
            answered
        }
    });
    let answered: u64 = in_tasks(tasks).await.iter().sum();
    println!("\nanswered {answered}");
}

/// What the partner was asked: when, and whether it allowed that.
type Asked = Arc<Mutex<Vec<(Duration, bool)>>>;

async fn partner(asked: Asked) -> String {
    let begun = Instant::now();
    let answer = async move || {
        let mut asked = asked.lock().expect("no panic");
        let now = begun.elapsed();
        let allowed = asked.iter().rev().filter(|(_, is_allowed)| *is_allowed);
        let in_second = allowed.take_while(|(at, _)| at.as_secs() == now.as_secs());
        let is_allowed = (in_second.count() as u64) < ALLOWED;
        asked.push((now, is_allowed));
        match is_allowed {
            true => (StatusCode::OK, [("retry-after", "0")]),
            false => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]),
        }
    };
    serve(Router::new().route("/", get(answer))).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_obeys_a_partner() {
    let _machine = MACHINE.lock().await;
    let (server, asked) = (Redis::start(), Asked::default());
    let address = partner(Arc::clone(&asked)).await;
    let worker = "outgoing::worker_calls_a_partner";
    let workers = start_workers(worker, PROCESSES, |_| format!("{} {address}", server.url));
    let answered = sum(&outputs_of(workers).await, "answered");
    let asked = asked.lock().expect("no panic").clone();
    assert_eq!(
        answered,
        asked.len() as u64,
        "each request is answered once"
    );

    let mut told = String::from("second: allowed, refused\n");
    for second in 0..=SECONDS {
        let in_it = asked.iter().filter(|(at, _)| at.as_secs() == second);
        let of = |is_allowed| in_it.clone().filter(|(_, it)| *it == is_allowed).count();
        told += &format!("{second}: {}, {}\n", of(true), of(false));
    }
    println!("{told}");

    let refused = asked.iter().filter(|(_, is_allowed)| !is_allowed);
    let refused: Vec<_> = refused.map(|(at, _)| *at).collect();
    let is_same = |one: &Duration, next: &Duration| *next - *one < Duration::from_millis(500);
    let bursts: Vec<_> = refused.chunk_by(is_same).collect();
    assert!(bursts.len() >= 2, "it is held again and again: {told}");
    for burst in &bursts {
        let (first, last) = (burst[0], burst[burst.len() - 1]);
        let in_flight = PROCESSES * TASKS;
        let times = burst.len();
        assert!(
            times <= 2 * in_flight,
            "{times} refused at {first:?}: {told}"
        );
        // The hold begins after the refusal, and ends a second later.
        let held = last + LATENCY..last + Duration::from_millis(990);
        let early = asked.iter().filter(|(at, _)| held.contains(at)).count();
        assert_eq!(early, 0, "calls between {held:?}: {told}");
    }
    let refused = refused.len() as f64 / asked.len() as f64;
    assert!(refused < 0.5, "{refused}: {told}");
}
