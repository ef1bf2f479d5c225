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
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            request.headers_mut().append(*name, value);
        }
    }
    request
}

/// Refused, with nothing changed, and what it says, in short.
async fn expect_refused(app: &App, fields: &Fields<'_>) -> Vec<String> {
    app.use_up("alice").await;
    let is_other_content = fields.first().is_some_and(|it| it.0 == "content-type");
    let mut said = Vec::new();
    for what in ["reset", "let-through", "block"] {
        let (answer, case) = (
            app.send(altered(what, fields)).await,
            format!("{what} {fields:?}"),
        );
        said.push(answer.expect_refusal(&case));
        assert!(said.iter().all(|it| it.len() <= 500), "{case}");
        let expected = if is_other_content { 415 } else { 403 };
        assert_eq!(answer.status, expected, "{case}");
        assert_eq!(app.search("alice").await, 429, "{case}");
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

/// Values of one field, each in place of that of the page's script. In a value `_` is a blank, `&`
/// begins a second field of the name, `""` is no text, and `-` is no field. A proxy may have ended
/// TLS.
const VALUES: &str = r#"
    allowed | content-type   | application/json;_charset=utf-8 Application/JSON
    refused | content-type   | application/x-www-form-urlencoded text/plain "" -
    refused | content-type   | text/plain;charset=UTF-8 multipart/form-data;_boundary=x
    refused | content-type   | text/plain;_application/json text/plain,_application/json
    refused | content-type   | application/jsonp application/json-seq
    refused | x-tidegate     | -
    allowed | sec-fetch-site | same-origin
    refused | sec-fetch-site | cross-site same-site none "" same-origin,_cross-site same-originé
    refused | sec-fetch-site | same-origin&cross-site cross-site&same-origin
    allowed | origin         | http://127.0.0.1:3000 https://127.0.0.1:3000
    refused | origin         | http://evil.example null http:// 127.0.0.1:3000 ://127.0.0.1:3000
    refused | origin         | http://127.0.0.1 http://127.0.0.1:3001 http://127.0.0.1:30000
    refused | origin         | http://127.0.0.1:3000.evil.example http://127.0.0.1:3000é
    refused | origin         | http://127.0.0.1:3000@evil.example http://localhost:3000 "" -
    refused | origin         | http://evil.example#127.0.0.1:3000 http://evil.example?127.0.0.1:3000
    refused | origin         | http://evil.example/http://127.0.0.1:3000
    refused | origin         | http://127.0.0.1:3000_http://evil.example
    refused | origin         | http://127.0.0.1:3000,_http://evil.example
    refused | origin         | http://127.0.0.1:3000&http://evil.example
    refused | origin         | http://evil.example&http://127.0.0.1:3000
    refused | origin         | http://127.0.0.1:3000&http://127.0.0.1:3000
    refused | host           | - 127.0.0.1:3000&evil.example evil.example&127.0.0.1:3000
    refused | host           | evil.example"#;

#[tokio::test(start_paused = true)]
async fn a_change_is_one_that_the_page_sends() {
    let app = App::new(Page::allow_changes);
    for [verdict, field, values] in kit::table(VALUES) {
        for value in words(values) {
            let value = value.replace('_', " ").replace("\"\"", "");
            let values: Vec<_> = value.split('&').filter(|it| *it != "-").collect();
            match verdict {
                "allowed" => expect_allowed(&app, &[(field, &values)]).await,
                _ => drop(expect_refused(&app, &[(field, &values)]).await),
            }
        }
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
        let said = expect_refused(&app, &[("host", &[host]), ("origin", &[&origin])]).await;
        if !host.contains(['@', '[', ']', '/', ' ', '*']) && host.contains("example") {
            assert!(said.iter().all(|it| it.contains("hosts")), "{said:?}");
        }
    }
    for host in words("localhost LOCALHOST:3000 [::1]:3000 [::1] [2001:DB8::7]:80") {
        let origin = format!("http://{}", host.to_lowercase());
        expect_allowed(&app, &[("host", &[host]), ("origin", &[&origin])]).await;
    }
    let (host, origin) = ("192.0.2.7:8443", "https://192.0.2.7:8443");
    expect_allowed(&app, &[("host", &[host]), ("origin", &[origin])]).await;
}

/// HTTP/2 has `:authority`, which is the request's address here; HTTP/1 may have both.
#[tokio::test(start_paused = true)]
async fn an_authority_is_a_host() {
    let app = App::new(Page::allow_changes);
    let evil = "http://evil.example";
    let ask = async |authority: &str, origin: &str, host: Option<&str>| {
        app.use_up("alice").await;
        let mut request = altered("reset", &[("origin", &[origin]), ("host", host.as_slice())]);
        let uri = format!("{authority}/limits/api/reset").parse();
        *request.uri_mut() = uri.expect("an address");
        app.send(request).await
    };
    for (authority, origin, host) in [
        (evil, evil, None),
        (evil, evil, Some(HOST)),
        ("http://user@127.0.0.1:3000", evil, None),
        ("", ORIGIN, None),
        (ORIGIN, evil, Some("evil.example")),
    ] {
        let answer = ask(authority, origin, host).await;
        answer.expect_refusal(&format!("{authority} {origin} {host:?}"));
        assert_eq!(app.search("alice").await, 429);
    }
    for origin in [ORIGIN, "https://localhost", "https://[::1]:8443"] {
        ask(origin, origin, None).await.expect_ok(origin);
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
        for (host, origin) in [
            ("evil.example", "http://evil.example"),
            ("evil.example", "null"),
            ("evil.example:3000", "http://evil.example:3000"),
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
        expect_refused(&app, &[("host", &["localhost"]), ("origin", &[origin])]).await;
    }
    app.play("now; /changes_allowed = false").await;
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

/// A site that a browser has no origin for, and what only begins as one of the page's hosts.
#[tokio::test(start_paused = true)]
async fn an_origin_is_a_host_and_a_port() {
    let hosts = ["admin.example.com", "ops.example.com:8443"];
    let app = App::new(|page| page.allow_changes().hosts(hosts));
    for origin in words(
        "https://admin.example.com http://admin.example.com https://admin.example.com:8443
        https://admin.example.com:65535 https://ADMIN.example.com:1 https://ops.example.com:8443
        http://127.0.0.1:3000 http://localhost http://localhost:3000 http://[::1]
        http://[::1]:3000",
    ) {
        let host = origin.split_once("://").expect("one").1;
        expect_allowed(&app, &[("origin", &[origin]), ("host", &[host])]).await;
        // A proxy may have changed the host of a name in the list.
        for host in words("internal internal:9000 10.0.0.7:9000 admin.example.com") {
            let fields: [(_, &[_]); 2] = [("origin", &[origin]), ("host", &[host])];
            match origin.contains("example.com") {
                true => expect_allowed(&app, &fields).await,
                false => drop(expect_refused(&app, &fields).await),
            }
        }
    }
    let long = "a".repeat(4_000);
    let wrong = words(
        "admin.example.com:8443.evil.com admin.example.com:x admin.example.com:99999999
        admin.example.com:65536 admin.example.com: admin.example.com:+80 admin.example.com:-1
        admin.example.com:080 admin.example.com:0x50 admin.example.com:80:80 admin.example.com:80.
        admin.example.com::80 admin.example.com. admin.example.com.evil.com
        admin.example.com,evil.com admin.example.com;evil.com admin.example.com%3A80
        admin.example.com%00.evil.com admin.example.com/ admin.example.com/.evil.com
        admin.example.com?evil.com admin.example.com#evil.com admin.example.com@evil.com
        evil.com@admin.example.com evil.com:80@admin.example.com @admin.example.com example.com
        xadmin.example.com evil.com/admin.example.com ops.example.com:844 ops.example.com:84430
        :@admin.example.com [admin.example.com] [admin.example.com]:80 admin.example.com[::1]
        [::1]admin.example.com [::1].evil.com [::1]:80.evil.com [::1]:x [::1]: [::1 ::1
        127.0.0.1:80.evil.com 127.0.0.1:x 127.0.0.1: 127.0.0.1:+80 127.0.0.1.evil.com localhost:x
        localhost:80.evil.com localhost: localhost.evil.com ops.example.com:8443.evil.com
        ops.example.com:08443 ops.example.com :3000 : * null admin.example.com\\.evil.com",
    );
    for authority in wrong.into_iter().chain(["", &long]) {
        for scheme in ["https", "http"] {
            let origin = format!("{scheme}://{authority}");
            for host in [authority, "admin.example.com", "127.0.0.1:3000", "internal"] {
                expect_refused(&app, &[("origin", &[&origin]), ("host", &[host])]).await;
            }
        }
    }
    let wrong = words(
        "ftp://admin.example.com https:admin.example.com https:///admin.example.com
        //admin.example.com admin.example.com https://https://admin.example.com",
    );
    let several = [
        "https://admin.example.com https://evil.com",
        " https://evil.com, https://admin.example.com",
    ];
    for origin in wrong.into_iter().chain(several) {
        expect_refused(
            &app,
            &[("origin", &[origin]), ("host", &["admin.example.com"])],
        )
        .await;
    }
}
