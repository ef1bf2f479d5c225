//! The answers of a limit in an OpenAPI document, by utoipa. `docs/problem.schema.json` has each of
//! them in full, with examples.
//!
//! `cargo run -p tidegate-openapi-example` prints the document.

use axum::{Router, routing::get};
use tidegate::{Limits, Quota, Rule};
use utoipa::{IntoResponses, OpenApi, ToSchema};

/// What tidegate answers in place of a handler.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it is described, and never made")]
struct Problem {
    #[schema(example = "https://iana.org/assignments/http-problem-types#quota-exceeded")]
    r#type: String,
    title: String,
    status: u16,
    /// Of a 429: the names of the quotas that denied the request.
    #[schema(rename = "violated-policies", example = json!(["search"]))]
    violated_policies: Option<Vec<String>>,
    /// Where too many requests run at a time: how many each of these lets run.
    #[schema(rename = "max-concurrent")]
    max_concurrent: Option<Vec<u64>>,
    detail: Option<String>,
    /// The seconds of the field, where that is.
    #[schema(rename = "retry-after", minimum = 1)]
    retry_after: Option<u64>,
    /// Whether no wait helps.
    never: Option<bool>,
}

/// The answers that each limited route adds to its own.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "it is described, and never made")]
enum Refusal {
    /// Denied.
    #[response(
        status = 429,
        content_type = "application/problem+json",
        headers(
            ("retry-after" = u64, description = "Seconds; missing where no wait helps."),
            ("ratelimit" = String, description = "What each quota has left.")
        )
    )]
    Denied(Problem),
    /// There was no decision.
    #[response(
        status = 503,
        content_type = "application/problem+json",
        headers(("retry-after" = u64, description = "Seconds."))
    )]
    Undecided(Problem),
    /// The request does not say who asks.
    #[response(status = 400, content_type = "application/problem+json")]
    NoKey(Problem),
}

/// Searches.
#[utoipa::path(get, path = "/search", responses((status = 200, body = String), Refusal))]
async fn search() -> &'static str {
    "found"
}

/// The document.
#[derive(OpenApi)]
#[openapi(paths(search), components(schemas(Problem)))]
pub(crate) struct Document;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limits = Limits::new([Rule::new("search", [Quota::per_second(100)])?]);
    let _app: Router =
        Router::new().route("/search", get(search).route_layer(limits.layer("search")));
    println!("{}", Document::openapi().to_pretty_json()?);
    Ok(())
}
