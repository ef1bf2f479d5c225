//! Tasks of a test, runtimes of their own, and what they all came to.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinHandle, yield_now};

/// What these tasks return, in their order. All of them are started before the first is awaited.
///
/// # Panics
///
/// If one of them panics, or was aborted.
pub async fn done<T>(tasks: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().collect();
    let mut all = Vec::with_capacity(tasks.len());
    for task in tasks {
        all.push(task.await.expect("no panic"));
    }
    all
}

/// What these futures return, each in a task of its own, all at the same time.
///
/// # Panics
///
/// If one of them panics.
pub async fn in_tasks<F>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    done(futures.into_iter().map(tokio::spawn)).await
}

/// A task for each of these, with a clone of the same things, all started here.
pub fn spawn_each<I, T: Clone, F>(
    items: impl IntoIterator<Item = I>,
    with: T,
    task: impl Fn(I, T) -> F,
) -> Vec<JoinHandle<F::Output>>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let items = items.into_iter();
    let tasks = items.map(|item| tokio::spawn(task(item, with.clone())));
    tasks.collect()
}

/// A runtime with a thread of its own, which goes on while nobody blocks on it.
pub fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_all();
    builder.build().expect("a runtime")
}

/// A runtime without a thread, which stands still while nobody blocks on it.
pub fn still_runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// How long the turns of a slow runtime are, and the time-outs beside them.
pub const SLOW: [(Duration, Duration); 3] = [
    (Duration::from_millis(25), Duration::from_millis(10)),
    (Duration::from_millis(120), Duration::from_millis(50)),
    (Duration::from_millis(450), Duration::from_millis(200)),
];

/// In a runtime of one thread, blocks it for a turn, lets each task run once that is ready, blocks
/// it again, lets all of them run and the runtime look for replies, and so on, until something
/// holds. Returns how many turns had passed; before the first one it is asked, too, with 0.
///
/// # Panics
///
/// If it takes more than 40 turns, and 15 s.
pub async fn turns_until(
    turn: Duration,
    mut holds: impl FnMut(u64) -> bool + Send + 'static,
) -> u64 {
    let blocks = async move {
        let began = Instant::now();
        for passed in 0.. {
            let is_late = passed > 40 && began.elapsed() > Duration::from_secs(15);
            assert!(!is_late, "still not after {passed} turns of {turn:?}");
            if passed > 0 && passed % 2 == 0 {
                yield_now().await;
            } else if passed > 0 {
                let mut is_behind = false;
                poll_fn(|cx| {
                    if std::mem::replace(&mut is_behind, true) {
                        return Poll::Ready(());
                    }
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
            }
            if holds(passed) {
                return passed;
            }
            std::thread::sleep(turn);
        }
        unreachable!("it counts on and on")
    };
    tokio::spawn(blocks).await.expect("no panic")
}

/// Whether this holds within 300 ms: what was written before a turn ended is executed a moment
/// later.
pub fn holds_soon(holds: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > Duration::from_millis(300) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// How many tasks of this runtime are alive.
pub fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Tests of one line each: their name, and what they call in a runtime of two threads.
#[macro_export]
macro_rules! cases {
    ($($test:ident: $how:ident($($argument:expr),*);)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            $how($($argument),*).await;
        })+
    };
}
