//! Laws 1 and 14 in a fleet: two processes on one Redis, their calls mixed with checks and layers.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;

use axum::Router;
use axum::routing::any;
use futures_util::future::join_all;
use tokio::runtime::Builder;
use tower::ServiceExt;

use super::*;

/// What runs behind the rule, and what it has seen.
#[derive(Default)]
struct Work {
    now: AtomicI64,
    most: AtomicI64,
    done: AtomicU64,
    takes: Duration,
}

impl Work {
    async fn run(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        sleep(self.takes).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// One of the ways to ask, by a number.
async fn ask(limits: &Limits, way: usize, wait: Duration, work: &Arc<Work>) -> bool {
    let call = || limits.call("p").key("k").wait(wait);
    match way % 6 {
        0 => call().run(|| work.run()).await.is_ok(),
        1 => {
            let answer = call().try_run(async || {
                work.run().await;
                Ok::<_, ()>(())
            });
            answer.await.is_ok()
        }
        2 => {
            let call = call().degrade(async |_| false).on_error(async |_| false);
            let run = async || {
                work.run().await;
                true
            };
            call.run(run).await
        }
        3 => match limits.check("p", "k").wait(wait).await {
            Ok(admitted) => {
                work.run().await;
                drop(admitted);
                true
            }
            Err(_) => false,
        },
        4 => {
            let work = Arc::clone(work);
            let handler = any(async move || work.run().await);
            let app = Router::new().route("/", handler.layer(limits.layer("p").wait(wait)));
            let answer = app.oneshot(kit::http::get("/")).await.expect("infallible");
            let is_served = answer.status().is_success();
            // A permit goes back with the body.
            drop(answer);
            is_served
        }
        _ => {
            let admitted = call().degrade(async |_| false).run(async || {
                work.run().await;
                true
            });
            admitted.await.expect("a decision")
        }
    }
}

/// So many callers at once in each of two processes, each in a runtime of its own.
fn in_two_processes<T: Send + 'static>(
    url: &str,
    rule: &Rule,
    callers: usize,
    each: impl AsyncFn(Limits, usize) -> T + Send + Sync + Copy + 'static,
) -> Vec<T> {
    let start = |process: usize| {
        let (url, rule) = (url.to_owned(), rule.clone());
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let store = RedisStore::connect(&url).await.expect("a server");
                let limits = limits(rule, store.timeout(PATIENT));
                let asked = (0..callers).map(|at| each(limits.clone(), at + process));
                let answers = join_all(asked).await;
                // Permits of a process that ends now would stay until their lease ends.
                if let [policy] = limits.rules().load().get("p").expect("a rule").policies()
                    && policy.is_concurrent()
                {
                    let max = policy.quota().max();
                    until("all permits are back", async || left(&limits).await == max).await;
                }
                answers
            })
        })
    };
    let processes = [start(0), start(1)];
    let join = |it: thread::JoinHandle<Vec<T>>| it.join().expect("no panic");
    processes.into_iter().flat_map(join).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_hundred_callers_never_get_more_than_max_and_all_of_it() {
    let server = Redis::start();
    let proxy = behind(&server, millis(6)).await;
    let admitted = in_two_processes(&proxy.url, &hourly(77), 100, async |limits, at| {
        ask(&limits, at, Duration::ZERO, &Arc::default()).await
    });
    let admitted = admitted.into_iter().filter(|it| *it).count();
    assert_eq!(admitted, 77, "law 1, and law 14");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn no_more_run_at_a_time_than_may_and_all_get_their_turn() {
    static WORK: std::sync::LazyLock<Arc<Work>> = std::sync::LazyLock::new(|| {
        let takes = millis(4);
        Arc::new(Work {
            takes,
            ..Work::default()
        })
    });
    let server = Redis::start();
    let proxy = behind(&server, millis(4)).await;
    let admitted = in_two_processes(&proxy.url, &at_a_time(7), 100, async |limits, at| {
        ask(&limits, at, PATIENT, &WORK).await
    });
    assert!(admitted.into_iter().all(|it| it), "nobody was denied");
    let [most, done] = [
        WORK.most.load(Ordering::SeqCst) as u64,
        WORK.done.load(Ordering::SeqCst),
    ];
    assert_eq!(done, 200);
    assert!((2..=7).contains(&most), "{most} at a time");
    until("all permits are back", async || held(&server) == 0).await;
}
