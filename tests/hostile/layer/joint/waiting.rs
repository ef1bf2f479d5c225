//! Requests that wait for a count which another tuple frees.

use axum::extract::Request;

use super::*;

/// Holds for `x-hold` milliseconds, and gives its charge back if there is such a field.
fn app(limits: &Limits, wait: Duration) -> Router {
    let handler = async |charges: Charges, request: Request| {
        if let Some(hold) = kit::http::number(request.headers(), "x-hold") {
            sleep(millis(hold)).await;
            charges.refund().await.expect("an answer");
        }
        "1"
    };
    Router::new().route("/", any(handler).layer(limits.layer("api").wait(wait)))
}

/// Ten users at one address of one unit: each in turn, none twice, and all get one.
#[tokio::test(start_paused = true)]
async fn ten_users_wait_for_one_address() {
    const FILE: &str = r#"
[rules.api]
settles = true
quotas = [
    { max-count = 5, window = "1h", key = "header:x-user", subject = "user" },
    { max-count = 1, window = "1h", key = "header:x-address", subject = "address" },
    { max-count = 90, window = "1h", key = "everyone" },
]
"#;
    let limits = limits(FILE, MemoryStore::new().tokio_clock());
    let app = app(&limits, 60 * SECOND);
    let fields = |at| format!("x-user: u{at}, x-address: x, x-hold: 100");
    let answers = kit::done((0..10).map(|at| kit::http::start(&app, 0, "/", &fields(at)))).await;
    assert!(answers.iter().all(|it| it.status == OK));
    let mut ends: Vec<_> = answers.iter().map(|it| it.millis()).collect();
    ends.sort_unstable();
    for (at, end) in ends.iter().enumerate() {
        let least = 100 * (at as u128 + 1);
        assert!((least..=least + 20).contains(end), "{ends:?}");
    }
    assert_eq!(left(&limits, keys("u3", "x")).await, [5, 1, 90]);
}

/// Users who are denied for an hour wait in front of others at the same address: their denials
/// answer nobody else.
#[tokio::test]
async fn users_without_units_hold_nobody_up() {
    const FILE: &str = r#"
[rules.api]
quotas = [
    { max-count = 1, window = "1h", key = "header:x-user", subject = "user" },
    { max-count = 3, window = "1s", key = "header:x-address", subject = "address" },
]
"#;
    let server = Redis::start();
    let limits = limits(FILE, store_on(&server).await);
    let app = app(&limits, 20 * SECOND);
    assert_eq!(ask(&app, "x-user: spent, x-address: y").await, OK);
    let ends = in_tasks((0..24).map(|at| {
        let app = app.clone();
        async move {
            let is_spent = at % 2 == 0;
            let user = if is_spent {
                "spent".to_owned()
            } else {
                format!("u{at}")
            };
            let began = Instant::now();
            let status = ask(&app, &format!("x-user: {user}, x-address: x")).await;
            (is_spent, status, began.elapsed())
        }
    }))
    .await;
    for (is_spent, status, after) in &ends {
        assert_eq!(*status, if *is_spent { DENIED } else { OK }, "{ends:?}");
        // Twelve at three a second; the others hear at once that it is in vain.
        assert!(*after < 15 * SECOND, "{ends:?}");
    }
    let [user, address, _] = keys("u1", "y");
    assert_eq!(left(&limits, [user, address]).await[0], 0);
}
