//! What docs/migrating.md says of the settings of others.

use axum::routing::post as on_post;
use tidegate::Resilient;

use crate::*;

/// Kong's `fault_tolerant`: of the shares that `.processes(n)` brings only the rule can say no.
#[tokio::test]
async fn kong_without_a_store() {
    for (on_error, processes, expected) in [
        ("", None, 503),
        ("", Some(2), 200),
        ("on-error = 'respond'", Some(2), 503),
        ("on-error = 'proceed'", Some(2), 200),
    ] {
        let limits = of_toml(&format!(
            "[rules.p]\nmax-count = 3\nwindow = '1m'\n{on_error}"
        ));
        let store = Resilient::bare(Stub::down());
        let limits = match processes {
            None => limits.store(store),
            Some(number) => limits.store(store.processes(number)),
        };
        let answer = send(&app_at("/p", limits.layer("p")), "/p").await;
        assert_eq!(answer.status(), expected, "{on_error} {processes:?}");
    }
}

/// Kong's `paths`: a prefix of theirs is no route here, and nothing counts what has none.
#[tokio::test]
async fn prefixes() {
    let limits = of_toml("[rules.orders]\nmax-count = 9\nwindow = '1m'");
    let handler = || on_post(async || "1");
    let orders = Router::new()
        .route("/", handler())
        .route("/{id}", handler());
    let app = Router::new().nest("/orders", orders.layer(limits.layer("orders")));
    for (path, is_post, status, charged) in [
        ("/orders", true, 200, 1),
        ("/orders/7", true, 200, 2),
        ("/orders/7", false, 405, 3),
        ("/orders/", true, 404, 3),
        ("/ordersxyz", true, 404, 3),
    ] {
        let request = if is_post { post(path, "") } else { get(path) };
        let answer = call(&app, request).await;
        let found = (answer.status().as_u16(), counted(&limits, "orders").units);
        assert_eq!(found, (status, charged), "{path}");
    }
}

/// Where a gateway counts all methods, a layer around `any` does.
#[test]
#[should_panic(expected = "before")]
fn a_route_layer_around_any() {
    let _: axum::routing::MethodRouter =
        any(async || "1").route_layer(RateLimitLayer::new("p", WINDOW, 1));
}

/// nginx's `rate=6r/m burst=3 delay=1`, and `nodelay`: when each of six requests at once is
/// answered, in seconds, and how.
#[tokio::test(start_paused = true)]
async fn nginx_bursts() {
    for (burst, wait, expected) in [
        (
            2,
            20,
            [(0, 200), (0, 200), (0, 429), (0, 429), (10, 200), (20, 200)],
        ),
        (
            4,
            0,
            [(0, 200), (0, 200), (0, 200), (0, 200), (0, 429), (0, 429)],
        ),
    ] {
        let quota = Quota::per_minute(6).with_burst(burst).expect("valid");
        let rule = Rule::new("login", [quota]).expect("valid");
        let layer = RateLimitLayer::from_rule(rule.with_algorithm(Algorithm::Gcra));
        let app = app_at("/", layer.store(paused()).wait(wait * SECOND));
        let began = Instant::now();
        let mut answers = join_all((0..6).map(async |_| {
            let status = status(&app, "/").await.as_u16();
            (began.elapsed().as_secs(), status)
        }))
        .await;
        answers.sort_unstable();
        assert_eq!(answers, expected, "burst {burst}");
    }
}

/// bucket4j's `http-response-body` is of one filter: of some layers, by callbacks that capture it.
#[tokio::test]
async fn a_body_of_some_layers() {
    let file =
        "[rules.api]\nmax-count = 0\nwindow = '1m'\n[rules.login]\nmax-count = 0\nwindow = '1m'";
    let limits = of_toml(file);
    let body = r#"{"error":"too many"}"#;
    let (answer, kept) = ((DENIED, body), body.to_owned());
    let api = limits.layer("api");
    let api = api.degrade_fn(move |_| async move { answer });
    let other = limits.layer("api").degrade_fn(move |_| {
        let kept = kept.clone();
        async move { kept }
    });
    for (layer, is_ours) in [(api, true), (other, true), (limits.layer("login"), false)] {
        let answer = text(send(&app_at("/", layer), "/").await).await;
        assert_eq!(answer == body, is_ours, "{answer}");
    }
}
