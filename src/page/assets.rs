/// A file of the page.
pub(super) struct Asset {
    /// Behind the path of the page.
    pub(super) url: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

macro_rules! assets {
    ($($name:literal: $kind:literal,)+) => {
        &[$(Asset {
            url: concat!("/", $name),
            content_type: concat!("text/", $kind, "; charset=utf-8"),
            text: include_str!(concat!("assets/", $name)),
        }),+]
    };
}

/// The page itself; `<!--base-->` is where its base goes.
pub(super) const INDEX: &str = include_str!("assets/index.html");

pub(super) const ASSETS: &[Asset] = assets![
    "style.css": "css",
    "actions.js": "javascript",
    "api.js": "javascript",
    "chart.js": "javascript",
    "confirm.js": "javascript",
    "fleet.js": "javascript",
    "limited.js": "javascript",
    "now.js": "javascript",
    "one_key.js": "javascript",
    "page.js": "javascript",
    "rows.js": "javascript",
    "series.js": "javascript",
    "words.js": "javascript",
];
