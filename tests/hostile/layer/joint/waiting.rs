//! Requests that wait for a count which another tuple frees.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use kit::Redis;
use tidegate::store::Charges;
use tidegate::{Limits, MemoryStore, Store};
use tokio::time::{Instant, sleep};

use super::{DENIED, OK, header, left, request, send};
use kit::store_on;

const SECOND: Duration = Duration::from_secs(1);

const FILE: &str = r#"
[rules.api]
settles = true
quotas = [
    { max-count = 5, window = "1h", key = "header:x-user", subject = "user" },
    { max-count = 1, window = "1h", key = "header:x-address", subject = "address" },
    { max-count = 90, window = "1h", key = "everyone" },
]
"#;

fn limits(store: impl Store) -> Limits {
    let limits = Limits::from_toml(FILE);
    limits
        .unwrap_or_else(|error| panic!("{error}"))
        .store(store)
}

/// Holds for `x-hold` milliseconds, and gives its charge back if there is such a field.
fn app(limits: &Limits, wait: Duration) -> Router {
    let handler = async |charges: Charges, request: Request| {
        let hold = request.headers().get("x-hold").cloned();
        if let Some(hold) = hold {
            let hold: u64 = hold.to_str().expect("text").parse().expect("a number");
            sleep(Duration::from_millis(hold)).await;
            charges.refund().await.expect("an answer");
        }
        "1"
    };
    Router::new().route("/", any(handler).layer(limits.layer("api").wait(wait)))
}

async fn waits(app: &Router, limits: &Limits, slack: Duration) {
    let began = Instant::now();
    let first = {
        let app = app.clone();
        tokio::spawn(async move {
            send(&app, request("x-user: alice, x-address: x, x-hold: 300")).await
        })
    };
    sleep(Duration::from_millis(100)).await;
    // Of another user, at the same address.
    let other = send(app, request("x-user: bob, x-address: x")).await;
    let after = began.elapsed();
    assert_eq!(other.status, OK, "{other:?}");
    assert!(after >= Duration::from_millis(300), "{after:?}");
    assert!(after <= Duration::from_millis(300) + slack, "{after:?}");
    assert_eq!(first.await.expect("no panic").status, OK);
    let keys = |user: &str| {
        [
            ("user", header("x-user", user)),
            ("address", header("x-address", "x")),
            ("everyone", tidegate::Key::default()),
        ]
    };
    assert_eq!(left(limits, keys("bob")).await, [4, 0, 89]);
    assert_eq!(left(limits, keys("alice")).await, [5, 0, 89]);
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_a_shared_count_wakes() {
    let limits = limits(Arc::new(MemoryStore::new().tokio_clock()) as Arc<dyn Store>);
    let app = app(&limits, 5 * SECOND);
    waits(&app, &limits, Duration::from_millis(5)).await;
}

#[tokio::test]
async fn the_same_on_redis() {
    let server = Redis::start();
    let limits = limits(store_on(&server).await);
    let app = app(&limits, 20 * SECOND);
    waits(&app, &limits, 10 * SECOND).await;
}

/// Ten users at one address of one unit: each in turn, none twice, and all get one.
#[tokio::test(start_paused = true)]
async fn ten_users_wait_for_one_address() {
    let limits = limits(Arc::new(MemoryStore::new().tokio_clock()) as Arc<dyn Store>);
    let app = app(&limits, 60 * SECOND);
    let began = Instant::now();
    let tasks = (0..10).map(|at| {
        let app = app.clone();
        tokio::spawn(async move {
            let fields = format!("x-user: u{at}, x-address: x, x-hold: 100");
            let status = send(&app, request(&fields)).await.status;
            (status, began.elapsed().as_millis() as u64)
        })
    });
    let mut ends = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        let (status, end) = task.await.expect("no panic");
        assert_eq!(status, OK);
        ends.push(end);
    }
    ends.sort_unstable();
    for (at, end) in ends.iter().enumerate() {
        let least = 100 * (at as u64 + 1);
        assert!((least..=least + 20).contains(end), "{ends:?}");
    }
    let keys = [
        ("address", header("x-address", "x")),
        ("user", header("x-user", "u3")),
    ];
    assert_eq!(left(&limits, keys).await[..2], [5, 1]);
}

/// Nobody who is denied by a count of which no charge is open waits for the other one.
#[tokio::test(start_paused = true)]
async fn a_denial_of_both_ends_in_time() {
    let limits = limits(Arc::new(MemoryStore::new().tokio_clock()) as Arc<dyn Store>);
    let app = app(&limits, 2 * SECOND);
    for at in 0..5 {
        let fields = format!("x-user: bob, x-address: a{at}");
        assert_eq!(send(&app, request(&fields)).await.status, OK);
    }
    let hold = {
        let app = app.clone();
        tokio::spawn(async move {
            send(&app, request("x-user: alice, x-address: x, x-hold: 300")).await
        })
    };
    sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let seen = send(&app, request("x-user: bob, x-address: x")).await;
    assert_eq!(seen.status, DENIED);
    assert!(began.elapsed() <= 2 * SECOND + Duration::from_millis(5));
    hold.await.expect("no panic");
    let keys = [
        ("address", header("x-address", "x")),
        ("user", header("x-user", "bob")),
    ];
    assert_eq!(left(&limits, keys).await[..2], [0, 1]);
}

/// Users who are denied for an hour wait in front of others at the same address: their denials answer
/// nobody else.
#[tokio::test]
async fn users_without_units_hold_nobody_up() {
    let server = Redis::start();
    let text = r#"
[rules.api]
quotas = [
    { max-count = 1, window = "1h", key = "header:x-user", subject = "user" },
    { max-count = 3, window = "1s", key = "header:x-address", subject = "address" },
]
"#;
    let limits = Limits::from_toml(text).expect("valid");
    let limits = limits.store(store_on(&server).await);
    let app = app(&limits, 20 * SECOND);
    assert_eq!(
        send(&app, request("x-user: spent, x-address: y"))
            .await
            .status,
        OK
    );
    let tasks = (0..24).map(|at| {
        let app = app.clone();
        tokio::spawn(async move {
            let user = match at % 2 {
                0 => "spent".to_owned(),
                _ => format!("u{at}"),
            };
            let began = Instant::now();
            let seen = send(&app, request(&format!("x-user: {user}, x-address: x"))).await;
            (at % 2, seen.status, began.elapsed())
        })
    });
    let mut ends = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        ends.push(task.await.expect("no panic"));
    }
    for (kind, status, after) in &ends {
        assert_eq!(*status, if *kind == 0 { DENIED } else { OK }, "{ends:?}");
        // Twelve at three a second; the others hear at once that it is in vain.
        assert!(*after < 15 * SECOND, "{ends:?}");
    }
    let keys = [
        ("user", header("x-user", "u1")),
        ("address", header("x-address", "y")),
    ];
    assert_eq!(left(&limits, keys).await[0], 0);
}
