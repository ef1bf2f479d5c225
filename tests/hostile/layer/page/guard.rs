//! Only the page itself can change something: no other site, no name that leads here by DNS.

use super::*;

/// The genuine request with these fields instead of its own. No value: without the field.
fn altered(what: &str, fields: &[(&'static str, &[&str])]) -> Request<Body> {
    let body = json!({"rule": "search", "key": "alice", "seconds": 60});
    let mut request = posted(what, body.to_string());
    for (name, values) in fields {
        request.headers_mut().remove(*name);
        for value in *values {
            let value = http::HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            request.headers_mut().append(*name, value);
        }
    }
    request
}

fn with_uri(mut request: Request<Body>, uri: &str) -> Request<Body> {
    *request.uri_mut() = uri.parse().expect("an address");
    request
}

/// Refused, with nothing changed, and what it says.
async fn expect_refused(app: &App, fields: &[(&'static str, &[&str])]) -> Vec<String> {
    app.use_up("alice").await;
    let mut said = Vec::new();
    for what in ["reset", "let-through", "block"] {
        let answer = app.send(altered(what, fields)).await;
        said.push(answer.expect_refusal(&format!("{what} {fields:?}")));
        assert_eq!(app.search("alice").await, 429, "{what} {fields:?}");
        let limited = app.view("limited").await;
        assert_eq!(
            [&limited["let_through"], &limited["blocked"]],
            [&json!([]); 2]
        );
    }
    said
}

async fn expect_allowed(app: &App, fields: &[(&'static str, &[&str])]) {
    app.use_up("alice").await;
    let answer = app.send(altered("reset", fields)).await;
    answer.expect_ok(&format!("{fields:?}"));
    assert_eq!(app.search("alice").await, 200, "{fields:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_needs_json_and_a_field_of_its_own() {
    let app = App::new(Page::allow_changes);
    expect_allowed(&app, &[]).await;
    for types in [
        &["application/x-www-form-urlencoded"][..],
        &["text/plain"],
        &["text/plain;charset=UTF-8"],
        &["multipart/form-data; boundary=x"],
        &["text/plain; application/json"],
        &["text/plain, application/json"],
        &["application/jsonp"],
        &["application/json-seq"],
        &[""],
        &[],
    ] {
        expect_refused(&app, &[("content-type", types)]).await;
    }
    expect_refused(&app, &[("x-tidegate", &[])]).await;
    for json in ["application/json; charset=utf-8", "Application/JSON"] {
        expect_allowed(&app, &[("content-type", &[json])]).await;
    }
    // What a form of another site sends.
    expect_refused(
        &app,
        &[
            ("content-type", &["text/plain"]),
            ("x-tidegate", &[]),
            ("origin", &["http://evil.example"]),
            ("sec-fetch-site", &["cross-site"]),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_change_needs_the_origin_of_the_page() {
    let app = App::new(Page::allow_changes);
    for origins in [
        &["http://evil.example"][..],
        &["null"],
        &[],
        &[""],
        &["http://"],
        &["127.0.0.1:3000"],
        &["://127.0.0.1:3000"],
        &["http://127.0.0.1"],
        &["http://127.0.0.1:3001"],
        &["http://127.0.0.1:30000"],
        &["http://127.0.0.1:3000.evil.example"],
        &["http://127.0.0.1:3000@evil.example"],
        &["http://evil.example#127.0.0.1:3000"],
        &["http://evil.example?127.0.0.1:3000"],
        &["http://evil.example/http://127.0.0.1:3000"],
        &["http://localhost:3000"],
        &["http://127.0.0.1:3000 http://evil.example"],
        &["http://127.0.0.1:3000, http://evil.example"],
        &["http://127.0.0.1:3000", "http://evil.example"],
        &["http://evil.example", "http://127.0.0.1:3000"],
        &["http://127.0.0.1:3000", "http://127.0.0.1:3000"],
        &["http://127.0.0.1:3000\u{e9}"],
    ] {
        expect_refused(&app, &[("origin", origins)]).await;
    }
    // A proxy may have ended TLS.
    expect_allowed(&app, &[("origin", &["https://127.0.0.1:3000"])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_comes_from_the_same_origin_by_the_browsers_word() {
    let app = App::new(Page::allow_changes);
    for sites in [
        &["cross-site"][..],
        &["same-site"],
        &["none"],
        &[""],
        &["same-origin, cross-site"],
        &["same-origin", "cross-site"],
        &["cross-site", "same-origin"],
    ] {
        expect_refused(&app, &[("sec-fetch-site", sites)]).await;
    }
    expect_allowed(&app, &[("sec-fetch-site", &["same-origin"])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_browsers_word_that_is_no_text_is_refused() {
    let app = App::new(Page::allow_changes);
    expect_refused(&app, &[("sec-fetch-site", &["same-origin\u{e9}"])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_leads_here_by_dns_changes_nothing() {
    let app = App::new(Page::allow_changes);
    for host in [
        "evil.example",
        "evil.example:3000",
        "127.0.0.1.evil.example",
        "localhost.evil.example:3000",
        "evil.localhost.example",
        "notlocalhost",
        "localhost@evil.example",
        "127.0.0.1:3000@evil.example",
        "user@127.0.0.1:3000",
        "127.0.0.1:3000/evil.example",
        "1.2.3",
        "[::1",
        "::1]",
        "[evil.example]",
        "",
        " ",
        ":3000",
        "*",
        "admin.example.com",
    ] {
        let origin = format!("http://{host}");
        let fields = [("host", &[host][..]), ("origin", &[&*origin][..])];
        let said = expect_refused(&app, &fields).await;
        if !host.contains(['@', '[', ']', '/', ' ', '*']) && host.contains("example") {
            assert!(said.iter().all(|it| it.contains("hosts")), "{said:?}");
        }
    }
    expect_refused(&app, &[("host", &[])]).await;
    expect_refused(&app, &[("host", &[HOST, "evil.example"])]).await;
    expect_refused(&app, &[("host", &["evil.example", HOST])]).await;
    expect_refused(&app, &[("host", &["evil.example"])]).await;

    for (host, origin) in [
        ("localhost", "http://localhost"),
        ("LOCALHOST:3000", "http://localhost:3000"),
        ("[::1]:3000", "http://[::1]:3000"),
        ("[::1]", "http://[::1]"),
        ("[2001:DB8::7]:80", "http://[2001:db8::7]:80"),
        ("192.0.2.7:8443", "https://192.0.2.7:8443"),
    ] {
        expect_allowed(&app, &[("host", &[host]), ("origin", &[origin])]).await;
    }
}

/// No browser knows such a name.
#[tokio::test(start_paused = true)]
async fn an_address_with_something_behind_it_is_no_address() {
    let app = App::new(Page::allow_changes);
    for host in ["[::1].evil.example", "[::1]evil.example", "127.0.0.1:x"] {
        let origin = format!("http://{host}");
        expect_refused(&app, &[("host", &[host]), ("origin", &[&origin])]).await;
    }
}

/// HTTP/2 has `:authority`, which is the request's address here; HTTP/1 may have both.
#[tokio::test(start_paused = true)]
async fn an_authority_is_a_host() {
    let app = App::new(Page::allow_changes);
    let path = "/limits/api/reset";
    let mut refused = vec![
        (
            "http://evil.example/limits/api/reset",
            "http://evil.example",
            None,
        ),
        (
            "http://evil.example/limits/api/reset",
            "http://evil.example",
            Some(HOST),
        ),
        (
            "http://user@127.0.0.1:3000/limits/api/reset",
            "http://evil.example",
            None,
        ),
        (path, ORIGIN, None),
    ];
    refused.push((
        "http://127.0.0.1:3000/limits/api/reset",
        "http://evil.example",
        Some("evil.example"),
    ));
    for (uri, origin, host) in refused {
        app.use_up("alice").await;
        let fields = [("origin", &[origin][..]), ("host", host.as_slice())];
        let answer = app.send(with_uri(altered("reset", &fields), uri)).await;
        answer.expect_refusal(&format!("{uri} {origin} {host:?}"));
        assert_eq!(app.search("alice").await, 429);
    }
    for (uri, origin) in [
        ("http://127.0.0.1:3000/limits/api/reset", ORIGIN),
        ("https://localhost/limits/api/reset", "https://localhost"),
        ("https://[::1]:8443/limits/api/reset", "https://[::1]:8443"),
    ] {
        app.use_up("alice").await;
        let fields = [("origin", &[origin][..]), ("host", &[])];
        let answer = app.send(with_uri(altered("reset", &fields), uri)).await;
        answer.expect_ok(uri);
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_are_exactly_those_of_the_list() {
    let app = App::new(|page| {
        let page = page.allow_changes();
        page.hosts(["Admin.Example.com", "ops.example.com:8443"])
    });
    for (host, origin) in [
        ("admin.example.com", "https://admin.example.com"),
        ("admin.example.com:8443", "https://admin.example.com:8443"),
        ("ADMIN.example.com", "https://admin.example.com"),
        ("ops.example.com:8443", "https://ops.example.com:8443"),
        // A proxy has changed the host.
        ("internal:9000", "https://admin.example.com"),
        ("10.0.0.7:9000", "https://admin.example.com:444"),
        ("internal", "https://ops.example.com:8443"),
    ] {
        expect_allowed(&app, &[("host", &[host]), ("origin", &[origin])]).await;
    }
    for (host, origin) in [
        ("admin.example.com", "https://evil.example"),
        ("admin.example.com", "null"),
        ("evil.example", "https://evil.example"),
        (
            "admin.example.com.evil.example",
            "https://admin.example.com.evil.example",
        ),
        ("internal", "https://admin.example.com.evil.example"),
        ("internal", "https://admin.example.com@evil.example"),
        ("internal", "https://evil.example/admin.example.com"),
        ("internal", "https://xadmin.example.com"),
        ("internal", "https://ops.example.com"),
        ("internal", "https://ops.example.com:844"),
        ("internal", "https://ops.example.com:84430"),
        ("ops.example.com", "https://ops.example.com"),
        ("example.com", "https://example.com"),
    ] {
        expect_refused(&app, &[("host", &[host]), ("origin", &[origin])]).await;
    }
    // The field that only a script may set is needed still.
    let fields = [
        ("origin", &["https://admin.example.com"][..]),
        ("x-tidegate", &[]),
    ];
    expect_refused(&app, &fields).await;
}

/// What stands for every name in other programs, or for none.
#[tokio::test(start_paused = true)]
async fn no_entry_stands_for_every_host() {
    for entry in [
        "*",
        "",
        ".",
        ":",
        ":3000",
        "*.example",
        ".example",
        "https://",
        "/",
    ] {
        let app = App::new(|page| page.allow_changes().hosts([entry]));
        for (host, origin) in [
            ("evil.example", "http://evil.example"),
            ("evil.example:3000", "http://evil.example:3000"),
            ("evil.example", "null"),
            ("", "http://"),
        ] {
            expect_refused(&app, &[("host", &[host]), ("origin", &[origin])]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_to_read_changes_nothing_and_names_the_setting() {
    let app = App::new(|page| page.show_keys().hosts(["admin.example.com"]));
    for said in expect_refused(&app, &[]).await {
        assert!(said.contains("allow_changes"), "{said}");
    }
    for origin in ["https://admin.example.com", "http://localhost"] {
        expect_refused(&app, &[("origin", &[origin]), ("host", &["localhost"])]).await;
    }
    assert_eq!(app.view("now").await["changes_allowed"], false);
}

/// A change is a POST: nothing that a link, a picture or a prefetch can ask for.
#[tokio::test(start_paused = true)]
async fn other_methods_change_nothing() {
    let app = App::new(Page::allow_changes);
    for method in [
        "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "QUERY", "post",
    ] {
        for what in ["reset", "let-through", "block", "key"] {
            app.use_up("alice").await;
            let mut request = altered(what, &[]);
            *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a method");
            let answer = app.send(request).await;
            let is_options = method == "OPTIONS" && answer.status < 300;
            assert!(
                answer.status == 405 || is_options,
                "{method} {what}: {answer:?}"
            );
            assert_eq!(app.search("alice").await, 429, "{method} {what}");
        }
    }
}

/// No other site reads a view: nothing says that it may.
#[tokio::test(start_paused = true)]
async fn no_other_site_is_let_in_by_cors() {
    let app = App::new(Page::allow_changes);
    for method in [Method::GET, Method::OPTIONS, Method::POST] {
        for what in ["now", "limited", "key", "reset", "let-through", "block"] {
            let request = Request::builder()
                .method(method.clone())
                .uri(format!("/limits/api/{what}"))
                .header("host", HOST)
                .header("origin", "http://evil.example")
                .header("access-control-request-method", "POST")
                .header("access-control-request-headers", "x-tidegate,content-type")
                .body(Body::from("{}"));
            let answer = app.send(request.expect("a request")).await;
            let cors = answer
                .head
                .keys()
                .find(|name| name.as_str().starts_with("access-control"));
            assert_eq!(cors, None, "{method} {what}");
        }
    }
}

/// Two pages of one service, for readers and for those who may.
#[tokio::test(start_paused = true)]
async fn a_page_has_its_own_permissions() {
    let app = App::new(|page| {
        let _other = page
            .clone()
            .allow_changes()
            .show_keys()
            .hosts(["evil.example"])
            .router();
        page
    });
    expect_refused(&app, &[]).await;
    let now = app.view("now").await;
    assert_eq!(
        (&now["changes_allowed"], &now["keys_shown"]),
        (&json!(false), &json!(false))
    );
}
