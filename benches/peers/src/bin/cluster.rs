//! Decisions on a cluster of three masters, beside pipelines made by hand in the same rounds: with
//! the crate's own script, and with one that only reads and writes a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Script, Value, pipe};
use tidegate::Algorithm;
use tidegate_peers::ours::DirectLimiter;
use tidegate_peers::rounds::Rounds;
use tidegate_peers::servers::RedisCluster;
use tidegate_peers::statistics::{median, thousands};
use tidegate_peers::{Result, same_script, table};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

const KEYS: usize = 10_000;
const CALLERS: [usize; 2] = [64, 256];
const PIPELINES_IN_FLIGHT: usize = 4;
/// More than all callers of a run have questions.
const MAX_IN_PIPELINE: usize = 1_024;
const SCRIPT: &str = "\
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)
return 1";

fn main() -> Result<()> {
    let Rounds { rounds, seconds } = Rounds::from_arguments()?;
    let runtime = Runtime::new()?;
    let mut cluster = RedisCluster::start(3)?;
    let keys: Vec<String> = (0..KEYS).map(|number| format!("k{number}")).collect();
    let owners = cluster.owners(&keys)?;
    let rows = runtime.block_on(async {
        let ours = Arc::new(DirectLimiter::connect(&cluster.url(), &keys, Algorithm::Gcra).await?);
        let same = Call::new(
            same_script::source(Algorithm::Gcra)?,
            same_script::question(Algorithm::Gcra),
        );
        let trivial = Call::new(SCRIPT.into(), b"1790000000000000".into());
        let mut rows = Vec::new();
        for (name, call) in [("the same script", same), ("a trivial script", trivial)] {
            let keys = keys.clone();
            let by_hand = ByHand::connect(&cluster, keys, owners.clone(), call).await?;
            let by_hand = Arc::new(by_hand);
            for callers in CALLERS {
                let mut row = compare(callers, rounds, seconds, &ours, &by_hand).await?;
                row.insert(0, format!("{name}, {callers} callers"));
                rows.push(row);
            }
        }
        Result::Ok(rows)
    })?;
    let head = [
        "cluster of three masters, GCRA, 10,000 keys",
        "to pipelines by hand",
        "decisions a second",
        "by hand",
    ];
    table::print(&head, &rows);
    Ok(())
}

async fn compare(
    callers: usize,
    rounds: usize,
    seconds: u64,
    ours: &Arc<DirectLimiter>,
    by_hand: &Arc<ByHand>,
) -> Result<Vec<String>> {
    let (mut ratios, mut own_rates, mut hand_rates) = (Vec::new(), Vec::new(), Vec::new());
    // The first round opens connections and loads scripts, and is not counted.
    for round in 0..=rounds {
        eprintln!("cluster: round {round} with {callers} callers");
        let duration = Duration::from_secs(seconds);
        let by_hand = Arc::clone(by_hand);
        let hand_rate = rate(callers, duration, move |key| {
            let by_hand = Arc::clone(&by_hand);
            async move { by_hand.decide(key).await }
        })
        .await?;
        let ours = Arc::clone(ours);
        let own_rate = rate(callers, duration, move |key| {
            let ours = Arc::clone(&ours);
            async move { ours.decide(key).await }
        })
        .await?;
        if round > 0 {
            ratios.push(own_rate / hand_rate);
            own_rates.push(own_rate);
            hand_rates.push(hand_rate);
        }
    }
    Ok(vec![
        format!("{:.2}", median(ratios)),
        thousands(median(own_rates)),
        thousands(median(hand_rates)),
    ])
}

/// Decisions per second of this many callers, each of which asks for one random key after another.
async fn rate<D, F>(callers: usize, duration: Duration, decide: D) -> Result<f64>
where
    D: Fn(usize) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let decisions = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let (decide, decisions) = (decide.clone(), Arc::clone(&decisions));
        tasks.spawn(async move {
            let mut random = Random::new(caller);
            while started.elapsed() < duration {
                decide(random.below(KEYS)).await?;
                decisions.fetch_add(1, Ordering::Relaxed);
            }
            Result::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(decisions.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

/// A 64-bit linear congruential generator; its high bits are random enough to choose keys.
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Self {
        Self((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// One queue per node; what waits in it leaves as one pipeline.
struct ByHand {
    queues: Vec<mpsc::UnboundedSender<Question>>,
    keys: Vec<String>,
    /// The node of each key.
    owners: Vec<usize>,
}

/// What is asked about each key.
#[derive(Clone)]
struct Call {
    script: Arc<Script>,
    argument: Arc<[u8]>,
}

impl Call {
    fn new(source: String, argument: Vec<u8>) -> Self {
        Self {
            script: Arc::new(Script::new(&source)),
            argument: argument.into(),
        }
    }
}

fn is_allowed(reply: &Value) -> bool {
    match reply {
        Value::Int(1) => true,
        Value::BulkString(reply) => same_script::is_allowed(reply),
        _ => false,
    }
}

struct Question {
    key: String,
    answer: oneshot::Sender<bool>,
}

impl ByHand {
    async fn connect(
        cluster: &RedisCluster,
        keys: Vec<String>,
        owners: Vec<usize>,
        call: Call,
    ) -> Result<Self> {
        let mut queues = Vec::new();
        for node in &cluster.nodes {
            let client = redis::Client::open(node.url())?;
            let mut connection = client.get_multiplexed_async_connection().await?;
            let script = call.script.prepare_invoke();
            script.load_async(&mut connection).await?;
            let (queue, questions) = mpsc::unbounded_channel();
            tokio::spawn(send(questions, connection, call.clone()));
            queues.push(queue);
        }
        Ok(Self {
            queues,
            keys,
            owners,
        })
    }

    async fn decide(&self, key: usize) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let question = Question {
            key: self.keys[key].clone(),
            answer,
        };
        self.queues[self.owners[key]].send(question)?;
        match answered.await? {
            true => Ok(()),
            false => Err("a pipeline made by hand failed".into()),
        }
    }
}

/// Sends all questions that wait as one pipeline, while fewer than the limit are in flight.
async fn send(
    mut questions: mpsc::UnboundedReceiver<Question>,
    connection: MultiplexedConnection,
    call: Call,
) {
    let in_flight = Arc::new(Semaphore::new(PIPELINES_IN_FLIGHT));
    while let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await {
        let mut batch = Vec::new();
        if questions.recv_many(&mut batch, MAX_IN_PIPELINE).await == 0 {
            return;
        }
        let (mut connection, call) = (connection.clone(), call.clone());
        tokio::spawn(async move {
            let mut pipeline = pipe();
            for question in &batch {
                pipeline.cmd("EVALSHA").arg(call.script.get_hash()).arg(1);
                pipeline.arg(&question.key).arg(&*call.argument);
            }
            let answers: Vec<Value> = pipeline
                .query_async(&mut connection)
                .await
                .unwrap_or_default();
            drop(permit);
            let mut answers = answers.into_iter();
            for question in batch {
                // A caller that has gone needs no answer.
                let _ = question
                    .answer
                    .send(answers.next().is_some_and(|reply| is_allowed(&reply)));
            }
        });
    }
}
