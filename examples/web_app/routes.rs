//! The routes, and what limits each of them.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;
use axum::middleware::map_response;
use axum::response::{Html, Response};
use axum::routing::get;
use tidegate::key::KeyError;
use tidegate::{ErrorCallbackChain, Limits, RateLimitLayer, Rules, StoreError};

use crate::export::Reports;
use crate::outage::Outage;
use crate::{export, status, url};

/// The app's own limited routes, each limited by the rule of the same name, if there is one.
const LIMITED: [&str; 3] = ["getId", "export", "login"];

/// Routes without a limit.
const UNLIMITED: [&str; 3] = ["/", "/healthz", "/status"];

/// A rule's path, and the URL whose requests count under it.
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) url: String,
}

/// All routes of the app.
pub(crate) fn router(limits: &Limits, store: String) -> Router {
    let rules = limits.rules().load();
    let outage = Arc::new(Outage::default());
    let on_error = Arc::new(
        ErrorCallbackChain::new()
            .on::<StoreError>(Arc::clone(&outage))
            .on::<KeyError>(Arc::clone(&outage)),
    );
    let limited = |path: &str| limits.layer(path).on_error(Arc::clone(&on_error));

    let routes = routes_of(&rules);
    let status = status::document(&store, &rules, &routes);
    let app = own_routes(limited)
        .route("/", get(Html(include_str!("page.html"))))
        .route("/healthz", get("ok"))
        .route("/status", get(axum::Json(status)));
    routes
        .iter()
        .filter(|route| !LIMITED.contains(&&*route.path))
        .fold(app, |app, Route { path, url }| {
            app.route(url, get("ok").layer(limited(path)))
        })
        .layer(map_response(move |response: Response| {
            outage.look_at(&response);
            async { response }
        }))
}

fn own_routes(limited: impl Fn(&str) -> RateLimitLayer) -> Router {
    let reports = Arc::new(Reports::default());
    let export = limited("export").degrade(Arc::clone(&reports));
    Router::new()
        // Paths of rules may have segments that begin with ":" or "*".
        .without_v07_checks()
        .route("/getId", get("1").layer(limited("getId")))
        .route(
            "/export",
            get(export::make).with_state(reports).layer(export),
        )
        .route("/login", get(login).layer(limited("login")))
}

async fn login(headers: HeaderMap) -> String {
    let tenant = headers.get("x-tenant").map(|value| value.to_str());
    match tenant {
        Some(Ok(tenant)) if !tenant.is_empty() => format!("welcome, {tenant}"),
        _ => "welcome".to_owned(),
    }
}

/// The URL at which each rule can be tried. Rules that can have no URL are printed and left out.
fn routes_of(rules: &Rules) -> Vec<Route> {
    let own = LIMITED.map(|path| format!("/{path}"));
    let unlimited = UNLIMITED.map(str::to_owned);
    let mut taken: HashSet<_> = own.into_iter().chain(unlimited).collect();
    let mut route = |path: &str| {
        let url = url::of(path).ok_or("no URL leads to it")?;
        match LIMITED.contains(&path) || taken.insert(url.clone()) {
            true => Ok(url),
            false => Err("its URL is taken by another route"),
        }
    };
    let mut routes = Vec::new();
    for rule in rules.iter() {
        let path = rule.path().to_owned();
        match route(&path) {
            Ok(url) => routes.push(Route { path, url }),
            Err(why) => eprintln!("web_app: no route for the rule {path:?}: {why}"),
        }
    }
    routes
}
