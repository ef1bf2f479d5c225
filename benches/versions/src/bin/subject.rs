//! One version of tidegate at work. It uses the layer, `RateLimiter` and `Lock` only, so that it
//! compiles against versions whose other names differ.
//!
//! ```text
//! subject serve URL                    an HTTP server; prints its port
//! subject run ROW TASKS MILLIS URL     prints the operations and their microseconds, and, with
//!                                      those of the warm-up, all operations and their
//!                                      microseconds of processor time
//! subject count ROW OPERATIONS URL     prints the allocations of these operations
//! ```

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderName, Request, Response, StatusCode};
use tidegate::layer::RateLimit;
use tidegate::limiter::{Rate, RateLimiter};
use tidegate::lock::Lock;
use tidegate::{Header, RateLimitLayer, Redis, RedisStore};
use tokio::runtime::{Builder, Runtime};
use tower::util::ServiceFn;
use tower::{Layer, Service, ServiceExt, service_fn};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Longer than the default, so that a pause of a busy machine does not end a run.
const TIMEOUT: Duration = Duration::from_secs(1);
const KEYS: u64 = 100_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["serve", url] => runtime()?.block_on(serve(url)),
        ["run", row, tasks, millis, url] => {
            let duration = Duration::from_millis(millis.parse()?);
            runtime()?.block_on(run(row, tasks.parse()?, duration, url))
        }
        ["count", row, operations, url] => count(row, operations.parse()?, url),
        _ => Err("serve URL, run ROW TASKS MILLIS URL, or count ROW OPERATIONS URL".into()),
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// The routes that share a store in Redis: `/hot`, `/keys` and `/denied`.
async fn redis_routes(url: &str) -> Result<Router> {
    let store = Arc::new(RedisStore::connect(url).await?.timeout(TIMEOUT));
    let layer = |path: &str, window, max| keyed(path, window, max).store(Arc::clone(&store));
    Ok(Router::new()
        .route(
            "/hot",
            get(handler).layer(layer("hot", Duration::from_secs(1), 1_000_000)),
        )
        .route("/keys", get(handler).layer(layer("keys", WEEK, 1_000)))
        .route("/denied", get(handler).layer(layer("denied", WEEK, 1))))
}

/// A layer over a memory store around an empty service, so that hardly anything but the layer is
/// measured.
fn in_memory(row: &str) -> Layered {
    let layer = match row {
        "memory" => keyed(row, Duration::from_secs(1), 1_000_000_000),
        _ => keyed(row, WEEK, 1),
    };
    layer.layer(service_fn(empty as Empty))
}

type Layered = RateLimit<ServiceFn<Empty>>;
type Empty = fn(Request<Body>) -> Ready<std::result::Result<Response<Body>, Infallible>>;

fn empty(_: Request<Body>) -> Ready<std::result::Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}

fn keyed(path: &str, window: Duration, max: u64) -> RateLimitLayer {
    let key = Header::new(HeaderName::from_static("x-key"));
    RateLimitLayer::new(path, window, max).key(key)
}

fn keyed_request(path: &str, key: String) -> Result<Request<Body>> {
    Ok(Request::get(path).header("x-key", key).body(Body::empty())?)
}

async fn handler() -> &'static str {
    "1"
}

async fn serve(url: &str) -> Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let router = redis_routes(url).await?;
    println!("{}", listener.local_addr()?.port());
    axum::serve(listener, router).await?;
    Ok(())
}

/// What one task does again and again.
#[derive(Clone)]
enum Operation {
    Request {
        routes: Router,
        path: &'static str,
    },
    Layered {
        service: Layered,
        expected: StatusCode,
    },
    Acquire(RateLimiter),
    /// Each task has a lock of its own.
    Lock(Redis, Option<Lock>),
}

impl Operation {
    async fn new(row: &str, url: &str) -> Result<Self> {
        let request = |routes, path| Self::Request { routes, path };
        Ok(match row {
            "hot" => request(redis_routes(url).await?, "/hot"),
            "keys" => request(redis_routes(url).await?, "/keys"),
            "denied" => request(redis_routes(url).await?, "/denied"),
            "memory" => Self::Layered {
                service: in_memory(row),
                expected: StatusCode::OK,
            },
            "memory-denied" => {
                let mut service = in_memory(row);
                service.call(keyed_request("/", "one".into())?).await?;
                let expected = StatusCode::TOO_MANY_REQUESTS;
                Self::Layered { service, expected }
            }
            "acquire" => {
                let limiter = RateLimiter::new(&Redis::connect(url).await?, "versions");
                let second = Duration::from_secs(1);
                limiter
                    .try_set_rate(Rate::overall(100_000_000, second)?)
                    .await?;
                Self::Acquire(limiter)
            }
            "lock" => Self::Lock(Redis::connect(url).await?, None),
            other => return Err(format!("there is no row {other}").into()),
        })
    }

    /// The same for one of many tasks.
    fn for_task(&self, task: u64) -> Self {
        match self {
            Self::Lock(redis, _) => {
                let lock = Lock::new(redis, &format!("versions:{task}"));
                Self::Lock(redis.clone(), Some(lock))
            }
            other => other.clone(),
        }
    }

    async fn once(&mut self, number: u64) -> Result<()> {
        match self {
            Self::Request { routes, path } => {
                let key = match *path {
                    "/keys" => format!("k{}", number % KEYS),
                    _ => "one".to_owned(),
                };
                let response = routes.clone().oneshot(keyed_request(path, key)?).await?;
                let expected = match path.ends_with("denied") && number > 0 {
                    true => StatusCode::TOO_MANY_REQUESTS,
                    false => StatusCode::OK,
                };
                // Another run may have used up what a denied key has.
                let is_first = path.ends_with("denied") && number == 0;
                match response.status() == expected || is_first {
                    true => Ok(()),
                    false => Err(format!("{path} answered {}", response.status()).into()),
                }
            }
            Self::Layered { service, expected } => {
                let response = service.call(keyed_request("/", "one".into())?).await?;
                match response.status() == *expected {
                    true => Ok(()),
                    false => Err(format!("{}", response.status()).into()),
                }
            }
            Self::Acquire(limiter) => Ok(limiter.acquire(1).await?),
            Self::Lock(_, Some(lock)) => Ok(lock.lock().await?.release().await?),
            Self::Lock(_, None) => Err("no lock".into()),
        }
    }
}

/// So many tasks at once; what they do in the first 100 ms is not counted.
async fn run(row: &str, tasks: u64, duration: Duration, url: &str) -> Result<()> {
    let operation = Operation::new(row, url).await?;
    operation.for_task(0).once(0).await?;
    let (counts, ends) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let processor = processor_micros()?;
    let mut running = Vec::new();
    for task in 0..tasks {
        let mut operation = operation.for_task(task);
        let (counts, ends) = (counts.clone(), ends.clone());
        running.push(tokio::spawn(async move {
            let (mut number, mut counted) = (task + 1, [0, 0]);
            while !ends.load(Ordering::Relaxed) {
                operation.once(number).await?;
                number += tasks;
                counted[0] += u64::from(counts.load(Ordering::Relaxed));
                counted[1] += 1;
                if counted[1] % 64 == 0 {
                    // What is always ready must not keep the others out.
                    tokio::task::yield_now().await;
                }
            }
            Result::Ok(counted)
        }));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = Instant::now();
    counts.store(true, Ordering::Relaxed);
    tokio::time::sleep(duration).await;
    let elapsed = started.elapsed();
    counts.store(false, Ordering::Relaxed);
    ends.store(true, Ordering::Relaxed);
    let mut total = [0, 0];
    for task in running {
        let counted = task.await??;
        total = [total[0] + counted[0], total[1] + counted[1]];
    }
    let processor = processor_micros()? - processor;
    println!(
        "{} {} {} {processor}",
        total[0],
        elapsed.as_micros(),
        total[1]
    );
    Ok(())
}

/// What this process has used: the first number of a thread's `schedstat` is nanoseconds.
fn processor_micros() -> Result<u64> {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(nanos / 1_000)
}

/// One task on one thread, so that every allocation and every instruction is that of an operation.
fn count(row: &str, operations: u64, url: &str) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut operation = runtime.block_on(Operation::new(row, url))?.for_task(0);
    runtime.block_on(some(&mut operation, 0..100))?;
    let mut result = Ok(());
    let allocated = allocation_counter::measure(|| {
        result = counted(&runtime, some(&mut operation, 100..100 + operations));
    });
    result?;
    println!("{}", allocated.count_total);
    Ok(())
}

async fn some(operation: &mut Operation, numbers: Range<u64>) -> Result<()> {
    for number in numbers {
        operation.once(number).await?;
    }
    Ok(())
}

/// Valgrind counts the instructions between the entry and the exit of this function.
#[inline(never)]
fn counted(runtime: &Runtime, operations: impl Future<Output = Result<()>>) -> Result<()> {
    runtime.block_on(operations)
}
