//! Many tuples that share counts, in the same flights: the answers are those of asking one after
//! another, and whatever happens on the way, all subjects are charged alike.

use super::*;

fn shown(decision: &Decision) -> String {
    let states = decision.quotas().iter();
    let states = states.map(|it| (it.remaining(), it.reset_after(), it.is_exceeded()));
    format!("{:?} {:?}", decision.verdict(), states.collect::<Vec<_>>())
}

/// Takes of two joint rules and of a plain one, of many keys: more than one call has room for.
fn takes(random: &mut Random, rules: &[Arc<Rule>; 2], plain: &Arc<Rule>) -> Vec<Take> {
    let users = [2, 10, 300][random.below(3) as usize];
    let takes = (0..400).map(|_| {
        let user = format!("u{}", random.below(users));
        let address = format!("a{}", random.below(1 + users / 3));
        let rule = &rules[random.below(2) as usize];
        let cost = [0, 1, 1, 1, 2, 3, 9][random.below(7) as usize];
        let take = match random.below(12) {
            0 => Take::new(Arc::clone(plain), Key::from(user.as_str())),
            1 => take(rule, &[("address", &address), ("everyone", "")]),
            2 => take(rule, &[("everyone", "")]),
            3 => take(rule, &[("user", &user), ("everyone", "")]),
            4 => take(rule, &[("user", &user)]),
            _ => tuple(rule, &user, &address),
        };
        let take = take.with_cost(cost);
        // As a caller asks that waits.
        if random.is(20) { take.repeat() } else { take }
    });
    takes.collect()
}

/// Order, in flights of hundreds of tuples behind a round trip of some length.
#[tokio::test]
async fn tuples_that_share_counts_are_answered_in_order() {
    let (_server, _proxy, redis) = far(millis(10)).await;
    for algorithm in Algorithm::ALL {
        let mut random = Random::new(71 + algorithm as u64);
        for round in 0..10 {
            let clock = clock_at(NOW);
            let redis = redis.clone().clock(clock.clone());
            let memory = MemoryStore::new().clock(clock.clone());
            let path = format!("{}{round}", algorithm.name());
            let costly = [
                subject("user", 9).limit(costing(4, 1)).limit(costing(5, 2)),
                subject("address", 40).limit(quota(60, 2 * MINUTE)),
                subject("everyone", 500).limit(costing(150, 1)),
            ];
            let costly = joint(algorithm, &format!("{path}-costs"), costly);
            let rules = [three(algorithm, &path, [5, 20, 260]), costly];
            let plain = Rule::new(&path, [quota(3, MINUTE)]).expect("valid");
            let plain = Arc::new(plain.with_algorithm(algorithm));
            for step in 0..3 {
                let takes = takes(&mut random, &rules, &plain);
                let of_redis = answers_of(&redis, &takes).await;
                for (at, (take, of_redis)) in takes.iter().zip(of_redis).enumerate() {
                    let told = shown(&of_redis.expect("a decision"));
                    let expected = shown(&decide(&memory, take).await);
                    assert_eq!(told, expected, "round {round}, {step}, {at}: {take:?}");
                }
                clock.set(clock.now() + 20_000_003);
            }
        }
    }
}

const HOUR: u64 = 3_600_000;
const USERS: usize = 12;
const ADDRESSES: usize = 5;

/// Algorithms whose counts only grow within an hour.
const GROWING: [Algorithm; 2] = [Algorithm::SlidingLog, Algorithm::FixedWindow];

fn roomy(algorithm: Algorithm, path: &str) -> Arc<Rule> {
    let all = ["user", "address", "everyone"];
    let all = all.map(|name| Subject::new(name, Everyone).limit(quota(100_000, HOUR)));
    joint(algorithm, path, all)
}

fn nth(rule: &Arc<Rule>, at: usize) -> Take {
    let (user, address) = (at % USERS, at % ADDRESSES);
    tuple(rule, &format!("u{user}"), &format!("a{address}"))
}

/// What is charged in all users, in all addresses, and in everyone.
async fn charged(store: &RedisStore, rule: &Arc<Rule>) -> [u64; 3] {
    let store = store.clone().timeout(PATIENT);
    let used = async |name: &str, place: usize, number: usize| {
        let mut used = 0;
        for at in 0..number {
            let key = format!("{}{at}", &name[..1]);
            let key = if name == "everyone" { "" } else { &key };
            used += 100_000 - left(&store, &take(rule, &[(name, key)])).await[place];
        }
        used
    };
    [
        used("user", 0, USERS).await,
        used("address", 1, ADDRESSES).await,
        used("everyone", 2, 1).await,
    ]
}

/// Law 13, and all or none: callers leave at any time, and some are too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_callers_are_charged_in_all_subjects_or_in_none() {
    let server = Redis::start();
    let proxy = behind(&server, millis(6)).await;
    let url = proxy.url.clone();
    let patient = connect(&server.url, PATIENT).await;
    for algorithm in GROWING {
        let hasty = connect(&url, PATIENT).await.timeout(millis(40));
        let rule = roomy(algorithm, algorithm.name());
        let tasks = (0..3_000).map(|at| {
            let (store, take) = (hasty.clone(), nth(&rule, at));
            let stays = Duration::from_micros((at as u64 * 7_919) % 25_000);
            tokio::spawn(async move {
                sleep(Duration::from_micros((at as u64 * 104_729) % 200_000)).await;
                let asked = match at % 3 {
                    0 => Ok(store.take(&take).await),
                    _ => timeout(stays, store.take(&take)).await,
                };
                let decision = asked.ok().and_then(Result::ok);
                assert!(decision.as_ref().is_none_or(Decision::is_allowed));
                u64::from(decision.is_some())
            })
        });
        let admitted: u64 = done(tasks).await.iter().sum();
        sleep(millis(200)).await;
        let [user, address, everyone] = charged(&patient, &rule).await;
        assert_eq!([user, address], [everyone; 2], "{algorithm:?}");
        let is_right = (admitted..=3_000).contains(&everyone);
        assert!(is_right, "{algorithm:?}: {admitted}, {everyone} charged");
    }
}
