//! The callbacks of the guides, which `tests/clients.sh` shows to real clients.

#[path = "../clients/recipes.rs"]
mod code;

use super::*;

/// Whatever formatting changes is left out.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

fn guide(name: &str) -> String {
    fs::read_to_string(kit::root().join(format!("docs/{name}.md"))).expect("a guide")
}

#[test]
fn the_guides_have_them() {
    let guides = ["clients", "cookbook"].map(|name| squeezed(&guide(name)));
    let code = include_str!("../clients/recipes.rs");
    for recipe in code.split("pub(crate) ").skip(1) {
        let recipe = recipe.split_inclusive("\n}\n").next().expect("a function");
        let is_in = guides.iter().any(|it| it.contains(&squeezed(recipe)));
        assert!(is_in, "no guide has\n{recipe}");
    }
}

#[tokio::test]
async fn what_they_answer() {
    let denied = || RateLimitLayer::new("p", WINDOW, 0);
    for (layer, expected) in [
        (
            denied().degrade_fn(code::events),
            "200 text/event-stream retry: 60001\n\n",
        ),
        (
            denied().degrade_fn(code::token),
            r#"429 application/json {"error":"slow_down","error_description":"too many requests"}"#,
        ),
        (
            denied().degrade_fn(code::buckets),
            "503 text/plain; charset=utf-8 <Error><Code>SlowDown</Code></Error>",
        ),
    ] {
        let asked = request("/p", "accept: text/event-stream");
        let answer = call(&app_at("/p", layer), asked).await;
        let (status, kind) = (answer.status().as_u16(), &answer.headers()["content-type"]);
        let head = format!("{status} {} ", kind.to_str().expect("text"));
        assert_eq!(answer.headers()["cache-control"], "no-store");
        assert_eq!(head + &text(answer).await, expected);
    }
    let models = send(&app_at("/p", denied().degrade_fn(code::models)), "/p").await;
    let error: serde_json::Value = serde_json::from_str(&text(models).await).expect("JSON");
    assert_eq!(error["error"]["type"], "insufficient_quota");
}

/// Status and fields are those of a layer without it, but for the type of the body, and `vary`.
#[tokio::test(start_paused = true)]
async fn a_page_for_a_person() {
    let limits = of_toml("status = 503\n[rules.p]\nmax-count = 1\nwindow = '1m'");
    let plain = app_at("/{*path}", limits.layer("p"));
    let with_page = app_at("/{*path}", limits.layer("p").degrade_fn(code::page));
    let path = "/a&lt;b";
    assert_eq!(status(&plain, path).await, OK);
    for (fields, is_page) in [
        ("", false),
        ("accept: */*", false),
        ("accept: application/json", false),
        ("sec-fetch-mode: cors, accept: */*", false),
        ("sec-fetch-mode: navigate", true),
        ("accept: text/html;q=0.9", true),
    ] {
        let own = answered(&plain, path, fields).await;
        let (status, headers, body) = answered(&with_page, path, fields).await;
        let kind = if is_page {
            "text/html"
        } else {
            "application/problem+json"
        };
        let mut expected = own.1;
        expected.insert("vary", HeaderValue::from_static("accept, sec-fetch-mode"));
        expected.insert("content-type", HeaderValue::from_static(kind));
        assert_eq!((status.as_u16(), headers), (503, expected), "{fields}");
        let shown = "<!doctype html><p>Too many requests for /a&amp;lt;b";
        assert_eq!(body, if is_page { shown } else { &own.2 }, "{fields}");
    }
}

/// The answer's status, its fields but the length, and its text.
async fn answered(app: &Router, path: &str, fields: &str) -> (StatusCode, HeaderMap, String) {
    let (mut head, body) = call(app, request(path, fields)).await.into_parts();
    head.headers.remove("content-length");
    (head.status, head.headers, text(Response::new(body)).await)
}

/// Nobody is told of the quotas that all share, when they are used up, either.
#[tokio::test(start_paused = true)]
async fn hidden_quotas() {
    for (heading, path, hidden, expected) in [
        (
            "Several tenants on one upstream",
            "upstream",
            "upstream",
            50,
        ),
        ("Who pays comes first", "api", "everyone", 10),
    ] {
        let cookbook = guide("cookbook");
        let recipe = cookbook.split(&format!("### {heading}\n")).nth(1);
        let toml = recipe
            .and_then(|it| it.split("```").nth(1))
            .expect("a block");
        let limits = of_toml(toml.trim_start_matches("toml"));
        let world = World::with_layers(limits, &[path], |layer| layer);
        let fields = "x-tenant: a, x-api-key: k";
        let at_once = format!("{fields}, x-hold: 1");
        let mut answers = join_all((0..9).map(|_| world.ask(path, &at_once))).await;
        for _ in 0..50 {
            answers.push(world.ask(path, fields).await);
        }
        let told = answers
            .iter()
            .map(|it| format!("{:?} {}", it.fields, it.body));
        let told: Vec<_> = told.filter(|it| it.contains(hidden)).collect();
        assert!(told.is_empty(), "{heading}: {told:#?}");
        let admitted = answers.iter().filter(|it| it.status == 200).count();
        assert_eq!(admitted, expected, "{heading}");
    }
}
