//! Checks, peeks and resets name the key of each subject.

use std::sync::Arc;

use http::StatusCode;
use tidegate::key::KeyErrorKind;
use tidegate::layer::{Refused, SubjectKeys};
use tidegate::rule::{OnError, Policy, Quotas, Subject};
use tidegate::store::StoreErrorKind;
use tidegate::{Header, Key, Limits, Quota, Rule};

use super::{api, call, keys, rule};
use crate::Stores;

/// What is left of each quota of these subjects; those of others are full.
async fn left<K: Into<Key>, const N: usize>(limits: &Limits, of: [(&str, K); N]) -> Vec<u64> {
    let left = limits.peek("api", of).await.expect("an answer");
    let left = left.expect("there is a rule");
    left.quotas()
        .iter()
        .map(|state| state.remaining())
        .collect()
}

#[tokio::test]
async fn a_check_counts_with_the_requests_of_its_subjects() {
    for store in Stores::start().await.all {
        let limits = Limits::new([rule()]).store(Arc::clone(&store));
        let app = api(&limits);
        assert_eq!(call(&app, "alice", "here").await.status(), StatusCode::OK);
        let admitted = limits.check("api", keys("alice", "there")).await;
        let decision = admitted.expect("room").decision.expect("a decision");
        let states: Vec<_> = decision.quotas().iter().map(|it| it.remaining()).collect();
        assert_eq!(states, [0, 2, 8]);

        // Denied by the user: no other subject is charged.
        let refused = limits.check("api", keys("alice", "elsewhere")).await;
        let refused = refused.expect_err("two were charged");
        let denied_by = refused.decision().expect("a denial");
        let denied_by: Vec<_> = denied_by.denied_by(refused.rule().policies()).collect();
        assert_eq!(denied_by.len(), 1);
        assert_eq!(denied_by[0].subject(), Some("user"));
        assert_eq!(call(&app, "alice", "here").await.status(), 429);
        assert_eq!(left(&limits, keys("alice", "elsewhere")).await, [0, 3, 10]);
        assert_eq!(
            left(&limits, [("everyone", Key::default())]).await,
            [2, 3, 8]
        );

        // A subject that may be absent, and everybody, need no key.
        let absent = [("address", "there"), ("everyone", "of any text")];
        assert!(limits.check("api", absent).await.is_ok());
        let one: SubjectKeys = [("address", "there")].into_iter().collect();
        assert!(limits.check("api", one.clone()).await.is_ok());
        assert!(
            limits.check("api", one).await.is_err(),
            "three were charged"
        );
        assert_eq!(left(&limits, [("everyone", "")]).await, [2, 3, 6]);
    }
}

/// A mistake in the keys is an error, also where failures of the store let requests pass; and
/// nothing is charged.
#[tokio::test]
async fn a_missing_or_unknown_subject_is_no_admission() {
    for store in Stores::start().await.all {
        let rule = rule().with_on_error(OnError::Proceed);
        let plain = Rule::new("plain", [Quota::per_hour(2)]).expect("a rule");
        let limits = Limits::new([rule, plain]).store(Arc::clone(&store));
        let failed = |path: &str, keys: SubjectKeys| {
            let check = limits.check(path, keys);
            async {
                let refused: Refused = check.await.expect_err("no admission");
                let error = refused.key_error().expect("the keys are wrong").clone();
                assert_eq!(error.kind(), KeyErrorKind::Server);
                assert!(refused.error().is_none() && refused.decision().is_none());
                let text = error.to_string();
                assert!(!refused.to_string().contains(&text), "{refused}");
                let response = axum::response::IntoResponse::into_response(refused);
                assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
                text
            }
        };
        let missing = failed("api", [("user", "alice")].into()).await;
        assert_eq!(
            missing,
            r#"the check of "api" has no key of the subject "address""#
        );
        let unknown = [("address", "here"), ("tenant", "acme")];
        let unknown = failed("api", unknown.into()).await;
        assert!(
            unknown.ends_with(r#"no subject "tenant", expected one of: user, address, everyone"#)
        );
        let one = failed("api", "alice".into()).await;
        assert!(
            one.ends_with("a key by the name of each: user, address, everyone"),
            "{one}"
        );
        let named = failed("plain", [("user", "alice")].into()).await;
        assert!(named.ends_with("expected its key alone"), "{named}");

        let everyone = left(&limits, [("everyone", "")]).await;
        assert_eq!(everyone, [2, 3, 10], "nothing was charged");
        let snapshot = limits.snapshot();
        let counted = snapshot.rule("api").expect("it is in use");
        assert_eq!(counted.key_errors(KeyErrorKind::Server), 3);
        assert_eq!(counted.proceeded, 0);

        for keys in [SubjectKeys::from("alice"), [("tenant", "acme")].into()] {
            let peeked = limits
                .peek("api", keys.clone())
                .await
                .expect_err("no subject");
            assert_eq!(peeked.kind(), StoreErrorKind::Configuration);
            let reset = limits.reset("api", keys).await.expect_err("no subject");
            assert_eq!(reset.kind(), StoreErrorKind::Configuration);
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
        for _ in 0..2 {
            limits
                .check("api", keys("alice", "here"))
                .await
                .expect("room");
        }
        assert!(
            limits
                .reset("api", [("user", "alice")])
                .await
                .expect("an answer")
        );
        assert_eq!(left(&limits, keys("alice", "here")).await, [2, 1, 10]);
        assert!(
            !limits
                .reset("api", [("user", "alice")])
                .await
                .expect("an answer")
        );
        limits
            .check("api", keys("alice", "here"))
            .await
            .expect("room");
        assert!(limits.check("api", keys("alice", "here")).await.is_err());

        let all = [("user", "alice"), ("address", "here"), ("everyone", "")];
        assert!(limits.reset("api", all).await.expect("an answer"));
        assert_eq!(left(&limits, all).await, [2, 3, 10]);
    }
}

/// A plan may count a subject by a cost that the rule itself does not have.
#[tokio::test]
async fn a_reset_forgets_what_only_a_plan_counts() {
    for store in Stores::start().await.all {
        let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_hour(9));
        let address = Subject::new("address", Header::new("x-address")).limit(Quota::per_hour(9));
        let requests = Policy::from(Quota::per_hour(1))
            .with_cost(1)
            .of_subject("user");
        let plan = Quotas::with_policies([requests]).expect("quotas");
        let rule = Rule::joint("api", [user, address]).expect("a rule");
        let rule = rule.with_plan("one", plan).expect("a plan");
        let limits = Limits::new([rule]).store(store);
        let check = || limits.check("api", keys("alice", "here")).plan("one");
        check().await.expect("room");
        assert!(check().await.is_err());
        assert!(
            limits
                .reset("api", [("user", "alice")])
                .await
                .expect("an answer")
        );
        check().await.expect("room");
    }
}

/// A joint rule with one subject needs no name.
#[tokio::test]
async fn one_subject_of_two_costs_takes_its_key_alone() {
    for store in Stores::start().await.all {
        let requests = Policy::from(Quota::per_hour(2)).with_cost(1);
        let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_hour(90));
        let rule = Rule::joint("api", [user.limit(requests)]).expect("a rule");
        let limits = Limits::new([rule]).store(store);
        limits.check("api", "alice").cost(30).await.expect("room");
        assert_eq!(left(&limits, [("user", "alice")]).await, [60, 1]);
        assert!(limits.reset("api", "alice").await.expect("an answer"));
    }
}

/// A plan may limit other subjects than those of a request: then nothing limits it.
#[tokio::test]
async fn a_plan_without_a_quota_of_the_subjects_limits_nothing() {
    for store in Stores::start().await.all {
        let user = Subject::new("user", Header::new("x-user")).limit(Quota::per_hour(1));
        let address = Subject::new("address", Header::new("x-address")).limit(Quota::per_hour(1));
        let of_user = Policy::from(Quota::per_hour(5)).of_subject("user");
        let plan = Quotas::with_policies([of_user]).expect("quotas");
        let rule = Rule::joint("api", [user.skip_absent(), address]).expect("a rule");
        let limits = Limits::new([rule.with_plan("pro", plan).expect("a plan")]).store(store);
        for _ in 0..3 {
            let check = limits.check("api", [("address", "here")]).plan("pro").await;
            assert!(check.is_ok(), "{check:?}");
        }
        let peek = limits.peek("api", [("address", "here")]).plan("pro");
        assert!(peek.await.expect("an answer").expect("a rule").is_allowed());
        assert!(limits.check("api", [("address", "here")]).await.is_ok());
    }
}
