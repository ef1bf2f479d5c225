//! Four processes ask under a rule of three subjects, abort some of their takes, and find Redis
//! stopped at times: what is charged, is charged in each subject, and no window of any subject holds
//! more than its max.

use kit::windows::{Grant, Limit, violation};
use kit::workers::{lines_of, outputs_of};

use crate::*;

/// Of all processes. `TIDEGATE_JOINT` says another number.
const REQUESTS: u64 = 40_000;
/// What counts for an hour, of which no key ever has enough.
const PLENTY: u32 = 1_000_000_000;
/// By subject: how many keys it has, and how much each may in a second.
const SUBJECTS: [(&str, u64, u32); 3] = [
    ("user", 200, 40),
    ("address", 20, 300),
    ("everyone", 1, 4_000),
];

fn rule(algorithm: Algorithm) -> Arc<Rule> {
    let subjects = SUBJECTS.map(|(name, _, max)| {
        let subject = Subject::new(name, Everyone).limit(Quota::per_second(max));
        subject.limit(Quota::per_hour(PLENTY))
    });
    let rule = Rule::joint("joint", subjects).expect("valid");
    Arc::new(rule.with_algorithm(algorithm))
}

fn take(rule: &Arc<Rule>, keys: [u64; 3]) -> Take {
    let keys = SUBJECTS.iter().zip(keys);
    let keys = keys.map(|((name, number, _), key)| match number {
        1 => (*name, Key::default()),
        _ => (*name, Key::from(key)),
    });
    Take::of_subjects(Arc::clone(rule), keys).expect("all subjects")
}

/// Plays one process.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "is started by other tests"]
async fn worker_takes_of_three_subjects() {
    let Some(words) = instructions() else { return };
    let store = kit::load::store(&words[0]).await;
    let store = Arc::new(store.timeout(millis(100)));
    let rule = rule(algorithm(&words[1]));
    let [requests, process] = numbers(&words);
    let unknown = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS as u64).map(|task| {
        let (store, rule, unknown) = (Arc::clone(&store), Arc::clone(&rule), Arc::clone(&unknown));
        let mut random = Random::new(process * 1_000 + task);
        async move {
            let mut grants = Vec::new();
            for _ in 0..requests / TASKS as u64 {
                let keys = SUBJECTS.map(|(_, number, _)| random.below(number));
                let cost = 1 + random.below(4);
                let asked = store.take(&take(&rule, keys).with_cost(cost));
                // Most takes are decided later than this.
                let answer = match random.is(3) {
                    true => timeout(millis(1) / 10, asked).await.ok(),
                    false => Some(asked.await),
                };
                match answer {
                    None | Some(Err(_)) => drop(unknown.fetch_add(cost, Ordering::Relaxed)),
                    Some(Ok(decision)) => grants.extend(decision.receipt().map(|receipt| {
                        let stamps = receipt.counts().iter().map(|it| it.stamp());
                        assert_eq!(stamps.max(), Some(receipt.stamp()), "one clock");
                        let resets = decision.quotas().iter().step_by(2);
                        let resets = resets.map(|it| it.reset_after().as_micros());
                        (receipt.stamp(), cost, keys, resets.collect::<Vec<_>>())
                    })),
                }
            }
            grants
        }
    });
    let mut lines = String::from("\n");
    for (stamp, cost, keys, resets) in in_tasks(tasks).await.into_iter().flatten() {
        lines += &format!("grant {stamp} {cost}");
        for (key, reset) in keys.iter().zip(resets) {
            lines += &format!(" {key} {reset}");
        }
        lines.push('\n');
    }
    println!("{lines}unknown {}", unknown.load(Ordering::Relaxed));
}

/// The same law for fixed windows by what the grants say of when their window ends: a take of which
/// nobody heard may have begun it. Why these grants, in the order of their stamps, break the limit;
/// or nothing.
fn fullest_told_window(grants: &[(Grant, u64)], max: u64, window: u64) -> Option<String> {
    let (mut end, mut inside) = (0, 0);
    for (grant, of) in grants {
        if *of != end {
            let is_next = *of >= end + window && (*of - window..*of).contains(&grant.stamp);
            if !is_next {
                return Some(format!("{grant:?} in a window until {of}, not {end}"));
            }
            (end, inside) = (*of, 0);
        }
        inside += grant.cost;
        if inside > max {
            return Some(format!("{inside} in the window until {end}"));
        }
    }
    None
}

async fn no_subject_is_above_its_max(algorithm: Algorithm) {
    let _machine = MACHINE.lock().await;
    let server = Redis::start();
    let requests = from_env("TIDEGATE_JOINT", REQUESTS) / PROCESSES as u64;
    let (name, worker) = (algorithm.name(), "joint::worker_takes_of_three_subjects");
    let workers = start_workers(worker, PROCESSES, |process| {
        format!("{} {name} {requests} {process}", server.url)
    });
    let outputs = tokio::spawn(outputs_of(workers));
    for _ in 0..2 {
        sleep(millis(500)).await;
        server.signal("STOP");
        sleep(millis(300)).await;
        server.signal("CONT");
    }
    let outputs = outputs.await.expect("no panic");

    let mut grants: [HashMap<u64, Vec<(Grant, u64)>>; 3] = Default::default();
    let (mut admitted, unknown) = (0, sum(&outputs, "unknown "));
    for grant in lines_of(&outputs, "grant") {
        let (stamp, cost) = (grant[0], grant[1]);
        admitted += cost;
        for (subject, of) in grants.iter_mut().zip(grant[2..].chunks(2)) {
            let grants = subject.entry(of[0]).or_default();
            grants.push((Grant { stamp, cost }, stamp + of[1]));
        }
    }
    for ((name, _, max), grants) in SUBJECTS.iter().zip(&mut grants) {
        for (key, grants) in grants {
            grants.sort_by_key(|(grant, _)| grant.stamp);
            let (max, window) = (u64::from(*max), 1_000_000);
            let violation = if algorithm == Algorithm::FixedWindow {
                fullest_told_window(grants, max, window)
            } else {
                let grants: Vec<_> = grants.iter().map(|(grant, _)| *grant).collect();
                violation(Limit::new(algorithm, max, window), &grants)
            };
            assert_eq!(violation, None, "{name} {key}");
        }
    }

    // Each subject has been charged the same: what was admitted, and some of what nobody heard of.
    let store = kit::load::store(&server.url).await;
    let rule = rule(algorithm);
    let mut charged = [0; 3];
    for (subject, (_, number, _)) in SUBJECTS.iter().enumerate() {
        for key in 0..*number {
            let state = store.peek(&take(&rule, [key; 3])).await.expect("an answer");
            charged[subject] += u64::from(PLENTY) - state.quotas()[2 * subject + 1].remaining();
        }
    }
    eprintln!("{name}: {admitted} admitted, {unknown} unknown, charged {charged:?}");
    let [first, ..] = charged;
    assert_eq!(charged, [first; 3]);
    assert!((admitted..=admitted + unknown).contains(&first), "{first}");
    let asked_for_much = unknown > 0 && admitted > 4 * requests / 10;
    assert!(asked_for_much, "this test asked for too little");
}

kit::cases! {
    no_subject_is_above_its_max_in_logs: no_subject_is_above_its_max(Algorithm::SlidingLog);
    no_subject_is_above_its_max_in_fixed_windows:
        no_subject_is_above_its_max(Algorithm::FixedWindow);
}
