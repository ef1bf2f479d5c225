//! A report that takes a while. A denied request gets the last finished one.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidegate::callback::BoxFuture;
use tidegate::{DegradeCallback, Denied};
use tokio::sync::watch;
use tokio::time::sleep;

/// The lines of a report, and how long each takes: as long as a query to a database.
const LINES: u32 = 6;
const LINE: Duration = Duration::from_millis(250);

/// The response field that marks a degraded answer.
const DEGRADED: &str = "x-degraded";

/// The reports that were made since the start.
#[derive(Default)]
pub(crate) struct Reports {
    begun: AtomicU64,
    last: watch::Sender<Option<Arc<str>>>,
}

/// The handler: makes a report.
pub(crate) async fn make(State(reports): State<Arc<Reports>>) -> String {
    let number = reports.begun.fetch_add(1, Ordering::Relaxed) + 1;
    let mut lines = String::new();
    for line in 1..=LINES {
        sleep(LINE).await;
        let bound = line * 10_000;
        let primes = primes_below(bound);
        lines.push_str(&format!("{primes:>5} primes below {bound}\n"));
    }
    let report = format!("report {number}, finished at {}\n{lines}", time_of_day());
    reports.last.send_replace(Some(report.as_str().into()));
    report
}

/// The degrade callback: answers with the last finished report.
impl DegradeCallback for Reports {
    fn degrade(&self, denied: Denied) -> BoxFuture<'_, Response> {
        let last = self.last.borrow().clone();
        Box::pin(ready(match last {
            Some(report) => {
                ([(DEGRADED, "last finished report")], report.to_string()).into_response()
            }
            None => nothing_yet(&denied),
        }))
    }
}

fn nothing_yet(denied: &Denied) -> Response {
    let wait = denied.decision.retry_after().unwrap_or_default();
    let text = format!(
        "no report is finished yet; a fresh one can be made in {:.1} s\n",
        wait.as_secs_f64()
    );
    let degraded = [(DEGRADED, "no finished report yet")];
    (StatusCode::ACCEPTED, degraded, text).into_response()
}

fn primes_below(bound: u32) -> usize {
    let is_prime = |n: &u32| {
        (2..)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    };
    (2..bound).filter(is_prime).count()
}

fn time_of_day() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
