//! Rules of several subjects: checks, what clients are told, metrics, and the page.

mod answers;
mod checks;
mod page;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use tidegate::key::Everyone;
use tidegate::rule::{Policy, Subject};
use tidegate::{Header, Key, Limits, Quota, Rule};
use tower::ServiceExt;

use kit::app_of;

/// Two an hour for each user, who may be absent; three for each address, of which clients are not
/// told; and ten for everybody.
fn rule() -> Rule {
    let hidden = Policy::new("secret", Quota::per_hour(3)).hidden();
    let subjects = [
        Subject::new("user", Header::new("x-user"))
            .limit(Quota::per_hour(2))
            .skip_absent(),
        Subject::new("address", Header::new("x-address")).limit(hidden),
        Subject::new("everyone", Everyone).limit(Quota::per_hour(10)),
    ];
    Rule::joint("api", subjects).expect("a rule")
}

fn api(limits: &Limits) -> Router {
    app_of(limits, &["api"])
}

/// A request of this user, empty for none, from this address.
async fn call(app: &Router, user: &str, address: &str) -> Response<Body> {
    let mut request = Request::get("/api").header("x-address", address);
    if !user.is_empty() {
        request = request.header("x-user", user);
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).await;
    response.expect("axum does not fail")
}

fn keys(user: &'static str, address: &'static str) -> [(&'static str, Key); 2] {
    [("user", user.into()), ("address", address.into())]
}
