//! The page, whose files are in the binary.

use axum::Router;
use axum::http::header;
use axum::routing::get;

/// Only the page's own files run: text from a file with rules never does, wherever it ends up.
const POLICY: &str = "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// A file of the page.
struct File {
    url: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! file {
    ($url:literal, $name:literal, $kind:literal) => {
        File {
            url: $url,
            kind: concat!("text/", $kind, "; charset=utf-8"),
            text: include_str!(concat!("page/", $name)),
        }
    };
}

const FILES: [File; 12] = [
    file!("/", "index.html", "html"),
    file!("/page/style.css", "style.css", "css"),
    file!("/page/card.js", "card.js", "javascript"),
    file!("/page/counters.js", "counters.js", "javascript"),
    file!("/page/inputs.js", "inputs.js", "javascript"),
    file!("/page/meter.js", "meter.js", "javascript"),
    file!("/page/page.js", "page.js", "javascript"),
    file!("/page/quota.js", "quota.js", "javascript"),
    file!("/page/requests.js", "requests.js", "javascript"),
    file!("/page/time_line.js", "time_line.js", "javascript"),
    file!("/page/try.js", "try.js", "javascript"),
    file!("/page/words.js", "words.js", "javascript"),
];

/// The URLs of the page's files.
pub(crate) fn urls() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.url)
}

/// The routes of the page's files.
pub(crate) fn routes() -> Router {
    FILES
        .iter()
        .fold(Router::new(), |routes, File { url, kind, text }| {
            let fields = [
                (header::CONTENT_TYPE, *kind),
                (header::CONTENT_SECURITY_POLICY, POLICY),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                // Another build of the app has another page.
                (header::CACHE_CONTROL, "no-store"),
            ];
            routes.route(url, get((fields, *text)))
        })
}
