//! Users who may not call one of the commands that the scripts of takes call: what was allowed is
//! charged, nothing stays without its expiry, and all is well once the right is there.

use super::*;

/// Those of `docs/security.md` that a script calls.
const COMMANDS: &str = "time get mget set del pexpire zadd zcard zcount zrange zrangebyscore zrem \
    zremrangebyrank zremrangebyscore";
/// In milliseconds.
const WINDOW: u64 = 5_000;
const MAX: u64 = 6;

fn rules(algorithm: Algorithm) -> Vec<Arc<Rule>> {
    vec![
        rule(algorithm, "one", &[(MAX, WINDOW)]),
        rule(algorithm, "two", &[(MAX, WINDOW), (60, 10 * WINDOW)]),
        // Of one path: its counts are usual and general ones in turn.
        rule(algorithm, "mixed", &[(MAX, WINDOW)]),
        rule(algorithm, "mixed", &[(MAX, WINDOW), (MAX, WINDOW / 5)]),
    ]
}

/// Takes and refunds under all rules, alone and together, at instants at which old ones are
/// trimmed. Law 1 holds, and nothing but typed errors comes.
async fn ask_all_kinds(store: &RedisStore, server: &Redis, clock: &ManualClock, story: &str) {
    for (pass, pause) in [0, 700_000, 5_000_000, 11_000_000].iter().enumerate() {
        clock.set(clock.now() + pause);
        for algorithm in Algorithm::ALL {
            let rules = rules(algorithm);
            let mut takes: Vec<_> = rules.iter().map(|rule| take(rule, "alone")).collect();
            for key in 0..4 {
                takes.extend(rules.iter().map(|rule| take(rule, &key.to_string())));
            }
            let mut answers = Vec::new();
            for take in &takes[..rules.len()] {
                answers.push(when_connected(store, take).await);
            }
            let others = takes[rules.len()..].iter();
            let others = others.map(|take| when_connected(store, take));
            answers.extend(join_all(others).await);
            check_expiries(server, 100_000, story);
            for (take, answer) in takes.iter().zip(answers) {
                check_kind(&answer, story);
                let receipt = answer.ok().and_then(|it| it.receipt());
                if let Some(receipt) = receipt.filter(|_| pass % 2 == 1) {
                    check_kind(&store.refund(take, &receipt).await, story);
                }
            }
            check_expiries(server, 100_000, story);
        }
    }
}

/// A busy machine connects late, which says nothing of rights.
async fn when_connected(store: &RedisStore, take: &Take) -> Result<Decision, StoreError> {
    let began = Instant::now();
    loop {
        let answer = store.take(take).await;
        let away = [StoreErrorKind::Unavailable, StoreErrorKind::Timeout];
        let is_away = kind(&answer).is_some_and(|kind| away.contains(&kind));
        if !is_away || began.elapsed() > PATIENT {
            return answer;
        }
        sleep(millis(10)).await;
    }
}

/// An answer, or an error that says what is wrong.
fn check_kind<T>(answer: &Result<T, StoreError>, story: &str) {
    let kinds = [
        StoreErrorKind::Refused,
        StoreErrorKind::WrongType,
        StoreErrorKind::Configuration,
    ];
    let kind = kind(answer);
    assert!(
        kind.is_none_or(|it| kinds.contains(&it)),
        "{story}: {kind:?}"
    );
}

/// A quota is allowed as often as its max, and no more often.
async fn all_is_well(store: &RedisStore, clock: &ManualClock, story: &str) {
    clock.set(clock.now() + 200 * WINDOW * 1_000);
    for algorithm in Algorithm::ALL {
        for rule in rules(algorithm) {
            for key in ["alone", "0", "3"] {
                let take = take(&rule, key);
                // What another rule of the path was charged counts here, too.
                reset(store, &take).await;
                clock.set(clock.now() + 1);
                let mut allowed = 0;
                for _ in 0..2 * MAX {
                    let decision = decide(store, &take).await;
                    allowed += u64::from(decision.is_allowed());
                }
                assert_eq!(allowed, MAX, "{story}, {algorithm:?}, {}", rule.path());
            }
        }
    }
}

/// From the beginning, and after takes with all rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_one_command() {
    done([false, true].map(|is_lost_later| tokio::spawn(without_each(is_lost_later)))).await;
}

async fn without_each(is_lost_later: bool) {
    let server = Redis::start();
    for command in COMMANDS.split_whitespace() {
        let story = format!("without {command}");
        run(&server, "FLUSHALL");
        run(&server, "SCRIPT FLUSH");
        let url = limited(&server);
        let lose = format!("ACL SETUSER limited -{command}");
        if !is_lost_later {
            run(&server, &lose);
        }
        let clock = clock_at(START);
        // A store that may not ask for the time does not connect.
        let store = RedisStore::connect_lazy(&*url).expect("a valid address");
        let store = store.timeout(PATIENT).clock(clock.clone());
        if is_lost_later {
            ask_all_kinds(&store, &server, &clock, "with all rights").await;
            run(&server, &lose);
        }
        ask_all_kinds(&store, &server, &clock, &story).await;
        run(&server, &format!("ACL SETUSER limited +{command}"));
        let again = take(&rules(Algorithm::Gcra)[0], "again");
        answered(|| store.take(&again)).await;
        all_is_well(&store, &clock, &story).await;
        check_expiries(&server, 100_000, &story);
    }
}

/// A user with all rights.
fn limited(server: &Redis) -> String {
    run(server, "ACL SETUSER limited reset on >secret ~* +@all");
    server.url.replace("//", "//limited:secret@")
}

/// By the server's own clock: what is allowed is charged, as an administrator sees it.
#[tokio::test]
async fn what_is_allowed_is_charged() {
    const DAY: u64 = 86_400_000;
    let (server, admin) = near().await;
    let ways: [(_, &[_]); 2] = [("one", &[(9, DAY)]), ("two", &[(9, DAY), (99, 2 * DAY)])];
    for command in COMMANDS.split_whitespace() {
        run(&server, "FLUSHALL");
        let store = RedisStore::connect(&*limited(&server)).await;
        let store = store.expect("a running server").timeout(PATIENT);
        run(&server, &format!("ACL SETUSER limited -{command}"));
        for algorithm in Algorithm::ALL {
            for ((path, of), number) in ways.into_iter().flat_map(|way| [(way, 1), (way, 5)]) {
                let rule = rule(algorithm, path, of);
                let takes = (0..number).map(|key| take(&rule, &format!("{number} {key}")));
                let takes: Vec<_> = takes.collect();
                let mut allowed = vec![0; takes.len()];
                for _ in 0..3 {
                    let answers = answers_of(&store, &takes).await;
                    for (allowed, answer) in allowed.iter_mut().zip(answers) {
                        check_kind(&answer, command);
                        *allowed += u64::from(is_allowed(&answer));
                    }
                }
                check_expiries(&server, i64::MAX, command);
                for (take, allowed) in takes.iter().zip(allowed) {
                    let case = format!("without {command}: {algorithm:?}, {path}: {allowed}");
                    // A take that failed may be charged.
                    let charged = spent(&admin, take).await;
                    assert!((allowed..=3).contains(&charged), "{case}: {charged}");
                }
            }
        }
    }
}
