//! What the steps of a lone take cost: one task, one call at a time, all steps in turns of a hundred.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script, cmd, pipe};
use tidegate::{Algorithm, Key, Quota, RedisStore, Rule, Store, Take};
use tidegate_peers::servers::RedisServer;
use tidegate_peers::statistics::median;
use tidegate_peers::{Result, rounds::Rounds, same_script, table};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

const BLOCK: usize = 100;
const TIMEOUT: Duration = Duration::from_millis(50);

/// The steps that ask Redis, each with the one that it is compared with.
const CALLS: [(&str, Option<usize>); 7] = [
    ("a script that returns 1", None),
    ("the same, as a pipeline of one", Some(0)),
    ("the same, within a time-out", Some(0)),
    ("the same, sent by another task", Some(0)),
    ("the same, handed on by one more task", Some(3)),
    ("our log's script, by hand", Some(0)),
    ("a lone take of `RedisStore`", Some(5)),
];

/// The steps that ask nobody.
const PARTS: [&str; 4] = [
    "push to a locked queue and pop",
    "notify, and be notified",
    "a timer that is started and dropped",
    "subscribe to a `watch` and drop it",
];

fn main() -> Result<()> {
    let Rounds { rounds, seconds } = Rounds::from_arguments()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let steps = tokio::spawn(async move { measure(rounds, seconds).await });
        steps.await?
    })
}

async fn measure(rounds: usize, seconds: u64) -> Result<()> {
    let server = RedisServer::start(&[])?;
    let mut steps = Steps::connect(&server.url()).await?;
    let mut medians = vec![Vec::new(); CALLS.len()];
    for round in 1..=rounds {
        eprintln!("steps: round {round}");
        let mut samples = vec![Vec::new(); CALLS.len()];
        for _ in 0..20 * seconds {
            for (step, samples) in samples.iter_mut().enumerate() {
                for _ in 0..BLOCK {
                    let began = Instant::now();
                    steps.call(step).await?;
                    samples.push(began.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
        for (medians, samples) in medians.iter_mut().zip(samples) {
            medians.push(median(samples));
        }
    }
    let rows = CALLS.iter().enumerate().map(|(step, (name, than))| {
        let more = than.map_or(String::new(), |than| {
            let pairs = medians[step].iter().zip(&medians[than]);
            let more = median(pairs.map(|(own, other)| own - other));
            format!("{more:+.1} to \"{}\"", CALLS[than].0)
        });
        let p50 = median(medians[step].clone());
        vec![(*name).to_owned(), format!("{p50:.1}"), more]
    });
    table::print(&["a call", "p50, µs", "µs more"], &rows.collect::<Vec<_>>());
    let rows = PARTS.iter().enumerate().map(|(part, name)| {
        let nanos = median((0..20 * rounds).map(|_| nanos_of(part)));
        vec![(*name).to_owned(), format!("{nanos:.0}")]
    });
    table::print(&["a step on the way", "ns"], &rows.collect::<Vec<_>>());
    Ok(())
}

type Errand = (Cmd, oneshot::Sender<redis::RedisResult<i64>>);

struct Steps {
    connection: MultiplexedConnection,
    one: Cmd,
    by_hand: Cmd,
    near: mpsc::UnboundedSender<Errand>,
    far: mpsc::UnboundedSender<Errand>,
    store: RedisStore,
    take: Take,
}

impl Steps {
    async fn connect(url: &str) -> Result<Self> {
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let script = Script::new("return 1");
        script.prepare_invoke().load_async(&mut connection).await?;
        let mut one = cmd("EVALSHA");
        one.arg(script.get_hash()).arg(1).arg("steps:one");
        let own = Script::new(&same_script::source(Algorithm::SlidingLog)?);
        own.prepare_invoke().load_async(&mut connection).await?;
        let mut by_hand = cmd("EVALSHA");
        by_hand.arg(own.get_hash()).arg(1).arg("steps:by-hand");
        by_hand.arg(same_script::question(Algorithm::SlidingLog));

        let (near, mut errands) = mpsc::unbounded_channel::<Errand>();
        let mut own_connection = connection.clone();
        tokio::spawn(async move {
            while let Some((command, answer)) = errands.recv().await {
                answer
                    .send(command.query_async(&mut own_connection).await)
                    .ok();
            }
        });
        let (far, mut errands) = mpsc::unbounded_channel::<Errand>();
        let next = near.clone();
        tokio::spawn(async move {
            while let Some((command, answer)) = errands.recv().await {
                let (sender, receiver) = oneshot::channel();
                next.send((command, sender)).ok();
                if let Ok(reply) = receiver.await {
                    answer.send(reply).ok();
                }
            }
        });
        let quota = Quota::new(Duration::from_secs(1), 1_000_000)?;
        let rule = Arc::new(Rule::new("steps", [quota])?);
        Ok(Self {
            connection,
            one,
            by_hand,
            near,
            far,
            store: RedisStore::connect(url).await?,
            take: Take::new(rule, Key::default()),
        })
    }

    async fn call(&mut self, step: usize) -> Result<()> {
        let connection = &mut self.connection;
        match step {
            0 => self.one.query_async::<i64>(connection).await.map(drop)?,
            1 => {
                let mut pipeline = pipe();
                pipeline.add_command(self.one.clone());
                pipeline.query_async::<(i64,)>(connection).await.map(drop)?;
            }
            2 => timeout(TIMEOUT, self.one.query_async::<i64>(connection))
                .await?
                .map(drop)?,
            3 => errand(&self.near, &self.one).await?,
            4 => errand(&self.far, &self.one).await?,
            5 => {
                let reply: Vec<u8> = self.by_hand.query_async(connection).await?;
                if !same_script::is_allowed(&reply) {
                    return Err("our script did not allow the take".into());
                }
            }
            _ => drop(self.store.take(&self.take).await?),
        }
        Ok(())
    }
}

async fn errand(task: &mpsc::UnboundedSender<Errand>, command: &Cmd) -> Result<()> {
    let (sender, receiver) = oneshot::channel();
    task.send((command.clone(), sender)).ok();
    receiver.await?.map(drop)?;
    Ok(())
}

/// The nanoseconds of one such step, of ten thousand.
fn nanos_of(part: usize) -> f64 {
    const STEPS: u32 = 10_000;
    let queue = Mutex::new(VecDeque::new());
    let notify = Notify::new();
    let (sender, _receiver) = watch::channel(0);
    let began = Instant::now();
    for step in 0..STEPS {
        match part {
            0 => {
                let mut queue = queue.lock().expect("no panic");
                queue.push_back(step);
                std::hint::black_box(queue.pop_front());
            }
            1 => {
                notify.notify_one();
                let notified = pin!(notify.notified());
                std::hint::black_box(poll_once(notified));
            }
            2 => {
                let timer = pin!(sleep(TIMEOUT));
                std::hint::black_box(poll_once(timer));
            }
            _ => drop(std::hint::black_box(sender.subscribe())),
        }
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(STEPS)
}

fn poll_once(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    future.poll(&mut context).is_ready()
}
