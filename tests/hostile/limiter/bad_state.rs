//! Law 10: foreign and broken values under a limiter's keys, and names that are hard to bear.

use crate::*;

const WITHIN: Duration = Duration::from_secs(3);

/// Everything that can be asked of a limiter; what came of each.
async fn ask_all(limiter: &RateLimiter) -> Vec<(&'static str, Option<LimiterErrorKind>)> {
    let fair = limiter.clone().fair();
    let calls = async {
        vec![
            ("try_acquire", kind(limiter.try_acquire(1).await)),
            ("fair", kind(fair.try_acquire_for(1, millis(20)).await)),
            ("permit", kind(limiter.try_acquire_permit(2).await)),
            ("wait", kind(limiter.try_acquire_for(3, millis(5)).await)),
            ("available", kind(limiter.available_permits().await)),
            ("release", kind(limiter.release(1).await)),
            ("rate", kind(limiter.stored_rate().await)),
            ("is_shared", kind(limiter.is_shared().await)),
            ("remaining", kind(limiter.remaining().await)),
            ("exists", kind(limiter.exists().await)),
        ]
    };
    let name = limiter.name();
    let answers = timeout(WITHIN, calls).await;
    answers.unwrap_or_else(|_| panic!("law 6: {name} hangs"))
}

fn wrong_kinds(what: &str, answers: &[(&'static str, Option<LimiterErrorKind>)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (call, answer) in answers {
        let is_right = match answer {
            None | Some(LimiterErrorKind::Malformed | LimiterErrorKind::UnknownLimiter) => true,
            Some(LimiterErrorKind::AboveRate) => true,
            Some(LimiterErrorKind::Store(StoreErrorKind::WrongType)) => true,
            Some(_) => false,
        };
        if !is_right {
            wrong.push(format!("{what}: {call}: {answer:?}"));
        }
    }
    wrong
}

async fn bystander(redis: &Redis) -> RateLimiter {
    limiter(redis, "bystander", 1_000_000, HOUR).await
}

const SCORES: [&str; 6] = ["-inf", "0", "-5", "9007199254740993", "inf", "1e300"];
const MEMBERS: [&str; 4] = [
    "x",
    "\u{7f}abc",
    "\u{10}short",
    "foreign member of a program",
];

/// A member in each sorted set.
fn foreign_members(scores: &[&str], members: &[&str]) -> Vec<String> {
    let mut cases = Vec::new();
    for score in scores {
        for member in members {
            for set in ["permits", "waiting", "waiting_clients"] {
                cases.push(format!("ZADD|{{x}}:{set}|{score}|{member}"));
            }
        }
    }
    cases
}

/// Numbers that are none in each place, and fields that are missing.
fn broken_numbers() -> Vec<String> {
    let fields = "rate interval type keepAliveTime epoch countsExpire".split(' ');
    let mut cases = Vec::new();
    for number in "x|-1|0|1.5|1e400|nan|-inf|99999999999999999999||007".split('|') {
        let of_fields = fields
            .clone()
            .map(|field| format!("HSET|x|{field}|{number}"));
        cases.extend(of_fields);
        cases.push(format!("SET|{{x}}:value|{number}"));
        cases.push(format!("SET|{{x}}:value|{number}|PX|400"));
    }
    cases.extend(["rate", "interval", "type"].map(|field| format!("HDEL|x|{field}")));
    cases
}

/// Each case beside a limiter of ten in 60 ms: a typed error or a fresh start, never more than
/// the rate, nothing for a bystander, and all is well with a new rate.
async fn break_values(cases: Vec<String>) {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let aside = bystander(&redis).await;
    let mut wrong = Vec::new();
    for case in cases {
        run(
            &server,
            "DEL x {x}:value {x}:permits {x}:waiting {x}:waiting_clients",
        );
        let limiter = limiter(&redis, "x", 10, millis(60)).await;
        assert!(limiter.takes(4).await);
        let mut words = case.split('|');
        let mut command = redis::cmd(words.next().expect("a command"));
        for word in words {
            command.arg(word);
        }
        command.exec(&mut server.connection()).expect("is written");
        let answers = ask_all(&limiter).await;
        wrong.extend(wrong_kinds(&case, &answers));
        let rate = limiter.stored_rate().await.ok().flatten();
        if rate.is_some_and(|rate| rate.permits() == 10) {
            let asked = Instant::now();
            let got = join_all((0..15).map(|_| limiter.try_acquire(1))).await;
            let got = got.iter().filter(|got| matches!(got, Ok(true))).count();
            let is_too_many = got > 10 && asked.elapsed() < millis(60);
            assert!(!is_too_many, "law 1: {case}: {got}");
        }
        assert!(aside.try_acquire(1).await.expect("law 13"), "{case}");
        limiter.sets(overall(10, millis(60))).await;
        let fair = limiter.clone().fair();
        let both = async { tokio::join!(limiter.acquire(5), fair.acquire(5)) };
        match timeout(WITHIN, both).await {
            Ok((Ok(()), Ok(()))) => {}
            not => wrong.push(format!("{case}: after a new rate: {not:?}")),
        }
    }
    let number = wrong.len();
    assert!(wrong.is_empty(), "law 10: {number}: {wrong:#?}");
    sleep(millis(100)).await;
    run(&server, "DEL x");
    check_expiries(&server, &["bystander"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_are_none() {
    break_values(broken_numbers()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_members_in_the_sets() {
    break_values(foreign_members(&SCORES, &MEMBERS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_members() {
    break_values(foreign_members(&SCORES, &[""])).await;
}

/// Names of all kinds are limiters of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_all_kinds() {
    let server = Server::start();
    let redis = handle(&server.url).await;
    let mut limiters = Vec::new();
    for (name, permits) in kit::odd_names().iter().zip(3..) {
        let limiter = limiter(&redis, name, permits, HOUR).await;
        limiters.push((limiter, permits));
    }
    for (limiter, permits) in &limiters {
        let fair = limiter.clone().fair();
        assert!(limiter.takes(1).await, "{:?}", limiter.name());
        fair.waits(1).await;
        let permit = limiter.acquire_permit(1).await.expect("a permit");
        assert_eq!(permit.release().await.expect("an answer"), 1);
        assert_eq!(limiter.free().await, permits - 2, "{:?}", limiter.name());
    }
    for (limiter, permits) in &limiters {
        assert_eq!(limiter.free().await, permits - 2, "{:?}", limiter.name());
        assert!(limiter.delete().await.expect("an answer"));
    }
    check_expiries(&server, &[]);
}
