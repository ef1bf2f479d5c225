//! Connecting takes its whole time where nobody answers, and where a certificate is not trusted. A
//! connection that is well, and slow, is kept.

use futures_util::future::try_join_all;
use kit::load::{store, take};

use crate::prelude::*;

/// The default time-out is short for a process that is starved, so it asks again.
#[test]
fn ready_beside_two_busy_loops() {
    let (server, is_over) = (Server::start(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let ready = scope.spawn(move || {
            for _ in 0..20 {
                runtime.block_on(async {
                    let store = Resilient::redis(&*server.url, "shop").expect("an address");
                    store.ready(5 * SECOND).await.expect("it decides");
                });
            }
        });
        let ended = ready.join();
        is_over.store(true, Ordering::Relaxed);
        ended.expect("none fails");
    });
}

/// A `rediss://` address must not be taken for a plain one.
#[tokio::test]
async fn tls_is_not_plain() {
    let server = Server::start();
    let tls = server.url.replace("redis://", "rediss://");
    let error = RedisStore::connect(&tls).await.expect_err("no TLS");
    let kinds = [StoreErrorKind::Unavailable, StoreErrorKind::Timeout];
    assert!(kinds.contains(&error.kind()), "{error}");
}

/// Callers that give up, and those that drop their questions, tell nothing about the connection: it
/// answers others.
#[tokio::test]
async fn giving_up_costs_no_connection() {
    let server = Server::start();
    let proxy = Proxy::start(&server.url).await;
    let store = store(&proxy.url).await;
    let batch: Vec<_> = (0..50).map(|at| take(&format!("p{at}"), 1_000)).collect();
    let all = |store: &RedisStore| try_join_all(batch.iter().map(|take| store.take(take)));
    all(&store).await.expect("decisions");
    proxy.delay(Duration::ZERO, millis(40));
    let stalls = Stalls::watch(&[&proxy.url], millis(80)).await;
    let before = proxy.accepted();
    let hasty = store.clone().timeout(millis(5));
    for _ in 0..30 {
        let error = all(&hasty).await.expect_err("nobody answers");
        assert_eq!(error.kind(), StoreErrorKind::Timeout, "{error}");
        drop(all(&store));
    }
    all(&store).await.expect("decisions");
    // A machine that stands still for longer than silence is tolerated proves nothing.
    if stalls.longest().is_none() {
        assert_eq!(proxy.accepted(), before, "the connection was well");
    }
}

/// A certificate that the system trusts is good, and another is not.
mod tls {
    use kit::certificates::Certificates;

    use super::*;

    const URL: &str = "TIDEGATE_TEST_TLS_URL";

    /// Connects from a process of its own, since what a process trusts is in its environment.
    fn connects(url: &str, trusted: Option<&Path>) -> bool {
        let mut worker = Command::new(std::env::current_exe().expect("this test"));
        worker.args(words(
            "--exact connecting::tls::worker_takes --include-ignored",
        ));
        worker
            .env(URL, url)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(trusted) = trusted {
            worker.env("SSL_CERT_FILE", trusted);
        }
        worker.status().expect("this test starts").success()
    }

    #[tokio::test]
    #[ignore = "is started by another test"]
    async fn worker_takes() {
        let Ok(url) = std::env::var(URL) else { return };
        let store = RedisStore::connect(&url).await.expect("a trusted server");
        let store = store.timeout(PATIENT);
        assert!(is_allowed(&store.take(&take("p", 1)).await));
    }

    #[test]
    fn only_what_is_trusted() {
        let certificates = Certificates::make();
        let (_server, url) = certificates.server("good", "authority", "no");
        let trusted = certificates.folder().join("authority.crt");
        assert!(connects(&url, Some(&trusted)), "no connection");
        assert!(!connects(&url, None), "an unknown authority was trusted");
    }
}
