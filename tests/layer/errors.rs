//! What a `main` prints that returns an error of this crate: its `Debug`.

use std::fmt::Debug;
use std::time::Duration;

use tidegate::key::KeyError;
use tidegate::rule::RuleError;
use tidegate::store::StoreErrorKind;
use tidegate::{Limits, Quota, Resilient, Rule, StoreError};

use crate::no_store;

/// As `std` prints it.
fn printed<T>(result: Result<T, impl Debug>) -> String {
    match result {
        Ok(_) => panic!("an error"),
        Err(error) => format!("Error: {error:?}"),
    }
}

#[test]
fn a_mistake_in_the_file_is_printed_with_its_line() {
    let toml = "[rules.login]\nmax-count = 5\nwindow = \"0s\"\n";
    assert_eq!(
        printed(Limits::from_toml(toml)),
        "Error: line 3: rules.login.window: the window is zero, expected at least 1 ms"
    );
    let lost = printed(Limits::from_file("/no/such/limits.toml"));
    assert!(
        lost.starts_with("Error: /no/such/limits.toml: cannot be read: "),
        "{lost}"
    );
}

#[test]
fn a_mistake_in_code_is_printed_as_its_message() {
    assert_eq!(
        printed(Quota::new(Duration::ZERO, 1)),
        "Error: the window is zero, expected at least 1 ms"
    );
    assert_eq!(
        printed(Rule::new("", [Quota::per_second(1)])),
        "Error: the path is empty, expected the name of what is limited"
    );
    let rule = Rule::new("p", [Quota::per_second(1)]).expect("a valid rule");
    assert_eq!(
        printed(rule.with_refund_on(["2x"])),
        format!("Error: {}", RuleError::NoOutcome("2x".to_owned()))
    );
    let limits = Limits::new([Rule::new("p", [Quota::per_second(1)]).expect("a valid rule")]);
    let _ = limits.layer("q");
    assert_eq!(
        printed(limits.verify()),
        "Error: layers or checks without a rule: [\"q\"]; rules without a layer or check: [\"p\"]"
    );
    assert_eq!(
        printed(limits.watch("limits.toml")),
        "Error: no tokio runtime here, expected one: call watch inside of an async fn"
    );
    assert_eq!(
        printed(tidegate::algorithm::Count::from_bytes(&[99])),
        "Error: version 99 of the format of counts, expected 1 to 4"
    );
}

/// With the kind, which code branches on, and the cause, where the message does not have it.
#[test]
fn the_error_of_a_store_is_printed_with_its_kind_and_cause() {
    assert_eq!(
        printed(Resilient::redis("http://h", "shop")),
        "Error: redis cannot be addressed like this: Redis URL did not parse (Configuration)"
    );
    let error = StoreError::new(StoreErrorKind::Unavailable, "the database is gone");
    let told = printed::<()>(Err(error.clone()));
    assert_eq!(told, "Error: the database is gone (Unavailable)");
    let inner = StoreError::new(StoreErrorKind::Full, "no room").with_source(error);
    let outer = KeyError::server("no key").with_source(inner);
    assert_eq!(
        printed::<()>(Err(outer)),
        "Error: no key (Server): no room (Full): the database is gone (Unavailable)"
    );
    let source = StoreError::new(StoreErrorKind::Full, "no room");
    let error = StoreError::new(StoreErrorKind::Full, "the store has no room").with_source(source);
    assert_eq!(
        printed::<()>(Err(error)),
        "Error: the store has no room (Full)"
    );
}

#[tokio::test]
async fn a_refusal_is_printed_as_its_message_and_the_stores_error() {
    let limits = |max| {
        let rule = Rule::new("chat", [Quota::per_minute(max)]);
        Limits::new([rule.expect("a valid rule")])
    };
    let denied = limits(0).check("chat", "alice").await;
    assert_eq!(printed(denied), "Error: the limit of chat is used up");
    let failed = limits(5).store(no_store()).check("chat", "alice").await;
    let failed = printed(failed);
    assert!(
        failed.starts_with("Error: the limit of chat cannot be checked now: "),
        "{failed}"
    );
    assert!(failed.ends_with(" (Full)"), "{failed}");
}

#[tokio::test]
async fn the_error_of_a_limiter_is_printed_alike() {
    use tidegate::limiter::{MemoryLimiters, RateLimiter};
    let limiter = RateLimiter::new(MemoryLimiters::default(), "partner");
    assert_eq!(
        printed(limiter.acquire(0).await),
        "Error: no permits were asked for, expected at least 1 (NoPermits)"
    );
}
