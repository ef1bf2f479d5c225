//! Tasks of a test, runtimes of their own, and what they all came to.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

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
