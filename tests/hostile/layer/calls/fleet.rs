//! Laws 1 and 14 in a fleet: two processes on one Redis, their calls mixed with checks and layers.

use std::thread;

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
    async fn run(&self) -> bool {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        sleep(self.takes).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
        true
    }
}

/// One of the ways to ask, by a number.
async fn ask(limits: &Limits, way: usize, wait: Duration, work: &Arc<Work>) -> bool {
    let call = || call(limits).wait(wait);
    match way % 6 {
        0 => call().run(|| work.run()).await.is_ok(),
        1 => {
            let run = async || Ok::<_, ()>(work.run().await);
            call().try_run(run).await.is_ok()
        }
        2 => {
            let call = call().degrade(async |_| false).on_error(async |_| false);
            call.run(|| work.run()).await
        }
        3 => match limits.check("p", "k").wait(wait).await {
            Ok(_admitted) => work.run().await,
            Err(_) => false,
        },
        4 => {
            let work = Arc::clone(work);
            let handler = any(async move || assert!(work.run().await));
            let app = Router::new().route("/", handler.layer(limits.layer("p").wait(wait)));
            // A permit goes back with the body, which this reads.
            kit::http::ask(&app, "/", "").await.status == 200
        }
        _ => {
            let admitted = call().degrade(async |_| false).run(|| work.run());
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
            kit::still_runtime().block_on(async move {
                let store = RedisStore::connect(&url).await.expect("a server");
                let limits = limits(rule.clone(), store.timeout(PATIENT));
                let asked = (0..callers).map(|at| each(limits.clone(), at + process));
                let answers = join_all(asked).await;
                // Permits of a process that ends now would stay until their lease ends.
                if let [policy] = rule.policies()
                    && policy.is_concurrent()
                {
                    until_left(&limits, policy.quota().max()).await;
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
    assert_eq!(WORK.done.load(Ordering::SeqCst), 200);
    let most = WORK.most.load(Ordering::SeqCst);
    assert!((2..=7).contains(&most), "{most} at a time");
    until_none_is_held(&server).await;
}
