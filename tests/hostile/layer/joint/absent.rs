//! Requests without some of their keys, in all combinations with subjects that may be absent.

use std::sync::Arc;

use kit::Redis;
use tidegate::decision::Verdict;
use tidegate::{Limits, MemoryStore, Store};

use super::{app, ask, header, left};
use kit::store_on;

const NAMES: [&str; 3] = ["user", "address", "tenant"];

/// A rule of three subjects; those of these bits may be absent.
fn file(skips: usize) -> String {
    let quotas = NAMES.iter().enumerate().map(|(at, name)| {
        let absent = match skips >> at & 1 {
            0 => "",
            _ => ", absent = \"skip\"",
        };
        format!(
            "{{ max-count = 9, window = \"1h\", key = \"header:x-{name}\", subject = \
             \"{name}\"{absent} }}"
        )
    });
    let quotas: Vec<_> = quotas.collect();
    format!("[rules.api]\nquotas = [{}]\n", quotas.join(", "))
}

/// A request without a key that is needed gets a 400 and is charged nowhere; one without a key that
/// may be absent is charged in the other subjects.
#[tokio::test]
async fn all_combinations() {
    let server = Redis::start();
    let redis: Arc<dyn Store> = Arc::new(store_on(&server).await);
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for store in [redis, memory] {
        for skips in 0..7 {
            for present in 0..8 {
                let text = file(skips);
                let limits = Limits::from_toml(&text).expect("valid");
                let limits = limits.store(Arc::clone(&store));
                let app = app(limits.layer("api"));
                let value = format!("{skips}-{present}");
                let mut fields = Vec::new();
                let mut keys = Vec::new();
                for (at, name) in NAMES.iter().enumerate() {
                    if present >> at & 1 == 1 {
                        fields.push(format!("x-{name}: {value}"));
                    }
                    keys.push((*name, header(&format!("x-{name}"), &value)));
                }
                let status = ask(&app, &fields.join(", ")).await.as_u16();
                let is_whole = present | skips == 7;
                let story = format!("skips {skips:03b}, present {present:03b}");
                assert_eq!(status, if is_whole { 200 } else { 400 }, "{story}");
                let expected: Vec<_> = (0..3)
                    .map(|at| 9 - u64::from(is_whole && present >> at & 1 == 1))
                    .collect();
                let keys: tidegate::layer::SubjectKeys = keys.into_iter().collect();
                assert_eq!(left(&limits, keys).await, expected, "{story}");
            }
        }
    }
    let error = Limits::from_toml(&file(7)).expect_err("all may be absent");
    assert!(error.to_string().contains("absent"), "{error}");
}

/// A missing key is no admission, whatever the rule says of failures, for shadow rules, and where
/// the rule denies all anyway.
#[tokio::test]
async fn a_missing_key_is_a_400_whatever_else_is_set() {
    for more in [
        "",
        "on-error = \"proceed\"\n",
        "settles = true\n",
        "algorithm = \"gcra\"\n",
    ] {
        let text = format!("{}{more}", file(0b110));
        let limits = Limits::from_toml(&text).unwrap_or_else(|error| panic!("{error}"));
        let app = app(limits.layer("api"));
        assert_eq!(
            ask(&app, "x-address: 1, x-tenant: 2").await.as_u16(),
            400,
            "{more}"
        );
        let keys = [("address", header("x-address", "1"))];
        assert_eq!(left(&limits, keys).await, [9; 3], "{more}");
    }
}

/// `check` says so, too.
#[tokio::test]
async fn checks_without_a_key() {
    let limits = Limits::from_toml(&file(0b010)).expect("valid");
    let user = || ("user", header("x-user", "u"));
    let tenant = || ("tenant", header("x-tenant", "t"));
    assert!(limits.check("api", [user()]).await.is_err());
    assert!(
        limits
            .check("api", [("nobody", header("x-user", "u"))])
            .await
            .is_err()
    );
    assert!(limits.check("api", header("x-user", "u")).await.is_err());
    let all = [user(), tenant()];
    assert_eq!(left(&limits, all.clone()).await, [9; 3]);
    let admitted = limits.check("api", all.clone()).await.expect("admitted");
    let decision = admitted.decision.expect("a decision");
    assert_eq!(decision.verdict(), Verdict::Allowed);
    assert_eq!(left(&limits, all).await, [8, 9, 8]);
}
