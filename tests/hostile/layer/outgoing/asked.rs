//! A hold of no time only asks.

use kit::Redis;
use tidegate::{RedisStore, Resilient};

use super::*;

#[tokio::test]
async fn no_time_only_asks() {
    let server = Redis::start();
    let names = || -> Vec<String> {
        let names = redis::cmd("KEYS").arg("*").query(&mut server.connection());
        names.expect("the keys")
    };
    let redis = RedisStore::connect(&server.url).await.expect("a server");
    let resilient = RedisStore::connect(&server.url).await.expect("a server");
    let memory = limits(5);
    let stores = [
        memory,
        limits(5).store(redis),
        limits(5).store(Resilient::new(resilient)),
    ];
    for (at, limits) in stores.into_iter().enumerate() {
        let hold = async |time| limits.hold("partner", "us", time).await.expect("an answer");
        let before = names().len();
        for _ in 0..3 {
            assert_eq!(hold(Duration::ZERO).await, Duration::ZERO);
        }
        assert_eq!(names().len(), before, "it writes nothing");
        assert!(!limits.reset("partner", "us").await.expect("an answer"));
        assert_eq!(hold(60 * SECOND).await, 60 * SECOND);
        let mut last = 60 * SECOND;
        for _ in 0..3 {
            let left = hold(Duration::ZERO).await;
            assert!(left <= last && left > 30 * SECOND, "{left:?}");
            last = left;
        }
        for foreign in ["", "x", "-1", "nan", "inf", "1e300"] {
            let held = names();
            assert_eq!(held.iter().any(|it| it.ends_with("~until")), at > 0);
            for name in held.iter().filter(|it| it.ends_with("~until")) {
                let set = redis::cmd("SET")
                    .arg(name)
                    .arg(foreign)
                    .exec(&mut server.connection());
                set.expect("set");
                assert_eq!(hold(Duration::ZERO).await, Duration::ZERO, "{foreign:?}");
                let kept: String = redis::cmd("GET")
                    .arg(name)
                    .query(&mut server.connection())
                    .expect("kept");
                assert_eq!(kept, foreign, "it writes nothing");
            }
        }
        // A reload that makes it a rule as others: the reset ends the hold all the same.
        hold(60 * SECOND).await;
        limits
            .rules()
            .replace(tidegate::Rules::from_iter([per_minute("partner", 5)]));
        assert!(limits.check("partner", "us").await.is_ok());
        assert!(limits.reset("partner", "us").await.expect("an answer"));
        limits
            .rules()
            .replace(tidegate::Rules::from_iter([partner(5)]));
        assert_eq!(
            limits
                .hold("partner", "us", Duration::ZERO)
                .await
                .expect("an answer"),
            Duration::ZERO
        );
        assert!(limits.hold("other", "us", Duration::ZERO).await.is_err());
    }
}
