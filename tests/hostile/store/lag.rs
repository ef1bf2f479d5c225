//! A process that is slow is not a Redis that is slow: what Redis answered counts, however late
//! this process reads it.

use kit::log::Log;

use crate::prelude::*;

const TIMEOUT: Duration = Duration::from_millis(500);
const REQUESTS: usize = 20;
const MAX: u64 = 10;

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
        let rule = kit::per_hour("slow", MAX);
        let limits = Limits::new([rule]).store(store.clone());
        let app = kit::app(limits.layer("slow").key(Everyone));
        Self {
            server,
            store,
            limits,
            app,
        }
    }

    /// How many of these requests at the same time were admitted.
    async fn admits(&self, requests: usize) -> usize {
        let statuses = join_all((0..requests).map(|_| kit::http::status(&self.app, "/"))).await;
        statuses.iter().filter(|status| status.is_success()).count()
    }

    fn counted(&self) -> RuleSnapshot {
        kit::counters(&self.limits, "slow")
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
    let before = service.server.script_calls();
    let blocks = async {
        while !may_block(service.server.script_calls() - before) {
            yield_now().await;
        }
        std::thread::sleep(2 * TIMEOUT);
    };
    let (admitted, ()) = tokio::join!(service.admits(requests), blocks);

    let counted = service.counted();
    assert_eq!(admitted, requests.min(MAX as usize), "{counted:?}");
    assert_eq!(by(&counted, Source::Redis), requests as u64, "{counted:?}");
    assert!(counted.lagged > 0, "{counted:?}");
    let is_right = counted.errors().all(|(_, number)| number == 0);
    assert!(is_right, "{counted:?}");
    assert_eq!(service.store.condition().is_breaker_open, Some(false));
    let mut warnings = log.lines();
    warnings.retain(|line| line.contains("WARN"));
    let is_right = matches!(&*warnings, [line] if line.contains("lag: this process"));
    assert!(is_right, "{warnings:?}");
}

/// A reply that waits to be read counts. A take that was sent late is refused after its deadline,
/// and charges nothing: it is asked again.
#[tokio::test]
async fn what_is_read_or_sent_late_counts() {
    let may_block: [fn(u64) -> bool; 2] = [|calls| calls > 0, |_| true];
    for may_block in may_block {
        for (is_of_wrapper, requests) in
            [(false, 1), (false, REQUESTS), (true, 1), (true, REQUESTS)]
        {
            a_blocked_process_lets_redis_decide(is_of_wrapper, requests, may_block).await;
        }
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
