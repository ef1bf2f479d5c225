//! What tests look at: counters of a rule, keys of a server, and the page of an operator.

use ::http::Request;
use axum::Router;
use axum::body::Body;
use tidegate::metrics::RuleSnapshot;
use tidegate::{Algorithm, Limits};

use crate::{Redis, http};

/// The algorithms that give back, and charge beyond, exactly what they are told. In a bucket of GCRA
/// units drain meanwhile.
pub const COUNTING: [Algorithm; 3] = [
    Algorithm::SlidingLog,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
];

/// The counters of a rule that was used.
pub fn counters(limits: &Limits, path: &str) -> RuleSnapshot {
    let snapshot = limits.snapshot();
    snapshot.rule(path).expect("it was used").clone()
}

/// The members of all sets of permits on a server.
pub fn permits_held(server: &Redis) -> u64 {
    let mut connection = server.connection();
    let names = crate::keys(server, "*~permits").into_iter();
    let counts = names.map(|name| redis::cmd("ZCARD").arg(name).query::<u64>(&mut connection));
    counts.map(|count| count.expect("a set")).sum()
}

/// The kinds of the warnings, as in `NoKey NoRule`.
pub fn kinds(limits: &Limits) -> String {
    let kinds = limits.warnings().into_iter();
    let kinds = kinds.map(|it| format!("{:?}", it.kind));
    kinds.collect::<Vec<_>>().join(" ")
}

/// The same with what each is about, as in `NoKey login -; LargeLog p sliding-log`.
pub fn told(limits: &Limits) -> String {
    let told = limits.warnings().into_iter().map(|it| {
        let (path, name) = (it.path.as_deref(), it.name.as_deref());
        format!(
            "{:?} {} {}",
            it.kind,
            path.unwrap_or("-"),
            name.unwrap_or("-")
        )
    });
    told.collect::<Vec<_>>().join("; ")
}

/// The rows of a table of cases, a line each, whose cells are divided by `|`.
///
/// # Panics
///
/// If a row has another number of cells.
pub fn table<const CELLS: usize>(text: &str) -> impl Iterator<Item = [&str; CELLS]> {
    text.trim().lines().map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        cells.try_into().unwrap_or_else(|_| panic!("{row}"))
    })
}

/// What an operator's browser sends to a page, as in `/api/reset` and `{"rule": "p", "key": "k"}`:
/// the status, and the body of the answer.
pub async fn operate(page: &Router, path: &str, body: &str) -> (u16, String) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("x-tidegate", "1")
        .header("host", "127.0.0.1:3000")
        .header("origin", "http://127.0.0.1:3000")
        .body(Body::from(body.to_owned()));
    let answer = http::call(page, request.expect("a valid request")).await;
    (answer.status().as_u16(), http::text(answer).await)
}
