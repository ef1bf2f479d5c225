//! Who has gone is not charged: a script that runs too late does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, Value, cmd};
use tidegate::{
    Algorithm, Decision, Key, Quota, Reconnecting, RedisStore, Rule, Store, StoreErrorKind,
    StoreExt, Take,
};

use crate::support::Redis;
use crate::{ask, take};

fn take_by(algorithm: Algorithm, path: &str) -> Take {
    let rule = Rule::new(path, [Quota::per_hour(1_000)]).expect("a valid rule");
    Take::new(Arc::new(rule.algorithm(algorithm)), Key::default())
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::Gcra,
    Algorithm::FixedWindow,
];

/// A connection is given up while it is silent, and a new one takes its time.
async fn peek_when_back(store: &RedisStore, take: &Take) -> Decision {
    let began = Instant::now();
    loop {
        match store.peek(take).await {
            Ok(decision) => return decision,
            Err(error) => assert!(began.elapsed().as_secs() < 20, "not back: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Takes that were given up while the server stood still are not charged when it goes on.
#[tokio::test]
async fn late_takes_charge_nothing() {
    let server = Redis::start();
    let patient = server.store().await;
    let store = patient.clone().timeout(Duration::from_millis(100));
    // One that is charged, and a fresh one; several quotas, and batches.
    let two = Rule::new("two", [Quota::per_hour(50), Quota::per_day(500)]).expect("valid");
    let two = Take::new(Arc::new(two.algorithm(Algorithm::Gcra)), Key::default());
    let mut takes: Vec<_> = ALGORITHMS
        .iter()
        .flat_map(|algorithm| {
            let name = format!("{algorithm:?}");
            [
                take_by(*algorithm, &name),
                take_by(*algorithm, &format!("fresh {name}")),
            ]
        })
        .collect();
    takes.push(two.clone());
    takes.extend(vec![two; 5]);
    for take in takes
        .iter()
        .filter(|take| !take.rule().path().starts_with("fresh"))
    {
        ask(&patient, take).await;
    }
    let mut before = Vec::new();
    for take in &takes {
        before.push(patient.peek(take).await.expect("a decision").remaining());
    }

    let mut pause = cmd("CLIENT");
    pause.arg("PAUSE").arg(600);
    pause.exec(&mut server.connection()).expect("pauses");
    let each = futures_util::future::join_all(takes.iter().map(|take| store.take_one(take)));
    let (each, all) = futures_util::future::join(each, store.take(&takes)).await;
    for answer in each {
        let error = answer.expect_err("no decision");
        assert_eq!(error.kind(), StoreErrorKind::Timeout);
    }
    assert_eq!(
        all.expect_err("no decision").kind(),
        StoreErrorKind::Timeout
    );

    for (take, before) in takes.iter().zip(before) {
        let now = peek_when_back(&patient, take).await;
        assert_eq!(now.remaining(), before, "{}", take.rule().path());
    }
    for take in &takes {
        assert!(ask(&patient, take).await.is_allowed(), "and it goes on");
    }
}

/// A way to the server that gives so many calls this number instead of their replies.
#[derive(Clone)]
struct Hasty {
    server: Reconnecting,
    says: i64,
    hasty: Arc<AtomicUsize>,
}

/// A server that is not late by our clock, but by its own.
const LATE: i64 = 1_900_000_000_000_000;

impl Hasty {
    async fn store(server: &Redis, says: i64) -> (RedisStore<Self>, Arc<AtomicUsize>) {
        let connection = Reconnecting::connect(&*server.url, Duration::from_secs(20)).await;
        let hasty = Arc::new(AtomicUsize::new(0));
        let store = RedisStore::new(Self {
            server: connection.expect("a running server"),
            says,
            hasty: Arc::clone(&hasty),
        });
        (store.timeout(Duration::from_secs(20)), hasty)
    }
}

impl ConnectionLike for Hasty {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let hasty = Arc::clone(&self.hasty);
        Box::pin(async move {
            let reply = self.server.req_packed_command(command).await?;
            let less = |left: usize| left.checked_sub(1);
            let relaxed = Ordering::Relaxed;
            if hasty.fetch_update(relaxed, relaxed, less).is_err() {
                return Ok(reply);
            }
            Ok(match reply {
                // As the scripts answer a take that is late.
                Value::BulkString(reply) if self.says == LATE => {
                    let mark = &reply[8..16];
                    Value::BulkString([&LATE.to_le_bytes(), mark, &[3, 1, 0]].concat())
                }
                _ => Value::Int(self.says),
            })
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.server.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// A clock that was set, or another server's after a failover, is learnt within the take that finds out.
#[tokio::test]
async fn a_clock_that_jumps_costs_a_call_more() {
    let server = Redis::start();
    let (store, hasty) = Hasty::store(&server, LATE).await;
    let take = take("p", &[Quota::per_hour(100)]);
    assert!(
        store
            .take_one(&take)
            .await
            .expect("a decision")
            .is_allowed()
    );
    hasty.store(1, Ordering::Relaxed);
    assert!(
        store
            .take_one(&take)
            .await
            .expect("a decision")
            .is_allowed()
    );
    assert_eq!(hasty.load(Ordering::Relaxed), 0);

    // One whose takes are always late is given up.
    hasty.store(1_000, Ordering::Relaxed);
    let error = store.take_one(&take).await.expect_err("no decision");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(hasty.load(Ordering::Relaxed) > 990);
    hasty.store(0, Ordering::Relaxed);
    assert!(
        store
            .take_one(&take)
            .await
            .expect("a decision")
            .is_allowed()
    );
}

/// The reply to somebody else's refund, such as after one was lost on the way: it says nothing of a deadline, and the take
/// is not sent again.
#[tokio::test]
async fn another_ones_number_is_not_taken_for_a_clock() {
    let server = Redis::start();
    let (store, hasty) = Hasty::store(&server, 3).await;
    let take = take("p", &[Quota::per_hour(100)]);
    ask(&store, &take).await;
    hasty.store(1, Ordering::Relaxed);
    let error = store.take_one(&take).await.expect_err("no decision");
    assert_eq!(error.kind(), StoreErrorKind::Protocol, "{error}");
    let looked = store.peek(&take).await.expect("a decision");
    assert_eq!(looked.remaining(), 98, "it was charged once");
}

/// A time-out that is as good as none.
#[tokio::test]
async fn the_longest_timeouts_decide() {
    let server = Redis::start();
    let years = |number: u64| Duration::from_secs(number * 365 * 24 * 60 * 60);
    for timeout in [
        years(2),
        years(400),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ] {
        let store = server.store().await.timeout(timeout);
        let take = take("p", &[Quota::per_hour(100)]);
        assert!(ask(&store, &take).await.is_allowed(), "{timeout:?}");
        let token = ask(&store, &take).await.token().expect("charged");
        assert_eq!(store.refund(&take, &token).await.expect("answers"), 1);
    }
}
