//! Calls of many keys, of which one is of another type, comes too late, or is evicted; and scripts
//! that the server forgets meanwhile. Each key is charged what its callers were told.

use super::*;

/// In milliseconds: nothing leaves it, and nothing drains.
const MONTH: u64 = 30 * 86_400_000;
const MAX: u64 = 7;

/// A rule of one quota, one of two, and one that leases where that is possible.
fn rules(algorithm: Algorithm) -> [Arc<Rule>; 3] {
    let leased = owned(algorithm, "leased", &[(MAX, MONTH)]);
    let leased = leased.clone().with_lease(millis(50)).unwrap_or(leased);
    [
        rule(algorithm, "one", &[(MAX, MONTH)]),
        rule(algorithm, "two", &[(MAX, MONTH), (9, 2 * MONTH)]),
        Arc::new(leased),
    ]
}

/// All of them, by all algorithms, and what to call each.
fn all_rules() -> impl Iterator<Item = (String, Algorithm, Arc<Rule>)> {
    Algorithm::ALL.into_iter().flat_map(|algorithm| {
        let named = |rule: Arc<Rule>| (format!("{algorithm:?}, {}", rule.path()), algorithm, rule);
        rules(algorithm).map(named)
    })
}

/// So many takes of the keys from 0 to below this.
fn takes(rule: &Arc<Rule>, number: usize, keys: usize) -> Vec<Take> {
    let takes = (0..number).map(|at| take(rule, &(at % keys).to_string()));
    takes.collect()
}

/// Keys of another type anywhere in calls of 64 keys and more: their own callers are told, what
/// they hold stays, and all others are charged once.
#[tokio::test]
async fn keys_of_other_types_among_many() {
    let (server, store) = near().await;
    let put = ["SET text", "RPUSH 1", "HSET a b", "SADD a", "ZADD 1 a"];
    for (case, algorithm, rule) in all_rules() {
        run(&server, "FLUSHALL");
        let keys: Vec<_> = (0..150).map(|key| key.to_string()).collect();
        let is_foreign = |at: usize| [0, 1, 31, 63, 64, 65, 100, 149].contains(&at);
        for (at, key) in keys.iter().enumerate().filter(|(at, _)| is_foreign(*at)) {
            // A set is a log's own type, and a string that of the others.
            let from = usize::from(algorithm != Algorithm::SlidingLog);
            let put = put[from..][at % 4];
            let [name, _] = names(&take(&rule, key));
            run(&server, &put.replacen(' ', &format!(" {name} "), 1));
        }
        let before = contents(&server);
        // Every second key is there when the keys are asked about together.
        for key in keys.iter().skip(1).step_by(2) {
            let _ = store.take(&take(&rule, key)).await;
        }
        for round in 0..2 {
            let takes: Vec<_> = keys.iter().map(|key| take(&rule, key)).collect();
            let answers = answers_of(&store, &takes).await;
            for (at, answer) in answers.iter().enumerate() {
                let story = format!("{case}, {round}, {at}");
                match (is_foreign(at), answer) {
                    (true, Err(error)) => {
                        assert_eq!(error.kind(), StoreErrorKind::WrongType, "{story}");
                    }
                    (false, Ok(decision)) => {
                        let charged = round + 1 + at as u64 % 2;
                        assert_eq!(decision.remaining(), MAX - charged, "{story}");
                    }
                    _ => panic!("{story}: {answer:?}"),
                }
            }
        }
        let after = contents(&server);
        let is_right = before.iter().all(|one| after.contains(one));
        assert!(is_right, "{case}: it stays");
    }
}

/// The scripts are flushed all the time. Each key admits its max, and every take is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_flushed() {
    let server = Redis::start();
    let proxy = behind(&server, millis(3)).await;
    let near = connect(&server.url, PATIENT).await;
    let far = connect(&proxy.url, PATIENT).await;
    let flushes = async {
        loop {
            run(&server, "SCRIPT FLUSH");
            sleep(millis(1)).await;
        }
    };
    let takes = async {
        for (case, _algorithm, rule) in all_rules() {
            let mut allowed = vec![0; 40];
            for _ in 0..4 {
                let takes = takes(&rule, 120, 40);
                let asked = |store| takes.iter().map(move |take| Store::take(store, take));
                let (of_near, of_far) = tokio::join!(join_all(asked(&near)), join_all(asked(&far)));
                for (at, answer) in of_near.into_iter().chain(of_far).enumerate() {
                    let decision = answer.expect("a decision");
                    allowed[at % 40] += u64::from(decision.is_allowed());
                }
            }
            let story = format!("{case}: {allowed:?}");
            assert!(allowed.iter().all(|allowed| *allowed == MAX), "{story}");
        }
    };
    tokio::select! {
        () = flushes => unreachable!(),
        () = takes => {}
    }
    check_expiries(&server, i64::MAX, "flushed");
}

/// Takes of hasty and of patient callers in the same calls, while the server stands still: the
/// hasty ones are late, and charge nothing.
#[tokio::test]
async fn late_takes_among_others() {
    let (server, patient) = near().await;
    for (case, _algorithm, rule) in all_rules() {
        // Known and new keys, and several takes of a key.
        for key in 0..20 {
            let take = take(&rule, &key.to_string());
            assert!(is_allowed(&patient.take(&take).await));
        }
        let hasty = patient.clone().timeout(millis(30));
        let takes = takes(&rule, 160, 40);
        run(&server, "CLIENT PAUSE 200");
        let paused = Instant::now();
        let is_hasty = |at: usize| at.is_multiple_of(3);
        let ask = |(at, take)| match is_hasty(at) {
            true => hasty.take(take),
            false => patient.take(take),
        };
        let asked: Vec<_> = takes.iter().enumerate().map(ask).collect();
        // All that was late is late by the server's clock.
        let was_asked_in_time = paused.elapsed() < millis(100);
        let answers = join_all(asked).await;
        let mut charged: Vec<_> = (0..40).map(|key| u64::from(key < 20)).collect();
        for (at, answer) in answers.iter().enumerate() {
            charged[at % 40] += u64::from(is_allowed(answer));
            if is_hasty(at) && was_asked_in_time {
                let expected = Some(StoreErrorKind::Timeout);
                assert_eq!(kind(answer), expected, "{case}: {answer:?}");
            }
        }
        for (key, charged) in charged.into_iter().enumerate() {
            let take = take(&rule, &key.to_string());
            let left = remaining(&patient, &take).await;
            let story = format!("{case}, {key}");
            let is_right = !was_asked_in_time || MAX - left == charged;
            assert!(is_right, "{story}: {left}");
        }
    }
}

/// Keys are evicted while they are asked about: each begins afresh, and has an expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_evicted() {
    let (server, store) = near().await;
    for (case, _algorithm, rule) in all_rules() {
        let takes = takes(&rule, 20, 20);
        let (mut allowed, mut evicted) = (vec![0; takes.len()], vec![0; takes.len()]);
        for round in 0..30 {
            let evict = async {
                sleep(millis(1)).await;
                let at = round * 7 % takes.len();
                let mut del = redis::cmd("DEL");
                let gone = del.arg(&names(&takes[at])).query(&mut server.connection());
                evicted[at] += gone.map_or(0, |gone: u64| gone.min(1));
            };
            let asked = join_all(takes.iter().chain(&takes).map(|take| store.take(take)));
            let (answers, ()) = tokio::join!(asked, evict);
            for (at, answer) in answers.into_iter().enumerate() {
                let decision = answer.expect("a decision");
                allowed[at % takes.len()] += u64::from(decision.is_allowed());
            }
        }
        for (at, (allowed, evicted)) in allowed.iter().zip(&evicted).enumerate() {
            let most = MAX * (evicted + 1);
            let story = format!("{case}, {at}");
            assert!(*allowed <= most, "{story}: {allowed} of {most}");
        }
        check_expiries(&server, i64::MAX, "evicted");
    }
}
