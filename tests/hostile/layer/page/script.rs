//! Text that an attacker chose stays text: in keys, paths, rules, plans, actors and files.

use super::*;

const SCRIPT: &str = "</script><script>alert('zorro')</script>\"'&\u{2028}\r\n";

/// Every response, whatever it says, keeps the browser from running anything.
#[track_caller]
fn expect_safe(answer: &Answer, case: &str) {
    let policy = answer.field("content-security-policy");
    for directive in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(directive), "{case}: {directive} {answer:?}");
    }
    assert!(!policy.contains("unsafe"), "{case}");
    assert_eq!(answer.field("x-content-type-options"), "nosniff", "{case}");
    if case.contains("/api/") && !answer.text.is_empty() {
        let kind = answer.field("content-type");
        assert!(kind.starts_with("application/json"), "{case}: {answer:?}");
    }
}

/// It forbids scripts from elsewhere, and is what HTTP says of methods and of unknown paths.
#[tokio::test(start_paused = true)]
async fn every_answer_is_safe() {
    let broken = |_: &Parts| panic!("the actor is broken");
    let app = App::new(|page| page.allow_changes().actor(broken));
    let ask = async |method: &str, path: &str, body: &str| {
        let mut request = posted("x", body.to_owned());
        *request.method_mut() = method.parse().expect("a method");
        *request.uri_mut() = format!("/limits{path}").parse().expect("a path");
        let answer = app.send(request).await;
        expect_safe(&answer, &format!("{method} {path} {}", answer.status));
        answer
    };
    let paths = words("/ /style.css /page.js /api/now /api/hour /api/limited /api/fleet");
    for path in paths.into_iter().chain([""]) {
        let [whole, head] = [ask("GET", path, "").await, ask("HEAD", path, "").await];
        assert_eq!(whole.status, 200, "{path}");
        assert_eq!((head.status, &*head.text), (200, ""), "{path}");
        assert_eq!(head.field("content-type"), whole.field("content-type"));
        for method in words("POST PUT DELETE PATCH OPTIONS") {
            let answer = ask(method, path, "{}").await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert!(answer.field("allow").contains("GET"), "{method} {path}");
        }
    }
    for path in words("/api/key /api/reset /api/let-through") {
        for method in words("GET OPTIONS TRACE") {
            let answer = ask(method, path, "").await;
            let seen = (answer.status, answer.field("allow"));
            assert_eq!(seen, (405, "POST"), "{method} {path}");
        }
        let whole = about("alice", 60).to_string();
        for body in ["{}", "{", "[]", "null", "\u{feff}{}", &whole] {
            ask("POST", path, body).await;
        }
    }
    for path in words(
        "/api /api/ /api/nothing /api/now/ /api/now/x /api/NOW /../style.css /%2e%2e/Cargo.toml
        /..%2f..%2fetc%2fpasswd /%00 /%ff%fe /index.html%00.js /api/now%0d%0ax:y /assets/../mod.rs
        /page.rs /mod.rs /nothing",
    ) {
        let answer = ask("GET", path, "").await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    assert_eq!(ask("GET", "/api/now?after=x", "").await.status, 400);
    assert_eq!(app.get("/limitsapi/now").await.status, 404);
    let tag = app.get_view("fleet").await.head["etag"].clone();
    let mut request = empty(Method::GET, "/limits/api/fleet");
    request.headers_mut().insert("if-none-match", tag);
    let answer = app.send(request).await;
    assert_eq!(answer.status, 304);
    expect_safe(&answer, "304");
}

#[tokio::test(start_paused = true)]
async fn script_in_rules_keys_plans_and_actors_stays_text() {
    let rule = Rule::new(SCRIPT, [Quota::per_hour(2)]).expect("any path is a name");
    let quotas = Quotas::new([Quota::per_hour(9)]).expect("quotas");
    let rule = rule.with_plan(SCRIPT, quotas).expect("any plan is a name");
    let limits = Limits::new([rule, hourly("search", 2)]);
    let actor = |_: &Parts| Some(SCRIPT.repeat(9));
    let app = App::keyed(limits, |page| page.allow_changes().show_keys().actor(actor));
    sleep(millis(1_500)).await;
    app.use_up("<script>alert('zorro')</script>").await;
    for _ in 0..4 {
        let _ = app.limits.check(SCRIPT, SCRIPT).await;
    }
    sleep(Duration::from_secs(2)).await;
    let key = Key::from(SCRIPT);
    let body = json!({"rule": SCRIPT, "key": key.as_str(), "seconds": 60});
    app.done("let-through", body).await;
    sleep(Duration::from_secs(2)).await;
    let limited = app.view("limited").await;
    let row = &limited["let_through"][0];
    assert_eq!([&row["rule"], &row["key"]], [SCRIPT, key.as_str()]);
    let by = row["by"].as_str().expect("an actor");
    let is_short = by.chars().count() <= 100;
    assert!(is_short && by.starts_with("</script>"), "{by}");
    assert_eq!(count(&limited["rows"]), Some(2), "{limited}");
    let body = json!({"rule": SCRIPT, "key": key.as_str(), "plan": SCRIPT});
    app.done("key", body).await;
    let unknown = json!({"rule": format!("{SCRIPT}x"), "key": SCRIPT});
    for what in ["key", "reset"] {
        let answer = app.post(what, &unknown).await;
        answer.expect_refusal(what);
        expect_safe(&answer, "/api/");
    }
    for view in GET_VIEWS {
        let answer = app.get_view(view).await;
        expect_safe(&answer, "/api/");
        answer.json();
    }
    for index in ["/limits", "/limits/"] {
        let mut request = empty(Method::GET, index);
        let agent = "<script>zorro</script>".parse().expect("a value");
        request.headers_mut().insert("user-agent", agent);
        let answer = app.send(request).await;
        assert!(!answer.text.contains("zorro") && !answer.text.contains("alert("));
    }
}

/// The base is never another host, and nothing of the address breaks out of the attribute.
#[tokio::test(start_paused = true)]
async fn the_address_does_not_break_out_of_the_index() {
    let page = Limits::new([hourly("search", 2)]).page();
    let apps = ["/{a}", "/{a}/{b}", "/{a}/{b}/{c}"].map(|at| {
        let page = page.clone();
        let app = Router::new().nest_service(at, page.clone().router());
        app.fallback_service(page.router())
    });
    for app in apps {
        expect_no_way_out(&app).await;
    }
}

async fn expect_no_way_out(app: &Router) {
    for path in words(
        r#"//evil.example //evil.example/ ///evil.example /\evil.example /\/evil.example
        /\\evil.example/ /javascript:alert(1) /javascript:alert(1)// /data:text/html,x
        /x"onload="alert(1) /x'onload='alert(1) /x%22%3E%3Cscript%3Ezorro%3C/script%3E /x"/zorro
        /zorro"{}|^` /%2F%2Fevil.example /%5Cevil.example /https:evil.example
        /https://evil.example /.. /../.. /%2e%2e/ /. /; /?"zorro /x?<zorro> /&quot;zorro
        /%0a%0dzorro /a/b/https: /a//evil.example"#,
    ) {
        let Ok(uri) = path.parse::<http::Uri>() else {
            continue;
        };
        let request = Request::get(uri).header("host", HOST).body(Body::empty());
        let answer = send(app, request.expect("a request")).await;
        assert!(answer.status < 500, "{path}: {answer:?}");
        expect_safe(&answer, path);
        if answer.status != 200 || !answer.text.contains("<base") {
            continue;
        }
        let (before, rest) = answer.text.split_once("<base href=\"").expect("a base");
        let (base, after) = rest.split_once('"').expect("it ends");
        let case = format!("{path}: {base} {after:.40}");
        assert!(after.starts_with('>') || after.starts_with(" />"), "{case}");
        let is_right = base.starts_with("./") && !base[2..].starts_with('/');
        assert!(is_right, "{case}");
        assert!(!base.contains(['<', '>', '\'', '\n', '\r']), "{case}");
        let is_so = !before.contains("zorro") && !after.contains("zorro");
        assert!(is_so, "{case}");
    }
}

/// Whoever names himself writes no line of the log.
#[tokio::test(start_paused = true)]
async fn an_actor_forges_no_line_of_the_log() {
    let log = kit::full_log::Log::start();
    let actor = "mallory\n WARN forged: alice did it\r\n\u{1b}[31mred\u{2028}";
    let app = App::new(|page| page.allow_changes().actor(|_| Some(actor.to_owned())));
    app.play("use-up alice; let-through alice 60; reset alice")
        .await;
    let lines = log.lines();
    let who = lines.iter().filter(|line| line.contains("mallory")).count();
    assert_eq!(who, 2, "both changes name who did it: {lines:#?}");
    for line in &lines {
        assert!(!line.trim_start().starts_with("WARN forged"), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}
