//! What stands in Redis, byte by byte: what Redisson would read, and what it would write.

use kit::Redis;

use crate::*;

const COUNTS: [&str; 2] = ["{partner}:value", "{partner}:permits"];

fn server_millis(server: &Redis) -> f64 {
    let (seconds, micros): (f64, f64) = server.run("TIME");
    seconds * 1e3 + micros / 1e3
}

/// A member as Redisson packs it: `Bc0I`.
fn member(identity: &[u8], permits: u32) -> Vec<u8> {
    let length = [u8::try_from(identity.len()).expect("short")];
    [&length[..], identity, &permits.to_le_bytes()].concat()
}

#[tokio::test]
async fn what_we_write_is_redissons() {
    let server = Redis::start();
    let rate = overall(10, MINUTE).with_keep_alive(2 * MINUTE);
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner").shared_with_redisson();
    limiter.sets_first(rate.expect("valid")).await;
    let before = server_millis(&server);
    assert!(limiter.takes(3).await);
    let after = server_millis(&server);

    let fields: BTreeMap<String, String> = server.run("HGETALL partner");
    let fields: Vec<_> = fields.iter().map(|(a, b)| (&**a, &**b)).collect();
    // In microseconds.
    let chosen_at = fields[0].1;
    let chosen_millis = chosen_at.parse::<f64>().expect("a number") / 1e3;
    assert!((before - 10_000.0..=before).contains(&chosen_millis));
    let expected = [
        ("chosenAt", chosen_at),
        ("interval", "60000"),
        ("keepAliveTime", "120000"),
        ("rate", "10"),
        ("type", "0"),
    ];
    assert_eq!(fields, expected);
    assert_eq!(server.run::<String>("GET {partner}:value"), "7");
    let grants = "ZRANGE {partner}:permits 0 -1 WITHSCORES";
    let grants: Vec<(Vec<u8>, f64)> = server.run(grants);
    let [(grant, score)] = &grants[..] else {
        panic!("{grants:?}");
    };
    assert_eq!((grant.len(), grant[0]), (21, 16));
    assert_eq!(grant[17..], [3, 0, 0, 0]);
    assert!((before.floor()..=after.ceil()).contains(score));
    assert_eq!(
        server.names(),
        ["partner", "{partner}:permits", "{partner}:value"]
    );
}

#[tokio::test]
async fn names_with_braces_and_clients() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    let limiter = RateLimiter::new(&redis, "a{b}c");
    assert!(limiter.sets_first(per_client(10, MINUTE)).await);
    assert!(limiter.takes(1).await);
    let (names, id) = (server.names(), redis.id());
    let counts = ["epoch", "permits", "value"].map(|what| format!("a{{b}}c:{what}:{id}"));
    assert_eq!(names[1..], counts);
    // The rate stays, all that counts goes.
    for name in &names[1..] {
        let life = server.life(name);
        assert!((120_000..=182_000).contains(&life), "{name}: {life}");
    }
    assert_eq!((&*names[0], server.life(&names[0])), ("a{b}c", -1));
}

/// Also the queue of the fair callers of one client, while one of them waits in it.
#[tokio::test]
async fn a_deleted_limiter_leaves_no_key() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    for rate in [per_client(1, HOUR), overall(1, HOUR)] {
        let limiter = RateLimiter::new(&redis, "partner");
        assert!(limiter.sets_first(rate).await);
        assert!(limiter.takes(1).await);
        let fair = limiter.clone().fair();
        let waits = tokio::spawn(async move { fair.acquire(1).await });
        // The rate, what is left of it, the grants, for a client their epoch; the queue, the
        // clients.
        let is_queued = async || server.names().len() >= 5;
        eventually("a fair caller waits", is_queued).await;
        assert!(limiter.delete().await.expect("an answer"));
        // Before the caller hears of it, and leaves the queue by itself.
        assert_eq!(server.names(), Vec::<String>::new());
        let gone = waits.await.expect("no panic");
        assert_eq!(kind(gone), Some(LimiterErrorKind::UnknownLimiter));
    }
}

#[tokio::test]
async fn what_redisson_writes_is_read() {
    let server = Redis::start();
    let now = server_millis(&server).floor();
    // A grant that leaves in half a minute, and one that leaves in a second.
    redis::pipe()
        .hset_multiple(
            "partner",
            &[("rate", 10), ("interval", 60_000), ("type", 0)],
        )
        .set("{partner}:value", 3)
        .zadd("{partner}:permits", member(&[7; 16], 4), now - 59_000.0)
        .zadd("{partner}:permits", member(&[8; 8], 3), now - 10_000.0)
        .exec(&mut server.connection())
        .expect("is written");
    let limiter = RateLimiter::new(&handle(&server.url).await, "partner");
    let rate = limiter.stored_rate().await.expect("an answer");
    assert_eq!(rate, Some(overall(10, MINUTE)));
    if server_millis(&server) < now + 900.0 {
        assert_eq!(limiter.free().await, 3);
        assert!(!limiter.takes(4).await);
    }
    assert!(limiter.takes_within(7, PATIENT).await);
    assert!(!limiter.takes_within(1, millis(3_000)).await);
    // Without an expiry, as theirs.
    assert_eq!(COUNTS.map(|name| server.life(name)), [-1, -1]);
}

/// A half of the state that is missing is neither an error for ever nor a refill.
#[tokio::test]
async fn what_is_missing_heals() {
    let server = Redis::start();
    let mut connection = server.connection();
    let limiter = limiter(&handle(&server.url).await, 5, 700).await;
    assert!(limiter.takes(4).await);
    run(&server, "DEL {partner}:value");
    assert_eq!(limiter.free().await, 1);
    assert!(!limiter.takes(2).await);
    assert!(limiter.takes(1).await);

    run(&server, "DEL {partner}:permits");
    assert_eq!(limiter.free().await, 0);
    let began = std::time::Instant::now();
    assert!(limiter.takes_within(5, PATIENT).await);
    assert!(began.elapsed() >= millis(690), "no refill");

    limiter.sets(overall(5, HOUR)).await;
    assert!(limiter.takes(5).await);
    for nonsense in ["", "abc", "1e999", "-7", "99", "NaN"] {
        let _: () = connection.set("{partner}:value", nonsense).expect("is set");
        assert!(!limiter.takes(1).await, "{nonsense}");
    }
    // What the last nonsense says to be missing counts for an interval more.
    limiter.sets(overall(5, millis(1_000))).await;
    assert!(limiter.takes(5).await);
    let _: () = connection.set("{partner}:value", "NaN").expect("is set");
    assert!(limiter.takes_within(5, PATIENT).await);
    assert!(!limiter.takes(1).await);
}

/// An uncontended acquire is one script call; denials and reads leave every expiry alone.
#[tokio::test]
async fn one_call_and_no_expiry_of_who_is_denied() {
    let server = Redis::start();
    let limiter = limiter(&handle(&server.url).await, 5, 60_000).await;
    let before = server.script_calls();
    assert!(limiter.takes(5).await);
    assert_eq!(server.script_calls() - before, 1);

    let lives = || COUNTS.map(|name| server.life(name));
    let before = lives();
    sleep(millis(30)).await;
    assert!(!limiter.takes(1).await);
    assert!(!limiter.clone().fair().takes_within(1, millis(1_000)).await);
    limiter.free().await;
    let after = lives();
    assert!(after[0] <= before[0] - 25 && after[1] <= before[1] - 25);
    assert_eq!(server.life("partner"), -1);
}

/// Grants of a clock that is ahead, as after the host's clock went back, count from now, and not
/// until then, however many there are.
#[tokio::test]
async fn grants_from_the_future_count_from_now() {
    let server = Redis::start();
    let redis = handle(&server.url).await;
    for (grants, permits) in [(1_u64, 5_u32), (5_000, 1)] {
        let limiter = limiter(&redis, grants * u64::from(permits), 300).await;
        let ahead = server_millis(&server).floor() + 3_600_000.0;
        let mut pipeline = redis::pipe();
        pipeline.set("{partner}:value", 0);
        for at in 0..grants {
            let identity = [at.to_be_bytes(), [7; 8]].concat();
            let score = ahead + (at / 20) as f64;
            pipeline.zadd("{partner}:permits", member(&identity, permits), score);
        }
        pipeline.exec(&mut server.connection()).expect("is written");
        assert!(!limiter.takes(1).await, "{grants}");
        if grants == 1 {
            sleep(millis(320)).await;
            assert!(limiter.takes(5).await);
        } else {
            assert!(limiter.clone().fair().takes_within(1, PATIENT).await);
            assert!(limiter.takes_within(4_000, PATIENT).await);
        }
        assert!(limiter.delete().await.expect("an answer"));
    }
}
