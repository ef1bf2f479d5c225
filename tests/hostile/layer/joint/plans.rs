//! Plans of subjects, and candidates.

use tidegate::rule::Plan;

use super::*;

/// A plan that leaves a subject unlimited does not count there; charges under other plans count along
/// within a subject.
#[tokio::test]
async fn plans_count_where_they_have_quotas() {
    const FILE: &str = r#"
[rules.api]
quotas = [
    { max-count = 2, window = "1h", key = "header:x-user", subject = "user", absent = "skip" },
    { max-count = 50, window = "1h", key = "everyone" },
]
[rules.api.plans.pro]
quotas = [
    { max-count = 5, window = "1h", subject = "user" },
    { max-count = 60, window = "1h", subject = "everyone" },
]
[rules.api.plans.few]
quotas = [
    { max-count = 4, window = "1h", subject = "user" },
    { max-count = 900, window = "1h", subject = "everyone" },
]
[rules.api.plans.all-only]
quotas = [{ max-count = 55, window = "1h", subject = "everyone" }]
unlimited = ["user"]
"#;
    let (_server, stores) = stores().await;
    for store in stores {
        let limits = limits(FILE, store);
        let app = app(limits.layer("api"));
        let ask = async |user: &str, plan: &str| {
            let mut request = kit::http::request("/", &format!("x-user: {user}"));
            if !plan.is_empty() {
                request.extensions_mut().insert(Plan::new(plan));
            }
            kit::http::call(&app, request).await.status().as_u16()
        };
        let left = async |user: &str| {
            let [user, _, everyone] = keys(user, "");
            left(&limits, [user, everyone]).await
        };
        // The plan, the answer, and what is left of the own quotas.
        for (plan, expected, remaining) in [
            ("", OK, [1, 49]),
            ("few", OK, [0, 48]),
            ("all-only", OK, [0, 47]),
            ("pro", OK, [0, 46]),
            // The fourth of four, and the fifth of five.
            ("few", OK, [0, 45]),
            ("few", DENIED, [0, 45]),
            ("", DENIED, [0, 45]),
            ("pro", OK, [0, 44]),
            ("pro", DENIED, [0, 44]),
        ] {
            assert_eq!(ask("a", plan).await, expected, "{plan}");
            assert_eq!(left("a").await, remaining, "{plan}");
        }
        assert_eq!(left("b").await, [2, 44], "denials charge nothing");
        // `everyone` is counted under plans with other maxima.
        for _ in 0..44 {
            assert_eq!(self::ask(&app, "").await, OK);
        }
        assert_eq!(self::ask(&app, "").await, DENIED);
        assert_eq!(ask("b", "few").await, OK);
        for _ in 0..4 {
            assert_eq!(ask("c", "all-only").await, OK);
        }
        assert_eq!(ask("c", "all-only").await, DENIED);
        assert_eq!(ask("c", "pro").await, OK);
    }
}
