//! Who has gone is not charged: a script that runs too late does nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, Value, cmd};
use tidegate::{
    Algorithm, Key, Quota, Reconnecting, RedisStore, Rule, Store, StoreErrorKind, StoreExt, Take,
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
        let now = patient.peek(take).await.expect("a decision");
        assert_eq!(now.remaining(), before, "{}", take.rule().path());
    }
    for take in &takes {
        assert!(ask(&patient, take).await.is_allowed(), "and it goes on");
    }
}

/// A server that is not late by our clock, but by its own: as many calls say so as it is told.
#[derive(Clone)]
struct Hasty {
    server: Reconnecting,
    hasty: Arc<AtomicUsize>,
}

impl ConnectionLike for Hasty {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let hasty = Arc::clone(&self.hasty);
        Box::pin(async move {
            let reply = self.server.req_packed_command(command).await?;
            let less = |left: usize| left.checked_sub(1);
            let relaxed = Ordering::Relaxed;
            Ok(match hasty.fetch_update(relaxed, relaxed, less) {
                Ok(_) => Value::Int(1_900_000_000_000_000),
                Err(_) => reply,
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
    let connection = Reconnecting::connect(&*server.url, Duration::from_secs(20)).await;
    let hasty = Arc::new(AtomicUsize::new(0));
    let store = RedisStore::new(Hasty {
        server: connection.expect("a running server"),
        hasty: Arc::clone(&hasty),
    });
    let store = store.timeout(Duration::from_secs(20));
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

    // One that is always late is as good as none, and told at once.
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
