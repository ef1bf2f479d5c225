//! Subjects that come and go by reloads while requests run.

use std::fs;

use super::*;

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
    let (_server, stores) = stores().await;
    for store in stores {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("limits.toml");
        fs::write(&path, file(&[USER, ADDRESS])).expect("is written");
        let limits = Limits::from_file(&path).expect("valid").store(store);
        let app = app(limits.layer("api"));
        let [is_over, admitted] = [(); 2].map(|()| Arc::<AtomicU64>::default());
        let requests = (0..4).map(|task| {
            let (app, is_over) = (app.clone(), Arc::clone(&is_over));
            let admitted = Arc::clone(&admitted);
            async move {
                let mut asked = 0;
                while is_over.load(Ordering::Relaxed) == 0 {
                    match ask(&app, &format!("x-user: same, x-address: {task}")).await {
                        OK => _ = admitted.fetch_add(1, Ordering::Relaxed),
                        status => assert_eq!(status, DENIED),
                    }
                    asked += 1;
                    tokio::task::yield_now().await;
                }
                asked
            }
        });
        let reloads = async {
            for round in 0..30 {
                let quotas: &[&str] = match round % 4 {
                    0 => &[USER, ADDRESS, ALL],
                    1 => &[ALL, USER],
                    2 => &[ADDRESS, USER, ALL],
                    _ => &[USER, ADDRESS],
                };
                fs::write(&path, file(quotas)).expect("is written");
                limits.reload(&path).expect("valid");
                sleep(millis(10)).await;
            }
            is_over.store(1, Ordering::Relaxed);
        };
        let (asked, ()) = tokio::join!(in_tasks(requests), reloads);
        assert!(asked.iter().all(|it| *it > 0), "no request fails");
        assert_eq!(admitted.load(Ordering::Relaxed), 100, "of one user, in all");
        fs::write(&path, file(&[USER, ADDRESS])).expect("is written");
        limits.reload(&path).expect("valid");
        let user = [("user", header("x-user", "same"))];
        assert_eq!(left(&limits, user).await[0], 0);
    }
}
