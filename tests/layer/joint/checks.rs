//! Checks, peeks and resets name the key of each subject.

use tidegate::layer::{Refused, SubjectKeys};

use super::{address, api, call, keys, rule, user};
use crate::*;

/// What is left of each quota of these subjects; those of others are full.
async fn left(limits: &Limits, of: impl Into<SubjectKeys>) -> Vec<u64> {
    kit::left_of_each(limits, "api", of).await
}

async fn reset(limits: &Limits, of: impl Into<SubjectKeys>) -> bool {
    limits.reset("api", of).await.expect("an answer")
}

#[tokio::test]
async fn a_check_counts_with_the_requests_of_its_subjects() {
    for store in Stores::start().await.all {
        let limits = Limits::new([rule()]).store(Arc::clone(&store));
        let app = api(&limits);
        assert_eq!(call(&app, "alice", "here").await.status(), 200);
        let admitted = limits.check("api", keys("alice", "there")).await;
        let decision = admitted.expect("room").decision.expect("a decision");
        let states = decision.quotas().iter().map(|it| it.remaining());
        assert!(states.eq([0, 2, 8]));

        // Denied by the user: no other subject is charged.
        let refused = limits.check("api", keys("alice", "elsewhere")).await;
        let refused = refused.expect_err("two were charged");
        let denied_by = refused.decision().expect("a denial");
        let denied_by = denied_by.denied_by(refused.rule().policies());
        assert!(denied_by.map(|it| it.subject()).eq([Some("user")]));
        assert_eq!(call(&app, "alice", "here").await.status(), 429);
        assert_eq!(left(&limits, keys("alice", "elsewhere")).await, [0, 3, 10]);
        let everyone = [("everyone", Key::default())];
        assert_eq!(left(&limits, everyone).await, [2, 3, 8]);

        // A subject that may be absent, and everybody, need no key.
        let absent = [("address", "there"), ("everyone", "of any text")];
        assert!(limits.check("api", absent).await.is_ok());
        let one: SubjectKeys = [("address", "there")].into_iter().collect();
        assert!(limits.check("api", one.clone()).await.is_ok());
        let denied = limits.check("api", one).await;
        assert!(denied.is_err(), "three were charged");
        assert_eq!(left(&limits, [("everyone", "")]).await, [2, 3, 6]);
    }
}

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
        let everyone = left(&limits, [("everyone", "")]).await;
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

#[tokio::test]
async fn a_reset_forgets_the_subjects_that_are_named() {
    for store in Stores::start().await.all {
        let limits = Limits::new([rule()]).store(store);
        let check = || limits.check("api", keys("alice", "here"));
        check().await.expect("room");
        check().await.expect("room");
        assert!(reset(&limits, [("user", "alice")]).await);
        assert_eq!(left(&limits, keys("alice", "here")).await, [2, 1, 10]);
        assert!(!reset(&limits, [("user", "alice")]).await);
        check().await.expect("room");
        assert!(check().await.is_err());

        let all = [("user", "alice"), ("address", "here"), ("everyone", "")];
        assert!(reset(&limits, all).await);
        assert_eq!(left(&limits, all).await, [2, 3, 10]);
    }
}

/// A plan may count a subject by a cost that the rule itself does not have.
#[tokio::test]
async fn a_reset_forgets_what_only_a_plan_counts() {
    for store in Stores::start().await.all {
        let requests = Policy::from(Quota::per_hour(1)).with_cost(1);
        let plan = Quotas::with_policies([requests.with_subject("user")]).expect("quotas");
        let subjects = [user(Quota::per_hour(9)), address(Quota::per_hour(9))];
        let rule = Rule::joint("api", subjects).expect("a rule");
        let rule = rule.with_plan("one", plan).expect("a plan");
        let limits = Limits::new([rule]).store(store);
        let check = || limits.check("api", keys("alice", "here")).plan("one");
        check().await.expect("room");
        assert!(check().await.is_err());
        assert!(reset(&limits, [("user", "alice")]).await);
        check().await.expect("room");
    }
}

/// A joint rule with one subject needs no name.
#[tokio::test]
async fn one_subject_of_two_costs_takes_its_key_alone() {
    for store in Stores::start().await.all {
        let requests = Policy::from(Quota::per_hour(2)).with_cost(1);
        let user = user(Quota::per_hour(90)).limit(requests);
        let rule = Rule::joint("api", [user]).expect("a rule");
        let limits = Limits::new([rule]).store(store);
        limits.check("api", "alice").cost(30).await.expect("room");
        assert_eq!(left(&limits, [("user", "alice")]).await, [60, 1]);
        assert!(reset(&limits, "alice").await);
    }
}

/// A rule without a key counts the key of each check, as one without costs of its own does.
#[tokio::test]
async fn without_a_key_of_the_rule_each_check_has_its_own() {
    let quotas = r#"{ max-count = 9, window = "1h" }, { max-count = 2, window = "1h", cost = 1 }"#;
    for store in Stores::start().await.all {
        let limits = of_toml(&format!("[rules.api]\nquotas = [{quotas}]")).store(store);
        limits.check("api", "alice").cost(3).await.expect("room");
        limits.check("api", "bob").await.expect("room");
        assert_eq!(left(&limits, "alice").await, [6, 1]);
        assert_eq!(left(&limits, "bob").await, [8, 1]);
        assert!(reset(&limits, "alice").await);
        assert_eq!(left(&limits, "alice").await, [9, 2]);
        assert_eq!(left(&limits, "bob").await, [8, 1]);
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
    assert!(
        rule()
            .with_plan("pro", plan(vec![of("user"), of("address")]))
            .is_ok()
    );
    assert!(rule().with_plan("pro", plan(vec![of("address")])).is_ok());
}
