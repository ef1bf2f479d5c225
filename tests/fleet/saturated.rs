//! Four processes with 64 tasks each ask for more than there is: every grant is lawful, and nothing
//! is left unused.
//!
//! `TIDEGATE_FLEET_SECONDS` makes each phase so much longer: the million grants of `tests/nightly.sh`.

use kit::windows::{Grant, Limit, fullest_window, grants_of, lines_of, violation};
use tokio::time::Instant;

use crate::*;

const TASKS: usize = 64;
const MAXIMA: [u64; 5] = [1, 3, 10, 100, 1_000];

/// What is asked for at once, and for how long.
struct Phase {
    algorithms: Vec<Algorithm>,
    window: Duration,
    lasts: Duration,
}

impl Phase {
    /// The shortest window alone, since it takes all that the server can do.
    fn all() -> Vec<Self> {
        let more = Duration::from_secs(from_env("TIDEGATE_FLEET_SECONDS", 0));
        let phase = |algorithms: &[Algorithm], window, lasts| Self {
            algorithms: algorithms.to_vec(),
            window: millis(window),
            lasts: millis(lasts) + more,
        };
        let short = Algorithm::ALL.map(|algorithm| phase(&[algorithm], 50, 2_000));
        let longer = [(1_000, 3_500), (10_000, 12_000)];
        let longer = longer.map(|(window, lasts)| phase(&Algorithm::ALL, window, lasts));
        short.into_iter().chain(longer).collect()
    }

    fn limits(&self) -> Vec<Limit> {
        let window = u64::try_from(self.window.as_micros()).expect("a short window");
        let of = |algorithm| MAXIMA.map(|max| Limit::new(algorithm, max, window));
        self.algorithms.iter().flat_map(|at| of(*at)).collect()
    }

    /// The same with a window that is so many times as long.
    fn longer(mut self, times: u32) -> Self {
        if times > 1 {
            self.window *= times;
            self.lasts = self.lasts.max(4 * self.window);
        }
        self
    }
}

/// Asks until the phase is over; a denial is waited out, so that the others are asked meanwhile.
async fn ask(store: Arc<dyn Store>, limit: Limit, task: u64, until: Instant) -> Vec<Grant> {
    let path = format!("{} {} {}", limit.algorithm.name(), limit.max, limit.window);
    let take = limit.take(&path);
    let dearest = if limit.max < 10 { 1 } else { 3 };
    let mut grants = Vec::new();
    for step in task.. {
        if Instant::now() >= until {
            break;
        }
        let cost = 1 + step % dearest;
        let decision = store.take(&take.clone().with_cost(cost)).await;
        let decision = decision.expect("a decision");
        match decision.receipt() {
            Some(receipt) => grants.push(Grant {
                stamp: receipt.stamp(),
                cost,
            }),
            None => tokio::time::sleep(decision.retry_after().unwrap_or_default()).await,
        }
    }
    grants
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by another test"]
async fn worker_asks_for_more_than_there_is() {
    let Some(words) = instructions() else { return };
    let store = store(&words[0]).await;
    let [at, times] = numbers(&words);
    let phase = Phase::all().remove(at as usize).longer(times as u32);
    // More of them for the largest.
    let limits = (0..).zip(phase.limits());
    let largest = limits.clone().filter(|(_, limit)| limit.max == MAXIMA[4]);
    let limits: Vec<_> = largest.cycle().take(TASKS / 2).chain(limits).collect();
    let until = Instant::now() + phase.lasts;
    let tasks = (0..TASKS).map(|task| {
        // From the end, so that each limit is asked for.
        let (at, limit) = limits[limits.len() - 1 - task % limits.len()];
        let asking = ask(store.clone(), limit, task as u64, until);
        tokio::spawn(async move { asking.await.into_iter().map(move |grant| (at, grant)) })
    });
    print!("{}", lines_of(done(tasks).await.into_iter().flatten()));
}

/// Laws 1 of all algorithms, for a whole fleet and by the server's clock.
#[test]
fn nothing_is_above_its_limit_and_nothing_is_left() {
    let _machine = MACHINE.blocking_lock();
    let server = Redis::start();
    let mut all = 0;
    for at in 0..Phase::all().len() {
        for attempt in 0.. {
            // A busy machine cannot ask for as much: it gets a longer window.
            let (grants, unused) = play(at, 4_u32.pow(attempt), &server);
            all += grants;
            if unused.is_empty() {
                break;
            }
            assert!(attempt < 3, "{unused:?}");
            println!("phase {at}, attempt {attempt}: {unused:?}");
        }
    }
    println!("{all} grants, none above a limit");
}

/// Plays a phase. Returns the number of grants, and the limits that were not used up, with their
/// fullest windows.
fn play(at: usize, times: u32, server: &Redis) -> (usize, Vec<(Limit, u64)>) {
    let phase = Phase::all().remove(at).longer(times);
    let worker = "saturated::worker_asks_for_more_than_there_is";
    let workers = start_workers(worker, PROCESSES, |_| {
        format!("{} {at} {times}", server.url)
    });
    let mut grants = grants_of(&outputs(workers));
    let (mut all, mut unused) = (0, Vec::new());
    for (at, limit) in (0..).zip(phase.limits()) {
        let grants = grants.remove(&at).unwrap_or_default();
        assert_eq!(violation(limit, &grants), None, "{limit:?}");
        let fullest = fullest_window(&grants, limit.window);
        if fullest * 100 < limit.max * 99 {
            unused.push((limit, fullest));
        }
        all += grants.len();
    }
    assert!(grants.is_empty(), "grants that nobody asked for");
    (all, unused)
}
