//! Rules of several subjects: checks, what clients are told, metrics, and the page.

mod answers;
mod checks;
mod page;
mod requests;

use kit::http as with;

use crate::*;

/// Two an hour for each user, who may be absent; three for each address, of which clients are not
/// told; and ten for everybody.
fn rule() -> Rule {
    let hidden = Policy::new("secret", Quota::per_hour(3)).hidden();
    let user = user(Quota::per_hour(2)).skip_absent();
    Rule::joint("api", [user, address(hidden), everyone(10)]).expect("a rule")
}

pub(crate) fn user(quota: impl Into<Policy>) -> Subject {
    Subject::new("user", Header::new("x-user")).limit(quota)
}

pub(crate) fn address(quota: impl Into<Policy>) -> Subject {
    Subject::new("address", Header::new("x-address")).limit(quota)
}

fn everyone(max: u32) -> Subject {
    Subject::new("everyone", Everyone).limit(Quota::per_hour(max))
}

fn api(limits: &Limits) -> Router {
    app_of(limits, &["api"])
}

/// The fields of a request of this user, empty for none, from this address.
fn fields(user: &str, address: &str) -> String {
    match user {
        "" => format!("x-address: {address}"),
        _ => format!("x-address: {address}, x-user: {user}"),
    }
}

async fn call(app: &Router, user: &str, address: &str) -> Response<axum::body::Body> {
    with::call(app, with::request("/api", &fields(user, address))).await
}

fn keys(user: &'static str, address: &'static str) -> [(&'static str, Key); 2] {
    [("user", user.into()), ("address", address.into())]
}

#[test]
fn waiting() {
    kit::timeline::play("tests/layer/joint/waiting.txt");
}
