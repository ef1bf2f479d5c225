//! URLs and what they mean, without a server.

use tidegate::RedisStore;
use tidegate::redis::{IntoRedisAddress, RedisAddress};
use tidegate::store::StoreErrorKind;

fn shown(url: &str) -> String {
    let address = url.into_redis_address().expect("a valid URL");
    assert_eq!(format!("{address:?}"), format!("RedisAddress({address})"));
    address.to_string()
}

#[test]
fn addresses_are_named_without_their_logins() {
    for (url, name) in [
        ("redis://u:s3cret@h", "redis at h:6379"),
        ("valkey://h:1/3", "redis at h:1"),
        (
            "unix:///tmp/r.sock?user=u&pass=s3cret",
            "redis at /tmp/r.sock",
        ),
        (
            "redis-cluster://u:s3cret@a,b:7001,[::1]:7002",
            "redis cluster at a:6379, b:7001, ::1:7002",
        ),
        ("redis-cluster://a/", "redis cluster at a:6379"),
        ("redis-cluster://a/0", "redis cluster at a:6379"),
        (
            "redis-sentinel://u:s3cret@a,b:7,[::1]/limits/2?sentinel_username=v&sentinel_password=s3cret",
            "redis master limits of the sentinels at a:26379, b:7, ::1:26379",
        ),
        (
            "valkey-sentinel://a/limits",
            "redis master limits of the sentinels at a:26379",
        ),
        ("rediss://u:s3cret@h", "redis at h:6379"),
        (
            "rediss-cluster://u:s3cret@a,b:7001",
            "redis cluster at a:6379, b:7001",
        ),
        (
            "valkeys-sentinel://a/limits",
            "redis master limits of the sentinels at a:26379",
        ),
    ] {
        assert_eq!(shown(url), name, "{url}");
    }
    let mixed = RedisAddress::cluster(["rediss://a", "redis://b"]).expect_err("they differ");
    assert_eq!(mixed.kind(), StoreErrorKind::Configuration, "{mixed}");
}

#[test]
fn what_makes_no_sense_is_told_without_repeating_it() {
    for url in [
        "redis-cluster://",
        "redis-cluster://u:s3cret@",
        "redis-cluster://u:s3cret@a,,b",
        "redis-cluster://u:s3cret@a/1",
        "redis-cluster://u:s3cret@a?db=1",
        "redis-cluster://u:s3cret@a:port",
        "redis-sentinel://u:s3cret@a",
        "redis-sentinel://u:s3cret@a/",
        "redis-sentinel://u:s3cret@a/limits/x",
        "redis-sentinel://u:s3cret@a/limits/0?password=s3cret",
        "redis-sentinel://u:s3cret@/limits",
        "redis-other://u:s3cret@a",
        "redis-cluster:u:s3cret@a",
    ] {
        let error = RedisAddress::from_url(url).expect_err("no valid URL");
        let seen = error.kind();
        assert_eq!(seen, StoreErrorKind::Configuration, "{url}: {error}");
        let is_right = !format!("{error} {error:?}").contains("s3cret");
        assert!(is_right, "{error:?}");
    }
}

/// And the error says what to write instead.
#[test]
fn what_would_be_misread_is_told() {
    let checked = "certificates are always checked";
    for (url, hint) in [
        ("redis://a,b", "redis-cluster://"),
        ("redis://u:p,w@a:1,b:2/0", "redis-sentinel://"),
        ("redis://us3r:1#p@a", "%23"),
        ("redis-sentinel://a/limits?sentinel_password=p@w", "%40"),
        ("rediss://a/#insecure", checked),
        ("rediss-cluster://a,b/#insecure", checked),
        ("rediss-cluster://a,b#insecure", checked),
        ("rediss-sentinel://a/limits/#insecure", checked),
        (
            "rediss-sentinel://a/limits?sentinel_password=p#insecure",
            checked,
        ),
    ] {
        let error = RedisAddress::from_url(url).expect_err("misread");
        let seen = error.kind();
        assert_eq!(seen, StoreErrorKind::Configuration, "{url}: {error}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
    assert!(RedisAddress::single("redis://a,b").is_err());
    assert!(RedisAddress::cluster(["redis://a#insecure"]).is_err());
    assert_eq!(shown("redis://u,v:p,w@a"), "redis at a:6379");
    assert_eq!(shown("redis://a\n"), "redis at a:6379");
    assert_eq!(shown("unix:///tmp/a@b,c.sock"), "redis at /tmp/a@b,c.sock");
}

#[test]
fn what_cannot_be_is_told() {
    let none: [&str; 0] = [];
    for address in [
        RedisAddress::cluster(none),
        RedisAddress::cluster(["unix:///tmp/r.sock"]),
        RedisAddress::cluster(["redis://u:p@a", "redis://a"]),
        RedisAddress::sentinel(none, "limits"),
        RedisAddress::sentinel(["redis://a"], ""),
        RedisAddress::single("redis-cluster://a"),
    ] {
        let error = address.expect_err("no valid address");
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    }
    let cluster = RedisAddress::cluster(["redis://a"]).expect("valid");
    let error = RedisStore::connect_lazy(cluster.db(1)).expect_err("there is no database 1");
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
}
