//! `Refused`: the response that a layer would have given, and nothing that only the log may know.

use std::error::Error;

use super::*;

const SECONDS: Duration = Duration::from_secs(90);

/// Rules that deny in all ways, each with a cost that is denied after one that is allowed.
fn rules(algorithm: Algorithm) -> Vec<(Rule, u64, u64)> {
    let named = Policy::new("a \"name\"\n", quota(3, SECONDS));
    let rule = |path, quotas: &[Quota]| Rule::new(path, quotas.iter().copied()).expect("valid");
    let (seconds, hour) = (|max| quota(max, SECONDS), |max| quota(max, HOUR));
    let all = [
        (rule("one", &[seconds(2)]), 2, 1),
        (rule("none", &[hour(0)]), 0, 1),
        (rule("never", &[seconds(5)]), 1, 6),
        (rule("two", &[seconds(2), hour(2)]), 2, 2),
        (rule("one of two", &[seconds(2), hour(9)]), 2, 2),
        (rule("odd", &[quota(1, millis(1_500))]), 1, 1),
        (rule("/quoted/\"\u{e4}\"", &[hour(1)]), 1, 1),
        (
            Rule::with_policies("named", [named]).expect("valid"),
            3,
            u64::MAX,
        ),
    ];
    all.map(|(rule, first, second)| (rule.with_algorithm(algorithm), first, second))
        .into()
}

/// Status, fields and document: byte for byte, under each setting of the fields.
#[tokio::test]
async fn the_response_of_the_layer() {
    for headers in [
        Headers::Draft11,
        Headers::Draft7,
        Headers::Legacy,
        Headers::None,
    ] {
        for algorithm in Algorithm::ALL {
            for (rule, first, second) in rules(algorithm) {
                let path = rule.path().to_owned();
                let case = format!("{headers:?} {algorithm:?} {path}");
                let limits = || {
                    let (clock, memory) = clocked();
                    let limits = Limits::new([rule.clone()]).store(memory).headers(headers);
                    (clock, limits)
                };
                let ((clock, layered), (other, checked)) = (limits(), limits());
                let costly = |cost| wrap(layered.layer(&path).cost(move |_| cost));
                if first > 0 {
                    assert_eq!(status(&costly(first), &[]).await, 200, "{case}");
                    let admitted = checked.check(&path, Key::default()).cost(first).await;
                    admitted.unwrap_or_else(|refused| panic!("{case}: {refused:?}"));
                }
                for clock in [clock, other] {
                    clock.set(clock.now() + 333_333);
                }
                let expected = seen(send(&costly(second), request(&[])).await).await;
                let refused = checked.check(&path, Key::default()).cost(second).await;
                let refused = refused.expect_err("denied");
                let decision = refused.decision().expect("denied").clone();
                assert_eq!(refused.retry_after(), decision.retry_after(), "{case}");
                let got = seen(refused.into_response()).await;
                assert_eq!(got, expected, "{case}");
            }
        }
    }
}

/// Each kind of failure; and a denial of the fallback.
#[tokio::test]
async fn the_response_of_the_layer_to_failures() {
    for kind in StoreErrorKind::ALL {
        let failing = || {
            Stub::answering(MemoryStore::new(), move |_| {
                let error = StoreError::new(kind, "redis://user:s3cret@host: alice");
                Some(StoreFuture::boxed(async { Err(error) }))
            })
        };

        for has_fallback in [false, true] {
            let store = || -> Arc<dyn Store> {
                if !has_fallback {
                    return Arc::new(failing());
                }
                let store = Resilient::bare(failing()).fallback(Share::of_processes(1));
                Arc::new(store.fallback_store(clocked().1))
            };
            let layered = Limits::new([hourly("a", 0)]).store(store());
            let checked = Limits::new([hourly("a", 0)]).store(store());
            let expected = seen(send(&wrap(layered.layer("a")), request(&[])).await).await;
            let refused = checked.check("a", "").await.expect_err("denied or failed");
            assert_eq!(refused.decision().is_some(), has_fallback);
            let said = refused.error().map(StoreError::kind);
            assert_eq!(said, (!has_fallback).then_some(kind));
            let got = seen(refused.into_response()).await;
            assert_eq!(got, expected, "{kind:?} {has_fallback}");
            assert!(!got.contains("s3cret") && !got.contains("alice"), "{got}");
        }
    }
}

/// What `{}`, `{:?}`, `{:#?}` and the chain of sources say.
fn told(refused: &Refused) -> String {
    let mut told = format!("{refused}\n{refused:?}\n{refused:#?}");
    let mut source = refused.source();
    while let Some(error) = source {
        told = format!("{told}\n{error}\n{error:?}\n{error:#?}");
        source = error.source();
    }
    told
}

/// No key, no address of a server, no password, in whatever form a refusal is shown.
#[tokio::test]
async fn what_a_refusal_tells() {
    let ip: std::net::IpAddr = "198.51.100.77".parse().expect("an address");
    let keys = [
        Key::from("s3cret-alice"),
        Header::new("x-user").key("s3cret-alice"),
        Bearer.key("s3cret-alice"),
        Key::from(ip),
    ];
    let mut server = Redis::start();
    let url = server.url.replace("//", "//default:s3cret@");
    kit::run(&server, "CONFIG SET requirepass s3cret");
    let redis = RedisStore::connect(&*url).await.expect("the password");
    let redis: Arc<dyn Store> = Arc::new(redis.timeout(millis(300)));
    let limits = Limits::new([hourly("a", 0)]).store(redis);
    let address = server.url.clone();
    let (host, port) = address.rsplit_once(':').expect("a port");
    let host = host.trim_start_matches("redis://");
    let secrets = ["s3cret", "198.51.100.77", host, port];
    for is_up in [true, false] {
        if !is_up {
            server.kill();
        }
        for key in &keys {
            let refuse = async || limits.check("a", key.clone()).await.expect_err("nobody");
            let refused = refuse().await;
            // What a client is shown.
            let shown = format!("{refused}\n{}", seen(refuse().await.into_response()).await);
            for secret in secrets {
                assert!(!shown.contains(secret), "{is_up}: {secret} in {shown}");
            }
            let told = told(&refused);
            for secret in ["s3cret", "198.51.100.77", key.as_str()] {
                assert!(!told.contains(secret), "{is_up}: {secret} in {told}");
            }
        }
    }
}

/// It is an error as others are: it can be sent, boxed and asked for its source.
#[tokio::test]
async fn an_error_as_others_are() {
    fn is_an_error<E: Error + Send + Sync + 'static>(error: E) -> Box<dyn Error + Send + Sync> {
        error.into()
    }
    let limits = Limits::new([hourly("a", 0), hourly("b", 5)]).store(MemoryStore::with_max_keys(0));
    let denied = limits.check("a", "k").await.expect_err("the max is 0");
    let failed = limits.check("b", "k").await.expect_err("there is no room");
    let kind = failed.error().expect("no decision").kind();
    let (denied, failed) = (is_an_error(denied), is_an_error(failed));
    assert!(denied.source().is_none(), "no error of the store");
    for error in [&denied, &failed] {
        let text = error.to_string();
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
        assert!(error.downcast_ref::<Refused>().is_some());
    }
    if let Some(source) = failed.source() {
        let store = source.downcast_ref::<StoreError>().expect("the store's");
        assert_eq!(store.kind(), kind);
    }
}
