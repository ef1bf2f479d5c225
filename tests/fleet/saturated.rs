//! Four processes with 64 tasks each ask for more than there is: every grant is lawful, and nothing
//! is left unused.
//!
//! `TIDEGATE_FLEET_SECONDS` makes each phase so much longer: the million grants of `tests/nightly.sh`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use kit::Redis;
use kit::workers::{instructions, outputs, start_worker};
use tidegate::{Algorithm, Key, Quota, Rule, Store, Take};
use tokio::time::Instant;

use crate::{MACHINE, PROCESSES, store};
use kit::windows::{Grant, Limit, fullest_window, violation};

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
        let more = std::env::var("TIDEGATE_FLEET_SECONDS").map(|text| text.parse::<u64>());
        let more = Duration::from_secs(more.map_or(0, |number| number.expect("a number")));
        let phase = |algorithms: &[Algorithm], window: u64, lasts: u64| Self {
            algorithms: algorithms.to_vec(),
            window: Duration::from_millis(window),
            lasts: Duration::from_millis(lasts) + more,
        };
        let short = Algorithm::ALL.map(|algorithm| phase(&[algorithm], 50, 2_000));
        let longer = [(1_000, 3_500), (10_000, 12_000)];
        let longer = longer.map(|(window, lasts)| phase(&Algorithm::ALL, window, lasts));
        short.into_iter().chain(longer).collect()
    }

    fn limits(&self) -> Vec<Limit> {
        let window = u64::try_from(self.window.as_micros()).expect("a short window");
        let of = |algorithm| {
            MAXIMA.map(|max| Limit {
                algorithm,
                max,
                window,
            })
        };
        self.algorithms.iter().flat_map(|at| of(*at)).collect()
    }

    fn instructions(&self, url: &str) -> String {
        let names: Vec<_> = self.algorithms.iter().map(|at| at.name()).collect();
        let (window, lasts) = (self.window.as_millis(), self.lasts.as_millis());
        format!("{url} {window} {lasts} {}", names.join(" "))
    }

    fn from_instructions(words: &[String]) -> Self {
        let millis = |at: usize| Duration::from_millis(words[at].parse().expect("a number"));
        let named = |at: &Algorithm| words[3..].iter().any(|word| word == at.name());
        Self {
            algorithms: Algorithm::ALL.into_iter().filter(named).collect(),
            window: millis(1),
            lasts: millis(2),
        }
    }
}

fn take(limit: Limit) -> Take {
    let window = Duration::from_micros(limit.window);
    let quota = Quota::new(window, limit.max).expect("valid");
    let path = format!("{} {} {}", limit.algorithm.name(), limit.max, limit.window);
    let rule = Rule::new(&path, [quota]).expect("valid");
    Take::new(
        Arc::new(rule.with_algorithm(limit.algorithm)),
        Key::default(),
    )
}

/// Asks until the phase is over; a denial is waited out, so that the others are asked meanwhile.
async fn ask(store: Arc<dyn Store>, limit: Limit, task: u64, until: Instant) -> Vec<Grant> {
    let take = take(limit);
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
    let phase = Phase::from_instructions(&words);
    // More of them for the largest.
    let limits = phase.limits();
    let largest = limits.iter().filter(|limit| limit.max == MAXIMA[4]);
    let limits: Vec<_> = largest
        .cycle()
        .take(TASKS / 2)
        .chain(&limits)
        .copied()
        .collect();
    let until = Instant::now() + phase.lasts;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            // From the end, so that each limit is asked for.
            let limit = limits[limits.len() - 1 - task % limits.len()];
            let asking = ask(store.clone(), limit, task as u64, until);
            (limit, tokio::spawn(asking))
        })
        .collect();
    let mut lines = String::from("\n");
    for (limit, task) in tasks {
        for grant in task.await.expect("no panic") {
            let Limit { algorithm, max, .. } = limit;
            let (name, Grant { stamp, cost }) = (algorithm.name(), grant);
            writeln!(lines, "grant {name} {max} {stamp} {cost}").expect("a string takes all");
        }
    }
    print!("{lines}");
}

fn grants(outputs: &[String]) -> BTreeMap<(String, u64), Vec<Grant>> {
    let mut grants: BTreeMap<_, Vec<Grant>> = BTreeMap::new();
    let lines = outputs.iter().flat_map(|output| output.lines());
    for line in lines.filter_map(|line| line.strip_prefix("grant ")) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let of = grants.entry((words[0].to_owned(), number(1))).or_default();
        of.push(Grant {
            stamp: number(2),
            cost: number(3),
        });
    }
    for grants in grants.values_mut() {
        grants.sort_by_key(|grant| grant.stamp);
    }
    grants
}

/// Laws 1 of all algorithms, for a whole fleet and by the server's clock.
#[test]
fn nothing_is_above_its_limit_and_nothing_is_left() {
    let _machine = MACHINE.blocking_lock();
    let server = Redis::start();
    let mut all = 0;
    for mut phase in Phase::all() {
        for attempt in 0.. {
            let (grants, unused) = play(&phase, &server);
            all += grants;
            if unused.is_empty() {
                break;
            }
            assert!(attempt < 3, "{unused:?}");
            // A busy machine cannot ask for as much: it gets a longer window.
            println!("in {:?}: {unused:?}", phase.window);
            phase.window *= 4;
            phase.lasts = phase.lasts.max(4 * phase.window);
        }
    }
    println!("{all} grants, none above a limit");
}

/// Plays a phase. Returns the number of grants, and the limits that were not used up, with their
/// fullest windows.
fn play(phase: &Phase, server: &Redis) -> (usize, Vec<(Limit, u64)>) {
    let instructions = phase.instructions(&server.url);
    let worker = "saturated::worker_asks_for_more_than_there_is";
    let workers = (0..PROCESSES).map(|_| start_worker(worker, &instructions));
    let mut grants = grants(&outputs(workers.collect()));
    let (mut all, mut unused) = (0, Vec::new());
    for limit in phase.limits() {
        let name = limit.algorithm.name().to_owned();
        let grants = grants.remove(&(name, limit.max)).unwrap_or_default();
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
