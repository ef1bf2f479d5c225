//! What stands in Redis, byte by byte: what Redisson would read, and what it would write.

use std::time::Duration;

use redis::{Commands, cmd};
use tidegate::limiter::{LimiterErrorKind, Rate, RateLimiter};
use tidegate::store::StoreErrorKind;

use crate::{connect, limiter, replace_rate};

type Grants = Vec<(Vec<u8>, f64)>;

const MINUTE: Duration = Duration::from_secs(60);

fn server_millis(connection: &mut redis::Connection) -> f64 {
    let (seconds, micros): (f64, f64) = cmd("TIME").query(connection).expect("a time");
    seconds * 1e3 + micros / 1e3
}

/// A member as Redisson packs it: `Bc0I`.
fn member(identity: &[u8], permits: u32) -> Vec<u8> {
    let mut member = vec![u8::try_from(identity.len()).expect("short")];
    member.extend(identity);
    member.extend(permits.to_le_bytes());
    member
}

#[tokio::test]
async fn what_we_write_is_redissons() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let rate = Rate::overall(10, MINUTE).expect("valid");
    let rate = rate.with_keep_alive(2 * MINUTE).expect("valid");
    let limiter = RateLimiter::new(&redis, "partner").shared_with_redisson();
    limiter.try_set_rate(rate).await.expect("is set");
    let before = server_millis(&mut connection);
    assert!(limiter.try_acquire(3).await.expect("an answer"));
    let after = server_millis(&mut connection);

    let fields: std::collections::BTreeMap<String, String> =
        connection.hgetall("partner").expect("a hash");
    let fields: Vec<_> = fields.iter().map(|(a, b)| (&**a, &**b)).collect();
    // In microseconds.
    let chosen_at = fields[0].1;
    let chosen_millis = chosen_at.parse::<f64>().expect("a number") / 1e3;
    assert!((before - 10_000.0..=before).contains(&chosen_millis));
    assert_eq!(
        fields,
        [
            ("chosenAt", chosen_at),
            ("interval", "60000"),
            ("keepAliveTime", "120000"),
            ("rate", "10"),
            ("type", "0")
        ]
    );
    let value: String = connection.get("{partner}:value").expect("a string");
    assert_eq!(value, "7");
    let grants: Grants = connection
        .zrange_withscores("{partner}:permits", 0, -1)
        .expect("a sorted set");
    let [(grant, score)] = &grants[..] else {
        panic!("{grants:?}");
    };
    assert_eq!(
        (grant.len(), grant[0], &grant[17..]),
        (21, 16, &[3, 0, 0, 0][..])
    );
    assert!((before.floor()..=after.ceil()).contains(score));
    let mut names: Vec<String> = connection.keys("*").expect("names");
    names.sort();
    assert_eq!(names, ["partner", "{partner}:permits", "{partner}:value"]);
}

#[tokio::test]
async fn names_with_braces_and_clients() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = RateLimiter::new(&redis, "a{b}c");
    let set = limiter
        .try_set_rate(Rate::per_client(10, MINUTE).expect("valid"))
        .await;
    assert!(set.expect("an answer"));
    assert!(limiter.try_acquire(1).await.expect("an answer"));
    let mut names: Vec<String> = connection.keys("*").expect("names");
    names.sort();
    let id = redis.id();
    let expected = [
        "a{b}c".to_owned(),
        format!("a{{b}}c:epoch:{id}"),
        format!("a{{b}}c:permits:{id}"),
        format!("a{{b}}c:value:{id}"),
    ];
    assert_eq!(names, expected);
    // The rate stays, all that counts goes.
    for name in &names[1..] {
        let life: i64 = connection.pttl(name).expect("a time to live");
        assert!((120_000..=182_000).contains(&life), "{name}: {life}");
    }
    assert_eq!(connection.pttl::<_, i64>(&names[0]).expect("one"), -1);
}

#[tokio::test]
async fn what_redisson_writes_is_read() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let now = server_millis(&mut connection).floor();
    redis::pipe()
        .hset("partner", "rate", 10)
        .hset("partner", "interval", 60_000)
        .hset("partner", "type", 0)
        .set("{partner}:value", 3)
        .zadd("{partner}:permits", member(&[7; 16], 4), now - 59_000.0)
        .zadd("{partner}:permits", member(&[8; 8], 3), now - 10_000.0)
        .exec(&mut connection)
        .expect("is written");
    let limiter = RateLimiter::new(&redis, "partner");
    let rate = limiter
        .stored_rate()
        .await
        .expect("an answer")
        .expect("a rate");
    assert_eq!(rate, Rate::overall(10, MINUTE).expect("valid"));
    assert_eq!(limiter.available_permits().await.expect("an answer"), 3);
    assert!(!limiter.try_acquire(4).await.expect("an answer"));
    let soon = Duration::from_secs(3);
    assert!(limiter.try_acquire_for(7, soon).await.expect("an answer"));
    assert!(!limiter.try_acquire_for(1, soon).await.expect("an answer"));
    // Without an expiry, as theirs.
    for name in ["{partner}:value", "{partner}:permits"] {
        assert_eq!(connection.pttl::<_, i64>(name).expect("one"), -1);
    }
}

/// A half of the state that is missing is neither an error for ever nor a refill.
#[tokio::test]
async fn what_is_missing_heals() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 5, 700).await;
    assert!(limiter.try_acquire(4).await.expect("an answer"));
    let _: () = connection.del("{partner}:value").expect("is gone");
    assert_eq!(limiter.available_permits().await.expect("an answer"), 1);
    assert!(!limiter.try_acquire(2).await.expect("an answer"));
    assert!(limiter.try_acquire(1).await.expect("an answer"));

    let _: () = connection.del("{partner}:permits").expect("is gone");
    assert_eq!(limiter.available_permits().await.expect("an answer"), 0);
    let soon = Duration::from_secs(3);
    let began = std::time::Instant::now();
    assert!(limiter.try_acquire_for(5, soon).await.expect("an answer"));
    assert!(began.elapsed() >= Duration::from_millis(690), "no refill");

    for nonsense in ["", "abc", "1e999", "-7", "99", "NaN"] {
        let _: () = connection.set("{partner}:value", nonsense).expect("is set");
        assert!(
            !limiter.try_acquire(1).await.expect("an answer"),
            "{nonsense}"
        );
    }
    // What the last nonsense says to be missing counts for an interval more.
    assert!(limiter.try_acquire_for(5, soon).await.expect("an answer"));
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
}

#[tokio::test]
async fn foreign_values_are_typed_errors() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 5, 60_000).await;
    let kind = |error: tidegate::limiter::LimiterError| error.kind();
    let wrong_type = LimiterErrorKind::Store(StoreErrorKind::WrongType);
    for name in ["{partner}:value", "{partner}:permits"] {
        let _: () = connection.rpush(name, 1).expect("a list");
        assert_eq!(limiter.try_acquire(1).await.map_err(kind), Err(wrong_type));
        assert_eq!(
            limiter.clone().fair().acquire(1).await.map_err(kind),
            Err(wrong_type)
        );
        let length: u64 = connection.llen(name).expect("still a list");
        assert_eq!(length, 1);
        let _: () = connection.del(name).expect("is gone");
    }
    for (field, nonsense) in [
        ("rate", "many"),
        ("interval", "0"),
        ("interval", "1.5"),
        ("type", "2"),
        ("keepAliveTime", "x"),
    ] {
        let _: () = connection.hset("partner", field, nonsense).expect("is set");
        let malformed = Err(LimiterErrorKind::Malformed);
        assert_eq!(
            limiter.try_acquire(1).await.map_err(kind),
            malformed,
            "{field}"
        );
        limiter
            .set_rate(Rate::overall(5, MINUTE).expect("valid"))
            .await
            .expect("mends it");
        let _: () = connection
            .hdel("partner", "keepAliveTime")
            .expect("is gone");
    }
    let _: () = connection.hdel("partner", "type").expect("is gone");
    let unknown = Err(LimiterErrorKind::UnknownLimiter);
    assert_eq!(limiter.try_acquire(1).await.map_err(kind), unknown);
    let set = limiter
        .try_set_rate(Rate::overall(5, MINUTE).expect("valid"))
        .await;
    assert!(set.expect("an answer"), "a half of a configuration is none");
    assert!(limiter.try_acquire(5).await.expect("an answer"));
}

/// Grants of a clock that is ahead count from now, and not until then.
#[tokio::test]
async fn grants_from_the_future_count_from_now() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 5, 300).await;
    let ahead = server_millis(&mut connection).floor() + 3_600_000.0;
    redis::pipe()
        .set("{partner}:value", 0)
        .zadd("{partner}:permits", member(&[7; 16], 5), ahead)
        .exec(&mut connection)
        .expect("is written");
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
    tokio::time::sleep(Duration::from_millis(320)).await;
    assert!(limiter.try_acquire(5).await.expect("an answer"));
}

/// A new rate reaches every client.
#[tokio::test]
async fn a_new_rate_reaches_all_clients() {
    let server = kit::Redis::start();
    let clients = [connect(&server).await, connect(&server).await];
    let limiters = clients
        .each_ref()
        .map(|redis| RateLimiter::new(redis, "partner"));
    let set = limiters[0]
        .try_set_rate(Rate::per_client(3, MINUTE).expect("valid"))
        .await;
    assert!(set.expect("an answer"));
    for limiter in &limiters {
        assert!(limiter.try_acquire(3).await.expect("an answer"));
        assert!(!limiter.try_acquire(1).await.expect("an answer"));
    }
    let rate = Rate::per_client(4, MINUTE).expect("valid");
    replace_rate(&limiters[0], rate).await.expect("an answer");
    for limiter in &limiters {
        assert_eq!(limiter.available_permits().await.expect("an answer"), 1);
        assert!(limiter.try_acquire(1).await.expect("an answer"));
        assert!(!limiter.try_acquire(1).await.expect("an answer"));
    }
    limiters[0]
        .set_rate(Rate::per_client(4, MINUTE).expect("valid"))
        .await
        .expect("is set");
    for limiter in &limiters {
        assert_eq!(limiter.available_permits().await.expect("an answer"), 4);
        assert!(limiter.try_acquire(4).await.expect("an answer"));
        assert!(!limiter.try_acquire(1).await.expect("an answer"));
    }
}

/// An uncontended acquire is one script call; denials and reads leave every expiry alone.
#[tokio::test]
async fn one_call_and_no_expiry_of_who_is_denied() {
    let server = kit::Redis::start();
    let redis = connect(&server).await;
    let mut connection = server.connection();
    let limiter = limiter(&redis, 5, 60_000).await;
    cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(&mut connection)
        .expect("resets");
    assert!(limiter.try_acquire(5).await.expect("an answer"));
    let stats: redis::InfoDict = cmd("INFO")
        .arg("commandstats")
        .query(&mut connection)
        .expect("stats");
    let stat = stats.get::<String>("cmdstat_evalsha").expect("was called");
    assert!(stat.starts_with("calls=1,"), "{stat}");

    let names = ["{partner}:value", "{partner}:permits"];
    let lives = |connection: &mut redis::Connection| {
        names.map(|name| connection.pttl::<_, i64>(name).expect("one"))
    };
    let before = lives(&mut connection);
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!limiter.try_acquire(1).await.expect("an answer"));
    let fair = limiter.clone().fair();
    let soon = Duration::from_secs(1);
    assert!(!fair.try_acquire_for(1, soon).await.expect("an answer"));
    limiter.available_permits().await.expect("an answer");
    let after = lives(&mut connection);
    assert!(after[0] <= before[0] - 25 && after[1] <= before[1] - 25);
    assert_eq!(connection.pttl::<_, i64>("partner").expect("one"), -1);
}
