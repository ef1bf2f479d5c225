//! Load by the server's clock, while the fleet is rolled up and back: no window holds more than its
//! max, nothing that was counted is lost, one has the lock at a time, and each version wakes the
//! waiters of the other.

use std::collections::BTreeMap;

use kit::lock_oracle::overlaps;
use kit::windows::{Spent, too_fast, too_full};
use tidegate::store::CountAsk;
use tokio::task::spawn_blocking;

use super::player::take;
use super::*;

const ROLL: [[Version; 2]; 5] = [[OLD, OLD], [OLD, NEW], [NEW, NEW], [NEW, OLD], [OLD, OLD]];
/// For how long each of these runs, in milliseconds. Windows are shorter, and longer.
const STAGE: u64 = 3_000;
/// What counts for an hour, of which no key ever has enough.
const PLENTY: u64 = 1_000_000_000;
const HOUR: Duration = Duration::from_secs(3_600);
/// As `load.rs` has them: units of the limiter, and microseconds.
const RATE: u64 = 20;
const INTERVAL: u64 = 500_000;
const LEASE: u64 = 1_000_000;
const RULES: &str = include_str!("../../versions/load.toml");

fn rules() -> String {
    let (all, sliding) = RULES.split_once("---").expect("two parts");
    let of = |it: Algorithm| match it {
        Algorithm::SlidingLog | Algorithm::SlidingWindow => [all, sliding].concat(),
        _ => all.to_owned(),
    };
    let all = Algorithm::ALL.map(|it| of(it).replace("ALGORITHM", it.name()));
    all.concat()
}

/// A line behind its first word: the number of the process, its words, and the numbers among them.
type Line<'a> = (usize, Vec<&'a str>, Vec<u64>);

fn lines<'a>(outputs: &'a [(Version, String)], word: &str) -> Vec<Line<'a>> {
    let mut found = Vec::new();
    for (process, (_, output)) in outputs.iter().enumerate() {
        for line in output.lines().filter_map(|line| line.strip_prefix(word)) {
            let words: Vec<_> = line.split_whitespace().collect();
            let numbers = words.iter().filter_map(|it| it.parse().ok()).collect();
            found.push((process, words, numbers));
        }
    }
    found
}

/// `UNITS FROM UNTIL`.
fn spent(numbers: &[u64], units: u64, bound: u64) -> Spent {
    let [.., from, until] = *numbers else {
        panic!("{numbers:?}")
    };
    Spent {
        units,
        from,
        until,
        bound,
    }
}

/// What was charged in a count for a window.
struct Charged(Algorithm, Quota, Vec<Spent>);

impl Charged {
    fn check(&mut self, name: &str) {
        let Self(algorithm, quota, spent) = self;
        // Of one batch, those that allow less came first.
        spent.sort_by_key(|it| (it.until, it.bound));
        let (max, window) = (quota.max(), quota.window().as_micros() as u64);
        let broken = match *algorithm {
            Algorithm::Gcra => too_fast(spent, max, window),
            _ => too_full(spent, window),
        };
        assert_eq!(broken, None, "{name} {quota:?}");
    }
}

/// No window is above its max, and what counts for an hour is all that was granted.
async fn check_takes(server: &Redis, outputs: &[(Version, String)]) {
    let rules = Rules::from_toml(&rules()).expect("valid");
    let store = kit::load::store(&server.url).await;
    let (mut charged, mut takes) = (BTreeMap::new(), BTreeMap::new());
    for (_, words, numbers) in lines(outputs, "grant ") {
        let take = take(&rules, words[0], words[1], words[2]).expect("a take");
        let take = take.with_cost(numbers[0]);
        let algorithm = take.rule().algorithm().algorithm();
        for count in take.counts() {
            for quota in count.quotas() {
                let of = (count.name(""), quota.window());
                let all = charged.entry(of);
                let all = all.or_insert(Charged(algorithm, *quota, Vec::new()));
                // A window of this length may meet two fixed ones.
                let fixed = u64::from(algorithm == Algorithm::FixedWindow);
                all.2
                    .push(spent(&numbers, count.cost(), quota.max() << fixed));
            }
        }
        takes.insert((words[0], words[2]), take);
    }
    let names = charged.iter_mut();
    names.for_each(|((name, _), charged)| charged.check(name));
    for take in takes.into_values() {
        let state = store.peek(&take).await.expect("a decision");
        let used = state.quotas().iter().map(|it| it.remaining());
        let used = used
            .filter(|left| *left > PLENTY / 2)
            .map(|left| PLENTY - left);
        let of_hour = |count: &CountAsk| charged.get(&(count.name(""), HOUR));
        let all = take.counts().iter().filter_map(of_hour);
        let all = all.map(|it| it.2.iter().map(|it| it.units).sum::<u64>());
        let (used, all): (Vec<_>, Vec<_>) = (used.collect(), all.collect());
        let is_gcra = take.rule().algorithm().algorithm() == Algorithm::Gcra;
        assert!(
            is_gcra || used == all,
            "{take:?}: {used:?} counts, {all:?} was granted"
        );
    }
}

/// One has the lock at a time. Returns how often it went to another process, and all holds.
fn check_locks(outputs: &[(Version, String)]) -> [usize; 2] {
    let mut holds = lines(outputs, "locked ");
    holds.sort_by_key(|it| it.2[1]);
    let mut named: Vec<_> = holds.iter().map(|it| ((), it.2[1], it.2[2])).collect();
    assert_eq!(overlaps(&mut named), Vec::<String>::new());
    assert!(holds.is_sorted_by_key(|it| it.2[0]), "tokens rise");
    let handed = holds.windows(2).filter(|pair| pair[0].0 != pair[1].0);
    // A process that was starved loses a lock.
    let long = holds.iter().filter(|it| it.2[2] - it.2[1] > LEASE).count();
    let lost = lines(outputs, "lost ").len();
    assert!(lost <= 2 + long, "{long} were renewed, {lost} were not");
    [handed.count(), holds.len()]
}

/// Of two processes of these versions, who ask for a stage's time.
async fn stage(url: &str, versions: [Version; 2], rules: &str) -> Vec<(Version, String)> {
    let children = versions.map(|version| {
        let mut child = start(version, url, "load");
        let mut input = child.stdin.take().expect("is piped");
        writeln!(input, "{rules}\n{STAGE}").expect("it listens");
        child
    });
    let outputs = spawn_blocking(|| kit::workers::outputs(children.into())).await;
    let outputs = outputs.expect("no panic");
    let outputs: Vec<_> = versions.into_iter().zip(outputs).collect();
    assert_eq!(lines(&outputs, "error"), [], "{versions:?}");
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "tests/versions.sh builds both versions"]
async fn a_fleet_is_rolled_up_and_back() {
    // Of one version, and of two.
    let mut handed = [[0; 2]; 2];
    let (began, rules, mut round) = (Instant::now(), rules().replace('\n', "\t"), 0);
    println!("| round | old grants | new grants | limiter | locks |");
    println!("|--:|--:|--:|--:|--:|");
    while round == 0 || began.elapsed() < share() {
        round += 1;
        let server = Redis::start();
        let mut all = Vec::new();
        for versions in ROLL {
            let outputs = stage(&server.url, versions, &rules).await;
            let handed = &mut handed[usize::from(versions[0] != versions[1])];
            let [of_stage, holds] = check_locks(&outputs);
            *handed = [handed[0] + of_stage, handed[1] + holds];
            all.extend(outputs);
        }
        check_takes(&server, &all).await;
        let acquired = lines(&all, "acquired ").into_iter();
        let mut acquired: Vec<_> = acquired.map(|(.., it)| spent(&it, it[0], RATE)).collect();
        acquired.sort_by_key(|it| it.until);
        // The layout counts by milliseconds.
        assert_eq!(too_full(&acquired, INTERVAL - 1_000), None);
        let units: u64 = acquired.iter().map(|it| it.units).sum();
        let grants = lines(&all, "grant ");
        let old = grants.iter().filter(|it| all[it.0].0 == OLD).count();
        let [_, locks] = check_locks(&all);
        let new = grants.len() - old;
        println!("| {round} | {old} | {new} | {units} | {locks} |");
        assert!(
            old > 0 && new > 0 && units > 0,
            "a version was granted nothing"
        );
    }
    println!("handed over, of all holds: {handed:?} in fleets of one version, and of two");
    // A waiter that is not woken asks once a second, and the other has the lock again before.
    let [of_one, of_two] = handed.map(|[handed, holds]| handed as f64 / holds as f64);
    assert!(
        of_two > of_one / 2.0,
        "no version wakes the waiters of the other"
    );
}
