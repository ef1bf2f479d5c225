//! What a `main` prints that returns an error of this crate: its `Debug`.

use std::fmt::Debug;

use tokio::io::AsyncWriteExt;

use crate::*;

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
    let expected = "Error: /no/such/limits.toml: cannot be read: ";
    assert!(lost.starts_with(expected), "{lost}");
}

#[test]
fn a_mistake_in_code_is_printed_as_its_message() {
    let limits = Limits::new([per_minute("p", 1)]);
    let _ = limits.layer("q");
    let all = [
        printed(Quota::new(Duration::ZERO, 1)),
        printed(Rule::new("", [Quota::per_second(1)])),
        printed(limits.verify()),
        printed(limits.watch("limits.toml")),
        printed(Count::from_bytes(&[99])),
        printed(per_minute("p", 1).with_refund_on(["2x"])),
    ];
    let expected = [
        "the window is zero, expected at least 1 ms",
        "the path is empty, expected the name of what is limited",
        "layers or checks without a rule: [\"q\"]; rules without a layer or check: [\"p\"] \
         (before limits.check, limits.call or #[limited] has run: limits.declare_checks([\"p\"]))",
        "no tokio runtime here, expected one: call watch inside of an async fn",
        "version 99 of the format of counts, expected 1",
        &RuleError::NoOutcome("2x".to_owned()).to_string(),
    ];
    assert_eq!(all, expected.map(|it| format!("Error: {it}")));
}

/// With the kind, which code branches on, and the cause, where the message does not have it.
#[test]
fn the_error_of_a_store_is_printed_with_its_kind_and_cause() {
    let error = |kind, text| StoreError::new(kind, text);
    let gone = || error(StoreErrorKind::Unavailable, "the database is gone");
    let full = || error(StoreErrorKind::Full, "no room");
    let outer = KeyError::server("no key").with_source(full().with_source(gone()));
    let same = error(StoreErrorKind::Full, "the store has no room").with_source(full());
    let all = [
        printed(Resilient::redis("http://h", "shop")),
        printed(Resilient::redis("127.0.0.1:6379", "shop")),
        printed::<()>(Err(gone())),
        printed::<()>(Err(outer)),
        printed::<()>(Err(same)),
    ];
    let expected = [
        "redis cannot be addressed like this: Redis URL did not parse (Configuration)",
        "redis cannot be addressed like this: expected a URL such as redis://host \
         (Configuration)",
        "the database is gone (Unavailable)",
        "no key (Server): no room (Full): the database is gone (Unavailable)",
        "the store has no room (Full)",
    ];
    assert_eq!(all, expected.map(|it| format!("Error: {it}")));
}

/// A server of the web at the address is not Redis.
#[tokio::test]
async fn a_server_that_is_not_redis_is_called_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let store = Resilient::redis(format!("redis://{address}"), "shop").expect("an address");
    let error = printed(store.connect().await);
    let expected = "answers, but not as Redis does (Protocol)";
    assert!(error.contains(expected) && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn a_refusal_is_printed_as_its_message_and_the_stores_error() {
    let limits = |max| Limits::new([per_minute("chat", max)]);
    let denied = limits(0).check("chat", "alice").await;
    assert_eq!(printed(denied), "Error: the limit of chat is used up");
    let failed = limits(5).store(no_store()).check("chat", "alice").await;
    let failed = printed(failed);
    let expected = "Error: the limit of chat cannot be checked now: ";
    assert!(failed.starts_with(expected), "{failed}");
    assert!(failed.ends_with(" (Full)"), "{failed}");
}
