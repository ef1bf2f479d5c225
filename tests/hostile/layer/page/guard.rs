//! Only the page itself can change something: no other site, no name that leads here by DNS.

use super::*;

/// Fields of a request with all their values. No value: without the field.
type Fields<'a> = [(&'static str, &'a [&'a str])];

/// The genuine request with these fields instead of its own.
fn altered(what: &str, fields: &Fields<'_>) -> Request<Body> {
    let mut request = posted(what, about("alice", 60).to_string());
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
async fn expect_refused(app: &App, fields: &Fields<'_>) -> Vec<String> {
    app.use_up("alice").await;
    let mut said = Vec::new();
    for what in ["reset", "let-through", "block"] {
        let answer = app.send(altered(what, fields)).await;
        said.push(answer.expect_refusal(&format!("{what} {fields:?}")));
        assert_eq!(app.search("alice").await, 429, "{what} {fields:?}");
        let limited = app.view("limited").await;
        let found = [&limited["let_through"], &limited["blocked"]];
        assert_eq!(found, [&json!([]); 2]);
    }
    said
}

async fn expect_allowed(app: &App, fields: &Fields<'_>) {
    app.use_up("alice").await;
    let answer = app.send(altered("reset", fields)).await;
    answer.expect_ok(&format!("{fields:?}"));
    assert_eq!(app.search("alice").await, 200, "{fields:?}");
}

/// Words in pairs: a host, and an origin.
fn pairs(text: &str) -> Vec<[&str; 2]> {
    let words = words(text);
    words.chunks(2).map(|pair| [pair[0], pair[1]]).collect()
}

async fn expect_all_refused(app: &App, hosts_and_origins: &[[&str; 2]]) {
    for [host, origin] in hosts_and_origins {
        expect_refused(app, &[("host", &[host]), ("origin", &[origin])]).await;
    }
}

async fn expect_all_allowed(app: &App, hosts_and_origins: &[[&str; 2]]) {
    for [host, origin] in hosts_and_origins {
        expect_allowed(app, &[("host", &[host]), ("origin", &[origin])]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_needs_json_and_a_field_of_its_own() {
    let app = App::new(Page::allow_changes);
    expect_allowed(&app, &[]).await;
    for kind in [
        "application/x-www-form-urlencoded",
        "text/plain",
        "text/plain;charset=UTF-8",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "text/plain, application/json",
        "application/jsonp",
        "application/json-seq",
        "",
    ] {
        expect_refused(&app, &[("content-type", &[kind])]).await;
    }
    expect_refused(&app, &[("content-type", &[])]).await;
    expect_refused(&app, &[("x-tidegate", &[])]).await;
    for json in ["application/json; charset=utf-8", "Application/JSON"] {
        expect_allowed(&app, &[("content-type", &[json])]).await;
    }
    let form_of_another_site: [(_, &[&str]); 4] = [
        ("content-type", &["text/plain"]),
        ("x-tidegate", &[]),
        ("origin", &["http://evil.example"]),
        ("sec-fetch-site", &["cross-site"]),
    ];
    expect_refused(&app, &form_of_another_site).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_needs_the_origin_of_the_page() {
    let app = App::new(Page::allow_changes);
    let evil = "http://evil.example";
    let single = words(
        "http://evil.example null http:// 127.0.0.1:3000 ://127.0.0.1:3000 http://127.0.0.1
        http://127.0.0.1:3001 http://127.0.0.1:30000 http://127.0.0.1:3000.evil.example
        http://127.0.0.1:3000@evil.example http://evil.example#127.0.0.1:3000
        http://evil.example?127.0.0.1:3000 http://evil.example/http://127.0.0.1:3000
        http://localhost:3000 http://127.0.0.1:3000\u{e9}",
    );
    let others = [
        "",
        "http://127.0.0.1:3000 http://evil.example",
        "http://127.0.0.1:3000, http://evil.example",
    ];
    for origin in single.into_iter().chain(others) {
        expect_refused(&app, &[("origin", &[origin])]).await;
    }
    for origins in [&[][..], &[ORIGIN, evil], &[evil, ORIGIN], &[ORIGIN, ORIGIN]] {
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
        // No text.
        &["same-origin\u{e9}"],
    ] {
        expect_refused(&app, &[("sec-fetch-site", sites)]).await;
    }
    expect_allowed(&app, &[("sec-fetch-site", &["same-origin"])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_leads_here_by_dns_changes_nothing() {
    let app = App::new(Page::allow_changes);
    let hosts = words(
        "evil.example evil.example:3000 127.0.0.1.evil.example localhost.evil.example:3000
        evil.localhost.example notlocalhost localhost@evil.example 127.0.0.1:3000@evil.example
        user@127.0.0.1:3000 127.0.0.1:3000/evil.example 1.2.3 [::1 ::1] [evil.example] :3000 *
        admin.example.com [::1].evil.example [::1]evil.example 127.0.0.1:x",
    );
    for host in hosts.into_iter().chain(["", " "]) {
        let origin = format!("http://{host}");
        let fields = [("host", &[host][..]), ("origin", &[&*origin][..])];
        let said = expect_refused(&app, &fields).await;
        if !host.contains(['@', '[', ']', '/', ' ', '*']) && host.contains("example") {
            assert!(said.iter().all(|it| it.contains("hosts")), "{said:?}");
        }
    }
    let evil = "evil.example";
    for hosts in [&[][..], &[HOST, evil], &[evil, HOST], &[evil]] {
        expect_refused(&app, &[("host", hosts)]).await;
    }
    let right = "localhost http://localhost LOCALHOST:3000 http://localhost:3000
        [::1]:3000 http://[::1]:3000 [::1] http://[::1]
        [2001:DB8::7]:80 http://[2001:db8::7]:80 192.0.2.7:8443 https://192.0.2.7:8443";
    expect_all_allowed(&app, &pairs(right)).await;
}

/// HTTP/2 has `:authority`, which is the request's address here; HTTP/1 may have both.
#[tokio::test(start_paused = true)]
async fn an_authority_is_a_host() {
    let app = App::new(Page::allow_changes);
    let (evil, path) = ("http://evil.example", "/limits/api/reset");
    for (authority, origin, host) in [
        (evil, evil, None),
        (evil, evil, Some(HOST)),
        ("http://user@127.0.0.1:3000", evil, None),
        ("", ORIGIN, None),
        (ORIGIN, evil, Some("evil.example")),
    ] {
        app.use_up("alice").await;
        let fields = [("origin", &[origin][..]), ("host", host.as_slice())];
        let request = with_uri(altered("reset", &fields), &format!("{authority}{path}"));
        let answer = app.send(request).await;
        answer.expect_refusal(&format!("{authority} {origin} {host:?}"));
        assert_eq!(app.search("alice").await, 429);
    }
    for origin in [ORIGIN, "https://localhost", "https://[::1]:8443"] {
        app.use_up("alice").await;
        let fields = [("origin", &[origin][..]), ("host", &[])];
        let request = with_uri(altered("reset", &fields), &format!("{origin}{path}"));
        app.send(request).await.expect_ok(origin);
    }
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
        let wrong = "evil.example http://evil.example evil.example null
            evil.example:3000 http://evil.example:3000";
        expect_all_refused(&app, &pairs(wrong)).await;
        expect_all_refused(&app, &[["", "http://"]]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_to_read_changes_nothing_and_names_the_setting() {
    let app = App::new(|page| page.show_keys().hosts(["admin.example.com"]));
    for said in expect_refused(&app, &[]).await {
        assert!(said.contains("allow_changes"), "{said}");
    }
    let hosts = "localhost https://admin.example.com localhost http://localhost";
    expect_all_refused(&app, &pairs(hosts)).await;
    assert_eq!(app.view("now").await["changes_allowed"], false);
}

/// A change is a POST: nothing that a link, a picture or a prefetch can ask for.
#[tokio::test(start_paused = true)]
async fn other_methods_change_nothing() {
    let app = App::new(Page::allow_changes);
    for method in words("GET HEAD OPTIONS PUT PATCH DELETE TRACE QUERY post") {
        for what in ["reset", "let-through", "block", "key"] {
            app.use_up("alice").await;
            let mut request = altered(what, &[]);
            *request.method_mut() = Method::from_bytes(method.as_bytes()).expect("a method");
            let answer = app.send(request).await;
            let is_options = method == "OPTIONS" && answer.status < 300;
            let is_refused = answer.status == 405 || is_options;
            assert!(is_refused, "{method} {what}: {answer:?}");
            assert_eq!(app.search("alice").await, 429, "{method} {what}");
        }
    }
}
