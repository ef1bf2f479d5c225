//! What operators do.

use super::*;

#[tokio::test]
async fn change_limits_while_running() -> Outcome {
    let rule = |max| format!("[rules.api]\nmax-count = {max}\nwindow = '1m'\n");
    let file = LimitsFile::new(rule(1));
    let (client, limits, _redis) = limiting(file.limits(), "api").await;
    limits.watch(&file.path)?;

    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
    file.write(rule(3));
    let applies = async || client.status("GET /", &[]).await == 200;
    eventually("the new rule applies", applies).await;
    file.write(rule(-1));
    // What the watcher does by itself, a little later.
    assert!(limits.reload(&file.path).is_err());
    let error = limits.status().error.expect("a mistake").to_string();
    assert!(error.contains("limits.toml:2"), "{error}");
    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
    Ok(())
}

#[tokio::test]
async fn dry_run() {
    let limits = of_toml(
        r#"
        [rules.export]
        max-count = 1
        window = "1m"
        shadow = true               # the whole rule

        [rules.api]
        max-count = 3
        window = "1m"
        [rules.api-next]            # a new limit beside the old one
        max-count = 1
        window = "1m"
        shadow = true
        "#,
    );
    let (export, limits, _redis) = limiting(limits, "export").await;
    assert_eq!(export.statuses("GET /", &[]).await, [200; 4]);
    let layers = limited(limits.layer("api")).layer(limits.layer("api-next"));
    let api = serve(layers).await;
    assert_eq!(api.statuses("GET /", &[]).await, [200, 200, 200, 429]);

    let denied = || ["export", "api-next"].map(|rule| crate::counted(&limits, rule));
    let denied = || denied().map(|rule| rule.decisions(DecisionOutcome::ShadowDenied));
    eventually("answers", async || denied() == [3, 3]).await;
    let api = crate::counted(&limits, "api");
    assert_eq!(api.decisions(DecisionOutcome::Denied), 1);
}

/// A process with the page shows whom it denied, and another one obeys.
#[tokio::test]
async fn see_who_is_limited_and_let_this_customer_through() {
    use serde_json::{Value, json};

    let redis = Redis::start();
    let store = store_on(&redis).await;
    let process = || {
        let limits = Limits::new([per_minute("search", 1)]).key(Header::new("x-user"));
        limits.store(store.clone())
    };
    let without_page = process();
    without_page.join_fleet();
    let without_page = serve(limited(without_page.layer("search"))).await;

    let limits = process();
    let page = limits
        .page()
        .allow_changes()
        .show_keys()
        .hosts(["admin.example.com"]);
    let app = limited(limits.layer("search")).nest_service("/limits", page.router());
    let client = serve(app).await;
    let fields = [
        ("host", "admin.example.com"),
        ("origin", "http://admin.example.com"),
        ("content-type", "application/json"),
        ("x-tidegate", "1"),
    ];
    let alice = [("x-user", "alice")];
    let rows = async || {
        client.status("GET /", &alice).await;
        let view = client.send("GET /limits/api/limited", &fields, "").await;
        let view: Value = serde_json::from_str(&view.text).expect("JSON");
        view["rows"].clone()
    };
    eventually("a row", async || rows().await[0].is_object()).await;
    let row = &rows().await[0];
    assert_eq!(row["key"], "alice");
    assert_eq!(without_page.status("GET /", &alice).await, 429);

    let body = json!({"rule": "search", "row": row["row"], "seconds": 60}).to_string();
    let let_through = "POST /limits/api/let-through";
    client
        .send(let_through, &fields, &body)
        .await
        .assert_status(200);
    assert_eq!(client.status("GET /", &alice).await, 200);
    let obeys = async || without_page.status("GET /", &alice).await == 200;
    eventually("the other process lets through", obeys).await;
}

/// By another process than the one that counted, as a tool for the support does it.
#[tokio::test]
async fn unblock_a_customer() -> Outcome {
    let redis = Redis::start();
    let store = store_on(&redis).await;
    let process = || Limits::new([per_minute("login", 1).with_key(PeerIp)]).store(store.clone());
    let client = serve(limited(process().layer("login"))).await;
    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);

    let limits = process();
    let customer: IpAddr = "127.0.0.1".parse()?;
    assert_eq!(left(&limits, "login", customer).await, 0);
    assert!(limits.reset("login", customer).await?, "there was a count");
    assert_eq!(client.statuses("GET /", &[]).await, [200, 429]);
    Ok(())
}

/// Without Redis: its clock cannot be paused.
#[cfg(debug_assertions)]
#[tokio::test(start_paused = true)]
async fn tests_with_a_paused_clock() {
    let limited = RateLimitLayer::new("export", WINDOW, 1);
    let app = Router::new().route("/export", get(async || "report").layer(limited));
    let client = serve(app).await;

    assert_eq!(client.status("GET /export", &[]).await, 200);
    let denied = client.denied("GET /export", &[], "export").await;
    assert_eq!(denied.field("retry-after"), "60");
    advance(WINDOW).await;
    assert_eq!(client.status("GET /export", &[]).await, 200);
}
