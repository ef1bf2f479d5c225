//! Servers that lose answers, stand still, are full or broken: a settlement is charged at most
//! once, ends in bounded time, and its neighbours do not notice it.

use super::*;

async fn redis(url: &str, timeout: Duration) -> Arc<dyn Store> {
    Arc::new(connect(url, timeout).await)
}

fn type_of(server: &Redis, name: &str) -> String {
    let kind = redis::cmd("TYPE").arg(name).query(&mut server.connection());
    kind.expect("a type")
}

/// The server stands still: many settlements end in bounded time, and each is charged at most once
/// when it goes on.
#[tokio::test]
async fn a_server_that_stands_still() {
    let server = Redis::start();
    let store = redis(&server.url, TIMEOUT).await;
    let patient = redis(&server.url, PATIENT).await;
    let wrapped = Resilient::new(connect(&server.url, TIMEOUT).await);
    let wrapped = wrapped.timeout(TIMEOUT).processes(1).build();
    for (name, store) in [("plain", store), ("wrapped", wrapped)] {
        for algorithm in COUNTING {
            let rule = rule(algorithm, &format!("still{name}"), &[(1_000, HOUR)], None);
            let one = take(&rule, "x", 1);
            let mut charges = Vec::new();
            while charges.len() < 20 {
                let decision = decide(&store, &one).await;
                // Only what Redis was charged.
                if decision.source() == Source::Redis {
                    let receipt = decision.receipt().expect("charged");
                    charges.push(Charge::new(Arc::clone(&store), one.clone(), receipt));
                } else {
                    sleep(millis(10)).await;
                }
            }
            let before = used(&patient, &rule, "x").await;
            server.signal("STOP");
            let began = Instant::now();
            let answers = charges.iter().map(|charge| charge.settle(6));
            let answers = join_all(answers).await;
            let took = began.elapsed();
            server.signal("CONT");
            let answered = answers.iter().flatten().count();
            let case = format!("{name} {algorithm:?}: {answered} answered");
            assert_eq!(answered, 0, "{case}");
            assert!(took < Duration::from_secs(5), "law 6: {took:?}");
            for charge in &charges {
                assert_eq!(settle(charge, 900).await, Default::default(), "{case}");
            }
            let after = used(&patient, &rule, "x").await - before;
            assert!(after <= 20 * 5, "{case}: {after} are charged for 100 units");
        }
    }
}

/// The key is gone, and what was used beyond is charged all the same.
#[tokio::test]
async fn a_key_that_is_gone() {
    let server = Redis::start();
    let store = redis(&server.url, PATIENT).await;
    run(&server, "FLUSHALL");
    for algorithm in Algorithm::ALL {
        let rule = rule(algorithm, "gone", &[(10, HOUR)], 100);
        let lost = charge(&store, &take(&rule, "lost", 4)).await;
        run(&server, "FLUSHALL");
        assert_eq!(settle(&lost, 9).await.charged, 5, "{algorithm:?}");
        if algorithm != Algorithm::Gcra {
            let left = remaining(&store, &take(&rule, "lost", 1)).await;
            assert_eq!(left, 5, "{algorithm:?}");
        }
        run(&server, "FLUSHALL");
    }
}

/// A truncated or foreign value of the right type: an answer or an error, and the next take heals.
#[tokio::test]
async fn a_damaged_value() {
    let server = Redis::start();
    let store = redis(&server.url, PATIENT).await;
    run(&server, "FLUSHALL");
    for algorithm in &Algorithm::ALL[1..] {
        let algorithm = *algorithm;
        for damage in ["", "x", "12", "99999999999999999999", "\u{1}\u{2}\u{3}"] {
            let rule = rule(algorithm, "damage", &[(10, HOUR)], 100);
            let one = charge(&store, &take(&rule, "x", 1)).await;
            let mut connection = server.connection();
            let names = server.names();
            if names.iter().all(|name| type_of(&server, name) == "string") {
                for name in &names {
                    let mut set = redis::cmd("SET");
                    let set = set.arg(name).arg(damage).exec(&mut connection);
                    set.expect("set");
                }
            }
            let answer = one.settle(7).await;
            let case = format!("{algorithm:?} {damage:?}: {answer:?}");
            if let Ok(settled) = &answer {
                assert_eq!(settled.charged + settled.forgiven, 6, "{case}");
                let left = remaining(&store, &take(&rule, "x", 1)).await;
                assert!(left <= 10, "{case}");
            }
            let kept = names.iter().filter(|_| answer.is_err());
            let kept: Vec<_> = kept.map(String::as_str).collect();
            kit::check_expiries(&server, &kept);
            decide(&store, &take(&rule, "x", 1)).await;
            run(&server, "FLUSHALL");
        }
    }
}

/// Nothing is there to connect to: an error within the time-out, and nothing is charged later.
#[tokio::test]
async fn a_server_that_is_gone() {
    let mut server = Redis::start();
    let store = redis(&server.url, millis(400)).await;
    let rule = rule(Algorithm::SlidingLog, "gone", &[(10, HOUR)], None);
    let one = take(&rule, "x", 1);
    let charges = [charge(&store, &one).await, charge(&store, &one).await];
    server.kill();
    let began = Instant::now();
    charges[0].settle(9).await.expect_err("it is gone");
    assert!(began.elapsed() < Duration::from_secs(5), "law 6");
    server.restart();
    answered(|| store.peek(&one)).await;
    assert_eq!(settle(&charges[0], 9).await, Default::default());
    assert_eq!(used(&store, &rule, "x").await, 0);
    let told = settle(&charges[1], 9).await.charged;
    assert_eq!(told, 8, "its use was not lost");
    assert_eq!(used(&store, &rule, "x").await, 8);
}
