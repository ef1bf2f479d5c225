//! Subjects that come and go by reloads while requests run.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kit::Redis;
use tidegate::{Limits, MemoryStore, Store};

use super::{DENIED, OK, app, ask, header, left};
use kit::store_on;

const USER: &str = r#"{ max-count = 100, window = "1h", key = "header:x-user", subject = "user" }"#;
const ADDRESS: &str =
    r#"{ max-count = 5000, window = "1h", key = "header:x-address", subject = "address" }"#;
const ALL: &str = r#"{ max-count = 9000, window = "1h", key = "everyone" }"#;

fn file(quotas: &[&str]) -> String {
    format!("[rules.api]\nquotas = [{}]\n", quotas.join(", "))
}

/// A subject that stays keeps its counts, whatever comes and goes beside it; no request fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subjects_come_and_go_while_requests_run() {
    let server = Redis::start();
    let redis: Arc<dyn Store> = Arc::new(store_on(&server).await);
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for store in [redis, memory] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("limits.toml");
        fs::write(&path, file(&[USER, ADDRESS])).expect("is written");
        let limits = Limits::from_file(&path).expect("valid").store(store);
        let app = app(limits.layer("api"));
        let is_over = Arc::new(AtomicBool::new(false));
        let admitted = Arc::new(AtomicU64::new(0));
        let tasks = (0..4).map(|task| {
            let (app, is_over) = (app.clone(), Arc::clone(&is_over));
            let admitted = Arc::clone(&admitted);
            tokio::spawn(async move {
                let mut asked = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let fields = format!("x-user: same, x-address: {task}");
                    match ask(&app, &fields).await {
                        OK => _ = admitted.fetch_add(1, Ordering::Relaxed),
                        DENIED => {}
                        status => panic!("{status}"),
                    }
                    asked += 1;
                    tokio::task::yield_now().await;
                }
                asked
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for round in 0..30 {
            let quotas: &[&str] = match round % 4 {
                0 => &[USER, ADDRESS, ALL],
                1 => &[ALL, USER],
                2 => &[ADDRESS, USER, ALL],
                _ => &[USER, ADDRESS],
            };
            fs::write(&path, file(quotas)).expect("is written");
            limits.reload(&path).expect("valid");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        is_over.store(true, Ordering::Relaxed);
        for task in tasks {
            assert!(task.await.expect("no request fails") > 0);
        }
        assert_eq!(admitted.load(Ordering::Relaxed), 100, "of one user, in all");
        fs::write(&path, file(&[USER, ADDRESS])).expect("is written");
        limits.reload(&path).expect("valid");
        assert_eq!(
            left(&limits, [("user", header("x-user", "same"))]).await[0],
            0
        );
    }
}

/// A file with a mistake changes nothing, and says what is wrong.
#[tokio::test]
async fn files_with_mistakes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limits.toml");
    fs::write(&path, file(&[USER, ADDRESS])).expect("is written");
    let limits = Limits::from_file(&path).expect("valid");
    let app = app(limits.layer("api"));
    assert_eq!(ask(&app, "x-user: a, x-address: 1").await, OK);
    let nine: Vec<_> = (0..9)
        .map(|at| format!("{{ max-count = 9, window = \"1h\", key = \"header:x-{at}\" }}"))
        .collect();
    let nine: Vec<_> = nine.iter().map(|it| &**it).collect();
    let seventeen: Vec<_> = (1..18)
        .map(|at| {
            format!(
                "{{ max-count = 9, window = \"{at}m\", key = \"header:x-{}\" }}",
                at % 3
            )
        })
        .collect();
    let seventeen: Vec<_> = seventeen.iter().map(|it| &**it).collect();
    for (text, word) in [
        (file(&nine), "8"),
        (file(&seventeen), "16"),
        (
            file(&[USER, &ADDRESS.replace("\"address\"", "\"user\"")]),
            "user",
        ),
        (file(&[USER, &ADDRESS.replace("}", ", cost = 0 }")]), "cost"),
        (
            file(&[USER, &ADDRESS.replace("}", ", cost = 5001 }")]),
            "cost",
        ),
        (
            file(&[USER, &ADDRESS.replace("}", ", absent = \"allow\" }")]),
            "absent",
        ),
        (
            file(&[USER, &ADDRESS.replace("}", ", hidden = 1 }")]),
            "hidden",
        ),
        (
            file(&[USER, &ADDRESS.replace("header:x-address", "nonsense")]),
            "nonsense",
        ),
        (
            file(&[
                USER,
                &ADDRESS.replace("subject = \"address\"", "subject = \"\""),
            ]),
            "subject",
        ),
        (
            format!("{}lease = \"50ms\"\n", file(&[USER, ADDRESS])),
            "lease",
        ),
    ] {
        fs::write(&path, &text).expect("is written");
        let error = limits.reload(&path).expect_err(&text).to_string();
        assert!(error.contains(word), "{word} in {error}\n{text}");
        let keys = [
            ("user", header("x-user", "a")),
            ("address", header("x-address", "1")),
        ];
        assert_eq!(left(&limits, keys).await, [99, 4_999]);
    }
}
