//! A process that is slow is not a Redis that is slow: what Redis answered counts, however late
//! this process reads it.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use futures_util::future::join_all;
use http::{Request, StatusCode};
use kit::Redis;
use kit::log::Log;
use tidegate::decision::Source;
use tidegate::metrics::{DecisionOutcome, RuleSnapshot};
use tidegate::store::StoreErrorKind;
use tidegate::{Limits, Quota, RedisStore, Resilient, Rule, Store};
use tokio::task::yield_now;
use tower::ServiceExt;

use crate::flights::script_calls;

const TIMEOUT: Duration = Duration::from_millis(500);
const REQUESTS: usize = 20;
const MAX: u32 = 10;

/// A service behind a limit of [`MAX`], whose store asks no more after one failure.
struct Service {
    server: Redis,
    store: Resilient<RedisStore>,
    limits: Limits,
    app: Router,
}

impl Service {
    /// The time-out is that of the store, or of the wrapper around it.
    async fn start(is_of_wrapper: bool) -> Self {
        let server = Redis::start();
        let store = RedisStore::connect(&*server.url).await;
        let store = store.expect("a running server").prefix("lag:");
        let store = match is_of_wrapper {
            true => Resilient::new(store).timeout(TIMEOUT),
            false => Resilient::new(store.timeout(TIMEOUT)),
        };
        let store = store.failures(1).processes(2);
        let rule = Rule::new("slow", [Quota::per_hour(MAX)]).expect("valid");
        let limits = Limits::new([rule]).store(store.clone());
        let app = Router::new().route("/", get(|| async { "1" }).layer(limits.layer("slow")));
        Self {
            server,
            store,
            limits,
            app,
        }
    }

    /// How many of these requests at the same time were admitted.
    async fn admits(&self, requests: usize) -> usize {
        let requests = (0..requests).map(|_| {
            let request = Request::get("/").body(Body::empty()).expect("valid");
            self.app.clone().oneshot(request)
        });
        let responses = join_all(requests).await.into_iter();
        let statuses = responses.map(|response| response.expect("axum does not fail").status());
        statuses.filter(|status| *status == StatusCode::OK).count()
    }

    fn counted(&self) -> RuleSnapshot {
        let snapshot = self.limits.snapshot();
        snapshot.rule("slow").expect("a layer uses it").clone()
    }
}

fn by(counted: &RuleSnapshot, source: Source) -> u64 {
    let outcomes = [DecisionOutcome::Allowed, DecisionOutcome::Denied];
    let by = outcomes.map(|outcome| counted.decisions_by(outcome, source));
    by.iter().sum()
}

/// Something blocks the only thread of the runtime for longer than the time-out, as soon as
/// `may_block` says so of the script calls that the server has executed.
async fn a_blocked_process_lets_redis_decide(
    is_of_wrapper: bool,
    requests: usize,
    may_block: fn(u64) -> bool,
) {
    let service = Service::start(is_of_wrapper).await;
    let log = Log::start();
    let before = script_calls(&service.server);
    let blocks = async {
        while !may_block(script_calls(&service.server) - before) {
            yield_now().await;
        }
        std::thread::sleep(2 * TIMEOUT);
    };
    let (admitted, ()) = tokio::join!(service.admits(requests), blocks);

    let counted = service.counted();
    assert_eq!(admitted, requests.min(MAX as usize), "{counted:?}");
    assert_eq!(by(&counted, Source::Redis), requests as u64, "{counted:?}");
    assert!(counted.lagged > 0, "{counted:?}");
    assert!(
        counted.errors().all(|(_, number)| number == 0),
        "{counted:?}"
    );
    assert_eq!(service.store.condition().is_breaker_open, Some(false));
    let mut warnings = log.lines();
    warnings.retain(|line| line.contains("WARN"));
    assert!(
        matches!(&*warnings, [line] if line.contains("lag: this process")),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn a_reply_that_waits_to_be_read_counts() {
    for is_of_wrapper in [false, true] {
        a_blocked_process_lets_redis_decide(is_of_wrapper, 1, |calls| calls > 0).await;
        a_blocked_process_lets_redis_decide(is_of_wrapper, REQUESTS, |calls| calls > 0).await;
    }
}

/// The server refuses what comes after its deadline, and charges nothing: it is asked again.
#[tokio::test]
async fn a_take_that_was_sent_late_counts() {
    for is_of_wrapper in [false, true] {
        a_blocked_process_lets_redis_decide(is_of_wrapper, 1, |_| true).await;
        a_blocked_process_lets_redis_decide(is_of_wrapper, REQUESTS, |_| true).await;
    }
}

/// Nothing is given back where the process runs: it is Redis that is slow.
#[tokio::test]
async fn a_redis_that_hangs_is_a_timeout() {
    for is_of_wrapper in [false, true] {
        let service = Service::start(is_of_wrapper).await;
        let log = Log::start();
        service.server.signal("STOP");
        let began = Instant::now();
        let admitted = service.admits(REQUESTS).await;
        let took = began.elapsed();
        service.server.signal("CONT");
        assert!(took >= TIMEOUT && took < 10 * TIMEOUT, "{took:?}");
        let counted = service.counted();
        assert_eq!(admitted, MAX as usize / 2, "{counted:?}");
        let timeouts = counted.store_errors(StoreErrorKind::Timeout);
        assert_eq!(timeouts, REQUESTS as u64, "{counted:?}");
        assert_eq!(by(&counted, Source::Fallback), REQUESTS as u64);
        assert_eq!(counted.lagged, 0, "{counted:?}");
        assert_eq!(service.store.condition().is_breaker_open, Some(true));
        let lines = log.lines();
        let is_told = |line: &String| line.contains("the fallback") && line.contains("\"timeout\"");
        assert!(lines.iter().any(is_told), "{lines:?}");
    }
}
