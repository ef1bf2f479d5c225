//! Redis hangs under load: requests fail in time, the log says so once, and afterwards no permit is
//! held that no request holds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use kit::Redis;
use kit::log::Log;
use kit::random::Random;
use tidegate::rule::Policy;
use tidegate::{Header, Key, Limits, RedisStore, Rule};
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt;

use super::{PATH, permits, rule};
use crate::{MACHINE, TASKS};

const TIMEOUT: Duration = Duration::from_millis(200);
const HANGS: Duration = Duration::from_secs(5);
/// Before and after.
const WELL: Duration = Duration::from_secs(2);
const KEYS: u64 = 8;
const MAX: u64 = 4;
/// Longer than this test: a permit that is lost shows.
const LEASE: Duration = Duration::from_secs(60);
/// Of a request that runs all the time, whose lease ends meanwhile.
const SHORT: Duration = Duration::from_secs(2);

/// When a request was decided, and what it was.
type Decided = (Instant, Duration, StatusCode);

fn app(limits: &Limits) -> Router {
    let handler = |Path(millis): Path<u64>| async move {
        let began = Instant::now();
        sleep(Duration::from_millis(millis)).await;
        began.elapsed().as_micros().to_string()
    };
    Router::new().route("/{millis}", get(handler).layer(limits.layer(PATH)))
}

/// Sends request after request until then; some of the clients leave.
async fn client(app: Router, task: u64, until: Instant) -> Vec<Decided> {
    let mut random = Random::new(task);
    let mut decided = Vec::new();
    while Instant::now() < until {
        let (millis, key) = (random.below(5), random.below(KEYS));
        let request = Request::get(format!("/{millis}")).header("x-key", key);
        let asked = app
            .clone()
            .oneshot(request.body(Body::empty()).expect("valid"));
        let began = Instant::now();
        if random.is(30) {
            _ = timeout(Duration::from_millis(random.below(300)), asked).await;
            continue;
        }
        let response = asked.await.expect("axum does not fail");
        let (status, took) = (response.status(), began.elapsed());
        let body = axum::body::to_bytes(response.into_body(), 1_000).await;
        let body = String::from_utf8(body.expect("a body").to_vec()).expect("text");
        let handled = Duration::from_micros(body.parse().unwrap_or(0));
        decided.push((began, took.saturating_sub(handled), status));
        sleep(Duration::from_millis(1)).await;
    }
    decided
}

/// By how much timers are late in this process, at most.
async fn lateness(until: Instant, longest: Arc<Mutex<Duration>>) {
    const PAUSE: Duration = Duration::from_millis(5);
    while Instant::now() < until {
        let began = Instant::now();
        sleep(PAUSE).await;
        let late = began.elapsed() - PAUSE;
        let mut longest = longest.lock().expect("no panic");
        *longest = late.max(*longest);
    }
}

#[tokio::test]
async fn nothing_is_held_after_redis_has_hung() {
    let _machine = MACHINE.lock().await;
    let redis = Redis::start();
    let store = RedisStore::connect(&*redis.url).await;
    let store = store.expect("a running server").timeout(TIMEOUT);
    let log = Log::start();
    let long = Rule::with_policies("long", [Policy::concurrent(2)]).expect("valid");
    let long = long.with_permit_lease(SHORT).expect("valid");
    let limits = Limits::new([rule(MAX, LEASE), long])
        .store(store)
        .key(Header::new("x-key"));
    let app = app(&limits);
    let until = Instant::now() + WELL + HANGS + WELL;
    let late = Arc::<Mutex<_>>::default();
    let timers = tokio::spawn(lateness(until, Arc::clone(&late)));
    // It runs all the time, and its permit is there again.
    let long = limits
        .check("long", Key::default())
        .await
        .expect("the first");
    let clients = (0..TASKS as u64).map(|task| tokio::spawn(client(app.clone(), task, until)));
    let clients: Vec<_> = clients.collect();
    sleep(WELL).await;
    redis.signal("STOP");
    let hung = Instant::now();
    sleep(HANGS).await;
    redis.signal("CONT");
    let well = Instant::now();
    let decided = join_all(clients)
        .await
        .into_iter()
        .flat_map(|it| it.expect("no panic"));
    let decided: Vec<Decided> = decided.collect();
    timers.await.expect("no panic");

    let late = *late.lock().expect("no panic");
    let of = |is: StatusCode| decided.iter().filter(move |(.., status)| *status == is);
    let slowest = decided.iter().map(|(_, took, _)| *took).max();
    let failed = of(StatusCode::SERVICE_UNAVAILABLE);
    println!(
        "{} admitted, {} busy, {} failed; slowest {slowest:?}, late by {late:?}",
        of(StatusCode::OK).count(),
        of(StatusCode::TOO_MANY_REQUESTS).count(),
        failed.clone().count()
    );
    // A process that is slow itself waits once more the time-out, from when it runs again.
    let bound = 3 * TIMEOUT + 3 * late + Duration::from_millis(200);
    assert!(
        slowest.is_some_and(|it| it <= bound),
        "{slowest:?}, more than {bound:?}"
    );
    let last = failed.clone().map(|(began, ..)| *began).max();
    let late_failures = last.map(|last| last.saturating_duration_since(well));
    println!("they fail until {late_failures:?} after it answers again");
    assert!(failed.clone().all(|(began, ..)| *began >= hung - TIMEOUT));
    assert!(
        late_failures.is_some_and(|it| it <= bound),
        "{late_failures:?}"
    );
    assert!(failed.count() > 50, "this test asked for too little");
    let lines = log.lines();
    let say = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    println!("{}", lines.join("\n"));
    assert_eq!(
        (say("no decisions"), say("the store decides again")),
        (1, 1),
        "{lines:?}"
    );

    assert!(limits.flush(Duration::from_secs(5)).await);
    let left = limits
        .peek("long", Key::default())
        .await
        .expect("an answer");
    assert_eq!(
        left.expect("a rule").remaining(),
        1,
        "its permit is there again"
    );
    drop(long);
    let ended = Instant::now();
    // A take whose client left is released apart.
    while permits(&redis).0 > 0 {
        assert!(ended.elapsed() < 10 * TIMEOUT, "{:?}", permits(&redis));
        sleep(Duration::from_millis(10)).await;
    }
    println!("nothing is held after {:?}", ended.elapsed());
    let all = (0..KEYS * MAX).map(|at| limits.check(PATH, at % KEYS).into_future());
    let all = join_all(all).await;
    assert!(all.iter().all(Result::is_ok), "new ones are granted");
}
