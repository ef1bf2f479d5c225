//! A hold of no time only asks.

use super::*;

#[tokio::test]
async fn no_time_only_asks() {
    let server = Redis::start();
    let [redis, resilient] = [store_on(&server).await, store_on(&server).await];
    let stores = [
        limits(5),
        limits(5).store(redis),
        limits(5).store(Resilient::new(resilient)),
    ];
    for (at, limits) in stores.into_iter().enumerate() {
        let ask = async || hold(&limits, "us", Duration::ZERO).await;
        let before = keys(&server, "*").len();
        for _ in 0..3 {
            assert_eq!(ask().await, Duration::ZERO);
        }
        assert_eq!(keys(&server, "*").len(), before, "it writes nothing");
        assert!(!reset(&limits, "us").await);
        assert_eq!(hold(&limits, "us", MINUTE).await, MINUTE);
        let mut last = MINUTE;
        for _ in 0..3 {
            let left = ask().await;
            assert!(left <= last && left > 30 * SECOND, "{left:?}");
            last = left;
        }
        for foreign in ["", "x", "-1", "nan", "inf", "1e300"] {
            let holds = keys(&server, "*~until");
            assert_eq!(holds.is_empty(), at == 0);
            for name in holds {
                let mut connection = server.connection();
                let set = redis::cmd("SET")
                    .arg(&name)
                    .arg(foreign)
                    .exec(&mut connection);
                set.expect("set");
                assert_eq!(ask().await, Duration::ZERO, "{foreign:?}");
                let kept = redis::cmd("GET").arg(&name).query(&mut connection);
                let kept: String = kept.expect("kept");
                assert_eq!(kept, foreign, "it writes nothing");
            }
        }
        // A reload that makes it a rule as others: the reset ends the hold all the same.
        hold(&limits, "us", MINUTE).await;
        replace(&limits, [per_minute("partner", 5)]);
        assert!(limits.check("partner", "us").await.is_ok());
        assert!(reset(&limits, "us").await);
        replace(&limits, [partner(5)]);
        assert_eq!(ask().await, Duration::ZERO);
        assert!(limits.hold("other", "us", Duration::ZERO).await.is_err());
    }
}
