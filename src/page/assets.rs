/// The page itself; `<!--base-->` is where its base goes.
pub(super) const INDEX: &str = include_str!("assets/index.html");

/// The other files of the page, by what stands behind its path.
pub(super) const ASSETS: [(&str, &str); 13] = [
    ("/style.css", include_str!("assets/style.css")),
    ("/actions.js", include_str!("assets/actions.js")),
    ("/api.js", include_str!("assets/api.js")),
    ("/chart.js", include_str!("assets/chart.js")),
    ("/confirm.js", include_str!("assets/confirm.js")),
    ("/fleet.js", include_str!("assets/fleet.js")),
    ("/limited.js", include_str!("assets/limited.js")),
    ("/now.js", include_str!("assets/now.js")),
    ("/one_key.js", include_str!("assets/one_key.js")),
    ("/page.js", include_str!("assets/page.js")),
    ("/rows.js", include_str!("assets/rows.js")),
    ("/series.js", include_str!("assets/series.js")),
    ("/words.js", include_str!("assets/words.js")),
];
