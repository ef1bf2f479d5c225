use std::sync::Arc;

use axum::Router;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::HeaderMap;

use super::assets::{ASSETS, INDEX};
use super::cache::Cache;
use super::views::View;
use super::{Page, keys};
use crate::rule::Factor;
use crate::store::OperatorKind;

/// Only the page's own files run, and only this server is asked. Texts of clients and of files
/// never become anything but text, wherever they end up.
const FIELDS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
         connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// What the handlers of a page share.
pub(super) struct PageState {
    pub(super) page: Page,
    cache: Cache,
}

pub(super) fn router(page: Page) -> Router {
    let cache = Cache::default();
    let files = ASSETS.into_iter().fold(Router::new(), |router, file| {
        let (path, text) = file;
        let kind = if path.ends_with(".css") {
            "text/css; charset=utf-8"
        } else {
            "text/javascript; charset=utf-8"
        };
        let fields = [
            (header::CONTENT_TYPE, kind),
            // Another build of the service has another page.
            (header::CACHE_CONTROL, "no-cache"),
        ];
        router.route(path, get((fields, text)))
    });
    let set = |kind: fn(Option<Factor>) -> Option<OperatorKind>| {
        move |State(state): State<_>, request: Request| keys::set(kind, state, request)
    };
    let views = Router::new()
        .route("/api/now", get(view))
        .route("/api/hour", get(view))
        .route("/api/limited", get(view))
        .route("/api/fleet", get(view))
        .route("/api/key", post(keys::look))
        .route("/api/reset", post(keys::reset))
        .route(
            "/api/let-through",
            post(set(|_| Some(OperatorKind::LetThrough))),
        )
        .route("/api/block", post(set(|_| Some(OperatorKind::Blocked))))
        .route("/api/raise", post(set(|it| it.map(OperatorKind::Raised))))
        .with_state(Arc::new(PageState { page, cache }));
    let fields = map_response(|mut response: Response| {
        for (name, value) in FIELDS {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        async { response }
    });
    files.route("/", get(index)).merge(views).layer(fields)
}

/// The page. Its links are relative to its own path, which may be without a slash at its end.
async fn index(OriginalUri(uri): OriginalUri) -> Response {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let mut base = String::from("<base href=\"./");
    for letter in last.chars() {
        match letter {
            '"' | '<' | '>' | '&' | '\'' => {
                use std::fmt::Write;
                let _ = write!(base, "&#{};", u32::from(letter));
            }
            letter => base.push(letter),
        }
    }
    base.push_str(if last.is_empty() { "\">" } else { "/\">" });
    let fields = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (fields, INDEX.replacen("<!--base-->", &base, 1)).into_response()
}

/// A view as JSON, or that it is the one that the browser has.
async fn view(State(state): State<Arc<PageState>>, request: Request) -> Response {
    let page = &state.page;
    page.limits.watch_for_page();
    let Some(view) = View::from_uri(request.uri()) else {
        let message = "after is no number, expected the tick of an earlier answer";
        return keys::refuse(StatusCode::BAD_REQUEST, message);
    };
    if matches!(view, View::Limited | View::Fleet) {
        page.limits.reports.want_fleet();
    }
    let (tag, text) = state.cache.get(page, view);
    let fields = [
        (header::CONTENT_TYPE, "application/json"),
        // The browser asks each time, and gets it again only if it has changed.
        (header::CACHE_CONTROL, "private, no-cache"),
        (header::ETAG, &*tag),
    ];
    if is_known(request.headers(), &tag) {
        (StatusCode::NOT_MODIFIED, fields).into_response()
    } else {
        (fields, text).into_response()
    }
}

fn is_known(fields: &HeaderMap, tag: &str) -> bool {
    let known = fields.get_all(header::IF_NONE_MATCH).iter();
    let known = known.filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|known| known.split(','));
    known.any(|one| one.trim().trim_start_matches("W/") == tag)
}
