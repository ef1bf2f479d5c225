//! Redis hangs under load: requests fail in time, the log says so once, and afterwards no permit is
//! held that no request holds.

use std::sync::Mutex;

use axum::extract::Path;
use kit::log::Log;
use tokio::time::Instant;

use super::*;

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
type Decided = (Instant, Duration, u16);

fn app(limits: &Limits) -> Router {
    let handler = |Path(lasts): Path<u64>| async move {
        let began = Instant::now();
        sleep(millis(lasts)).await;
        began.elapsed().as_micros().to_string()
    };
    Router::new().route("/{lasts}", get(handler).layer(limits.layer(PATH)))
}

/// Sends request after request until then; some of the clients leave.
async fn client(app: Router, task: u64, until: Instant) -> Vec<Decided> {
    let mut random = Random::new(task);
    let mut decided = Vec::new();
    while Instant::now() < until {
        let (path, key) = (format!("/{}", random.below(5)), random.below(KEYS));
        let field = format!("x-key: {key}");
        let asked = kit::http::ask(&app, &path, &field);
        let began = Instant::now();
        if random.is(30) {
            _ = timeout(millis(random.below(300)), asked).await;
            continue;
        }
        let answer = asked.await;
        let handled = Duration::from_micros(answer.body.parse().unwrap_or(0));
        decided.push((began, answer.after.saturating_sub(handled), answer.status));
        sleep(millis(1)).await;
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
    let store = store_on(&redis).await.timeout(TIMEOUT);
    let log = Log::start();
    let long = Rule::with_policies("long", [Policy::concurrent(2)]).expect("valid");
    let long = long.with_permit_lease(SHORT).expect("valid");
    let limits = Limits::new([rule(MAX, LEASE), long]).store(store);
    let limits = limits.key(Header::new("x-key"));
    let app = app(&limits);
    let until = Instant::now() + WELL + HANGS + WELL;
    let late = Arc::<Mutex<_>>::default();
    let timers = tokio::spawn(lateness(until, Arc::clone(&late)));
    // It runs all the time, and its permit is there again.
    let long = limits.check("long", Key::default()).await;
    let long = long.expect("the first");
    let clients = (0..TASKS as u64).map(|task| tokio::spawn(client(app.clone(), task, until)));
    let clients: Vec<_> = clients.collect();
    sleep(WELL).await;
    redis.signal("STOP");
    let hung = Instant::now();
    sleep(HANGS).await;
    redis.signal("CONT");
    let well = Instant::now();
    let decided: Vec<Decided> = done(clients).await.into_iter().flatten().collect();
    timers.await.expect("no panic");

    let late = *late.lock().expect("no panic");
    let of = |is: u16| decided.iter().filter(move |(.., status)| *status == is);
    let slowest = decided.iter().map(|(_, took, _)| *took).max();
    let failed = of(503);
    println!(
        "{} admitted, {} busy, {} failed; slowest {slowest:?}, late by {late:?}",
        of(200).count(),
        of(429).count(),
        failed.clone().count()
    );
    // A process that is slow itself waits once more the time-out, from when it runs again.
    let bound = 3 * TIMEOUT + 3 * late + millis(200);
    let is_in_time = slowest.is_some_and(|it| it <= bound);
    assert!(is_in_time, "{slowest:?}, more than {bound:?}");
    let last = failed.clone().map(|(began, ..)| *began).max();
    let late_failures = last.map(|last| last.saturating_duration_since(well));
    println!("they fail until {late_failures:?} after it answers again");
    assert!(failed.clone().all(|(began, ..)| *began >= hung - TIMEOUT));
    let is_back = late_failures.is_some_and(|it| it <= bound);
    assert!(is_back, "{late_failures:?}");
    assert!(failed.count() > 50, "this test asked for too little");
    let lines = log.lines();
    let say = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    println!("{}", lines.join("\n"));
    let said = ["no decisions", "the store decides again"].map(say);
    assert_eq!(said, [1, 1], "{lines:?}");

    assert!(limits.flush(Duration::from_secs(5)).await);
    let left = left(&limits, "long", Key::default()).await;
    assert_eq!(left, 1, "its permit is there again");
    drop(long);
    let ended = Instant::now();
    // A take whose client left is released apart.
    while permits(&redis).0 > 0 {
        assert!(ended.elapsed() < 10 * TIMEOUT, "{:?}", permits(&redis));
        sleep(millis(10)).await;
    }
    println!("nothing is held after {:?}", ended.elapsed());
    let all = (0..KEYS * MAX).map(|at| limits.check(PATH, at % KEYS).into_future());
    let all = join_all(all).await;
    assert!(all.iter().all(Result::is_ok), "new ones are granted");
}
