//! The URL at which each rule of the file can be tried.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use tidegate::{Limits, Rules};
use tower::ServiceExt;

use crate::routes::{LIMITED, UNLIMITED};
use crate::{page, url};

/// The routes of the rules in force. They are made anew whenever the rules were replaced.
pub(crate) struct RuleRoutes {
    limits: Limits,
    routes: Mutex<Arc<Routes>>,
}

/// The routes of some rules.
#[derive(Default)]
pub(crate) struct Routes {
    rules: Arc<Rules>,
    /// By the path of the rule.
    urls: BTreeMap<String, String>,
    /// By URL, for the rules that the app has no handler for.
    services: HashMap<String, MethodRouter>,
}

impl RuleRoutes {
    pub(crate) fn new(limits: Limits) -> Self {
        let routes = Routes::new(limits.rules().load(), &limits);
        Self {
            routes: Mutex::new(Arc::new(routes)),
            limits,
        }
    }

    /// The routes of the rules in force.
    pub(crate) fn now(&self) -> Arc<Routes> {
        let rules = self.limits.rules().load();
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&routes.rules, &rules) {
            *routes = Arc::new(Routes::new(rules, &self.limits));
        }
        Arc::clone(&routes)
    }

    /// Answers "ok", limited by the rule of the request's URL. 404 where there is none.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let service = self.now().services.get(request.uri().path()).cloned();
        let Some(service) = service else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let Ok(response) = service.oneshot(request).await;
        response
    }
}

impl Routes {
    /// Rules that can have no URL are printed and left out.
    fn new(rules: Arc<Rules>, limits: &Limits) -> Self {
        let own = LIMITED.map(|path| format!("/{path}"));
        let unlimited = UNLIMITED.into_iter().chain(page::urls()).map(str::to_owned);
        let mut taken: HashSet<_> = own.into_iter().chain(unlimited).collect();
        let mut route = |path: &str| {
            let url = url::of(path).ok_or("no URL leads to it")?;
            let is_free = !url.starts_with("/limits/") && taken.insert(url.clone());
            match LIMITED.contains(&path) || is_free {
                true => Ok(url),
                false => Err("its URL is taken by another route"),
            }
        };
        let mut routes = Self::default();
        for path in rules.iter().map(|rule| rule.path()) {
            match route(path) {
                Ok(url) => routes.add(path, url, limits),
                Err(why) => eprintln!("web_app: no route for the rule {path:?}: {why}"),
            }
        }
        Self { rules, ..routes }
    }

    fn add(&mut self, path: &str, url: String, limits: &Limits) {
        if !LIMITED.contains(&path) {
            let service = get("ok").layer(limits.layer(path));
            self.services.insert(url.clone(), service);
        }
        self.urls.insert(path.to_owned(), url);
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The URL of the rule with this path.
    pub(crate) fn url(&self, path: &str) -> Option<&str> {
        self.urls.get(path).map(String::as_str)
    }
}
