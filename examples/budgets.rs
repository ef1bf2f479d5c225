//! A budget of money by the month: 10 dollars a customer, in Berlin, told at 80 %.
//!
//! A unit is a micro-dollar. A request reserves an estimate, and settles the price when it is
//! known: what is used above the estimate is owed. A customer of the table has a budget of its own,
//! whose months begin on the day of its subscription.
//!
//! `cargo run --features calendar --example budgets` uses the Redis at `REDIS_URL`, or starts one.

#[path = "support/redis.rs"]
mod redis_support;
#[path = "support/mod.rs"]
mod support;

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use axum::routing::get;
use redis_support::Server;
use support::show;
use tidegate::layer::Crossing;
use tidegate::rule::{Period, Plan, Policy};
use tidegate::store::Charges;
use tidegate::{Decision, Header, Limits, RedisStore, Rule};

const DOLLAR: u64 = 1_000_000;

/// A soft limit: the handler is told of what is above, up to the max.
const INCLUDED: u64 = 8 * DOLLAR;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::from_env()?;
    // To Redis, two stores are two processes.
    let apps = [app(&server.url).await?, app(&server.url).await?];
    for (at, user) in ["anna", "anna", "anna", "ben", "ben", "anna"]
        .iter()
        .enumerate()
    {
        let request = support::get(&format!("/answer?{user}")).header("x-user", *user);
        show(&apps[at % 2], request).await;
    }
    // A mail is sent outside of requests.
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(())
}

async fn app(url: &str) -> Result<Router, Box<dyn Error>> {
    let month = Period::MONTH.in_zone("Europe/Berlin")?;
    let rule = Rule::with_policies("answer", [Policy::calendar(month.clone(), 10 * DOLLAR)])?;
    let rule = rule.with_cost(2 * DOLLAR).with_owe_at_most(5 * DOLLAR);
    let of_customer = move |head: &Parts| {
        let (day, dollars) = subscription(head.headers.get("x-user")?.to_str().ok()?)?;
        let month = month.clone().from_day(day).ok()?;
        Plan::of([Policy::calendar(month, dollars * DOLLAR)]).ok()
    };
    let limits = Limits::new([rule])
        .key(Header::new("x-user"))
        .plan_value("answer", of_customer)
        .on_crossing([0.8, 1.0], mail)
        .store(RedisStore::connect(url).await?);
    Ok(Router::new().route("/answer", get(answer).layer(limits.layer("answer"))))
}

/// The day on which its months begin, 1 to 31, and its budget: in a service, of the customer's row.
fn subscription(user: &str) -> Option<(u8, u64)> {
    (user == "ben").then_some((15, 100))
}

/// It was estimated at two dollars, and costs four.
async fn answer(decision: Option<Decision>, charges: Charges) -> impl IntoResponse {
    let settled = charges.of("answer").settle(4 * DOLLAR).await;
    let used = decision.map_or(0, |it| it.quotas()[0].used());
    let used = used + settled.map_or(0, |it| it.charged);
    let fields = [("x-over-budget", (used > INCLUDED).to_string())];
    (fields, format!("{} dollars are used", used / DOLLAR))
}

async fn mail(crossing: Crossing) {
    let (key, max) = (crossing.key.as_str(), crossing.max / DOLLAR);
    if crossing.is_denial {
        println!("mail to {key}: the rest of {max} dollars was too little for a request");
    } else {
        println!(
            "mail to {key}: {} % of {max} dollars",
            crossing.share * 100.0
        );
    }
}
