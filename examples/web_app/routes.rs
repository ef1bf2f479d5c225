//! The routes, and what limits each of them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tidegate::key::KeyError;
use tidegate::{ErrorCallbackChain, Limits, StoreError};

use crate::demo::Demo;
use crate::export::Reports;
use crate::outage::Outage;
use crate::rule_routes::RuleRoutes;
use crate::{export, metrics, page, status};

/// The app's own limited routes, each limited by the rule of the same name, if there is one.
pub(crate) const LIMITED: [&str; 4] = ["answer", "export", "getId", "login"];

/// Routes without a limit, besides the page and what is below `/limits`.
pub(crate) const UNLIMITED: [&str; 5] = ["/demo", "/healthz", "/limits", "/metrics", "/status"];

/// All routes of the app.
pub(crate) fn router(limits: &Limits, demo: Arc<Demo>) -> Router {
    let outage = Arc::new(Outage::default());
    let on_error = ErrorCallbackChain::new()
        .on::<StoreError>(Arc::clone(&outage))
        .on::<KeyError>(Arc::clone(&outage));
    let limits = limits.clone().on_error(on_error);
    // The field is in the place of authentication, which would know the plan of a customer.
    let limits = limits.plan(|head| head.headers.get("x-plan")?.to_str().ok());
    let rules = Arc::new(RuleRoutes::new(limits.clone()));
    own_routes(&limits)
        .merge(page::routes())
        .merge(demo.routes())
        .route("/healthz", get("ok"))
        .route("/metrics", metrics::route(limits.clone()))
        .route("/status", status::route(limits.clone(), Arc::clone(&rules)))
        // Anybody on this machine may change limits: no other one reaches the app. An app that
        // others reach puts its authentication in front.
        .nest_service(
            "/limits",
            limits.page().allow_changes().show_keys().router(),
        )
        // Rules that the app has no handler for are tried here.
        .fallback(async move |request: Request| rules.answer(request).await)
        .layer(map_response(move |response: Response| {
            outage.look_at(&response);
            async { response }
        }))
}

fn own_routes(limits: &Limits) -> Router {
    let reports = Arc::new(Reports::default());
    let export = limits.layer("export").degrade(Arc::clone(&reports));
    Router::new()
        .route("/answer", get(answer).layer(limits.layer("answer")))
        .route("/getId", get("1").layer(limits.layer("getId")))
        .route(
            "/export",
            get(export::make).with_state(reports).layer(export),
        )
        .route("/login", get(login).layer(limits.layer("login")))
}

async fn login(headers: HeaderMap) -> String {
    let tenant = headers.get("x-tenant").map(|value| value.to_str());
    match tenant {
        Some(Ok(tenant)) if !tenant.is_empty() => format!("welcome, {tenant}"),
        _ => "welcome".to_owned(),
    }
}

/// Answers with the status that the query asks for, so that its effect on a limit can be tried.
async fn answer(Query(query): Query<HashMap<String, String>>) -> (StatusCode, String) {
    let text = query.get("status").map_or("200", String::as_str);
    match text.parse::<StatusCode>() {
        // Others are no final answer, or none that HTTP knows.
        Ok(status) if (200..600).contains(&status.as_u16()) => (status, format!("{status}\n")),
        _ => {
            let message = format!("status={text}: expected 200 to 599\n");
            (StatusCode::BAD_REQUEST, message)
        }
    }
}
