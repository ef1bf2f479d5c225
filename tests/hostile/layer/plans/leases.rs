//! Leases under plans: what a process holds under one plan counts for every other one until it can
//! no longer be used, and at most 2 % of a plan's window is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kit::Redis;
use kit::random::Random;
use tidegate::decision::Source;
use tidegate::{Algorithm, Key, Resilient, Rule, Store, Take};
use tokio::time::sleep;

use super::{Pairs, all_of, of_own, with_plans};
use kit::{Allowed, PATIENT, behind, connect, millis};

const LEASED: [Algorithm; 3] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
];

fn leased(algorithm: Algorithm, own: Pairs<'_>, plans: &[(&str, Pairs<'_>)]) -> Vec<Arc<Rule>> {
    let rule = of_own("leased", own).with_algorithm(algorithm);
    let rule = with_plans(rule, plans).with_lease(Duration::from_secs(1));
    all_of(rule.expect("it has leases"))
}

/// A grant under one of the rules; when its window began at the latest, if that is fixed and the
/// store said so; and whether it was a leased unit.
type Grant = (usize, Allowed, Option<Instant>, bool);

/// Law 1 by the wall clock: what was certainly used within one window of a plan before one of its
/// own grants, and after that window began if it is fixed, is at most its max with it.
///
/// A leased unit was granted when its lease was, so what a larger plan is granted between that and
/// its use comes later: a plan may have more in use by then than its max, by what others were
/// granted during its lease.
fn check(grants: &mut [Grant], rules: &[Arc<Rule>], is_fixed: bool) {
    grants.sort_by_key(|(_, one, ..)| one.answered);
    for (at, (which, last, begin, is_leased)) in grants.iter().enumerate() {
        let quota = &rules[*which].quotas()[0];
        let lease = rules[*which].lease().expect("it has leases");
        let granted = if *is_leased {
            last.asked - lease
        } else {
            last.asked
        };
        let begin = match (is_fixed, begin) {
            (false, _) => last.answered.checked_sub(quota.window()).expect("late"),
            (true, Some(begin)) => *begin,
            (true, None) => continue,
        };
        let before = grants[..at].iter();
        let inside = before.filter(|(of, one, ..)| {
            let by = if of == which { last.asked } else { granted };
            one.answered <= by && one.asked > begin
        });
        let (inside, most) = (inside.count() as u64 + 1, quota.max());
        assert!(
            inside <= most,
            "law 1: {inside} of {most} by {quota:?} of rule {which}"
        );
    }
}

/// Three plans in turn on one key by processes that lease. Windows of very different lengths: a
/// lease that one plan would allow is too long for the other.
async fn plans_in_turn(algorithm: Algorithm) {
    let server = Redis::start();
    let proxy = behind(&server, millis(1)).await;
    let plans: [(&str, Pairs<'_>); 2] = [
        ("long", &[(100_000, Duration::from_secs(60))]),
        ("pro", &[(4_000, Duration::from_secs(2))]),
    ];
    let rules = leased(algorithm, &[(300, millis(500))], &plans);
    let end = Instant::now() + millis(2_200);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let store = Arc::new(Resilient::bare(connect(&proxy.url, PATIENT).await));
        let rules = leased(algorithm, &[(300, millis(500))], &plans);
        for task in 0..6 {
            let (store, rules) = (Arc::clone(&store), rules.clone());
            tasks.push(tokio::spawn(async move {
                let mut random = Random::new(task);
                let (mut grants, mut by_lease) = (Vec::new(), 0);
                while Instant::now() < end {
                    // Phases in which the large plans have nearly all, and then the small one asks.
                    let is_small = end
                        .saturating_duration_since(Instant::now())
                        .subsec_millis()
                        < 300;
                    let which = match (is_small, random.below(10)) {
                        (true, 0..9) | (false, 0) => 0,
                        (_, at) => 1 + (at % 2) as usize,
                    };
                    let take = Take::new(Arc::clone(&rules[which]), Key::from("x"));
                    let asked = Instant::now();
                    let decision = store.take(&take).await.expect("a decision");
                    let answered = Instant::now();
                    if decision.is_allowed() {
                        let is_leased = decision.source() == Source::Lease;
                        by_lease += u64::from(is_leased);
                        let window = take.rule().quotas()[0].window();
                        let since = window.saturating_sub(decision.reset_after());
                        let begin = answered.checked_sub(since).expect("late");
                        let begin = (decision.source() == Source::Redis).then_some(begin);
                        grants.push((which, Allowed { asked, answered }, begin, is_leased));
                    }
                    match random.below(4) {
                        0 => sleep(millis(1 + random.below(8))).await,
                        _ => tokio::task::yield_now().await,
                    }
                }
                (grants, by_lease)
            }));
        }
    }
    let (mut grants, mut by_lease) = (Vec::new(), 0);
    for task in join_all(tasks).await {
        let (some, leased) = task.expect("no panic");
        grants.extend(some);
        by_lease += leased;
    }
    println!(
        "{algorithm:?}: {} grants, {by_lease} by leases",
        grants.len()
    );
    check(&mut grants, &rules, algorithm == Algorithm::FixedWindow);
    assert!(grants.len() > 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_under_plans_in_turn() {
    plans_in_turn(Algorithm::SlidingLog).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_under_plans_in_turn() {
    plans_in_turn(Algorithm::SlidingWindow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_window_under_plans_in_turn() {
    plans_in_turn(Algorithm::FixedWindow).await;
}

/// A lease of the plan with the long window, used at its end, is seen by the plan with the short
/// one for that one's whole window.
#[tokio::test]
async fn a_lease_of_the_long_window_used_late() {
    for algorithm in &LEASED[..2] {
        let server = Redis::start();
        let store = Resilient::bare(connect(&server.url, PATIENT).await);
        let plain = connect(&server.url, PATIENT).await;
        let plans: [(&str, Pairs<'_>); 1] = [("long", &[(100_000, Duration::from_secs(60))])];
        let rules = leased(*algorithm, &[(500, millis(600))], &plans);
        let long = Take::new(Arc::clone(&rules[1]), Key::from("x"));
        let own = Take::new(Arc::clone(&rules[0]), Key::from("x"));
        // Until leases are large, and then the units of one lease as late as it gives them.
        let began = Instant::now();
        let mut used = Vec::new();
        while began.elapsed() < millis(1_200) {
            let is_late = began.elapsed() > millis(600);
            let decision = store.take(&long).await.expect("a decision");
            assert!(decision.is_allowed());
            used.push((Instant::now(), decision.source() == Source::Lease));
            if is_late {
                sleep(millis(1)).await;
            }
            // Another process asks about the own quotas all the time.
            if let 0 = used.len() % 20 {
                let asked = Instant::now();
                let decision = plain.take(&own).await.expect("a decision");
                let inside = used
                    .iter()
                    .filter(|(at, _)| *at + millis(600) > Instant::now());
                let inside = inside.count();
                let was = asked.elapsed();
                if decision.is_allowed() {
                    assert!(
                        inside < 500,
                        "law 1: {inside} in {was:?} under {algorithm:?}"
                    );
                    used.push((asked, false));
                }
            }
        }
        let by_lease = used.iter().filter(|(_, is_leased)| *is_leased).count();
        println!("{algorithm:?}: {by_lease} of {} by leases", used.len());
    }
}
