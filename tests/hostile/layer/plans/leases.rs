//! Leases under plans: what a process holds under one plan counts for every other one until it can
//! no longer be used, and at most 2 % of a plan's window is lost.

use super::*;

fn leased(algorithm: Algorithm, own: Pairs<'_>, plans: &[(&str, Pairs<'_>)]) -> Vec<Arc<Rule>> {
    let rule = of_own("leased", own).with_algorithm(algorithm);
    let rule = with_plans(rule, plans).with_lease(SECOND);
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
        let granted = match is_leased {
            true => last.asked - lease,
            false => last.asked,
        };
        let begin = match (is_fixed, begin) {
            (false, _) => last.answered.checked_sub(quota.window()).expect("late"),
            (true, Some(begin)) => *begin,
            (true, None) => continue,
        };
        let inside = grants[..at].iter().filter(|(of, one, ..)| {
            let by = if of == which { last.asked } else { granted };
            one.answered <= by && one.asked > begin
        });
        let (inside, most) = (inside.count() as u64 + 1, quota.max());
        let is_lawful = inside <= most;
        assert!(
            is_lawful,
            "law 1: {inside} of {most} by {quota:?} of rule {which}"
        );
    }
}

/// Three plans in turn on one key by processes that lease. Windows of very different lengths: a
/// lease that one plan would allow is too long for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_in_turn() {
    for algorithm in kit::COUNTING {
        let server = Redis::start();
        let proxy = behind(&server, millis(1)).await;
        let long: (&str, Pairs<'_>) = ("long", &[(100_000, MINUTE)]);
        let plans = [long, ("pro", &[(4_000, 2 * SECOND)])];
        let of_process = || leased(algorithm, &[(300, millis(500))], &plans);
        let end = Instant::now() + millis(2_200);
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let store = Arc::new(Resilient::bare(connect(&proxy.url, PATIENT).await));
            let rules = of_process();
            for seed in 0..6 {
                let (store, rules) = (Arc::clone(&store), rules.clone());
                tasks.push(tokio::spawn(take_turns(store, rules, end, seed)));
            }
        }
        let mut grants: Vec<_> = done(tasks).await.into_iter().flatten().collect();
        check(
            &mut grants,
            &of_process(),
            algorithm == Algorithm::FixedWindow,
        );
        assert!(grants.len() > 300);
    }
}

async fn take_turns(
    store: Arc<Resilient<RedisStore>>,
    rules: Vec<Arc<Rule>>,
    end: Instant,
    seed: u64,
) -> Vec<Grant> {
    let mut random = Random::new(seed);
    let mut grants = Vec::new();
    while Instant::now() < end {
        // Phases in which the large plans have nearly all, and then the small one asks.
        let left = end.saturating_duration_since(Instant::now());
        let which = match (left.subsec_millis() < 300, random.below(10)) {
            (true, 0..9) | (false, 0) => 0,
            (_, at) => 1 + (at % 2) as usize,
        };
        let asked = Instant::now();
        let decision = ask(&*store, &rules[which], 1).await;
        let answered = Instant::now();
        if decision.is_allowed() {
            let window = rules[which].quotas()[0].window();
            let since = window.saturating_sub(decision.reset_after());
            let begin = answered.checked_sub(since).expect("late");
            let begin = (decision.source() == Source::Redis).then_some(begin);
            let is_leased = decision.source() == Source::Lease;
            grants.push((which, Allowed { asked, answered }, begin, is_leased));
        }
        match random.below(4) {
            0 => sleep(millis(1 + random.below(8))).await,
            _ => tokio::task::yield_now().await,
        }
    }
    grants
}
