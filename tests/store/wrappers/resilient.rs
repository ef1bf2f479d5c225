//! All of them together.

use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn the_defaults() {
    let flaky = FlakyStore::new(Mode::Slow(SECOND));
    let store = Resilient::new(flaky.clone()).build();
    let asked = take();
    let answers = join_all((0..1_500).map(|_| store.take(&asked))).await;
    let errors = answers.into_iter().filter_map(Result::err);
    let kinds: Vec<_> = errors.map(|error| error.kind()).collect();
    assert_eq!(kinds, [Kind::Overloaded; 1_500 - 1_024]);
    assert!(ask(&store, &take()).await.failure().is_none());

    flaky.set(Mode::Fails(Kind::Timeout));
    fails(&store, 10, Kind::Timeout).await;
    assert_eq!(kind(&store).await, Kind::Unavailable);
    assert!(!store.capabilities().has_fallback);
    assert_eq!(store.name(), "flaky");
}

#[tokio::test(start_paused = true)]
async fn each_part_can_be_set_and_switched_off() {
    let flaky = FlakyStore::new(Mode::Hangs);
    let bare = Resilient::new(flaky.clone()).in_flight(None).failures(None);
    let store = bare.clone().timeout(20 * MILLISECOND).build();
    let began = Instant::now();
    let asked = take();
    let answers = join_all((0..2_000).map(|_| store.take(&asked))).await;
    for answer in answers {
        assert_eq!(answer.expect_err("late").kind(), Kind::Timeout);
    }
    assert_eq!(began.elapsed(), 20 * MILLISECOND);

    flaky.set(Mode::Fails(Kind::ReadOnly));
    let store = bare.clone().fallback(Share::of_processes(4)).build();
    assert!(store.capabilities().has_fallback);
    for _ in 0..20 {
        let decision = ask(&store, &take()).await;
        let failure = decision.failure().expect("it is from the fallback");
        assert_eq!(failure.kind(), Kind::ReadOnly, "there is no breaker");
    }

    let store = bare.failures(2).probe_every(SECOND).build();
    fails(&store, 2, Kind::ReadOnly).await;
    flaky.looked();
    sleep(10 * SECOND).await;
    assert!((8..=10).contains(&flaky.looked()));
}

/// A store that hangs costs the first requests their time, and the others nothing; it decides again
/// when it can.
#[tokio::test(start_paused = true)]
async fn an_outage_from_end_to_end() {
    let flaky = FlakyStore::new(Mode::Works);
    let store = Resilient::new(flaky.clone()).timeout(50 * MILLISECOND);
    let store = store.fallback(Share::of_processes(2)).build();
    let ask = async || {
        let began = Instant::now();
        let decision = ask(&store, &take()).await;
        (decision.source(), began.elapsed())
    };
    assert_eq!(ask().await, (Source::Local, Duration::ZERO));
    flaky.set(Mode::Hangs);
    for _ in 0..10 {
        assert_eq!(ask().await, (Source::Fallback, 50 * MILLISECOND));
    }
    for _ in 0..1_000 {
        assert_eq!(ask().await, (Source::Fallback, Duration::ZERO));
        sleep(9 * MILLISECOND).await;
    }
    flaky.set(Mode::Works);
    let began = Instant::now();
    while ask().await.0 == Source::Fallback {
        sleep(MILLISECOND).await;
    }
    let took = began.elapsed();
    assert!(took <= 300 * MILLISECOND, "{took:?}");
}

/// Two services that share a Redis and have rules of the same name.
mod on_redis {
    use super::*;

    fn take_of(path: &str, prefix: Option<&str>) -> Take {
        let rule = kit::per_hour(path, 2);
        let rule = prefix
            .into_iter()
            .fold(rule, |rule, it| rule.with_prefix(it));
        Take::new(Arc::new(rule), Key::from("alice"))
    }

    async fn remaining(store: &impl Store, take: &Take) -> u64 {
        ask(store, take).await.remaining()
    }

    async fn connected(server: &Redis) -> Resilient<RedisStore> {
        let store = Resilient::redis(server.url.as_str(), "shop").expect("an address");
        store.timeout(PATIENT).connect().await.expect("a server")
    }

    #[tokio::test]
    async fn services_count_apart_and_give_back_their_own() {
        let server = Redis::start();
        let of = |service| {
            let store = Resilient::redis(server.url.as_str(), service).expect("an address");
            store.timeout(20 * SECOND)
        };
        let (shop, blog) = (of("shop"), of("blog"));
        let (login, own) = (take_of("login", None), take_of("login", Some("own:")));
        assert_eq!(remaining(&shop, &login).await, 1);
        assert_eq!(remaining(&shop, &own).await, 1);
        assert_eq!(remaining(&blog, &login).await, 1);
        let receipt = charge(&blog, &login).await;
        assert_eq!(refunds(&blog, &login, &receipt).await, 1);
        let keys = [
            "blog:CurrentLimiter:login:alice",
            "shop:CurrentLimiter:login:alice",
            "shop:own:login:alice",
        ];
        assert_eq!(server.names(), keys);
        blog.reset(&login).await.expect("an answer");
        assert_eq!(remaining(&blog, &login).await, 1);
        assert_eq!(remaining(&shop, &login).await, 0, "it has not changed");
    }

    /// A setter after the first use, and a clone that is used before.
    #[tokio::test]
    async fn it_is_a_store_that_still_takes_setters() {
        let mut server = Redis::start();
        let store = connected(&server).await;
        assert_eq!(remaining(&store, &take_of("login", None)).await, 1);
        let both = store.clone().processes(2);
        assert!(both.capabilities().has_fallback && !store.capabilities().has_fallback);
        assert_eq!(remaining(&both, &take_of("login", None)).await, 0);
        server.kill();
        let lost = store.take(&take_of("search", None)).await;
        assert_eq!(lost.expect_err("no server").kind(), Kind::Unavailable);
        let decision = ask(&both, &take_of("search", None)).await;
        assert_eq!(decision.source(), Source::Fallback);
    }

    /// A time-out that is longer than a `RedisStore`'s default is one, too.
    #[tokio::test]
    async fn its_time_out_may_be_longer_than_the_default() {
        let server = Redis::start();
        let store = connected(&server).await;
        let take = take_of("login", None);
        assert_eq!(remaining(&store, &take).await, 1);
        server.signal("STOP");
        let slow = store.take(&take);
        sleep(200 * MILLISECOND).await;
        server.signal("CONT");
        assert_eq!(slow.await.expect("within its time").remaining(), 0);
    }

    #[tokio::test]
    async fn names_of_services_are_checked() {
        let long = "a".repeat(65);
        for wrong in ["", "a b", "a:b", "{a}", "ä", "a\n", "*", long.as_str()] {
            let error = Resilient::redis("redis://127.0.0.1:1", wrong).expect_err(wrong);
            assert_eq!(error.kind(), Kind::Configuration);
            let text = error.to_string();
            assert!(text.contains("expected 1 to 64 ASCII letters"), "{text}");
        }
        for name in ["a", "Shop-1.eu_west"] {
            Resilient::redis("redis://127.0.0.1:1", name).expect(name);
        }
    }

    #[test]
    fn outside_of_a_runtime_it_is_an_error() {
        let url = "redis://127.0.0.1:1";
        for error in [
            Resilient::redis(url, "shop").expect_err("no runtime"),
            RedisStore::connect_lazy(url).expect_err("no runtime"),
            tidegate::Redis::connect_lazy(url).expect_err("no runtime"),
        ] {
            assert_eq!(error.kind(), Kind::Configuration);
            let is_right = error.to_string().contains("no tokio runtime here");
            assert!(is_right, "{error}");
        }
    }

    /// It starts without a server. `connect` fails instead.
    #[tokio::test]
    async fn a_service_starts_without_its_redis() {
        let mut server = Redis::start();
        server.kill();
        let store = Resilient::redis(server.url.as_str(), "shop").expect("an address");
        let store = store.processes(2);
        let decision = ask(&store, &take_of("login", None)).await;
        assert_eq!(decision.source(), Source::Fallback);
    }
}
