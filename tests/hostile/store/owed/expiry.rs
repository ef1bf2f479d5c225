//! Law 4: every key expires, also one that owes, and not before all of it has left.

use super::*;

/// How long the keys of a server live.
fn life(server: &Redis) -> Vec<Duration> {
    let lives = server.names().into_iter();
    let lives = lives.map(|name| server.life(&name));
    // It may have expired meanwhile.
    let lives = lives.filter_map(|left| {
        assert_ne!(left, -1, "law 4: it stays for ever");
        u64::try_from(left).ok().map(millis)
    });
    lives.collect()
}

async fn store(server: &Redis) -> Arc<dyn Store> {
    Arc::new(connect(&server.url, PATIENT).await)
}

/// Debts of up to a million times the max: the key lives until all has drained, and not for ever.
#[tokio::test]
async fn a_key_lives_until_its_debt_has_left() {
    let server = Redis::start();
    let store = store(&server).await;
    for algorithm in Algorithm::ALL {
        for window in [millis(50), Duration::from_secs(1), HOUR] {
            for owe in [0, 3, 1_000, 10_000_000, u64::MAX] {
                kit::run(&server, "FLUSHALL");
                let case = format!("{algorithm:?} {window:?} {owe}");
                let rule = rule(algorithm, "life", &[(10, window)], owe);
                let one = take(&rule, "x", 2);
                settle(&charge(&store, &one).await, u64::MAX).await;
                let began = Instant::now();
                let found = store.peek(&one).await.expect("an answer");
                let life = life(&server);
                let slack = began.elapsed();
                check_expiries(&server, &[]);
                let longest = life.iter().max().copied().unwrap_or_default();
                let debt = found.reset_after();
                assert!(longest + slack >= debt, "{case}: {life:?} of {debt:?}");
                let most = match algorithm {
                    Algorithm::Gcra => debt + debt / 4 + slack + Duration::from_secs(60),
                    _ => 3 * window + Duration::from_secs(60),
                };
                assert!(longest <= most, "{case}: {life:?} of {debt:?}");
            }
        }
    }
}

/// A debt under a short window has left, by the server's clock, and so has its key: nothing is
/// left behind, and nobody pays any longer.
#[tokio::test]
async fn nothing_is_left_behind() {
    let server = Redis::start();
    let store = store(&server).await;
    kit::run(&server, "FLUSHALL");
    for algorithm in Algorithm::ALL {
        let rule = rule(algorithm, "short", &[(10, millis(600))], 10);
        let one = take(&rule, "x", 1);
        let charged = settle(&charge(&store, &one).await, 70).await.charged;
        assert!((19..=20).contains(&charged), "{algorithm:?}: {charged}");
        let denied = decide(&store, &one).await;
        // Nothing, if this machine stood still for so long.
        let after = denied.retry_after().unwrap_or_default();
        sleep(after + millis(1)).await;
        let later = decide(&store, &one).await;
        assert!(later.is_allowed(), "{algorithm:?}: law 3: {later:?}");
    }
    eventually("no key stays", async || life(&server).is_empty()).await;
}
