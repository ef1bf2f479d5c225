//! Checks, peeks and resets name the key of each subject. What they count is in
//! `tests/vectors/subjects.txt`.

use tidegate::layer::{Refused, SubjectKeys};

use super::{address, rule, user};
use crate::*;

/// A mistake in the keys is an error, also where failures of the store let requests pass; and
/// nothing is charged.
#[tokio::test]
async fn a_missing_or_unknown_subject_is_no_admission() {
    for store in Stores::start().await.all {
        let rule = rule().with_on_error(OnError::Proceed);
        let limits = Limits::new([rule, per_hour("plain", 2)]).store(Arc::clone(&store));
        let user = || SubjectKeys::from([("user", "alice")]);
        let other = [("address", "here"), ("tenant", "acme")];
        let no_key = r#"the check of "api" has no key of the subject "address""#;
        let no_subject = r#"no subject "tenant", expected one of: user, address, everyone"#;
        let no_name = "a key by the name of each: user, address";
        let twice = r#"two keys of the subject "user" of the rule "api", expected one"#;
        let both = [("user", "alice"), ("user", "bob")];
        let cases: [(&str, SubjectKeys, &str); 5] = [
            ("api", user(), no_key),
            ("api", other.into(), no_subject),
            ("api", "alice".into(), no_name),
            ("api", both.into(), twice),
            ("plain", user(), "expected its key alone"),
        ];
        for (path, keys, expected) in cases {
            let refused: Refused = limits.check(path, keys).await.expect_err("no admission");
            let error = refused.key_error().expect("the keys are wrong");
            assert_eq!(error.kind(), KeyErrorKind::Server);
            assert!(refused.error().is_none() && refused.decision().is_none());
            let text = error.to_string();
            assert!(text.ends_with(expected), "{text}");
            assert!(!refused.to_string().contains(&text), "{refused}");
            assert_eq!(refused.into_response().status(), 500);
        }
        let everyone = left_of_each(&limits, "api", [("everyone", "")]).await;
        assert_eq!(everyone, [2, 3, 10], "nothing was charged");
        let counted = counted(&limits, "api");
        assert_eq!(counted.key_errors(KeyErrorKind::Server), 4);
        assert_eq!(counted.proceeded, 0);

        for keys in [SubjectKeys::from("alice"), [("tenant", "acme")].into()] {
            let peeked = limits.peek("api", keys.clone()).await;
            let peeked = peeked.expect_err("no subject").kind();
            let reset = limits.reset("api", keys).await;
            let reset = reset.expect_err("no subject").kind();
            assert_eq!([peeked, reset], [StoreErrorKind::Configuration; 2]);
        }

        // Whatever fails, a shadow rule lets it pass.
        let limits = Limits::new([super::rule().into_shadow()]).store(store);
        assert!(limits.check("api", "alice").await.is_ok());
    }
}

/// A request that leaves out all subjects of a plan would be limited by nothing.
#[test]
fn a_plan_has_a_subject_that_is_in_every_request() {
    let of = |name: &str| Policy::from(Quota::per_hour(5)).with_subject(name);
    let rule = || {
        let user = user(Quota::per_hour(1)).skip_absent();
        Rule::joint("api", [user, address(Quota::per_hour(1))]).expect("a rule")
    };
    let plan = |policies: Vec<_>| Quotas::with_policies(policies).expect("quotas");
    let of_user = plan(vec![of("user")]);
    rule()
        .with_plan("pro", of_user.clone())
        .expect("addresses are limited by the rule");
    let mistake = rule().with_plan("pro", of_user.unlimited(["address"]));
    let mistake = mistake.expect_err("nothing would limit it").to_string();
    let is_right = mistake.starts_with("each subject of the plan \"pro\" may be absent");
    assert!(is_right, "{mistake}");
    for others in [vec![of("user"), of("address")], vec![of("address")]] {
        assert!(rule().with_plan("pro", plan(others)).is_ok());
    }
}
